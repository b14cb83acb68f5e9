"""The table itself: every row is readable, documented, and points at rows that exist."""

import pytest

from penstock.cluster.configs.config_table import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from penstock.cluster.configs.config_types import Config, ConfigType, Scope, UpdateMode, parse

ALL = (*TOPIC_CONFIGS, *BROKER_CONFIGS, *GROUP_CONFIGS)
BROKER_NAMES = {config.name: config for config in BROKER_CONFIGS}


@pytest.mark.parametrize("config", ALL, ids=lambda c: f"{c.scope.value}:{c.name}")
def test_every_config_row_is_complete(config: Config) -> None:
    parse(config, config.default)
    assert config.doc.endswith(".")
    assert config.name == config.name.lower().strip()
    for synonym in config.synonyms:
        target = BROKER_NAMES[synonym.name]
        # Whatever the synonym takes must be readable as this config, in this config's unit.
        if target.default is not None and config.type is not ConfigType.LIST:
            scaled = (
                target.default if synonym.scale == 1 else str(int(target.default) * synonym.scale)
            )
            parse(config, scaled)


@pytest.mark.parametrize("configs", [TOPIC_CONFIGS, BROKER_CONFIGS, GROUP_CONFIGS])
def test_config_names_are_unique(configs: tuple[Config, ...]) -> None:
    names = [config.name for config in configs]
    assert len(set(names)) == len(names)


def test_topic_config_and_its_broker_default_agree() -> None:
    """A topic that sets nothing must behave the same whichever of the two rows is read."""
    for config in TOPIC_CONFIGS:
        if config.synonyms and config.synonyms[0].scale == 1:
            first = BROKER_NAMES[config.synonyms[0].name]
            if first.default is not None:
                assert first.default == config.default, config.name
            assert first.mode is UpdateMode.CLUSTER_WIDE, config.name


@pytest.mark.parametrize(
    "name",
    [
        "auto.create.topics.enable",
        "connections.max.idle.ms",
        "default.replication.factor",
        "delete.topic.enable",
        "fetch.max.bytes",
        "group.consumer.heartbeat.interval.ms",
        "group.initial.rebalance.delay.ms",
        "group.min.session.timeout.ms",
        "group.share.min.record.lock.duration.ms",
        "log.retention.hours",
        "log.segment.bytes",
        "max.connections.per.ip",
        "max.incremental.fetch.session.cache.slots",
        "message.max.bytes",
        "min.insync.replicas",
        "num.partitions",
        "offsets.topic.replication.factor",
        "producer.id.expiration.ms",
        "replica.lag.time.max.ms",
        "socket.request.max.bytes",
        "transaction.state.log.min.isr",
    ],
)
def test_configs_set_by_client_suites_exist(name: str) -> None:
    assert name in BROKER_NAMES


def test_secret_configs_are_of_type_password() -> None:
    secrets = {config.name for config in ALL if config.is_sensitive}
    assert {"ssl.key.password", "ssl.keystore.key", "sasl.jaas.config"} <= secrets
    assert all(config.scope is Scope.BROKER for config in ALL if config.is_sensitive)
