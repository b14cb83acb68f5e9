"""Effective config values and their sources.

Owns: lookup by name, the hint for a misspelt one, a broker's effective values with typed access, a
topic's effective config, and the rows that DescribeConfigs shows.
Invariants, in Kafka's order of precedence: a topic's own value, this broker's dynamic value, the
cluster's, the broker's file and flags, the default; synonyms are used in table order. A stored
value was validated, so reading it cannot fail.
Elsewhere: the rows (`config_table`), storing values (`config_changes`), KIP-226.

Configs that Kafka has, or had, and Penstock does not support, with the reason. They are refused
like any unknown name, because they would have no effect; but not as misspelt. What can be ignored
without harm is a row of `config_table` instead, marked as inert.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.cluster.configs.config_table import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    PAGE_CACHE,
    TOPIC_CONFIGS,
)
from penstock.cluster.configs.config_types import (
    Config,
    ConfigSource,
    ConfigType,
    InvalidConfig,
    Scope,
    Synonym,
    Value,
    parse,
    show,
)
from penstock.log.config import LogConfig

GONE = "Kafka 4 no longer has it; remove it"
QUORUM = (
    "Penstock has no KRaft quorum: a node keeps metadata in its own directory, or in etcd (see "
    "`penstock node --help`); remove it"
)
TIERED = "Penstock has no tiered storage; remove it"
TLS = "Penstock's TLS is OpenSSL's, with ssl.enabled.protocols and OpenSSL's ciphers; remove it"
LOGIN = (
    "Penstock authenticates with SCRAM, PLAIN and OAUTHBEARER, configured as in the reference; "
    "login classes and Kerberos belong to Java; remove it"
)
JAVA = "it names Java classes, which Penstock does not run; remove it"

WHY = {
    "zookeeper.": GONE,
    "control.plane.listener.name": GONE,
    "inter.broker.protocol.version": GONE,
    "log.message.downconversion.enable": GONE,
    "log.message.format.version": GONE,
    "log.message.timestamp.difference.max.ms": GONE,
    "message.downconversion.enable": GONE,
    "message.format.version": GONE,
    "message.timestamp.difference.max.ms": GONE,
    "controller.quorum.": QUORUM,
    "controller.quota.": QUORUM,
    "early.start.listeners": QUORUM,
    "metadata.log.": QUORUM,
    "metadata.max.retention.": QUORUM,
    "follower.fetch.last.tiered.offset.enable": TIERED,
    "remote.": TIERED,
    "rlmm.config.": TIERED,
    "rsm.config.": TIERED,
    "ssl.": TLS,
    "sasl.": LOGIN,
    "config.providers": JAVA,
    "kafka.metrics.": JAVA,
    "security.providers": JAVA,
}
"""Reasons by name or, with a dot at the end, by prefix."""


def why_not(name: str) -> str | None:
    """Returns the reason for the user; None if the name is not known as Kafka's."""
    for known, why in WHY.items():
        if name.startswith(known) if known.endswith(".") else name == known:
            return f"'{name}' is a Kafka config that Penstock does not support: {why}"
    return None


TABLES: Mapping[Scope, Mapping[str, Config]] = {
    Scope.TOPIC: {config.name: config for config in TOPIC_CONFIGS},
    Scope.BROKER: {config.name: config for config in BROKER_CONFIGS},
    Scope.GROUP: {config.name: config for config in GROUP_CONFIGS},
}
EMPTY: Mapping[str, str] = {}
SLIP = 0.95
"""Similarity to a known name from which a name counts as misspelt."""


def find(scope: Scope, name: str) -> Config:
    """Returns the row of `name`; raises InvalidConfig with the most similar name."""
    config = TABLES[scope].get(name)
    if config is None:
        hint = nearest(scope, name, SLIP)
        why = None if hint is not None else why_not(name[:249])
        if why is not None:
            raise InvalidConfig(why)
        hint = hint or nearest(scope, name)
        meant = f", did you mean '{hint}'?" if hint else ""
        raise InvalidConfig(f"unknown {scope.value} config '{name[:249]}'{meant}")
    return config


