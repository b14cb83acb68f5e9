"""Kafka configs: types, limits, parsing and showing of values.

Owns: the row type of `config_table`, the validators, and parsing. A config's value travels as text
(that is how Kafka's admin APIs carry it) and is parsed here, once, into a Python value.
Invariant: `parse` accepts exactly what Kafka 4.3 accepts for the same row, and refuses with Kafka's
wording, because tools show that wording to users.
Elsewhere: the rows (`config_table`), and the value in force (`effective_configs`).
"""

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address, ip_network
from typing import TypeAlias

import msgspec

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None


class ConfigType(enum.IntEnum):
    """Types with the numbers of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(enum.IntEnum):
    """Sources of a value, with the numbers of DescribeConfigs."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


class Scope(enum.Enum):
    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


class UpdateMode(enum.Enum):
    """Ways to change a broker config while the broker runs."""

    READ_ONLY = "read-only"
    CLUSTER_WIDE = "cluster-wide"
    """May change, for every broker or for one."""


class InvalidConfig(ValueError):
    """An invalid value; the text is for the user who set it."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Rule for a parsed value: `check` returns the error, or None."""

    check: Callable[[Value], str | None]
    text: str
    """Valid values, for the documentation."""


def at_least(low: float) -> Limit:
    def check(value: Value) -> str | None:
        assert isinstance(value, int | float)
        return None if value >= low else f"Value must be at least {low}"

    return Limit(check, f"[{low},...]")


def between(low: float, high: float) -> Limit:
    def check(value: Value) -> str | None:
        assert isinstance(value, int | float)
        if value < low:
            return f"Value must be at least {low}"
        return None if value <= high else f"Value must be no more than {high}"

    return Limit(check, f"[{low},...,{high}]")


def one_of(*names: str) -> Limit:
    def check(value: Value) -> str | None:
        return None if value in names else f"String must be one of: {', '.join(names)}"

    return Limit(check, f"[{', '.join(names)}]")


def one_of_any_case(*names: str) -> Limit:
    def check(value: Value) -> str | None:
        if str(value).lower() in names:
            return None
        return f"String must be one of (case insensitive): {', '.join(names)}"

    return Limit(check, f"(case insensitive) [{', '.join(names)}]")


def items_of(*names: str) -> Limit:
    """Limits a list to items of `names`, without duplicates; empty is allowed (KIP-1161)."""

    def check(value: Value) -> str | None:
        assert isinstance(value, tuple)
        if len(set(value)) != len(value):
            return "Duplicate entries are not allowed"
        if any(item not in names for item in value):
            return f"String must be one of: {', '.join(names)}"
        return None

    return Limit(check, f"[{', '.join(names)}]")


def _check_gzip_level(value: Value) -> str | None:
    assert isinstance(value, int)
    return (
        None if value == -1 or 1 <= value <= 9 else "Value must be between 1 and 9 or equal to -1"
    )


def _check_unlimited(value: Value) -> str | None:
    assert isinstance(value, int)
    is_right = value == -1 or value >= 1
    return None if is_right else "must be unlimited (-1) or, equal or greater than 1"


