"""One open queue: the order of receivers, and replies only for persisted state."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.queues.open_queue import SNAPSHOT_BYTES_MIN, Loaded, OpenQueue
from penstock.state.queues.delivery import Delivery
from penstock.state.queues.delivery_headers import Intake
from penstock.state.queues.delivery_state import QueueState, Snapshot, decode_ops, decode_snapshot
from penstock.state.queues.policy import QueuePolicy
from penstock.state.queues.state_shard import QueueKey
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, Taking, append, on_node


class Keeper:
    """Persists everything, at once or when the test says so."""

    def __init__(self) -> None:
        self.written: list[tuple[int, bytes, bool]] = []
        self.futures: list[asyncio.Future[int]] = []
        self.is_prompt = True
        self.refusal: Refused | None = None

    def write(
        self, key: QueueKey, leader_epoch: int, number: int, payload: bytes, is_snapshot: bool
    ) -> "asyncio.Future[int]":
        if self.refusal is not None:
            raise self.refusal
        self.written.append((number, payload, is_snapshot))
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.futures.append(future)
        if self.is_prompt:
            future.set_result(number)
        return future

    def replay(self) -> QueueState:
        kept = QueueState(Snapshot(0))
        for _, payload, is_snapshot in self.written:
            if is_snapshot:
                kept = QueueState(decode_snapshot(payload))
            else:
                for op in decode_ops(payload):
                    kept.apply(op)
        return kept


class World:
    def __init__(self, node: Node, keeper: Keeper, queue: OpenQueue) -> None:
        self.node = node
        self.keeper = keeper
        self.queue = queue
        self.dead_lettered: list[OpenQueue] = []
        self.closed: list[OpenQueue] = []


async def world(
    node: Node,
    count: int = 0,
    *,
    policy: QueuePolicy | None = None,
    committed_only: bool = False,
) -> World:
    await node.create("t", 1)
    if count:
        await node.produce("t", count)
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    keeper = Keeper()
    policy = policy or QueuePolicy(lock_ms=1_000, backoff_base_ms=0)
    made: World
    queue = OpenQueue(
        QueueKey("g", partition.topic_id, 0),
        partition,
        Delivery(policy, QueueState(Snapshot(0))),
        Loaded(),
        Intake(policy.order),
        keeper,
        node.workers,
        node.around.time,
        on_given_up=lambda queue: made.dead_lettered.append(queue),
        closed=lambda queue: made.closed.append(queue),
        unreadable=lambda error: None,
        committed_only=committed_only,
    )
    made = World(node, keeper, queue)
    queue.start()
    await asyncio.sleep(0.05)
    return made


@run_with(on_node, configs=CONFIGS)
async def test_waiting_receiver_is_served_when_records_are_committed(node: Node) -> None:
    here = await world(node)
    taking = Taking()
    here.queue.take(taking)
    await asyncio.sleep(1)
    assert taking.offsets == []
    await append(node, (), ())
    await asyncio.sleep(0.01)
    assert taking.offsets == [0, 1]
    assert taking.is_kept
    assert here.queue.waiting == 0


@run_with(on_node, configs=CONFIGS)
async def test_waiting_receivers_get_equal_shares(node: Node) -> None:
    here = await world(node)
    takers = [Taking(name, 100) for name in "abcd"]
    for taker in takers:
        here.queue.take(taker)
    await append(node, *[()] * 10)
    await asyncio.sleep(0.01)
    assert [len(taker.offsets) for taker in takers] == [3, 3, 2, 2]
    assert sorted(o for taker in takers for o in taker.offsets) == list(range(10))


@run_with(on_node, configs=CONFIGS)
async def test_expired_receiver_gets_nothing(node: Node) -> None:
    here = await world(node)
    first, second, third = Taking("a"), Taking("b", 0), Taking("c")
    for taker in (first, second, third):
        here.queue.take(taker)
    here.queue.forget(first)
    assert not here.queue.is_waiting(first)
    await append(node, ())
    await asyncio.sleep(0.01)
    assert (first.offsets, second.offsets, third.offsets) == ([], [], [0])


@run_with(on_node, configs=CONFIGS)
async def test_decisions_of_one_turn_are_persisted_as_one_delta_before_replies(node: Node) -> None:
    here = await world(node, 6)
    here.keeper.is_prompt = False
    takers = [Taking("a", 2), Taking("b", 2)]
    for taker in takers:
        here.queue.take(taker)
    await asyncio.sleep(0.01)
    assert len(here.keeper.written) == 1
    assert [taker.is_kept for taker in takers] == [False, False]
    here.keeper.futures[0].set_result(1)
    await asyncio.sleep(0)
    assert [taker.is_kept for taker in takers] == [True, True]


@run_with(on_node, configs=CONFIGS)
async def test_persisted_deltas_restore_the_same_state(node: Node) -> None:
    here = await world(node, 20)
    for number in range(6):
        taking = Taking("a", 2)
        here.queue.take(taking)
        offset = taking.offsets[0]
        if number % 2:
            here.queue.change(lambda m, now: m.accept("a", offset, offset, now), lambda _: None)  # noqa: B023
        await asyncio.sleep(0.2)
    assert here.keeper.replay().snapshot() == here.queue.machine.kept.snapshot()
    numbers = [number for number, _, is_snapshot in here.keeper.written if not is_snapshot]
    assert numbers == list(range(1, len(numbers) + 1))


@run_with(on_node, configs=CONFIGS)
async def test_deltas_as_large_as_a_snapshot_are_followed_by_one(node: Node) -> None:
    here = await world(node, 1)
    text = "x" * 500
    while not any(is_snapshot for _, _, is_snapshot in here.keeper.written):
        here.queue.take(Taking("a"))
        here.queue.change(
            lambda m, now: m.release(
                "a", 0, 0, now, delay_ms=0, error_class=text, error_message=text
            ),
            lambda _: None,
        )
        here.queue.machine.kept.failures.clear()
        await asyncio.sleep(0.001)
    sizes = [len(payload) for _, payload, _ in here.keeper.written[:-1]]
    assert SNAPSHOT_BYTES_MIN <= sum(sizes) < SNAPSHOT_BYTES_MIN + 4_000
    number = here.keeper.written[-1][0]
    assert number == here.keeper.written[-2][0]


@pytest.mark.parametrize("is_known_at_once", [True, False])
@run_with(on_node, configs=CONFIGS)
async def test_queue_that_cannot_be_persisted_closes_and_refuses_all_calls(
    node: Node, *, is_known_at_once: bool
) -> None:
    here = await world(node, 1)
    refusal = Refused(ErrorCode.FENCED_STATE_EPOCH)
    here.keeper.is_prompt = False
    if is_known_at_once:
        here.keeper.refusal = refusal
    taking, waiting = Taking("a"), Taking("b")
    here.queue.take(taking)
    here.queue.take(waiting)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if not is_known_at_once:
        assert not here.queue.is_closed
        here.keeper.futures[0].set_exception(refusal)
        await asyncio.sleep(0)
    assert here.queue.is_closed
    assert here.closed == [here.queue]
    for taker in (taking, waiting):
        assert taker.refused is not None
        assert taker.refused.code is ErrorCode.FENCED_STATE_EPOCH
        assert not taker.is_kept
    with pytest.raises(Refused):
        here.queue.take(Taking())
    with pytest.raises(Refused):
        here.queue.change(lambda m, now: m.tick(now), lambda _: None)


@run_with(on_node, configs=CONFIGS)
async def test_expired_lease_goes_to_the_next_receiver(node: Node) -> None:
    here = await world(node, 1)
    first, second = Taking("a"), Taking("b")
    here.queue.take(first)
    here.queue.take(second)
    await asyncio.sleep(0.9)
    assert second.offsets == []
    await asyncio.sleep(0.2)
    assert [(one.first, one.delivery_count) for one in second.given] == [(0, 2)]


@run_with(on_node, configs=CONFIGS)
async def test_dead_letters_are_announced_once_persisted(node: Node) -> None:
    here = await world(node, 1)
    here.queue.take(Taking("a"))
    await asyncio.sleep(0)
    here.keeper.is_prompt = False
    here.queue.change(lambda m, now: m.reject("a", 0, 0, now), lambda _: None)
    await asyncio.sleep(0.1)
    assert here.dead_lettered == []
    here.keeper.futures[-1].set_result(0)
    await asyncio.sleep(0)
    assert here.dead_lettered == [here.queue]


@run_with(on_node, configs=CONFIGS)
async def test_queue_ends_with_its_partition_leadership(node: Node) -> None:
    here = await world(node)
    taking = Taking()
    here.queue.take(taking)
    await node.delete("t")
    assert here.queue.is_closed
    assert taking.refused is not None
    assert taking.refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
