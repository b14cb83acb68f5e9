"""Config precedence and sources, and answers to misspelled names."""

import pytest

from penstock.cluster.configs.config_types import ConfigSource, Scope
from penstock.cluster.configs.effective_configs import (
    BrokerConfigs,
    InvalidConfig,
    describe_group,
    describe_topic,
    find,
    nearest,
    resolve_topic,
    validate,
)


def test_unknown_name_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidConfig) as unknown:
        BrokerConfigs({"num.partition": "3"})
    assert str(unknown.value) == (
        "unknown broker config 'num.partition', did you mean 'num.partitions'?"
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("zookeeper.connect", "Kafka 4 no longer has it"),
        ("inter.broker.protocol.version", "Kafka 4 no longer has it"),
        ("controller.quorum.election.timeout.ms", "no KRaft quorum"),
        ("metadata.log.segment.bytes", "no KRaft quorum"),
        ("remote.log.manager.thread.pool.size", "no tiered storage"),
        ("ssl.cipher.suites", "OpenSSL's ciphers"),
        ("sasl.kerberos.service.name", "Kerberos"),
        ("sasl.login.class", "Kerberos"),
        ("config.providers", "Java classes"),
    ],
)
def test_unsupported_kafka_config_gets_no_spelling_hint(name: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why) as unknown:
        find(Scope.BROKER, name)
    assert "did you mean" not in str(unknown.value)


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("ssl.keystore.locaton", "ssl.keystore.location"),
        ("sasl.enabled.mechanism", "sasl.enabled.mechanisms"),
        ("controller.quorum.voter", "controller.quorum.voters"),
    ],
)
def test_misspelled_name_near_unsupported_ones_gets_a_hint(slip: str, meant: str) -> None:
    with pytest.raises(InvalidConfig, match=f"did you mean '{meant}'"):
        find(Scope.BROKER, slip)


def test_name_unlike_any_other_gets_no_hint() -> None:
    assert nearest(Scope.TOPIC, "zzzzzz") is None
    with pytest.raises(InvalidConfig, match=r"^unknown topic config 'zzzzzz'$"):
        find(Scope.TOPIC, "zzzzzz")


def test_huge_name_is_shortened_before_comparison_and_reply() -> None:
    with pytest.raises(InvalidConfig) as unknown:
        find(Scope.TOPIC, "x" * 1_000_000)
    assert len(str(unknown.value)) < 400


def test_invalid_value_is_refused_at_start() -> None:
    with pytest.raises(InvalidConfig, match="Value must be at least 1"):
        BrokerConfigs({"num.partitions": "0"})


def test_typed_access_parses_the_set_value_or_the_default() -> None:
    broker = BrokerConfigs({"num.partitions": "7"})
    assert broker.integer("num.partitions") == 7
    assert broker.flag("auto.create.topics.enable") is True
    assert broker.number("log.cleaner.min.cleanable.ratio") == 0.5
    assert broker.text("broker.rack") is None
    assert broker.items("log.cleanup.policy") == ("delete",)
    assert broker.items("log.dirs") == ()


def test_broker_id_is_accepted_for_node_id() -> None:
    assert BrokerConfigs({"broker.id": "4"}).integer("node.id") == 4
    assert BrokerConfigs({"broker.id": "4", "node.id": "5"}).integer("node.id") == 5


