"""What one node is told at start: flags over file over defaults; read once, passed down.

The file is TOML. Beside the few names of our own (`data`, `host`, `kafka-port`, `http-port`,
`node-id`) it takes Kafka's broker config names, quoted or as dotted keys:

    data = "/var/lib/penstock"
    kafka-port = 9092
    num.partitions = 6
    "log.retention.hours" = 72

An unknown name is refused with the nearest right one.
"""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from penstock.cluster.config_types import parse
from penstock.cluster.configs import InvalidConfig, Scope, find


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Everything that one process may choose for itself."""

    data_dir: str = "./penstock-data"
    """Where logs and metadata live; created when missing."""
    host: str = "127.0.0.1"
    """The address to listen on and to advertise. Loopback unless told otherwise."""
    kafka_port: int = 9092
    """0 lets the system choose; the ready line says which."""
    http_port: int = 8080
    node_id: int = 1
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Kafka broker configs by name, as text."""


OWN_NAMES = {
    "data": "data_dir",
    "host": "host",
    "kafka-port": "kafka_port",
    "http-port": "http_port",
    "node-id": "node_id",
}

OWN_NAME_LIKENESS = 0.8


def load(path: str | None, flags: Mapping[str, Any], sets: Mapping[str, str]) -> NodeConfig:
    """The node's config from a file (if any), flags (None: not given) and --set pairs."""
    config = NodeConfig()
    overrides: dict[str, str] = {}
    if path is not None:
        own, overrides = read_file(path)
        config = replace(config, **own)
    known = {f.name for f in fields(NodeConfig)}
    given = {name: value for name, value in flags.items() if value is not None}
    assert known.issuperset(given), f"flags without a field: {sorted(set(given) - known)}"
    config = replace(config, **given)
    overrides.update(sets)
    if (node_id := overrides.pop("node.id", None)) is not None:
        config = replace(config, node_id=_integer("node.id", node_id))
    for name, value in overrides.items():
        parse(find(Scope.BROKER, name), value)
    if config.node_id < 0:
        raise InvalidConfig(f"node id {config.node_id} is negative; choose 0 or more")
    for port in (config.kafka_port, config.http_port):
        if not 0 <= port <= 65535:
            raise InvalidConfig(f"port {port} is not between 0 and 65535")
    if config.kafka_port == config.http_port != 0:
        raise InvalidConfig(f"kafka-port and http-port are both {config.kafka_port}; change one")
    return replace(config, overrides=overrides)


def read_file(path: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Our own settings and Kafka's, from one TOML file."""
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path} is not valid TOML: {error}") from error
    own: dict[str, Any] = {}
    overrides: dict[str, str] = {}
    for name, value in _flatten("", content):
        if name in OWN_NAMES:
            target = OWN_NAMES[name]
            own[target] = _integer(name, value) if "port" in name or "id" in name else str(value)
            continue
        overrides[name] = _as_text(value)
        try:
            parse(find(Scope.BROKER, name), overrides[name])
        except InvalidConfig as error:
            meant = difflib.get_close_matches(name, OWN_NAMES, n=1, cutoff=OWN_NAME_LIKENESS)
            hint = f"unknown name '{name}', did you mean '{meant[0]}'?" if meant else error
            raise InvalidConfig(f"{path}: {hint}") from error
    return own, overrides


def _flatten(prefix: str, table: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Dotted TOML keys arrive as nested tables; Kafka's names are flat."""
    flat: list[tuple[str, Any]] = []
    for key, value in table.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict):
            flat += _flatten(name, value)
        else:
            flat.append((name, value))
    return flat


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return str(value)


def _integer(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool | float):
            raise ValueError(value)
        return int(value)
    except (TypeError, ValueError) as error:
        raise InvalidConfig(f"{name} must be a whole number, not {value!r}") from error
