"""The replicas of a node as their roles change: at once, and never twice in one epoch."""

import asyncio

from msgspec.structs import replace

from penstock.base.errors import ErrorCode
from penstock.base.ports import Put
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.cluster.replication.isr import IsrMaintenance
from penstock.cluster.replication.partition import Partition
from penstock.cluster.storage.log_directories import directory_of
from penstock.wire.records import Record, encode, read_header
from tests.run_with import run_with
from tests.unit.cluster.replication.test_partition import Waiter
from tests.unit.cluster.replication.test_partitions import Bench, on_bench

OURS = PartitionRecord((1, 2, 3), 1, (1, 2, 3), 1, 1)
THEIRS = PartitionRecord((1, 2, 3), 2, (1, 2, 3), 2, 2)


async def put(bench: Bench, record: PartitionRecord, index: int = 0) -> int:
    topic = bench.watcher.image.topics["t"]
    key = store_keys.partition_key(topic.id, index)
    revision = await bench.store.commit([], [Put(key, store_keys.encode(record))])
    assert revision is not None
    return revision


async def become(bench: Bench, record: PartitionRecord, index: int = 0) -> None:
    await bench.reached(await put(bench, record, index))


def append(partition: Partition) -> int:
    batch = memoryview(encode([Record(0, 1000, None, b"v", ())]))
    return partition.append(batch, read_header(batch), 0).last_offset + 1


async def again(bench: Bench, clean: bool) -> Bench:
    """The same node in another life."""
    states = await bench.stop()
    later = Bench(bench.loop, bench.disk, bench.root)
    later.store = bench.store
    await later.start(states if clean else None)
    return later


@run_with(on_bench)
async def test_get_returns_led_partitions_only_and_replica_returns_all(bench: Bench) -> None:
    await bench.create("t", 2)
    await become(bench, THEIRS)
    assert bench.partitions.get("t", 0) is None
    replica = bench.partitions.replica("t", 0)
    assert replica is not None
    assert not replica.is_leader
    assert [p.index for p in bench.partitions.led()] == [1]
    assert [p.index for p in bench.partitions.replicas()] == [0, 1]


