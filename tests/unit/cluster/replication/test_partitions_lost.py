"""Replicas that a node knows over its lives: what is missing later is lost, not new."""

import asyncio
import logging

import pytest
from msgspec.structs import replace

from penstock.cluster.metadata import accepted_losses
from penstock.cluster.metadata.store_keys import NO_LEADER, PartitionRecord
from penstock.cluster.replication.high_watermark_checkpoint import (
    FILE,
    FORMAT_KEY,
    HighWatermarkFile,
)
from penstock.cluster.replication.partitions import RETRY_SECONDS
from penstock.cluster.storage.log_directories import directory_of
from simulation.disk import Fault, SimDisk
from tests.run_with import run_with
from tests.unit.cluster.replication.test_partitions import Bench, on_bench
from tests.unit.cluster.replication.test_partitions_roles import OURS, become


def name_of(bench: Bench, topic: str = "t", index: int = 0) -> str:
    return f"{directory_of(topic, bench.watcher.image.topics[topic].id)}/{index}"


def disk_of(bench: Bench) -> SimDisk:
    assert isinstance(bench.disk, SimDisk)
    return bench.disk


@run_with(on_bench)
async def test_replica_is_recorded_before_it_is_served(bench: Bench) -> None:
    served: list[bool] = []

    def look() -> None:
        known = HighWatermarkFile(bench.disk, "data").read()
        served.extend(
            name_of(bench, one.topic, one.index) in known for one in bench.partitions.replicas()
        )

    disk_of(bench).on_operation = look
    await bench.create("t", 3)
    await bench.create("u", 1)
    disk_of(bench).on_operation = None
    assert len(bench.partitions) == 4
    assert all(served)
    known = HighWatermarkFile(bench.disk, "data").read()
    assert sorted(known) == sorted(
        [FORMAT_KEY, *(name_of(bench, "t", index) for index in range(3)), name_of(bench, "u")]
    )


@run_with(on_bench)
async def test_replica_that_cannot_be_recorded_is_not_served(bench: Bench) -> None:
    disk_of(bench).inject(Fault("rename", path=FILE))
    await bench.create("t")
    assert bench.partitions.replica("t", 0) is None
    await asyncio.sleep(RETRY_SECONDS + 1)
    assert not bench.get("t").log.is_lost
    assert name_of(bench) in HighWatermarkFile(bench.disk, "data").read()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("what", ["logs", "topic", "partition"])
@run_with(on_bench)
async def test_only_replica_is_lost_with_its_directory_and_the_rest_serve(
    bench: Bench, *, what: str, clean: bool
) -> None:
    await bench.create("t")
    await bench.create("u")
    await bench.write("t", 3)
    await bench.write("u", 2)
    await bench.partitions.save_watermarks()
    name = name_of(bench)
    path = {"logs": "", "topic": name.partition("/")[0], "partition": name}[what]
    states = await bench.stop()
    disk_of(bench).remove_path(f"data/logs/{path}".rstrip("/"))
    for _ in range(2):
        later = Bench(bench.loop, bench.disk, bench.root)
        later.store = bench.store
        await later.start(states if clean else None)
        lost = later.get("t")
        assert lost.log.is_lost
        assert lost.known_end == 3
        other = later.get("u")
        assert other.log.is_lost == (what == "logs")
        assert what == "logs" or other.log.end_offset == 2
        assert not bench.disk.exists(f"data/logs/{name}")
        states = await later.stop()


@run_with(on_bench)
async def test_directory_of_an_older_version_opens_without_entries(bench: Bench) -> None:
    await bench.create("t")
    await bench.write("t", 3)
    states = await bench.stop()
    disk_of(bench).remove_path(f"data/{FILE}")
    later = Bench(bench.loop, bench.disk, bench.root)
    later.store = bench.store
    await later.start(states)
    assert later.get("t").log.end_offset == 3
    assert later.get("t").log.offline is None
    await later.stop()


@run_with(on_bench)
async def test_clean_stop_state_reveals_a_lost_replica_without_any_entry(bench: Bench) -> None:
    await bench.create("t")
    await bench.write("t", 3)
    name = name_of(bench)
    states = await bench.stop()
    disk_of(bench).remove_path(f"data/{FILE}")
    disk_of(bench).remove_path(f"data/logs/{name}")
    later = Bench(bench.loop, bench.disk, bench.root)
    later.store = bench.store
    await later.start(states)
    assert later.get("t").log.is_lost
    await later.stop()


@run_with(on_bench)
async def test_replica_that_moved_away_and_back_is_not_lost(bench: Bench) -> None:
    await bench.create("t", 2)
    await bench.write("t", 3)
    await bench.partitions.save_watermarks()
    await become(bench, PartitionRecord((2, 3), 2, (2, 3), 2, 2))
    await bench.partitions.save_watermarks()
    assert name_of(bench) not in HighWatermarkFile(bench.disk, "data").read()
    await become(bench, PartitionRecord((1, 2, 3), 2, (2, 3), 2, 3))
    replica = bench.partitions.replica("t", 0)
    assert replica is not None
    assert (replica.log.is_lost, replica.log.end_offset) == (False, 0)


