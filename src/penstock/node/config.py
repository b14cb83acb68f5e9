"""What one node is told at start: flags over file over defaults; read once, passed down.

The file is TOML. Beside the few names of our own (`OWN_NAMES`) it takes Kafka's broker config
names, quoted or as dotted keys. A node of a cluster is told where etcd is, which holds what the
nodes must agree on:

    data = "/var/lib/penstock"
    node-id = 2
    kafka-port = 9092
    rack = "east"
    num.partitions = 6
    "log.retention.hours" = 72

    [etcd]
    endpoints = ["https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.3:2379"]
    ca-file = "/etc/penstock/etcd-ca.pem"

An unknown name is refused with the nearest right one. Kafka's own names of what we call otherwise
(`ALIASES`) mean the same; told by both names, they must agree.
"""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from penstock.cluster.configs.config_types import parse, split_list
from penstock.cluster.configs.configs import InvalidConfig, Scope, find
from penstock.cluster.metadata.store_keys import EVERYWHERE
from penstock.runtime.etcd.config import EtcdConfig


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Everything that one process may choose for itself."""

    data_dir: str = "./penstock-data"
    """Where logs and metadata live; created when missing."""
    host: str = "127.0.0.1"
    """The address to listen on. Loopback unless told otherwise."""
    advertised_host: str | None = None
    """The address that clients and other nodes are told to use; `host` unless told otherwise."""
    kafka_port: int = 9092
    """0 lets the system choose; the ready line says which."""
    http_port: int = 8080
    node_id: int = 1
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Kafka broker configs by name, as text."""
    is_insecure: bool = False
    """Whether everybody who reaches this node may do everything, though it is not on loopback."""
    etcd: EtcdConfig | None = None
    """Where the cluster's metadata is; None: in this node's own directory, and it is alone."""


OWN_NAMES = {
    "data": "data_dir",
    "host": "host",
    "advertised-host": "advertised_host",
    "kafka-port": "kafka_port",
    "http-port": "http_port",
    "node-id": "node_id",
    "insecure": "is_insecure",
}

ALIASES = {
    "node.id": "node_id",
    "broker.id": "node_id",
    "log.dirs": "data_dir",
    "log.dir": "data_dir",
}
"""Kafka's names of settings of our own; of two that mean the same, the first one told wins."""
FLAGS = {"node_id": "--node-id", "data_dir": "--data"}

INTEGERS = ("kafka_port", "http_port", "node_id")
ETCD_NAMES = {
    "etcd.endpoints": "endpoints",
    "etcd.prefix": "prefix",
    "etcd.ca-file": "ca_file",
    "etcd.cert-file": "cert_file",
    "etcd.key-file": "key_file",
    "etcd.user": "user",
    "etcd.password": "password",
    "etcd.timeout-ms": "timeout_ms",
}
RACK = "rack"
"""A short name for Kafka's `broker.rack`."""
NAMES = (*OWN_NAMES, *ETCD_NAMES, RACK)

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
    settings = dict(sets)
    _agree(given, take_aliases(settings), FLAGS)
    config = replace(config, **given)
    overrides.update(settings)
    for name, value in overrides.items():
        parse(find(Scope.BROKER, name), value)
    if config.node_id < 0:
        raise InvalidConfig(f"node id {config.node_id} is negative; choose 0 or more")
    for port in (config.kafka_port, config.http_port):
        if not 0 <= port <= 65535:
            raise InvalidConfig(f"port {port} is not between 0 and 65535")
    if config.kafka_port == config.http_port != 0:
        raise InvalidConfig(f"kafka-port and http-port are both {config.kafka_port}; change one")
    _check_port(given, overrides)
    if config.etcd is not None and (config.advertised_host or config.host) in EVERYWHERE:
        raise InvalidConfig(
            f"other nodes cannot reach this one at '{config.host}'; set advertised-host"
        )
    return replace(config, overrides=overrides)


def _check_port(given: Mapping[str, Any], overrides: Mapping[str, str]) -> None:
    """A port that was asked for on the command line is opened, or it is said why not."""
    port, listeners = given.get("kafka_port"), overrides.get("listeners")
    if port is None or listeners is None:
        return
    if str(port) not in (text.strip().rpartition(":")[2] for text in listeners.split(",")):
        raise InvalidConfig(
            f"--kafka-port says {port}, but listeners={listeners} names the ports to open; "
            "leave --kafka-port out, or write its port there"
        )


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
    etcd: dict[str, Any] = {}
    overrides: dict[str, str] = {}
    for name, value in _flatten("", content):
        if name in OWN_NAMES:
            target = OWN_NAMES[name]
            own[target] = _own_value(name, target, value)
            continue
        if name in ETCD_NAMES:
            etcd[ETCD_NAMES[name]] = _etcd_value(name, value)
            continue
        name = "broker.rack" if name == RACK else name
        overrides[name] = _as_text(value)
        try:
            parse(find(Scope.BROKER, name), overrides[name])
        except InvalidConfig as error:
            meant = difflib.get_close_matches(name, NAMES, n=1, cutoff=OWN_NAME_LIKENESS)
            hint = f"unknown name '{name}', did you mean '{meant[0]}'?" if meant else error
            raise InvalidConfig(f"{path}: {hint}") from error
    try:
        _agree(own, take_aliases(overrides), {target: name for name, target in OWN_NAMES.items()})
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error}") from error
    if etcd or "etcd" in content:
        try:
            own["etcd"] = EtcdConfig(**{"endpoints": (), **etcd})
        except ValueError as error:
            raise InvalidConfig(f"{path}: {error}") from error
    return own, overrides


def take_aliases(settings: dict[str, str]) -> dict[str, tuple[str, Any]]:
    """Takes Kafka's names of our own settings out; what each is about, by which name, and how."""
    found: dict[str, tuple[str, Any]] = {}
    for name, target in ALIASES.items():
        text = settings.pop(name, None)
        if text is not None and target not in found:
            found[target] = name, _own_value(name, target, text)
    directory = found.get("data_dir")
    if directory is not None and len(split_list(directory[1])) != 1:
        raise InvalidConfig(f"{directory[0]} must name one directory, not '{directory[1]}'")
    return found


def _agree(
    own: dict[str, Any], aliases: Mapping[str, tuple[str, Any]], names: Mapping[str, str]
) -> None:
    """Adds what Kafka's names say to what ours do, where these say nothing else."""
    for target, (name, value) in aliases.items():
        if own.setdefault(target, value) != value:
            raise InvalidConfig(
                f"{names[target]} says {own[target]} and {name} says {value}; leave one of them out"
            )


def _own_value(name: str, target: str, value: Any) -> Any:
    if target in INTEGERS:
        return _integer(name, value)
    if target == "is_insecure":
        if not isinstance(value, bool):
            raise InvalidConfig(f"{name} must be true or false, not {value!r}")
        return value
    return str(value)


def _etcd_value(name: str, value: Any) -> Any:
    if name == "etcd.timeout-ms":
        return _integer(name, value)
    if name == "etcd.endpoints":
        return tuple(str(item) for item in (value if isinstance(value, list) else [value]))
    return str(value)


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
