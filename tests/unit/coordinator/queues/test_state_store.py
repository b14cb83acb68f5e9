"""States of queues, kept here or on another node: in order, and refused when it is not sure."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.coordinator.queues.state_store import (
    SETTLED_SECONDS,
    STATES,
    QueueStateStore,
    StateRequestKind,
    answer_of,
    reply_of,
    shard_key,
)
from penstock.node.node import Node as RealNode
from penstock.state.queues.state_shard import QueueKey, StoredQueueState
from penstock.wire.messages.internal.queues import QueueStateAnswer, QueueStateCall
from simulation.cluster import SimCluster
from simulation.loop import SimLoop, run
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, on_node

TOPIC = b"t" * 16


def keys(count: int) -> list[QueueKey]:
    return [QueueKey("g", TOPIC, index) for index in range(count)]


async def exercise(keeping: QueueStateStore, key: QueueKey) -> None:
    """Every call once, and what must come of it."""
    await keeping.ensure()
    assert await keeping.read(key, 1) == StoredQueueState(0, None, ())
    await keeping.write(key, 1, 0, b"S", True)
    # More than goes into one request.
    writes = [
        keeping.write(key, 1, number, b"%d " % number + b"x" * 100_000, False)
        for number in range(1, 30)
    ]
    assert await asyncio.gather(*writes) == list(range(1, 30))
    kept = await keeping.read(key, 2)
    assert (kept.number, kept.snapshot, len(kept.deltas)) == (29, b"S", 29)
    assert [int(delta.split()[0]) for delta in kept.deltas] == list(range(1, 30))
    with pytest.raises(Refused) as refused:
        await keeping.write(key, 1, 30, b"", False)
    assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH
    await keeping.forget(key)
    assert await keeping.read(key, 2) == StoredQueueState(0, None, ())


@run_with(on_node, configs=CONFIGS)
async def test_local_states_are_stored_read_and_deleted(node: Node) -> None:
    for key in keys(3):
        await exercise(node.ctx.queue.queues.keeping, key)


@run_with(on_node, configs=CONFIGS)
async def test_nothing_is_stored_before_the_topic_exists(node: Node) -> None:
    with pytest.raises(Refused) as refused:
        await node.ctx.queue.queues.keeping.read(keys(1)[0], 1)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


@run_with(on_node, configs=CONFIGS)
async def test_states_of_deleted_topics_are_removed_eventually(node: Node) -> None:
    keeping = node.ctx.queue.queues.keeping
    await keeping.ensure()
    await node.create("t", 1)
    known = QueueKey("g", node.ctx.image.topics["t"].id, 0)
    for key in (*keys(3), known):
        await keeping.write(key, 1, 0, b"S", True)
    keeping.host.close()
    keeping.host.follow()
    await asyncio.sleep(SETTLED_SECONDS / 2)
    assert sum(len(shard) for _, shard in keeping.host.active()) == 4
    await asyncio.sleep(SETTLED_SECONDS)
    left = [key for _, shard in keeping.host.active() for key in shard.queues()]
    assert left == [known]


@run_with(on_node, configs=CONFIGS)
async def test_calls_of_other_nodes_are_answered_or_refused(node: Node) -> None:
    keeping = node.ctx.queue.queues.keeping
    await keeping.ensure()
    answers: list[QueueStateAnswer] = []
    key = keys(1)[0]
    for kind in (StateRequestKind.SNAPSHOT, StateRequestKind.READ, 9):
        call = QueueStateCall(
            kind=kind,
            group_id=key.group,
            topic_id=TopicId(key.topic_id),
            partition=0,
            leader_epoch=1,
            payload=b"S",
        )
        keeping.answer_here(call, answers.append)
    await asyncio.sleep(0.1)
    # Refusals are answered at once; the rest once it is persisted.
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST, 0, 0]
    assert answers[2].snapshot == b"S"


def test_answer_round_trips_over_the_wire() -> None:
    def back(kind: StateRequestKind, reply: object) -> object:
        call = QueueStateCall(
            kind=kind, group_id="g", topic_id=TopicId(TOPIC), partition=0, leader_epoch=1
        )
        return reply_of(call, answer_of(reply))  # type: ignore[arg-type]

    kept = StoredQueueState(3, b"S", (b"a",))
    assert back(StateRequestKind.READ, kept) == kept
    assert back(StateRequestKind.READ, StoredQueueState(0, None, ())) == StoredQueueState(
        0, None, ()
    )
    assert back(StateRequestKind.DELTA, 7) == 7
    assert back(StateRequestKind.FORGET, None) is None
    with pytest.raises(Refused) as refused:
        back(StateRequestKind.DELTA, Refused(ErrorCode.NOT_COORDINATOR, "why"))
    assert (refused.value.code, refused.value.message) == (ErrorCode.NOT_COORDINATOR, "why")


# -- on other nodes ---------------------------------------------------------------------------


def on_cluster(test: Callable[[SimCluster], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        overrides = {"share.coordinator.state.topic.num.partitions": "6"}
        cluster = SimCluster(loop, 0, (1, 2, 3), overrides)
        await cluster.start()
        await cluster.nodes()[0].queues.keeping.ensure()
        await asyncio.sleep(5)
        await test(cluster)
        await cluster.stop()
        cluster.close()

    run(main, seed=0, time_max=500.0)


def led_elsewhere(node: RealNode) -> tuple[QueueKey, int]:
    """A queue whose state another node keeps, and which."""
    for key in keys(100):
        index = node.queues.keeping.host.index_of(shard_key(key))
        record = node.watcher.image.partition(STATES.name, index)
        assert record is not None
        if record.leader != node.config.node_id:
            return key, record.leader
    raise AssertionError("this node leads everything")


@run_with(on_cluster)
async def test_remote_states_are_stored_read_and_deleted(cluster: SimCluster) -> None:
    for node in cluster.nodes():
        await exercise(node.queues.keeping, led_elsewhere(node)[0])


@run_with(on_cluster)
async def test_every_call_is_answered_when_a_node_fails(cluster: SimCluster) -> None:
    node = cluster.nodes()[0]
    key, leader = led_elsewhere(node)
    keeping = node.queues.keeping
    await keeping.write(key, 1, 0, b"S", True)
    calls = [keeping.write(key, 1, number, b"x" * 10_000, False) for number in range(1, 300)]
    await asyncio.sleep(0.002)
    cluster.hosts[leader].kill()
    results = await asyncio.gather(*calls, return_exceptions=True)
    done = [one for one in results if isinstance(one, int)]
    assert done == list(range(1, len(done) + 1))
    assert all(isinstance(one, Refused) for one in results[len(done) :])
    assert len(done) < len(results)
    await asyncio.sleep(30)
    kept = await keeping.read(key, 2)
    assert kept.number >= len(done), "what was told to be kept is there"