def _check_throttled(value: Value) -> str | None:
    assert isinstance(value, tuple)
    if value in ((), ("*",)):
        return None
    for item in value:
        partition, colon, broker = item.partition(":")
        if not (colon and partition.isdecimal() and broker.isdecimal()):
            return (
                "must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            )
    return None


def _check_counts_by_address(value: Value) -> str | None:
    assert isinstance(value, str)
    try:
        counts_by_address(value)
    except ValueError:
        return "must be a list of address:count, separated by commas, such as 10.0.0.7:200"
    return None


def counts_by_address(text: str) -> dict[str, int]:
    """Parses `10.0.0.7:200,::1:5` by address; raises ValueError for anything else."""
    counts = {}
    for item in split_list(text):
        address, _, count = item.rpartition(":")
        if not (count.isascii() and count.isdecimal()):
            raise ValueError(count)
        counts[str(ip_address(address.strip().strip("[]")))] = int(count)
    return counts


def _check_offset_reset(value: Value) -> str | None:
    assert isinstance(value, str)
    if value in ("earliest", "latest") or reset_duration_ms(value) is not None:
        return None
    return "must be earliest, latest or by_duration:<ISO-8601 duration>"


def reset_duration_ms(text: str) -> int | None:
    """Duration of `by_duration:PT1H` and the like; None for anything else."""
    kind, _, duration = text.partition(":")
    if kind != "by_duration":
        return None
    try:
        length = msgspec.convert(duration, timedelta)
    except msgspec.ValidationError:
        return None
    return int(length.total_seconds() * 1000) if length >= timedelta(0) else None


def _check_key_pairs(value: Value) -> str | None:
    assert isinstance(value, str)
    pairs = [item.strip().partition(":") for item in value.split(",")]
    if all(access_key and secret for access_key, _, secret in pairs):
        return None
    return "must be a list of KEY:SECRET, separated by commas"


def _check_networks(value: Value) -> str | None:
    assert isinstance(value, tuple)
    for item in value:
        try:
            ip_network(item.strip(), strict=False)
        except ValueError:
            return f"must be addresses or networks such as 10.0.0.7 or 10.1.0.0/16, not {item!r}"
    return None


GZIP_LEVEL = Limit(_check_gzip_level, "[1,...,9] or -1")
UNLIMITED_OR_POSITIVE = Limit(_check_unlimited, "-1 or [1,...]")
THROTTLED = Limit(_check_throttled, "[partitionId]:[brokerId],[partitionId]:[brokerId],...")
KEY_PAIRS = Limit(_check_key_pairs, "KEY:SECRET,KEY:SECRET,...")
COUNTS_BY_ADDRESS = Limit(_check_counts_by_address, "ADDRESS:COUNT,ADDRESS:COUNT,...")
NETWORKS = Limit(_check_networks, "ADDRESS,NETWORK/BITS,...")
OFFSET_RESET = Limit(_check_offset_reset, "[latest, earliest, by_duration:PnDTnHnMn.nS]")


@dataclass(frozen=True, slots=True)
class Synonym:
    """Broker config that supplies the default of another config, and the factor of its unit."""

    name: str
    scale: int = 1


@dataclass(frozen=True, slots=True)
class Config:
    """Row of the table."""

    name: str
    type: ConfigType
    default: str | None
    limit: Limit | None
    doc: str
    scope: Scope = Scope.BROKER
    mode: UpdateMode = UpdateMode.READ_ONLY
    synonyms: tuple[Synonym, ...] = ()
    """Broker configs to use, in this order, while the config itself is not set."""
    is_inert: bool = False
    """True if it is only known so that Kafka's config files and tools work; it has no effect."""
    is_internal: bool = False
    """True if it can be set, but is listed only when asked for by name."""

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    @property
    def description(self) -> str:
        if self.is_inert:
            return f"{self.doc} Accepted so that Kafka's settings can be kept; no effect here."
        return self.doc


_RANGES = {
    ConfigType.INT: 2**31,
    ConfigType.SHORT: 2**15,
    ConfigType.LONG: 2**63,
}


def parse(config: Config, text: str | None) -> Value:
    """Parses `text`; raises InvalidConfig with Kafka's wording."""
    value = None if text is None else _convert(config, text)
    if value is not None and config.limit is not None:
        wrong = config.limit.check(value)
        if wrong is not None:
            raise invalid(config, text, wrong)
    return value


def invalid(config: Config, text: str | None, wrong: str) -> InvalidConfig:
    shown = "[hidden]" if config.is_sensitive else text
    return InvalidConfig(f"Invalid value {shown} for configuration {config.name}: {wrong}")


def _convert(config: Config, text: str) -> Value:
    match config.type:
        case ConfigType.BOOLEAN:
            lowered = text.strip().lower()
            if lowered not in ("true", "false"):
                raise invalid(config, text, "Expected value to be either true or false")
            return lowered == "true"
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            return _convert_integer(config, text)
        case ConfigType.DOUBLE:
            return _convert_double(config, text)
        case ConfigType.LIST:
            return split_list(text)
        case ConfigType.PASSWORD:
            return text
    return text.strip()


def _convert_integer(config: Config, text: str) -> int:
    bare = text.strip()
    digits = bare[1:] if bare[:1] in ("-", "+") else bare
    # int() also takes underscores and digits of other scripts, which Kafka does not.
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 20):
        raise invalid(config, text, f"Not a number of type {config.type.name}")
    value = int(bare)
    limit = _RANGES[config.type]
    if not -limit <= value < limit:
        raise invalid(config, text, f"Not a number of type {config.type.name}")
    return value


def _convert_double(config: Config, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value) or "_" in text:
        raise invalid(config, text, "Not a number of type DOUBLE")
    return value


def split_list(text: str) -> tuple[str, ...]:
    """Splits a list config: Kafka trims around commas and reads blank text as empty."""
    bare = text.strip()
    return tuple(item.strip() for item in bare.split(",")) if bare else ()


def show(value: Value) -> str | None:
    """Formats a parsed value as Kafka does."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
    return str(value)