def test_broker_value_overrides_cluster_value_and_file() -> None:
    broker = BrokerConfigs({"message.max.bytes": "1"})
    assert broker.integer("message.max.bytes") == 1
    assert broker.follow({"message.max.bytes": "2"}, {})
    assert broker.integer("message.max.bytes") == 2
    assert broker.follow({"message.max.bytes": "2"}, {"message.max.bytes": "3"})
    assert broker.integer("message.max.bytes") == 3
    rows = broker.sources("message.max.bytes")
    assert [(row.text, row.source) for row in rows] == [
        ("3", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("1", ConfigSource.STATIC_BROKER_CONFIG),
        ("1048588", ConfigSource.DEFAULT_CONFIG),
    ]


def test_same_values_do_not_raise_the_generation() -> None:
    broker = BrokerConfigs()
    assert not broker.follow({}, {})
    assert broker.generation == 0
    assert broker.follow({"message.max.bytes": "2"}, {})
    assert broker.generation == 1
    assert not broker.follow({"message.max.bytes": "2"}, {})


def test_topic_config_reads_the_coarser_broker_synonym() -> None:
    broker = BrokerConfigs({"log.retention.hours": "2"})
    described = describe_topic("retention.ms", {}, broker)
    assert described.text == "7200000"
    assert described.source is ConfigSource.STATIC_BROKER_CONFIG
    assert described.synonyms[0].name == "log.retention.hours"


def test_finer_synonym_overrides_the_coarser() -> None:
    broker = BrokerConfigs({"log.retention.hours": "2", "log.retention.ms": "5000"})
    described = describe_topic("retention.ms", {}, broker)
    assert described.text == "5000"
    assert [row.name for row in described.synonyms] == [
        "log.retention.ms",
        "log.retention.hours",
        "log.retention.hours",
    ]


def test_unlimited_retention_stays_unlimited_in_every_unit() -> None:
    broker = BrokerConfigs({"log.retention.hours": "-1"})
    assert resolve_topic({}, broker).log.retention_ms == -1


def test_topic_value_comes_first_and_lists_what_it_overrides() -> None:
    broker = BrokerConfigs({"log.segment.bytes": "2097152"})
    described = describe_topic("segment.bytes", {"segment.bytes": "1048576"}, broker)
    assert described.text == "1048576"
    assert [(row.name, row.source) for row in described.synonyms] == [
        ("segment.bytes", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.segment.bytes", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.segment.bytes", ConfigSource.DEFAULT_CONFIG),
    ]


def test_topic_config_without_a_synonym_has_its_own_default() -> None:
    described = describe_topic("remote.storage.enable", {}, BrokerConfigs())
    assert (described.text, described.source) == ("false", ConfigSource.DEFAULT_CONFIG)
    assert described.synonyms == ()


def test_group_config_reads_the_broker_default() -> None:
    broker = BrokerConfigs({"group.consumer.session.timeout.ms": "50000"})
    described = describe_group("consumer.session.timeout.ms", {}, broker)
    assert (described.text, described.source) == ("50000", ConfigSource.STATIC_BROKER_CONFIG)
    own = describe_group("consumer.session.timeout.ms", described_values(), broker)
    assert (own.text, own.source) == ("46000", ConfigSource.GROUP_CONFIG)


def described_values() -> dict[str, str]:
    return {"consumer.session.timeout.ms": "46000"}


def test_resolved_topic_config_holds_all_log_settings() -> None:
    broker = BrokerConfigs({"producer.id.expiration.ms": "1000"})
    config = resolve_topic(
        {
            "cleanup.policy": "compact,delete",
            "compression.type": "zstd",
            "flush.policy": "page-cache",
            "max.message.bytes": "500",
            "message.timestamp.type": "LogAppendTime",
            "min.insync.replicas": "2",
            "retention.bytes": "1000000",
            "unclean.leader.election.enable": "true",
        },
        broker,
    )
    assert config.log.cleanup_compact
    assert config.log.cleanup_delete
    assert config.log.page_cache
    assert config.log.message_bytes_max == 500
    assert config.log.retention_bytes == 1_000_000
    assert config.log.producer_expiration_ms == 1000
    assert config.log.segment_bytes == 1024**3
    assert config.compression_type == "zstd"
    assert config.append_time
    assert config.min_insync_replicas == 2
    assert config.unclean_leader_election


def test_default_flush_policy_waits_for_the_disk() -> None:
    config = resolve_topic({}, BrokerConfigs())
    assert not config.log.page_cache
    assert config.log.retention_ms == 7 * 24 * 3600 * 1000
    assert not config.append_time


def test_internal_segment_bytes_may_be_smaller_than_the_public_minimum() -> None:
    config = resolve_topic({"internal.segment.bytes": "1000"}, BrokerConfigs())
    assert config.log.segment_bytes == 1000
    with pytest.raises(InvalidConfig, match="Value must be at least 1048576"):
        validate(Scope.TOPIC, {"segment.bytes": "1000"})


def test_broker_default_change_reaches_topics_without_their_own_value() -> None:
    broker = BrokerConfigs()
    assert resolve_topic({}, broker).log.message_bytes_max == 1048588
    broker.follow({"message.max.bytes": "100"}, {})
    assert resolve_topic({}, broker).log.message_bytes_max == 100
    assert resolve_topic({"max.message.bytes": "7"}, broker).log.message_bytes_max == 7


def test_contradictory_values_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"min.compaction.lag.ms \(5\)"):
        validate(Scope.TOPIC, {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})
    with pytest.raises(InvalidConfig, match="Tiered storage"):
        validate(Scope.TOPIC, {"remote.storage.enable": "true"})


def test_compacted_topic_rolls_within_its_max_compaction_lag() -> None:
    configs = BrokerConfigs({})
    lag = {"max.compaction.lag.ms": "5000"}
    assert resolve_topic({**lag, "cleanup.policy": "compact"}, configs).log.segment_ms == 5000
    assert resolve_topic({**lag, "cleanup.policy": "delete"}, configs).log.segment_ms > 5000
    both = {"cleanup.policy": "compact", "segment.ms": "700"}
    assert resolve_topic({**both, **lag}, configs).log.segment_ms == 700
