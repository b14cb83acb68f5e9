"""Reading records at given offsets, leaping over the rest."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.consumer import record_reader
from penstock.client.consumer.fetched import INLINE_BYTES_MAX, FetchedRecord
from penstock.client.consumer.record_reader import read_at, select_at
from penstock.client.metadata import TopicPartition
from penstock.state.queues.intervals import IntervalSet
from penstock.wire.compression import Codec
from penstock.wire.records import read_header
from tests.run_with import run_with
from tests.unit.client.on_cluster import Desk, WatchedWorkers, on_cluster
from tests.unit.log.building import unreadable

T0 = TopicPartition("t", 0)


def between(*runs: tuple[int, int]) -> IntervalSet:
    wanted = IntervalSet()
    for first, last in runs:
        wanted.add(first, last)
    return wanted


async def offsets(desk: Desk, wanted: IntervalSet) -> list[int]:
    return [message.offset async for message in read_at(desk.cluster, T0, wanted)]


@run_with(on_cluster)
async def test_only_requested_existing_offsets_are_read(desk: Desk) -> None:
    await desk.admin.create_topic("t", 1, 1)
    await desk.produce("t", [b"%d" % number for number in range(50)])
    await desk.admin.delete_records({T0: 5})
    wanted = between((2, 6), (20, 20), (40, 41), (48, 90))
    assert await offsets(desk, wanted) == [5, 6, 20, 40, 41, 48, 49]
    assert await offsets(desk, between((70, 80))) == []
    assert await offsets(desk, IntervalSet()) == []


@pytest.mark.parametrize(
    ("codec", "size", "is_by_workers"),
    [
        (Codec.NONE, 10, False),
        (Codec.ZSTD, 10, True),
        (Codec.NONE, INLINE_BYTES_MAX, True),
    ],
)
@run_with(on_cluster)
async def test_large_batches_are_decompressed_by_workers(
    desk: Desk, *, codec: Codec, size: int, is_by_workers: bool
) -> None:
    await desk.admin.create_topic("t", 1, 1)
    await desk.produce("t", [b"a" * size, b"b" * size], codec=codec)
    assert await offsets(desk, between((0, 1))) == [0, 1], "without any"
    desk.cluster.workers = workers = WatchedWorkers()
    assert await offsets(desk, between((0, 1))) == [0, 1]
    assert (record_reader.__name__ in workers.modules) is is_by_workers


@run_with(on_cluster)
async def test_large_decompressed_batches_arrive_in_ordered_parts(
    desk: Desk, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_reader, "PIECE_RECORDS", 10)
    monkeypatch.setattr(record_reader, "PIECE_BYTES", 1_000)

    await desk.admin.create_topic("t", 1, 1)
    values = [b"%d" % number for number in range(55)] + [b"x" * 600] * 5
    await desk.produce("t", values, codec=Codec.ZSTD)
    desk.cluster.workers = workers = WatchedWorkers()
    assert await offsets(desk, between((0, 20), (30, 59))) == [*range(21), *range(30, 60)]
    # Five of ten records, one of five small ones and two large ones, two of the other three.
    assert len(workers.modules) == 8

    def odd(message: FetchedRecord) -> bytes | None:
        return message.value if message.offset % 2 else None

    workers.modules.clear()
    picked = [value async for value in select_at(desk.cluster, T0, between((4, 9)), odd)]
    assert picked == [b"5", b"7", b"9"]
    assert len(workers.modules) == 1, "nothing is unpacked after the last that is wanted"


@pytest.mark.parametrize("workers", [None, WatchedWorkers()])
@run_with(on_cluster)
async def test_corrupt_batch_is_refused_when_it_is_reached(
    desk: Desk, *, workers: WatchedWorkers | None
) -> None:
    await desk.admin.create_topic("t", 1, 1)
    await desk.produce("t", [b"good"])
    (node,) = desk.nodes.nodes()
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    junk = unreadable(Codec.ZSTD)
    partition.append(junk, read_header(junk), 1)
    while partition.high_watermark < 4:
        await asyncio.sleep(0.01)
    desk.cluster.workers = workers
    assert await offsets(desk, between((0, 0))) == [0]
    with pytest.raises(Refused, match=r"t\[0\]: offsets 1 to 3 .* read on at offset 4") as caught:
        await offsets(desk, between((0, 3)))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
