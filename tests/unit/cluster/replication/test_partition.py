"""One led partition: what is committed when, and who hears of it."""

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import NodeId, TopicId
from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.cluster.replication.partition import Partition, ProduceRules, ReplicaContext
from penstock.log.config import LogConfig
from penstock.log.flusher import Flusher
from penstock.log.log import Appended, Log
from penstock.wire.records import Record, encode, read_header
from simulation.disk import Fault, SimDisk
from simulation.loop import SimLoop, run
from simulation.workers import SimWorkers
from tests.run_with import run_with

RULES = ProduceRules(1 << 20, False, 1 << 60, 1 << 60, False, None)


class Waiter:
    """Records each notification with its row."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ErrorCode]] = []

    def committed(self, row: object, code: ErrorCode) -> None:
        self.told.append((row, code))


class Bench:
    """A partition on a simulated disk whose syncs take a second."""

    def __init__(self, loop: SimLoop, config: LogConfig) -> None:
        self.disk = SimDisk(loop.seed)
        self.disk.mkdir("data")
        self.failures: list[OSError] = []
        workers = SimWorkers(loop.seed, delay_s=(1.0, 1.0))
        flusher = Flusher(self.disk, workers, self.failures.append)
        log = Log.open(self.disk, "data/t-0", config, 0)
        home = ReplicaContext(NodeId(1), flusher)
        record = PartitionRecord((1,), 1, (1,), leader_epoch=4)
        self.partition = Partition("t", TopicId(bytes(16)), 0, log, record, RULES, home)
        self.partition.lead(record, 1, loop.time())
        self.waiter = Waiter()

    def append(self, count: int = 1, sequence: int = -1) -> Appended:
        producer = 9 if sequence >= 0 else -1
        batch = memoryview(
            encode(
                [Record(0, 1000, None, b"v", ())] * count,
                producer_id=producer,
                producer_epoch=0 if sequence >= 0 else -1,
                base_sequence=sequence,
            )
        )
        return self.partition.append(batch, read_header(batch), 0)

    def park(self, end_offset: int, row: object) -> bool:
        return self.partition.when_committed(end_offset, self.waiter, row)


def on_bench(test: Callable[[Bench], Awaitable[None]], config: LogConfig | None = None) -> None:
    async def main(loop: SimLoop) -> None:
        await test(Bench(loop, config or LogConfig()))

    run(main)


@run_with(on_bench)
async def test_append_is_committed_when_it_is_on_disk(bench: Bench) -> None:
    partition = bench.partition
    bench.append(2)
    bench.append(1)
    assert not bench.park(2, "first")
    assert not bench.park(3, "second")
    assert partition.high_watermark == 0
    await asyncio.sleep(3)
    assert partition.high_watermark == partition.last_stable_offset == 3
    assert bench.waiter.told == [("first", ErrorCode.NONE), ("second", ErrorCode.NONE)]
    assert bench.park(3, "third"), "nothing to wait for"


@run_with(on_bench)
async def test_only_waiters_of_the_committed_part_are_notified(bench: Bench) -> None:
    bench.append()
    bench.park(1, "first")
    await asyncio.sleep(0.5)  # The first sync is under way and does not cover this one.
    bench.append()
    bench.park(2, "second")
    await asyncio.sleep(0.9)
    assert [row for row, _ in bench.waiter.told] == ["first"]
    await asyncio.sleep(2)
    assert [row for row, _ in bench.waiter.told] == ["first", "second"]


@run_with(on_bench, LogConfig(page_cache=True))
async def test_page_cache_policy_commits_at_once(bench: Bench) -> None:
    woken: list[int] = []
    bench.partition.watch(lambda: woken.append(bench.partition.high_watermark))
    bench.append()
    assert bench.park(1, "row")
    assert woken == [1]


@run_with(on_bench)
async def test_policy_change_applies_from_the_next_batch(bench: Bench) -> None:
    bench.append()
    bench.park(1, "before")
    bench.partition.configure(LogConfig(page_cache=True), RULES)
    bench.append()
    assert bench.waiter.told == [("before", ErrorCode.NONE)]
    bench.partition.configure(LogConfig(), RULES)
    bench.append()
    assert not bench.park(3, "after")
    await asyncio.sleep(5)
    assert bench.waiter.told[-1] == ("after", ErrorCode.NONE)


@run_with(on_bench)
async def test_config_change_reaches_log_producers_and_rules(bench: Bench) -> None:
    config = LogConfig(segment_bytes=12345, producer_expiration_ms=77)
    rules = ProduceRules(5, True, 0, 0, True, 1)
    bench.partition.configure(config, rules)
    assert bench.partition.log.config is config
    assert bench.partition.log.producers.expiration_ms == 77
    assert bench.partition.rules is rules


@run_with(on_bench)
async def test_duplicate_is_not_appended_and_not_synced(bench: Bench) -> None:
    bench.append(sequence=0)
    await asyncio.sleep(3)
    again = bench.append(sequence=0)
    assert again.duplicate
    assert bench.park(again.last_offset + 1, "again")


@run_with(on_bench)
async def test_readers_are_woken_in_order_until_they_unsubscribe(bench: Bench) -> None:
    woken: list[str] = []

    def first() -> None:
        woken.append("first")

    def second() -> None:
        woken.append("second")
        bench.partition.unwatch(second)

    bench.partition.watch(first)
    bench.partition.watch(second)
    for _ in range(2):
        bench.append()
        await asyncio.sleep(3)
    bench.partition.unwatch(first)
    bench.partition.unwatch(first)
    bench.append()
    await asyncio.sleep(3)
    assert woken == ["first", "second", "first"]


@run_with(on_bench)
async def test_failed_sync_notifies_every_waiter_and_commits_nothing(bench: Bench) -> None:
    woken: list[str] = []
    bench.partition.watch(lambda: woken.append("reader"))
    bench.append()
    bench.park(1, "row")
    bench.disk.inject(Fault("sync", errno.EIO))
    await asyncio.sleep(3)
    assert bench.waiter.told == [("row", ErrorCode.KAFKA_STORAGE_ERROR)]
    assert woken == ["reader"]
    assert bench.partition.high_watermark == 0
    assert len(bench.failures) == 1
    with pytest.raises(Refused) as refused:
        bench.append()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@run_with(on_bench)
async def test_failed_write_notifies_waiters_of_earlier_appends(bench: Bench) -> None:
    bench.append()
    bench.park(1, "earlier")
    bench.disk.inject(Fault("append", errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        bench.append()
    assert bench.waiter.told == [("earlier", ErrorCode.KAFKA_STORAGE_ERROR)]
    await asyncio.sleep(3)
    assert len(bench.waiter.told) == 1


@run_with(on_bench)
async def test_full_disk_does_not_affect_waiters(bench: Bench) -> None:
    bench.append()
    bench.park(1, "earlier")
    bench.disk.inject(Fault("append", errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        bench.append()
    assert not bench.waiter.told
    await asyncio.sleep(3)
    assert bench.waiter.told == [("earlier", ErrorCode.NONE)]


@run_with(on_bench)
async def test_closed_partition_notifies_its_waiters_of_the_reason(bench: Bench) -> None:
    woken: list[str] = []
    bench.partition.watch(lambda: woken.append("reader"))
    bench.append()
    bench.park(1, "row")
    bench.partition.close("deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert bench.waiter.told == [("row", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert woken == ["reader"]
    await asyncio.sleep(3)
    assert len(bench.waiter.told) == 1
    assert bench.partition.log.offline == "deleted"


@run_with(on_bench)
async def test_moved_start_is_durable_when_acknowledged_and_wakes_readers(bench: Bench) -> None:
    woken: list[int] = []
    bench.append(5)
    await asyncio.sleep(3)
    bench.partition.watch(lambda: woken.append(bench.partition.log.start_offset))
    await bench.partition.delete_before(3)
    assert woken == [3]
    reopened = Log.open(bench.disk, "data/t-0", LogConfig(), 0)
    assert reopened.start_offset == 3


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, None),
        (4, None),
        (3, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
@run_with(on_bench)
async def test_another_leader_epoch_is_fenced(
    bench: Bench, *, epoch: int, code: ErrorCode | None
) -> None:
    if code is None:
        bench.partition.check_epoch(epoch)
        return
    with pytest.raises(Refused) as refused:
        bench.partition.check_epoch(epoch)
    assert refused.value.code is code


def test_rules_that_need_the_records_set_look_inside() -> None:
    assert not RULES.look_inside
    assert ProduceRules(1, False, 0, 0, True, None).look_inside
    assert ProduceRules(1, False, 0, 0, False, 0).look_inside
