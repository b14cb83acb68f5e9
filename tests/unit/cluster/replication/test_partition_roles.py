"""One replica in both roles: commits, and notifications when a role ends."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import NodeId, TopicId
from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.cluster.replication.partition import Partition, ReplicaContext
from penstock.log.config import LogConfig
from penstock.log.flusher import Flusher
from penstock.log.log import Log
from penstock.wire.records import Record, encode, read_header, stamp
from simulation.disk import SimDisk
from simulation.loop import SimLoop, run
from simulation.workers import SimWorkers
from tests.run_with import run_with
from tests.unit.cluster.replication.test_partition import RULES, Waiter

NONE, MOVED = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER
THREE = PartitionRecord((1, 2, 3), 1, (1, 2, 3), 4, 10)


class Validity:
    valid_until = float("inf")


class Bench:
    """One of three replicas, on a disk whose syncs take a second."""

    def __init__(self, loop: SimLoop, config: LogConfig) -> None:
        self.loop = loop
        self.disk = SimDisk(loop.seed)
        self.disk.mkdir("data")
        self.workers = SimWorkers(loop.seed, delay_s=(1.0, 1.0))
        self.validity = Validity()
        self.due: list[Partition] = []
        self.ready: list[Partition] = []
        self.silent: set[int] = set()
        flusher = Flusher(self.disk, self.workers, lambda error: None)
        home = ReplicaContext(
            NodeId(1),
            flusher,
            self.validity,
            self.due.append,
            self.ready.append,
            is_reachable=lambda node: node not in self.silent,
        )
        self.log = Log.open(self.disk, "data/t-0", config, 0)
        follower = PartitionRecord((1, 2, 3), 2, (1, 2, 3), 3, 9)
        self.partition = Partition(
            "t", TopicId(bytes(16)), 0, self.log, follower, RULES, home, high_watermark=0
        )
        self.waiter = Waiter()

    def lead(self, record: PartitionRecord = THREE, min_isr: int = 2) -> None:
        self.partition.lead(record, min_isr, self.loop.time())

    def batch(self, count: int = 1) -> memoryview:
        return memoryview(encode([Record(0, 1000, None, b"v", ())] * count))

    def append(self, count: int = 1) -> int:
        batch = self.batch(count)
        return self.partition.append(batch, read_header(batch), 0).last_offset + 1

    def fetched(self, node: int, offset: int) -> None:
        self.partition.replica_fetched(node, 1, offset, self.loop.time())


def on_bench(test: Callable[[Bench], Awaitable[None]], config: LogConfig | None = None) -> None:
    async def main(loop: SimLoop) -> None:
        await test(Bench(loop, config or LogConfig()))

    run(main)


@run_with(on_bench)
async def test_follower_refuses_appends(bench: Bench) -> None:
    with pytest.raises(Refused) as refused:
        bench.append()
    assert refused.value.code is MOVED
    assert not bench.partition.is_leader


@run_with(on_bench)
async def test_append_is_committed_when_every_in_sync_replica_has_synced_it(
    bench: Bench,
) -> None:
    bench.lead()
    end = bench.append(2)
    bench.partition.when_committed(end, bench.waiter, "row")
    bench.fetched(2, end)
    bench.fetched(3, end)
    assert not bench.waiter.told, "it is not on our own disk yet"
    await asyncio.sleep(3)
    assert bench.waiter.told == [("row", NONE)]
    assert bench.partition.high_watermark == end

    end = bench.append()
    bench.partition.when_committed(end, bench.waiter, "next")
    await asyncio.sleep(3)
    bench.fetched(2, end)
    assert len(bench.waiter.told) == 1, "one of them has not fetched it"
    bench.fetched(3, end)
    assert bench.waiter.told[1:] == [("next", NONE)]


@run_with(on_bench)
async def test_acks_1_waits_only_for_the_local_disk(bench: Bench) -> None:
    bench.lead()
    end = bench.append()
    assert not bench.partition.when_written(end, bench.waiter, "row")
    await asyncio.sleep(3)
    assert bench.waiter.told == [("row", NONE)]
    assert bench.partition.high_watermark == 0
    assert bench.partition.when_written(end, bench.waiter, "again")


@run_with(on_bench)
async def test_end_of_a_role_notifies_its_waiters(bench: Bench) -> None:
    bench.lead()
    end = bench.append()
    bench.partition.when_committed(end, bench.waiter, "all")
    bench.partition.when_written(end, bench.waiter, "one")
    woken: list[str] = []
    bench.partition.watch(lambda: woken.append("reader"))
    bench.partition.watch_appends(lambda: woken.append("replica"))
    bench.partition.follow(PartitionRecord((1, 2, 3), 2, (2, 3), 5, 11))
    assert sorted(bench.waiter.told) == [("all", MOVED), ("one", MOVED)]
    assert sorted(woken) == ["reader", "replica"]
    await asyncio.sleep(3)
    assert len(bench.waiter.told) == 2, "the sync that ends later notifies no waiter again"
    assert bench.partition.leader_epoch == 5


@run_with(on_bench)
async def test_reelected_leader_keeps_its_waiters(bench: Bench) -> None:
    bench.lead()
    end = bench.append()
    bench.partition.when_committed(end, bench.waiter, "row")
    bench.lead(PartitionRecord((1, 2, 3), 1, (1, 2), 5, 11))
    assert bench.partition.leader_epoch == 5
    await asyncio.sleep(3)
    assert not bench.waiter.told, "fetches of the epoch before do not count"
    bench.fetched(2, end)
    assert bench.waiter.told == [("row", NONE)]


@run_with(on_bench)
async def test_waiters_are_notified_when_the_isr_falls_below_the_minimum(bench: Bench) -> None:
    bench.lead()
    end = bench.append()
    bench.partition.when_committed(end, bench.waiter, "row")
    bench.lead(PartitionRecord((1, 2, 3), 1, (1,), 4, 11, elr=(2, 3)))
    assert bench.waiter.told == [("row", ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
    await asyncio.sleep(3)
    assert bench.partition.high_watermark == 0, "and nothing is committed meanwhile"
    bench.lead(PartitionRecord((1, 2, 3), 1, (1, 2), 4, 12))
    bench.fetched(2, end)
    assert bench.partition.high_watermark == end


@run_with(on_bench)
async def test_node_unsure_of_its_registration_acknowledges_nothing(bench: Bench) -> None:
    bench.lead()
    end = bench.append()
    bench.partition.when_committed(end, bench.waiter, "all")
    bench.partition.when_written(end, bench.waiter, "one")
    bench.validity.valid_until = bench.loop.time() + 0.5
    await asyncio.sleep(3)
    assert bench.waiter.told == [("one", MOVED)]
    bench.fetched(2, end)
    bench.fetched(3, end)
    assert bench.waiter.told[1:] == [("all", MOVED)]
    assert not bench.partition.is_valid()


@run_with(on_bench)
async def test_fencing_notifies_every_waiter_at_once(bench: Bench) -> None:
    bench.lead()
    end = bench.append()
    bench.partition.when_committed(end, bench.waiter, "all")
    bench.partition.when_written(end, bench.waiter, "one")
    bench.partition.fence()
    assert sorted(bench.waiter.told) == [("all", MOVED), ("one", MOVED)]


@run_with(on_bench)
async def test_isr_is_examined_when_a_follower_has_caught_up(bench: Bench) -> None:
    bench.lead(PartitionRecord((1, 2, 3), 1, (1, 2), 4, 10))
    end = bench.append()
    await asyncio.sleep(3)
    bench.fetched(2, end)
    assert bench.partition.high_watermark == end
    bench.fetched(3, end - 1)
    assert bench.due == []
    bench.fetched(3, end)
    assert bench.due == [bench.partition]


@run_with(on_bench)
async def test_fetch_of_a_node_that_is_not_a_replica_is_refused(bench: Bench) -> None:
    bench.lead()
    with pytest.raises(Refused) as refused:
        bench.fetched(9, 0)
    assert refused.value.code is MOVED


@run_with(on_bench)
async def test_appends_wake_followers(bench: Bench) -> None:
    bench.lead()
    woken: list[int] = []

    def wake() -> None:
        woken.append(bench.log.end_offset)

    bench.partition.watch_appends(wake)
    bench.append(2)
    assert woken == [2]
    bench.partition.unwatch_appends(wake)
    bench.append()
    assert woken == [2]


@run_with(on_bench)
async def test_follower_takes_the_high_watermark_up_to_its_log_end(bench: Bench) -> None:
    partition = bench.partition
    bench.log.append_replica(_stamped(bench, 0, 3), 0)
    woken: list[int] = []
    partition.watch(lambda: woken.append(partition.high_watermark))
    partition.learn_high_watermark(2)
    partition.learn_high_watermark(9)
    partition.learn_high_watermark(1)
    assert partition.high_watermark == 3
    assert woken == [2, 3]


@run_with(on_bench)
async def test_replicated_records_are_synced_before_the_callback(bench: Bench) -> None:
    told: list[int] = []
    bench.log.append_replica(_stamped(bench, 0, 3), 0)
    bench.partition.copied()
    bench.partition.when_durable(3, lambda: told.append(bench.log.durable_offset))
    assert told == []
    await asyncio.sleep(3)
    assert told == [3]
    bench.partition.when_durable(3, lambda: told.append(-1))
    assert told == [3, -1], "nothing to wait for"


@run_with(on_bench, LogConfig(page_cache=True))
async def test_page_cache_policy_treats_replicated_records_as_durable(bench: Bench) -> None:
    told: list[int] = []
    bench.log.append_replica(_stamped(bench, 0, 3), 0)
    bench.partition.when_durable(3, lambda: told.append(3))
    assert told == [3]


@run_with(on_bench)
async def test_truncation_drops_waiters_and_makes_the_role_due(bench: Bench) -> None:
    partition = bench.partition
    bench.log.append_replica(_stamped(bench, 0, 3), 0)
    partition.copied()
    partition.learn_high_watermark(3)
    told: list[int] = []
    partition.when_durable(3, lambda: told.append(bench.log.end_offset))
    async with partition.hold():
        partition.is_under_repair = True
        bench.log.truncate_to(0, 0)
        partition.is_under_repair = False
        partition.repair_ended()
    assert told == [0]
    assert partition.high_watermark == 0
    assert bench.ready == [partition]


@run_with(on_bench)
async def test_failed_log_ends_every_wait(bench: Bench) -> None:
    bench.lead()
    end = bench.append()
    told: list[str] = []
    bench.partition.when_committed(end, bench.waiter, "all")
    bench.partition.when_written(end, bench.waiter, "one")
    bench.partition.when_durable(end, lambda: told.append("copier"))
    bench.log.fail("for the test")
    bench.partition.advance()
    code = ErrorCode.KAFKA_STORAGE_ERROR
    assert sorted(bench.waiter.told) == [("all", code), ("one", code)]
    assert told == ["copier"]


@run_with(on_bench)
async def test_new_leader_is_settled_when_the_records_it_found_are_committed(bench: Bench) -> None:
    bench.log.append_replica(_stamped(bench, 0, 3), 0)
    bench.partition.copied()
    await asyncio.sleep(3)
    bench.lead()
    assert not bench.partition.is_settled
    bench.fetched(2, 3)
    bench.fetched(3, 3)
    assert bench.partition.is_settled


@run_with(on_bench)
async def test_epoch_unknown_to_this_log_ends_at_the_start_of_the_next(
    bench: Bench,
) -> None:
    bench.log.append_replica(_stamped(bench, 0, 3, epoch=1), 0)
    bench.lead()  # In epoch 4; another led 2 or 3, and wrote what was never committed.
    assert bench.partition.epoch_end(3) == (1, 3)
    assert bench.partition.epoch_end(1) == (1, 3)
    assert bench.partition.epoch_end(5) == (-1, -1)
    bench.append()
    assert bench.partition.epoch_end(3) == (1, 3)
    assert bench.partition.epoch_end(4) == (4, 4)


@run_with(on_bench)
async def test_checkpointed_high_watermark_is_bounded_by_the_log(
    bench: Bench,
) -> None:
    bench.log.append_replica(_stamped(bench, 0, 3), 0)
    home = ReplicaContext(NodeId(1), Flusher(bench.disk, bench.workers, lambda error: None))
    for known, taken in ((2, 2), (7, 3), (0, 0)):
        partition = Partition(
            "t", TopicId(bytes(16)), 0, bench.log, THREE, RULES, home, high_watermark=known
        )
        assert partition.high_watermark == taken


def _stamped(bench: Bench, offset: int, count: int, epoch: int = 3) -> memoryview:
    """A batch as a leader would send it."""
    batch = bench.batch(count)
    stamp(batch, offset, epoch)
    return batch


@run_with(on_bench)
async def test_leader_is_in_touch_while_it_hears_a_majority_or_all_in_sync(bench: Bench) -> None:
    assert not bench.partition.is_in_touch(), "it follows"
    bench.lead()
    bench.silent = {2}
    assert bench.partition.is_in_touch()
    bench.silent = {2, 3}
    assert not bench.partition.is_in_touch()
    bench.lead(PartitionRecord((1, 2, 3), 1, (1,), 4, 11))
    assert bench.partition.is_in_touch(), "no other replica is in sync, so none can lead"
    bench.validity.valid_until = 0.0
    assert not bench.partition.is_in_touch()
