"""Parsers of option values: text in, a checked value or an OptionError out.

Each function takes the name of the option, for the error message, and the user's text.
"""

import difflib
import json
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from penstock.client.cluster import parse_brokers
from penstock.spark.range_planning import TOPIC_IDS

INT64_MAX: Final = (1 << 63) - 1


class OffsetsByPartition(NamedTuple):
    """Offset or timestamp of each partition, by topic."""

    partitions: dict[str, dict[int, int]]
    topic_ids: dict[str, str]
    """Ids of the topics, if the value is the offset of a checkpoint."""


class OptionError(ValueError):
    """Invalid option; the message names it, the reason and the allowed values."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Most similar known name; None if no name is similar."""
    by_folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


def text(name: str, value: str) -> str:
    if not value.strip():
        raise OptionError(f"option {name!r} is empty")
    return value.strip()


def flag(name: str, value: str) -> bool:
    folded = value.strip().lower()
    if folded not in ("true", "false"):
        raise OptionError(f"option {name!r} must be true or false, not {value!r}")
    return folded == "true"


def number(low: int, high: int = INT64_MAX) -> Callable[[str, str], int]:
    def parse(name: str, value: str) -> int:
        try:
            found = int(value)
        except ValueError:
            found = low - 1
        if not low <= found <= high:
            bounds = f"at least {low}" if high == INT64_MAX else f"from {low} to {high}"
            raise OptionError(f"option {name!r} must be an integer, {bounds}, not {value!r}")
        return found

    return parse


def choice(*allowed: str) -> Callable[[str, str], str]:
    def parse(name: str, value: str) -> str:
        folded = value.strip().lower()
        if folded not in allowed:
            raise OptionError(f"option {name!r} must be one of {', '.join(allowed)}, not {value!r}")
        return folded

    return parse


def names(name: str, value: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in value.split(",") if part.strip())
    if not found:
        raise OptionError(f"option {name!r} is empty; pass names separated by commas")
    return found


def brokers(name: str, value: str) -> str:
    try:
        parse_brokers(value)
    except ValueError as error:
        raise OptionError(f"option {name!r}: {error}") from None
    return value.strip()


def delay(name: str, value: str) -> int:
    """Milliseconds from a duration such as `15m` or `500ms`."""
    units = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}
    folded = value.strip().lower()
    digits = folded.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = folded[len(digits) :].strip() or "ms"
    if not digits.isdigit() or unit not in units:
        raise OptionError(
            f"option {name!r} must be a duration such as 500ms, 30s or 15m, not {value!r}"
        )
    return int(digits) * units[unit]


def assignment(name: str, value: str) -> dict[str, list[int]]:
    """Partitions by topic, from JSON such as `{"topic": [0, 1]}`."""
    found: Any = _json(name, value)
    good = isinstance(found, dict) and all(
        isinstance(topic, str) and isinstance(parts, list) and all(type(p) is int for p in parts)
        for topic, parts in found.items()
    )
    if not good or not found:
        raise OptionError(f'option {name!r} must be JSON such as {{"orders":[0,1]}}, not {value!r}')
    return {topic: sorted(set(found[topic])) for topic in sorted(found)}


def offsets(*words: str) -> Callable[[str, str], str | OffsetsByPartition]:
    """Parser of one of the words, or of JSON such as `{"topic": {"0": 23, "1": -2}}`."""

    def parse(name: str, value: str) -> str | OffsetsByPartition:
        if value.strip().lower() in words:
            return value.strip().lower()
        found = _json(name, value) if value.strip().startswith("{") else None
        if not isinstance(found, dict) or not found:
            hint = ", ".join([*words, 'JSON such as {"orders":{"0":23,"1":-2}}'])
            raise OptionError(f"option {name!r} must be one of {hint}, not {value!r}")
        ids = found.pop(TOPIC_IDS, {})
        if not isinstance(ids, dict):
            raise OptionError(f"option {name!r}: {TOPIC_IDS} must map topics to their ids")
        partitions = {topic: _by_partition(name, topic, found[topic]) for topic in sorted(found)}
        return OffsetsByPartition(partitions, {str(topic): str(ids[topic]) for topic in ids})

    return parse


def _by_partition(name: str, topic: str, rows: object) -> dict[int, int]:
    if not isinstance(rows, dict) or not rows:
        raise OptionError(f"option {name!r}: topic {topic!r} needs an offset for each partition")
    found: dict[int, int] = {}
    for partition, offset in rows.items():
        if not str(partition).isdigit() or type(offset) is not int or offset < -2:
            raise OptionError(
                f"option {name!r}: {partition!r}: {offset!r} of topic {topic!r} is not a "
                "partition and an offset (-2: earliest, -1: latest)"
            )
        found[int(partition)] = offset
    return dict(sorted(found.items()))


def _json(name: str, value: str) -> object:
    try:
        return json.loads(value)
    except ValueError as error:
        raise OptionError(f"option {name!r} is not valid JSON: {error}; it is {value!r}") from None