@run_with(on_bench)
async def test_known_end_excludes_records_that_are_not_synced(bench: Bench) -> None:
    await bench.create("t")
    await become(bench, OURS)
    partition = bench.get("t")
    partition.high_watermark = 5
    assert partition.known_end == min(5, partition.log.synced_offset) == 0


@pytest.mark.parametrize("what", ["gone", "damaged"])
@run_with(on_bench)
async def test_lost_replica_serves_again_when_its_loss_is_accepted(
    bench: Bench, *, what: str
) -> None:
    await bench.create("t")
    await bench.write("t", 5)
    await bench.partitions.save_watermarks()
    name = name_of(bench)
    await bench.stop()
    path = f"data/logs/{name}"
    if what == "gone":
        disk_of(bench).remove_path(path)
    else:
        segment = f"{path}/{0:020d}.log"
        disk_of(bench).remove_path(f"{path}/checkpoint")
        disk_of(bench).flip_bit(segment, bench.disk.size(segment) * 8 // 2)
    later = Bench(bench.loop, bench.disk, bench.root)
    later.store = bench.store
    await later.start(None)
    assert later.get("t").log.is_lost
    await asyncio.sleep(3 * RETRY_SECONDS)
    assert later.get("t").log.is_lost, "its loss was not accepted"
    accepted_losses.ask(bench.disk, "data", name)
    await asyncio.sleep(2 * RETRY_SECONDS)
    held = later.get("t")
    start, end = (5, 5) if what == "gone" else (0, 2)
    assert (held.log.offline, held.log.start_offset, held.log.end_offset) == (None, start, end)
    await later.write("t", 1)
    assert later.get("t").log.end_offset == end + 1
    assert accepted_losses.asked(bench.disk, "data") == []
    states = await later.stop()
    again = Bench(bench.loop, bench.disk, bench.root)
    again.store = bench.store
    await again.start(states)
    assert (again.get("t").log.offline, again.get("t").log.end_offset) == (None, end + 1)
    await again.stop()


@run_with(on_bench)
async def test_many_lost_replicas_are_logged_in_one_line(
    bench: Bench, *, caplog: pytest.LogCaptureFixture
) -> None:
    def told(level: int = logging.ERROR) -> list[str]:
        return [one.getMessage() for one in caplog.records if one.levelno == level]

    await bench.create("t", 30)
    await bench.create("u")
    await bench.partitions.save_watermarks()
    await bench.stop()
    disk_of(bench).remove_path("data/logs")
    later = Bench(bench.loop, bench.disk, bench.root)
    later.store = bench.store
    caplog.clear()
    await later.start(None)
    (line,) = told()
    assert line.startswith("31 replicas are offline: t-0, t-1, ")
    assert "t-9 and 21 more. The reason of the first: " in line
    assert "accept-loss --all --data data" in line
    for index in range(30):
        accepted_losses.ask(bench.disk, "data", name_of(later, "t", index))
    await asyncio.sleep(2 * RETRY_SECONDS)
    assert all(one.log.offline is None for one in later.partitions.replicas() if one.topic == "t")
    (line,) = told(logging.WARNING)
    assert "and 20 more: they continue without it" in line
    await later.stop()


@run_with(on_bench)
async def test_one_lost_replica_is_logged_with_its_command(
    bench: Bench, *, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.create("t")
    await bench.create("u")
    await bench.partitions.save_watermarks()
    name = name_of(bench)
    await bench.stop()
    disk_of(bench).remove_path(f"data/logs/{name}")
    later = Bench(bench.loop, bench.disk, bench.root)
    later.store = bench.store
    await later.start(None)
    (line,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert line.startswith("t-0 is offline: ")
    assert "accept-loss t 0 --data data" in line
    await later.stop()


def test_loss_is_accepted_only_of_records_that_cannot_be_copied() -> None:
    """The log would begin where it was lost, without the earlier records of other replicas."""
    assert accepted_losses.is_possible(PartitionRecord((1,), 1, (1,)), 1)
    record = PartitionRecord((1, 2), 2, (2,), 3, 3)
    assert not accepted_losses.is_possible(record, 1)
    assert not accepted_losses.is_possible(replace(record, leader=NO_LEADER, isr=(), elr=(2,)), 1)
    assert not accepted_losses.is_possible(replace(record, leader=NO_LEADER, isr=()), 1)
    chosen = replace(record, leader=1, isr=(1,), unclean_epoch=3, is_recovering=True)
    assert accepted_losses.is_possible(replace(chosen, unreconciled=(2,)), 1)


@run_with(on_bench)
async def test_loss_is_not_accepted_for_a_whole_or_needed_replica(
    bench: Bench,
) -> None:
    await bench.create("t", 2)
    await become(bench, OURS)
    accepted_losses.ask(bench.disk, "data", name_of(bench))
    accepted_losses.ask(bench.disk, "data", name_of(bench, "t", 1))
    held = bench.get("t")
    bench.partitions.lose(held, 9, "it was shown")
    await bench.create("u")
    await asyncio.sleep(2 * RETRY_SECONDS)
    assert bench.get("t") is held
    assert held.log.is_lost
    assert bench.get("t", 1).log.offline is None