def nearest(scope: Scope, name: str, likeness: float = 0.7) -> str | None:
    """Known name most similar to `name`, if one is similar enough."""
    # Matching is quadratic in the length, and the name may come from an untrusted client.
    matches = difflib.get_close_matches(name[:100], TABLES[scope], n=1, cutoff=likeness)
    return matches[0] if matches else None


def validate(scope: Scope, values: Mapping[str, str]) -> None:
    """Raises InvalidConfig for the first invalid name or value."""
    for name, text in values.items():
        parse(find(scope, name), text)
    if scope is Scope.TOPIC:
        _validate_topic(values)


def _validate_topic(values: Mapping[str, str]) -> None:
    if values.get("remote.storage.enable", "false").strip().lower() == "true":
        raise InvalidConfig("Tiered storage is not available here: remote.storage.enable")
    if "min.compaction.lag.ms" in values and "max.compaction.lag.ms" in values:
        low = int(values["min.compaction.lag.ms"])
        high = int(values["max.compaction.lag.ms"])
        if low > high:
            raise InvalidConfig(
                "conflict topic config setting min.compaction.lag.ms "
                f"({low}) > max.compaction.lag.ms ({high})"
            )


def require_key(values: Mapping[str, str], broker: "BrokerConfigs") -> None:
    """Raises InvalidConfig when these values ask for encryption and this broker has no key."""
    wanted = values.get("encryption.enable", "false").strip().lower() == "true"
    if wanted and broker.text("encryption.kek.source") is None:
        raise InvalidConfig(
            "encryption.enable needs a key: set encryption.kek.source on every node first"
        )


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A value with the name and source that supplied it: one synonym row of DescribeConfigs."""

    name: str
    text: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class Described:
    """A config as DescribeConfigs shows it; `synonyms` starts with the value in force."""

    config: Config
    text: str | None
    source: ConfigSource
    synonyms: tuple[SourcedValue, ...]


class TypedConfigs:
    """Typed access to values of configs."""

    __slots__ = ()

    def value(self, name: str) -> Value:
        raise NotImplementedError

    def integer(self, name: str) -> int:
        value = self.value(name)
        assert isinstance(value, int), name
        return value

    def number(self, name: str) -> float:
        value = self.value(name)
        assert isinstance(value, int | float), name
        return value

    def flag(self, name: str) -> bool:
        value = self.value(name)
        assert isinstance(value, bool), name
        return value


class BrokerConfigs(TypedConfigs):
    """Effective configs of one broker. `follow` replaces the dynamic part, at once for readers."""

    def __init__(self, static: Mapping[str, str] = EMPTY) -> None:
        """Raises InvalidConfig for an unknown name or an invalid value."""
        validate(Scope.BROKER, static)
        if "broker.id" in static and "node.id" not in static:
            static = {**static, "node.id": static["broker.id"]}
        self.static: Mapping[str, str] = dict(static)
        self.cluster: Mapping[str, str] = EMPTY
        """Dynamic values for every broker of the cluster."""
        self.own: Mapping[str, str] = EMPTY
        """Dynamic values for this broker alone."""
        self.generation = 0
        """Increases with every change, so that caches notice it."""
        self._values: dict[str, Value] = {}
        self._topic_defaults: dict[str, Value] = {}

    def follow(self, cluster: Mapping[str, str], own: Mapping[str, str]) -> bool:
        """Applies the dynamic values of the image; True if one changed."""
        if cluster == self.cluster and own == self.own:
            return False
        self.cluster, self.own = dict(cluster), dict(own)
        self.generation += 1
        self._values.clear()
        self._topic_defaults.clear()
        return True

    def text(self, name: str) -> str | None:
        value = self.value(name)
        assert value is None or isinstance(value, str), name
        return value

    def items(self, name: str) -> tuple[str, ...]:
        value = self.value(name)
        assert value is None or isinstance(value, tuple), name
        return value or ()

    def value(self, name: str) -> Value:
        """Parsed value in force, of the type in the table."""
        if name not in self._values:
            config = TABLES[Scope.BROKER][name]
            self._values[name] = parse(config, self.describe(config).text)
        return self._values[name]

    def topic_default(self, name: str) -> Value:
        """Parsed value of a topic config for topics that do not set it."""
        if name not in self._topic_defaults:
            config = TABLES[Scope.TOPIC][name]
            text = self.resolve(config, [], config.synonyms).text
            self._topic_defaults[name] = parse(config, text)
        return self._topic_defaults[name]

    def sources(self, name: str) -> list[SourcedValue]:
        """All values set for exactly `name`: the one in force first, the default last."""
        layers = (
            (self.own, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static, ConfigSource.STATIC_BROKER_CONFIG),
        )
        found = [
            SourcedValue(name, layer[name], source) for layer, source in layers if name in layer
        ]
        default = TABLES[Scope.BROKER][name].default
        if default is not None:
            found.append(SourcedValue(name, default, ConfigSource.DEFAULT_CONFIG))
        return found

    def describe(self, config: Config) -> Described:
        """A broker config with its synonyms (`log.retention.ms` before `log.retention.hours`)."""
        return self.resolve(config, [], (Synonym(config.name), *config.synonyms))

    def resolve(
        self, config: Config, first: list[SourcedValue], synonyms: tuple[Synonym, ...]
    ) -> Described:
        """Returns `first` if it is not empty, else the best of `synonyms`, in `config`'s unit."""
        rows = list(first)
        text = first[0].text if first else None
        # Set values of any synonym win over defaults of every synonym: log.retention.hours in a
        # config file counts, although log.retention.ms comes first.
        found = [(row, synonym) for synonym in synonyms for row in self.sources(synonym.name)]
        found.sort(key=lambda pair: pair[0].source is ConfigSource.DEFAULT_CONFIG)
        for row, synonym in found:
            if not rows:
                text = _rescale(row.text, synonym.scale)
            rows.append(row)
        if not rows:
            return Described(config, config.default, ConfigSource.DEFAULT_CONFIG, ())
        return Described(config, text, rows[0].source, tuple(rows))


