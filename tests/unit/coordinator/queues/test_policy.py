"""Queue settings from the configs of a group and a topic."""

from dataclasses import replace

from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.coordinator.queues.policy import QueueSettings, lease_settings_of, settings_of
from penstock.state.queues.policy import Order
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, configure, on_node


async def settings(node: Node, name: str = "t", **topic_configs: str) -> QueueSettings:
    if name not in node.ctx.image.topics:
        await node.create(name, 1)
    topic = replace(node.ctx.image.topics[name], configs=topic_configs)
    return settings_of(node.ctx.image, node.configs, "g", topic)


@run_with(on_node, configs=CONFIGS)
async def test_unset_configs_have_their_defaults(node: Node) -> None:
    found = await settings(node)
    assert (found.policy.order, found.policy.lock_ms, found.policy.deliveries_max) == (
        Order.NONE,
        30_000,
        5,
    )
    assert (found.reset, found.committed_only, found.reset_back_ms) == ("latest", True, None)
    assert found.dead_letter_topic == "t.dlq"
    assert found.policy.dead_letters
    assert found.dedup_window_ms == 300_000


@run_with(on_node, configs=CONFIGS)
async def test_group_configs_set_delivery(node: Node) -> None:
    await configure(
        node,
        "g",
        share_record_lock_duration_ms="15000",
        share_delivery_count_limit="3",
        share_retry_backoff_ms="7",
        share_retry_backoff_max_ms="70",
        share_isolation_level="read_uncommitted",
        share_auto_offset_reset="by_duration:PT1H",
        share_partition_max_record_locks="100",
        errors_deadletterqueue_topic_name="failed",
        share_renew_acknowledge_enable="false",
    )
    found = await settings(node)
    policy = found.policy
    assert (policy.lock_ms, policy.deliveries_max, policy.locks_max) == (15_000, 3, 100)
    assert (policy.backoff_base_ms, policy.backoff_cap_ms) == (7, 70)
    assert not found.committed_only
    assert found.reset_back_ms == 3_600_000
    assert found.dead_letter_topic == "failed"
    leases = lease_settings_of(node.ctx.image, node.configs, "g")
    assert (leases.lock_ms, leases.can_renew) == (15_000, False)


@run_with(on_node, configs=CONFIGS)
async def test_topic_configs_set_order(node: Node) -> None:
    topic = {"queue.order": "key", "queue.dedup.window.ms": "0"}
    found = await settings(node, **topic, **{"queue.expired.dead.letter": "false"})
    assert found.policy.order is Order.KEY
    assert found.dedup_window_ms == 0
    assert not found.policy.dead_letter_expired


@run_with(on_node, configs=CONFIGS)
async def test_broker_configs_apply_to_every_group(node: Node) -> None:
    await node.create("t", 1)
    broker = BrokerConfigs({"group.share.record.lock.duration.ms": "45000"})
    topic = node.ctx.image.topics["t"]
    assert settings_of(node.ctx.image, broker, "g", topic).policy.lock_ms == 45_000


@run_with(on_node, configs=CONFIGS)
async def test_dead_letter_topics_get_no_dead_letters_of_their_own(node: Node) -> None:
    assert not (await settings(node, "t.dlq")).policy.dead_letters
    assert (await settings(node, "t.dlq")).policy.deliveries_max == 32_767
    await configure(node, "g", errors_deadletterqueue_topic_name="t")
    assert (await settings(node, "t")).dead_letter_topic == "t.dlq"
    await configure(node, "g", errors_deadletterqueue_enable="false")
    assert not (await settings(node, "t")).policy.dead_letters


@run_with(on_node, configs=CONFIGS)
async def test_topic_config_overrides_the_group_config(node: Node) -> None:
    await configure(
        node, "g", share_delivery_count_limit="3", errors_deadletterqueue_topic_name="failed"
    )
    own = {"queue.delivery.count.limit": "1", "queue.dead.letter.topic": "mine"}
    found = await settings(node, **own)
    assert (found.policy.deliveries_max, found.dead_letter_topic) == (1, "mine")


@run_with(on_node, configs=CONFIGS)
async def test_internal_topic_is_never_the_dead_letter_topic(node: Node) -> None:
    await configure(node, "g", errors_deadletterqueue_topic_name="__schemas")
    assert (await settings(node)).dead_letter_topic == "t.dlq"
    found = await settings(node, **{"queue.dead.letter.topic": "__consumer_offsets"})
    assert found.dead_letter_topic == "t.dlq"
