"""Gauges of queues and dead letters."""

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.queues import inspection
from penstock.coordinator.queues.inspection import Inspection
from penstock.coordinator.queues.policy import DEAD_LETTERS
from penstock.coordinator.queues.queue_metrics import (
    NAMES_MAX,
    OTHERS,
    DepthTotals,
    QueueGauge,
    QueueWatch,
    dead_letter_topics,
)
from tests.run_with import run_with
from tests.unit.coordinator.queueing import (
    CONFIGS,
    Node,
    change,
    configure,
    key_of,
    on_node,
    opened,
    take,
)


@run_with(on_node, configs=CONFIGS)
async def test_open_queues_are_counted_by_group_and_topic(node: Node) -> None:
    queue = await opened(node, 6)
    await take(queue, count=2)
    await change(queue, lambda m, now: m.accept("a", 0, 0, now))
    watch = QueueWatch(node.ctx.queue.queues)
    await watch.run_round()
    assert watch.queues == {("g", "t"): QueueGauge(5, 4, 1, 0, 1_000)}
    assert watch.dead_letters == {}


@run_with(on_node, configs=CONFIGS)
async def test_idle_queue_stays_in_the_gauges(node: Node) -> None:
    queue = await opened(node, 3)
    watch = QueueWatch(node.ctx.queue.queues)
    await watch.run_round()
    queue.close(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    await node.produce("t", 4)
    await watch.run_round()
    depth = watch.queues["g", "t"]
    assert (depth.unfinished, depth.oldest_ms) == (queue.partition.high_watermark, 1_000)
    await node.ctx.queue.queues.forget(queue.key)
    await watch.run_round()
    assert watch.queues == {}


@run_with(on_node, configs=CONFIGS)
async def test_dead_letters_count_until_they_are_settled(node: Node) -> None:
    await node.create("t.dlq", 1)
    await node.create("t", 1)
    await node.produce("t.dlq", 4)
    watch = QueueWatch(node.ctx.queue.queues)
    await watch.run_round()
    assert watch.dead_letters == {"t.dlq": QueueGauge(4, 4, 0, 0, 1_000)}
    key = await key_of(node, DEAD_LETTERS, "t.dlq")
    await inspection.finish(node.ctx.queue.queues, key, [(0, 3)])
    await watch.run_round()
    assert watch.dead_letters == {"t.dlq": QueueGauge()}
    assert watch.queues == {}


@run_with(on_node, configs=CONFIGS)
async def test_topic_configured_by_a_group_is_a_dead_letter_topic(node: Node) -> None:
    for name in ("t", "t.dlq", "failed"):
        await node.create(name, 1)
    await configure(node, "g", errors_deadletterqueue_topic_name="failed")
    assert sorted(one.name for one in dead_letter_topics(node.ctx.image)) == ["failed", "t.dlq"]


def test_names_beyond_the_limit_are_summed() -> None:
    totals: DepthTotals[str] = DepthTotals(OTHERS)
    for number in range(NAMES_MAX + 3):
        totals.add(f"t{number:04}", Inspection(0, 9, unfinished=number, oldest_ms=number))
    shown = totals.largest()
    assert len(shown) == NAMES_MAX + 1
    assert shown[OTHERS] == QueueGauge(unfinished=0 + 1 + 2, oldest_ms=0)


def test_age_is_zero_without_waiting_records() -> None:
    assert QueueGauge().age_seconds(5_000) == 0
    assert QueueGauge(oldest_ms=2_000).age_seconds(5_000) == 3
