"""Retention keeps a message that waits for its time, however short the topic's retention is."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.storage.housekeeping import Housekeeping
from penstock.coordinator.groups_by_topic import Listing
from penstock.coordinator.queues.ack_retention import AckRetention
from penstock.coordinator.queues.delay_retention import DelayRetention
from penstock.state.queues import delivery_headers
from penstock.wire.records import Record, encode, read_header
from tests.run_with import run_with
from tests.unit.coordinator.queueing import (
    CONFIGS,
    Node,
    append,
    change,
    configure,
    key_of,
    on_node,
    take,
)

MINUTE_S = 60
SHORT = ((delivery_headers.DELAY_MS, b"10000"),)
DELAYED = ((delivery_headers.DELAY_MS, b"7200000"),)


@pytest.mark.parametrize("limit", ["retention_ms", "retention_bytes"])
@pytest.mark.parametrize("is_used", [True, False])
@run_with(on_node, configs=CONFIGS)
async def test_delay_longer_than_retention_is_kept(
    node: Node, *, limit: str, is_used: bool
) -> None:
    short = {limit: "600000"} if limit == "retention_ms" else {limit: "1", "retention_ms": "900000"}

    ctx = node.ctx
    upkeep = Housekeeping(
        ctx.partitions, ctx.configs, ctx.admin.directory.disk, ctx.workers, ctx.clock, "data"
    )
    AckRetention(ctx.queue.queues, ctx.queue.positions, ctx.configs, upkeep, ctx.clock)
    await node.create("t", 1, **short)
    partition = ctx.partitions.get("t", 0)
    assert partition is not None
    await configure(node, "g")
    if is_used:
        await ctx.queue.queues.open(await key_of(node))
    for headers in ((), DELAYED, ()):
        for _ in range(20):
            await append(node, headers)
        partition.log.roll()

    async def retain() -> None:
        for _ in range(3):
            await upkeep._retain_all()
            await asyncio.sleep(1)

    await asyncio.sleep(60 * MINUTE_S)
    await retain()
    if not is_used:
        assert partition.log.start_offset == 60
        return
    assert 0 < partition.log.start_offset <= 20, "no receiver waits for the first ones"
    await asyncio.sleep(65 * MINUTE_S)
    await retain()
    assert partition.log.start_offset <= 20, "they are due, and have their time from now on"
    taking = await take(await ctx.queue.queues.open(await key_of(node)), "a", 100)
    assert set(range(20, 40)) <= set(taking.offsets)
    queue = await ctx.queue.queues.open(await key_of(node))
    first, last = min(taking.offsets), max(taking.offsets)
    assert await change(queue, lambda m, now: m.accept("a", first, last, now)) is None
    await asyncio.sleep(30 * MINUTE_S)
    await retain()
    assert partition.log.start_offset == 60


class DelayBench:
    """A topic with a delayed record in the second of three segments; its queue was closed before.

    The first and the last segment have records without a delay.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        ctx = node.ctx
        self.housekeeping = Housekeeping(
            ctx.partitions, ctx.configs, ctx.admin.directory.disk, ctx.workers, ctx.clock, "data"
        )
        queues, positions = ctx.queue.queues, ctx.queue.positions
        AckRetention(queues, positions, ctx.configs, self.housekeeping, ctx.clock)
        delays = DelayRetention(queues, positions, ctx.workers)
        self.housekeeping.expires_until = delays.expires_until

    async def start(self, **configs: str) -> None:
        node = self.node
        await node.create("t", 1, **configs)
        await configure(node, "g")
        queue = await node.ctx.queue.queues.open(await key_of(node))
        queue.close(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self.partition = queue.partition
        for headers in ((), DELAYED, ()):
            for _ in range(20):
                await append(node, headers)
            self.partition.log.roll()
        await asyncio.sleep(1)

    async def start_after_retention(self) -> int:
        for _ in range(3):
            await self.housekeeping._retain_all()
            await asyncio.sleep(1)
        return self.partition.log.start_offset


BY_AGE = {"retention_ms": "600000"}
BY_SIZE = {"retention_bytes": "1", "retention_ms": "900000"}


@pytest.mark.parametrize("limit", [BY_AGE, BY_SIZE])
@run_with(on_node, configs=CONFIGS)
async def test_closed_queue_keeps_its_delayed_records(node: Node, *, limit: dict[str, str]) -> None:
    bench = DelayBench(node)
    await bench.start(**limit)
    await asyncio.sleep(60 * MINUTE_S)
    assert await bench.start_after_retention() == 20
    await asyncio.sleep(65 * MINUTE_S)
    assert await bench.start_after_retention() == 20, "they are due, and have the retention time"
    taking = await take(await node.ctx.queue.queues.open(await key_of(node)), "a", 100)
    assert set(range(20, 40)) <= set(taking.offsets)


@run_with(on_node, configs=CONFIGS)
async def test_delayed_records_expire_a_retention_time_after_they_came_due(node: Node) -> None:
    bench = DelayBench(node)
    await bench.start(**BY_AGE)
    await asyncio.sleep(129 * MINUTE_S)
    assert await bench.start_after_retention() == 20
    await asyncio.sleep(2 * MINUTE_S)
    assert await bench.start_after_retention() == 60


@run_with(on_node, configs=CONFIGS)
async def test_delayed_records_that_every_group_has_finished_expire(node: Node) -> None:
    bench = DelayBench(node)
    await bench.start(**BY_AGE)
    await node.ctx.queue.queues.move(await key_of(node), 40)
    await asyncio.sleep(60 * MINUTE_S)
    assert await bench.start_after_retention() == 60


@run_with(on_node, configs=CONFIGS)
async def test_delayed_records_are_kept_while_groups_cannot_be_listed(
    node: Node, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(*args: object) -> Listing:
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    bench = DelayBench(node)
    await bench.start(**BY_AGE)
    await asyncio.sleep(60 * MINUTE_S)
    monkeypatch.setattr(node.ctx.queue.positions, "everywhere", refuses)
    assert await bench.start_after_retention() == 20


@run_with(on_node, configs=CONFIGS)
async def test_acknowledged_retention_leaves_age_to_housekeeping(node: Node) -> None:
    bench = DelayBench(node)
    await bench.start(retention_mode="ack", **BY_AGE)
    await asyncio.sleep(60 * MINUTE_S)
    ctx = node.ctx
    keeper = AckRetention(
        ctx.queue.queues, ctx.queue.positions, ctx.configs, bench.housekeeping, ctx.clock
    )
    await node.ctx.queue.queues.move(await key_of(node), 5)
    await keeper.run_round()
    assert bench.partition.log.start_offset == 5


@pytest.mark.parametrize("skew_s", [-300, 300])
@pytest.mark.parametrize("also", [(), ((delivery_headers.PRIORITY, b"3"),)])
@run_with(on_node, configs=CONFIGS)
async def test_delay_counts_from_the_append_if_the_publisher_clock_is_wrong(
    node: Node, *, skew_s: int, also: tuple[tuple[str, bytes], ...]
) -> None:
    await node.create("t", 1)
    await configure(node, "g")
    queue = await node.ctx.queue.queues.open(await key_of(node))
    await append(node, ())
    await asyncio.sleep(60)
    sent_ms = node.ctx.clock.now_ms() + skew_s * 1000
    record = Record(0, sent_ms, None, b"v", ((delivery_headers.DELAY_MS, b"10000"), *also))
    batch = memoryview(encode([record]))
    queue.partition.append(batch, read_header(batch), node.ctx.clock.now_ms())
    await asyncio.sleep(9)
    assert (await take(queue)).offsets == [0]
    await asyncio.sleep(2)
    assert (await take(queue, "b")).offsets == [1]


@run_with(on_node, configs=CONFIGS)
async def test_future_timestamp_counts_as_now_if_the_record_is_found_later(
    node: Node,
) -> None:
    await node.create("t", 1)
    await configure(node, "g")
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    record = Record(0, node.ctx.clock.now_ms() + 300_000, None, b"v", SHORT)
    batch = memoryview(encode([record]))
    partition.append(batch, read_header(batch), node.ctx.clock.now_ms())
    await asyncio.sleep(5)
    queue = await node.ctx.queue.queues.open(await key_of(node))
    await asyncio.sleep(12)
    assert (await take(queue)).offsets == [0]


@run_with(on_node, configs=CONFIGS)
async def test_deleted_records_do_not_count_as_delayed(node: Node) -> None:
    await node.create("t", 1)
    await configure(node, "g")
    queue = await node.ctx.queue.queues.open(await key_of(node))
    for _ in range(10):
        await append(node, DELAYED)
    await asyncio.sleep(1)
    assert queue.machine.delayed_count == 10
    await queue.partition.delete_before(6)
    await append(node, ())
    await asyncio.sleep(1)
    assert queue.machine.delayed_count == 4