@run_with(on_bench)
async def test_roles_follow_the_image_and_listeners_are_notified(bench: Bench) -> None:
    await bench.create("t")
    await become(bench, OURS)
    partition = bench.get("t")
    told: list[tuple[bool, int]] = []
    bench.partitions.on_change(lambda: told.append((partition.is_leader, partition.leader_epoch)))
    waiter = Waiter()
    partition.when_committed(append(partition), waiter, "row")
    revision = await put(bench, THEIRS)
    await bench.watcher.reached(revision)
    assert bench.partitions.get("t", 0) is None, "before anything else was done about it"
    assert told[0] == (False, 2)
    assert waiter.told == [("row", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    revision = await put(bench, replace(OURS, leader_epoch=3, partition_epoch=3))
    await bench.watcher.reached(revision)
    assert bench.get("t") is partition
    assert told[-1] == (True, 3)


@run_with(on_bench)
async def test_own_isr_change_is_not_undone_by_an_older_image(
    bench: Bench,
) -> None:
    await bench.create("t")
    await become(bench, OURS)
    partition = bench.get("t")
    bench.partitions.learn(partition, replace(OURS, isr=(1, 2), partition_epoch=9))
    await become(bench, replace(OURS, isr=(1, 3), partition_epoch=8))
    assert partition.record.isr == (1, 2)
    assert partition.leader_state is not None
    assert partition.leader_state.record.isr == (1, 2)


@run_with(on_bench)
async def test_replica_that_moved_away_loses_its_files_and_may_return_empty(
    bench: Bench,
) -> None:
    await bench.create("t", 2)
    await bench.write("t", 3)
    await become(bench, PartitionRecord((2, 3), 2, (2, 3), 2, 2))
    assert bench.partitions.replica("t", 0) is None
    await asyncio.sleep(1)
    directory = directory_of("t", bench.watcher.image.topics["t"].id)
    assert bench.disk.listdir(f"data/logs/{directory}") == ["1"]
    await become(bench, PartitionRecord((1, 2, 3), 2, (2, 3), 2, 3))
    replica = bench.partitions.replica("t", 0)
    assert replica is not None
    assert replica.log.end_offset == 0


@run_with(on_bench)
async def test_leader_does_not_continue_its_epoch_after_an_unclean_stop(bench: Bench) -> None:
    await bench.create("t")
    await become(bench, OURS)
    later = await again(bench, clean=False)
    replica = later.partitions.replica("t", 0)
    assert replica is not None
    assert later.partitions.get("t", 0) is None
    await become(later, replace(OURS, isr=(1, 2), partition_epoch=2))
    assert not replica.is_leader, "another ISR in the same epoch is not enough"
    await become(later, replace(OURS, leader_epoch=2, partition_epoch=3))
    assert later.get("t") is replica
    await later.stop()


@run_with(on_bench)
async def test_uncleanly_stopped_leader_asks_for_a_new_epoch_once_registered(bench: Bench) -> None:
    await bench.create("t")
    await become(bench, replace(OURS, isr=(1, 2)))
    later = await again(bench, clean=False)
    isr = IsrMaintenance(1, later.store, later.watcher, later.partitions, later.configs)
    later.tasks.append(asyncio.ensure_future(isr.run()))
    await asyncio.sleep(3)
    partition = later.get("t")
    assert partition.leader_epoch == 2
    assert partition.record == PartitionRecord((1, 2, 3), 1, (1, 2), 2, 2)
    await later.stop()


@run_with(on_bench)
async def test_leader_continues_its_epoch_after_a_clean_stop(bench: Bench) -> None:
    await bench.create("t")
    await become(bench, OURS)
    later = await again(bench, clean=True)
    assert later.get("t").leader_epoch == 1
    await later.stop()


@run_with(on_bench)
async def test_only_replica_continues_if_its_acknowledged_records_were_synced(bench: Bench) -> None:
    await bench.create("t")
    await bench.create("loose", flush_policy="page-cache")
    later = await again(bench, clean=False)
    assert later.get("t").is_leader
    assert later.partitions.get("loose", 0) is None
    await later.stop()


@run_with(on_bench)
async def test_log_under_repair_leads_once_it_is_truncated(bench: Bench) -> None:
    await bench.create("t")
    await become(bench, THEIRS)
    replica = bench.partitions.replica("t", 0)
    assert replica is not None
    replica.is_under_repair = True
    await become(bench, replace(OURS, leader_epoch=3, partition_epoch=3))
    assert bench.partitions.get("t", 0) is None
    assert replica.leader_epoch == 3, "but those who ask with an older epoch are fenced"
    replica.is_under_repair = False
    replica.repair_ended()
    assert bench.get("t") is replica


@run_with(on_bench)
async def test_checkpointed_high_watermarks_are_read_after_a_restart(bench: Bench) -> None:
    await bench.create("t")
    await become(bench, OURS)
    partition = bench.get("t")
    for _ in range(5):
        append(partition)
    await bench.flusher.drain()
    now_s = bench.loop.time()
    partition.replica_fetched(2, 1, 4, now_s)
    partition.replica_fetched(3, 1, 3, now_s)
    assert partition.high_watermark == 3
    await bench.partitions.save_watermarks()
    crashed = await again(bench, clean=False)
    replica = crashed.partitions.replica("t", 0)
    assert replica is not None
    assert replica.high_watermark == 3
    assert replica.log.end_offset == 5
    await crashed.stop()


@run_with(on_bench)
async def test_clean_stop_checkpoints_the_high_watermarks(bench: Bench) -> None:
    await bench.create("t")
    await become(bench, OURS)
    partition = bench.get("t")
    append(partition)
    await bench.flusher.drain()
    partition.replica_fetched(2, 1, 1, bench.loop.time())
    partition.replica_fetched(3, 1, 1, bench.loop.time())
    later = await again(bench, clean=True)
    assert later.get("t").high_watermark == 1
    await later.stop()


@run_with(on_bench)
async def test_fencing_reaches_every_led_partition(bench: Bench) -> None:
    await bench.create("t")
    await become(bench, OURS)
    partition, waiter = bench.get("t"), Waiter()
    partition.when_committed(append(partition), waiter, "row")
    bench.partitions.fence()
    assert waiter.told == [("row", ErrorCode.NOT_LEADER_OR_FOLLOWER)]


@run_with(on_bench)
async def test_one_uncleanly_closed_log_is_enough_to_ask_for_a_new_epoch(
    bench: Bench,
) -> None:
    await bench.create("t", 2)
    await become(bench, OURS)
    await become(bench, OURS, 1)
    states = await bench.stop()
    name = next(name for name in states if name.endswith("/1"))
    later = Bench(bench.loop, bench.disk, bench.root)
    later.store = bench.store
    await later.start({one: state for one, state in states.items() if one != name})
    assert later.get("t", 0).is_leader
    assert later.partitions.get("t", 1) is None
    await later.stop()