def _rescale(text: str | None, scale: int) -> str | None:
    if text is None or scale == 1:
        return text
    count = int(text)
    # A negative count means "no limit" in every unit.
    return str(count * scale if count >= 0 else -1)


def describe_topic(name: str, overrides: Mapping[str, str], broker: BrokerConfigs) -> Described:
    """Describes a topic config as this broker applies it."""
    config = TABLES[Scope.TOPIC][name]
    return _describe_with_overrides(config, overrides, broker, ConfigSource.DYNAMIC_TOPIC_CONFIG)


def describe_group(name: str, overrides: Mapping[str, str], broker: BrokerConfigs) -> Described:
    config = TABLES[Scope.GROUP][name]
    return _describe_with_overrides(config, overrides, broker, ConfigSource.GROUP_CONFIG)


def _describe_with_overrides(
    config: Config, overrides: Mapping[str, str], broker: BrokerConfigs, source: ConfigSource
) -> Described:
    first = []
    if config.name in overrides:
        first.append(SourcedValue(config.name, overrides[config.name], source))
    return broker.resolve(config, first, config.synonyms)


def topic_value(name: str, overrides: Mapping[str, str], broker: BrokerConfigs) -> Value:
    """Parsed value in force for a topic."""
    if name in overrides:
        return parse(TABLES[Scope.TOPIC][name], overrides[name])
    return broker.topic_default(name)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Parsed configs of a topic that the broker itself reads."""

    log: LogConfig
    compression_type: str
    compression_level: int | None
    """Level of the codec that batches are compressed with; None for codecs without levels."""
    append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    min_insync_replicas: int
    unclean_leader_election: bool
    key_schema: str | None = None
    """Strategy that names the subject of keys' schemas; None: keys need no schema."""
    value_schema: str | None = None


