"""Start configuration of one node: flags override the file, the file overrides defaults.

Read once and passed down. The file is TOML. Besides Penstock's own names (`OWN_NAMES`) it accepts
Kafka's broker config names, quoted or as dotted keys. A node of a cluster names the endpoints of
etcd, which stores everything that nodes must agree on:

    data = "/var/lib/penstock"
    node-id = 2
    kafka-port = 9092
    rack = "east"
    num.partitions = 6
    "log.retention.hours" = 72

    [etcd]
    endpoints = ["https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.3:2379"]
    ca-file = "/etc/penstock/etcd-ca.pem"

An unknown name is refused with the nearest valid one. Kafka's names for Penstock's own settings
(`ALIASES`) mean the same; if both are given, they must agree.
"""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from penstock.cluster.configs.config_types import parse, split_list
from penstock.cluster.configs.effective_configs import InvalidConfig, Scope, find
from penstock.cluster.metadata.store_keys import EVERYWHERE
from penstock.runtime.etcd.config import EtcdConfig


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Settings that each process may choose for itself."""

    data_dir: str = "./penstock-data"
    """Directory of logs and metadata; created if missing."""
    host: str = "127.0.0.1"
    """Address to listen on; loopback by default."""
    advertised_host: str | None = None
    """Address that clients and other nodes connect to; `host` by default."""
    kafka_port: int = 9092
    """0 lets the system choose; the ready line reports the port."""
    http_port: int = 8080
    node_id: int = 1
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Kafka broker configs by name, as text."""
    is_insecure: bool = False
    """True if every client that reaches this node may do everything, even beyond loopback."""
    etcd: EtcdConfig | None = None
    """Location of the cluster's metadata; None: in this node's own directory, as a single node."""


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
"""Kafka's names for Penstock's own settings; of two with the same meaning, the first given wins."""
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
"""Short name for Kafka's `broker.rack`."""
NAMES = (*OWN_NAMES, *ETCD_NAMES, RACK)

OWN_NAME_LIKENESS = 0.8


def load(path: str | None, flags: Mapping[str, Any], sets: Mapping[str, str]) -> NodeConfig:
    """Returns the node's config from a file (if any), flags (None: not given) and --set pairs."""
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
        raise InvalidConfig(f"invalid node id {config.node_id}: choose 0 or more")
    for port in (config.kafka_port, config.http_port):
        if not 0 <= port <= 65535:
            raise InvalidConfig(f"invalid port {port}: choose 0 to 65535")
    if config.kafka_port == config.http_port != 0:
        raise InvalidConfig(f"kafka-port and http-port are both {config.kafka_port}; change one")
    _check_port(given, overrides)
    if config.etcd is not None and (config.advertised_host or config.host) in EVERYWHERE:
        raise InvalidConfig(
            f"other nodes cannot reach this one at '{config.host}'; set advertised-host"
        )
    return replace(config, overrides=overrides)


def _check_port(given: Mapping[str, Any], overrides: Mapping[str, str]) -> None:
    """Raises InvalidConfig if no listener opens the port that the command line asks for."""
    port, listeners = given.get("kafka_port"), overrides.get("listeners")
    if port is None or listeners is None:
        return
    if str(port) not in (text.strip().rpartition(":")[2] for text in listeners.split(",")):
        raise InvalidConfig(
            f"--kafka-port is {port}, but listeners={listeners} names the ports to open; "
            "leave --kafka-port out, or write its port there"
        )


def read_file(path: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Reads Penstock's own settings and Kafka's configs from one TOML file."""
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
    """Removes Kafka's aliases of Penstock's settings; returns target, alias and value of each."""
    found: dict[str, tuple[str, Any]] = {}
    for name, target in ALIASES.items():
        text = settings.pop(name, None)
        if text is not None and target not in found:
            found[target] = name, _own_value(name, target, text)
    directory = found.get("data_dir")
    if directory is not None and len(split_list(directory[1])) != 1:
        raise InvalidConfig(f"invalid {directory[0]} '{directory[1]}': must name one directory")
    return found


def _agree(
    own: dict[str, Any], aliases: Mapping[str, tuple[str, Any]], names: Mapping[str, str]
) -> None:
    """Merges values given by Kafka's names; raises InvalidConfig where both names disagree."""
    for target, (name, value) in aliases.items():
        if own.setdefault(target, value) != value:
            raise InvalidConfig(
                f"{names[target]} is {own[target]}, but {name} is {value}; leave one of them out"
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
    """Flattens nested tables, which is how dotted TOML keys arrive; Kafka's names are flat."""
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