def resolve_topic(overrides: Mapping[str, str], broker: BrokerConfigs) -> TopicConfig:
    """Resolves a topic's effective config. Call it when `overrides` or `broker` changed."""
    reader = _TopicReader(overrides, broker)
    return TopicConfig(
        log=_log_config(reader),
        compression_type=reader.text("compression.type"),
        compression_level=_compression_level(reader),
        append_time=reader.text("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=reader.integer("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=reader.integer("message.timestamp.after.max.ms"),
        min_insync_replicas=reader.integer("min.insync.replicas"),
        unclean_leader_election=reader.flag("unclean.leader.election.enable"),
        key_schema=_schema_strategy(reader, "key"),
        value_schema=_schema_strategy(reader, "value"),
    )


def _compression_level(reader: "_TopicReader") -> int | None:
    match reader.text("compression.type"):
        case "gzip":
            return reader.integer("compression.gzip.level")
        case "lz4":
            return reader.integer("compression.lz4.level")
        case "zstd":
            return reader.integer("compression.zstd.level")
    return None


def _schema_strategy(reader: "_TopicReader", part: str) -> str | None:
    if not reader.flag(f"confluent.{part}.schema.validation"):
        return None
    return reader.text(f"confluent.{part}.subject.name.strategy").rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class _TopicReader(TypedConfigs):
    overrides: Mapping[str, str]
    broker: BrokerConfigs

    def value(self, name: str) -> Value:
        return topic_value(name, self.overrides, self.broker)

    def text(self, name: str) -> str:
        value = self.value(name)
        assert isinstance(value, str), name
        return value


def _log_config(reader: _TopicReader) -> LogConfig:
    policies = reader.value("cleanup.policy")
    assert isinstance(policies, tuple)
    segment_bytes = reader.value("internal.segment.bytes")
    if segment_bytes is None:
        segment_bytes = reader.value("segment.bytes")
    assert isinstance(segment_bytes, int)
    segment_ms = reader.integer("segment.ms")
    if "compact" in policies:
        # Only sealed segments are compacted, so the maximum lag must also seal them (KIP-354).
        segment_ms = min(segment_ms, reader.integer("max.compaction.lag.ms"))
    return LogConfig(
        segment_bytes=segment_bytes,
        segment_ms=segment_ms,
        index_interval_bytes=reader.integer("index.interval.bytes"),
        segment_index_bytes=reader.integer("segment.index.bytes"),
        retention_ms=reader.integer("retention.ms"),
        retention_bytes=reader.integer("retention.bytes"),
        cleanup_delete="delete" in policies,
        cleanup_compact="compact" in policies,
        delete_retention_ms=reader.integer("delete.retention.ms"),
        min_compaction_lag_ms=reader.integer("min.compaction.lag.ms"),
        max_compaction_lag_ms=reader.integer("max.compaction.lag.ms"),
        min_cleanable_dirty_ratio=reader.number("min.cleanable.dirty.ratio"),
        message_bytes_max=reader.integer("max.message.bytes"),
        file_delete_delay_ms=reader.integer("file.delete.delay.ms"),
        producer_expiration_ms=reader.broker.integer("producer.id.expiration.ms"),
        encrypted=reader.flag("encryption.enable"),
        page_cache=reader.text("flush.policy") == PAGE_CACHE,
    )


__all__ = [
    "TABLES",
    "BrokerConfigs",
    "Config",
    "ConfigSource",
    "ConfigType",
    "Described",
    "InvalidConfig",
    "Scope",
    "SourcedValue",
    "TopicConfig",
    "describe_group",
    "describe_topic",
    "find",
    "nearest",
    "resolve_topic",
    "show",
    "topic_value",
    "validate",
]
