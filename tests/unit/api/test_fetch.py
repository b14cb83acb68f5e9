"""Fetch: what is found, how much of it, how long it waits, and what a session leaves out."""

import asyncio
import errno
from collections.abc import Iterable
from typing import Any

import pytest

from penstock.api.fetch import SLICE_BYTES_MIN, WAIT_MS_MAX, fetch
from penstock.api.route import Operation, ResourceType
from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId
from penstock.base.ports import Put
from penstock.cluster import keys
from penstock.cluster.partition import Partition
from penstock.sim.disk import Fault
from penstock.wire.markers import encode_marker
from penstock.wire.messages.fetch import (
    FetchForgottenTopic,
    FetchPartition,
    FetchPartitionData,
    FetchReplicaState,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from penstock.wire.records import Record, batches, encode, read_header
from tests.unit.api.harness import Node, Pending, on_node

VERSION = 12
BIG = 1 << 20


def asked(
    *parts: tuple[str, int, int],
    bytes_max: int = BIG,
    epoch: int = -1,
    last_epoch: int = -1,
) -> list[FetchTopic]:
    """Each part is a topic, a partition and an offset."""
    return [
        FetchTopic(
            topic=topic,
            partitions=[
                FetchPartition(
                    partition=index,
                    current_leader_epoch=epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=last_epoch,
                    partition_max_bytes=bytes_max,
                )
            ],
        )
        for topic, index, offset in parts
    ]


def request(topics: Iterable[FetchTopic], **options: Any) -> FetchRequest:
    options = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": BIG, **options}
    return FetchRequest(topics=list(topics), **options)


def rows(response: FetchResponse) -> list[FetchPartitionData]:
    return [row for topic in response.responses for row in topic.partitions]


def offsets(row: FetchPartitionData) -> list[int]:
    """The base offsets of the whole batches in a row."""
    assert isinstance(row.records, memoryview)
    return [header.base_offset for _, header in batches(row.records)]


async def ask(node: Node, *parts: tuple[str, int, int], **options: Any) -> Any:
    chosen = {
        key: options.pop(key) for key in ("bytes_max", "epoch", "last_epoch") if key in options
    }
    version = options.pop("version", VERSION)
    return await node.ask(fetch, version, request(asked(*parts, **chosen), **options))


async def park(node: Node, *parts: tuple[str, int, int], **options: Any) -> Pending:
    options = {"max_wait_ms": 10_000, **options}
    return await node.send(fetch, VERSION, request(asked(*parts), **options))


def partition_of(node: Node, topic: str = "t", index: int = 0) -> Partition:
    partition = node.ctx.partitions.get(topic, index)
    assert partition is not None
    return partition


async def fill(node: Node, sizes: Iterable[int], topic: str = "t", index: int = 0) -> None:
    """Appends one batch with one value of each size, and waits until they are committed."""
    partition = partition_of(node, topic, index)
    for size in sizes:
        view = memoryview(encode([Record(0, 1000, None, bytes(size), ())]))
        partition.append(view, read_header(view), node.ctx.clock.now_ms())
    while partition.high_watermark < partition.log.end_offset:
        await asyncio.sleep(0.01)


def watchers(node: Node, topic: str = "t") -> int:
    return len(partition_of(node, topic)._reads)


# -- what is found ----------------------------------------------------------------------------


def test_committed_batches_are_answered_from_the_offset_on() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        await node.produce("t", 4)
        (row,) = rows(await ask(node, ("t", 0, 2)))
        assert offsets(row) == [2, 3]
        assert (row.error_code, row.high_watermark, row.last_stable_offset) == (0, 4, 4)
        assert row.log_start_offset == 0
        assert row.aborted_transactions is None

    on_node(check)


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_by_name_is_answered(version: int) -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        await node.produce("t", 1)
        (row,) = rows(await ask(node, ("t", 0, 0), version=version))
        assert offsets(row) == [0]

    on_node(check)


@pytest.mark.parametrize("version", range(13, 19))
def test_from_version_13_on_topics_are_named_by_id(version: int) -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        await node.produce("t", 1)
        topic_id = node.ctx.image.topics["t"].id
        unknown = TopicId(bytes(range(16)))
        topics = asked(("", 0, 0), ("", 0, 0))
        topics[0].topic_id, topics[1].topic_id = topic_id, unknown
        response = await node.ask(fetch, version, request(topics))
        assert [topic.topic_id for topic in response.responses] == [topic_id, unknown]
        good, bad = rows(response)
        assert offsets(good) == [0]
        assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    on_node(check)


def test_what_is_not_committed_is_not_shown() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        await node.produce("t", 1)
        node.workers.delay_s = (50.0, 50.0)
        view = memoryview(encode([Record(0, 1000, None, b"early", ())]))
        partition_of(node).append(view, read_header(view), 0)
        (row,) = rows(await ask(node, ("t", 0, 0)))
        assert offsets(row) == [0]
        (row,) = rows(await ask(node, ("t", 0, 1)))
        assert (row.error_code, row.records) == (0, b"")

    on_node(check)


def test_every_refusal_is_a_row_of_its_own() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 2)
        await node.create("secret", 1)
        await node.produce("t", 3)
        node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "secret")
        response = await ask(
            node,
            ("t", 0, 1),
            ("t", 0, 4),
            ("t", 0, -5),
            ("t", 7, 0),
            ("gone", 0, 0),
            ("secret", 0, 0),
        )
        codes = [row.error_code for row in rows(response)]
        assert codes == [
            0,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ]
        assert all(row.high_watermark == -1 for row in rows(response) if row.error_code)

    on_node(check)


def test_an_error_is_answered_at_once() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        pending = await park(node, ("t", 0, 0), ("gone", 0, 0))
        assert pending.is_answered

    on_node(check)


def test_below_the_start_of_the_log_is_out_of_range() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        await node.produce("t", 3)
        await partition_of(node).delete_before(2)
        (row,) = rows(await ask(node, ("t", 0, 1)))
        assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    on_node(check)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.NONE),
        (3, ErrorCode.NONE),
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_client_with_another_leader_epoch_is_fenced(epoch: int, code: ErrorCode) -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        partition_of(node).leader_epoch = 3
        (row,) = rows(await ask(node, ("t", 0, 0), epoch=epoch))
        assert row.error_code == code

    on_node(check)


def test_a_history_that_departs_from_ours_is_told_where() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        await node.produce("t", 2)
        partition_of(node).leader_epoch = 5
        await fill(node, [10])
        (row,) = rows(await ask(node, ("t", 0, 3), last_epoch=2))
        assert row.diverging_epoch is not None
        assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (0, 2)
        assert row.records == b""
        (row,) = rows(await ask(node, ("t", 0, 3), last_epoch=0))
        assert row.diverging_epoch is not None
        (row,) = rows(await ask(node, ("t", 0, 2), last_epoch=0))
        assert row.diverging_epoch is None
        assert offsets(row) == [2]

    on_node(check)


def test_an_epoch_this_log_cannot_know_is_out_of_range() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        await node.produce("t", 2)
        (row,) = rows(await ask(node, ("t", 0, 1), last_epoch=9))
        assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    on_node(check)


@pytest.mark.parametrize("version", [12, 15])
def test_a_stranger_who_claims_to_be_a_replica_is_refused(version: int) -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        topics = asked(("t", 0, 0))
        topics[0].topic_id = node.ctx.image.topics["t"].id
        state = FetchReplicaState(replica_id=2, replica_epoch=1) if version >= 15 else None
        options = {"replica_state": state} if state else {"replica_id": 2}
        (row,) = rows(await node.ask(fetch, version, request(topics, **options)))
        assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    on_node(check)


def test_read_committed_stops_before_an_open_transaction_and_names_aborted_ones() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        partition = partition_of(node)

        def write(view: memoryview) -> None:
            partition.append(view, read_header(view), node.ctx.clock.now_ms())

        def in_txn(producer_id: int) -> memoryview:
            return memoryview(
                encode(
                    [Record(0, 1000, None, b"v", ())],
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=0,
                    transactional=True,
                )
            )

        write(in_txn(1))
        write(
            memoryview(
                encode_marker(
                    committed=False,
                    producer_id=1,
                    producer_epoch=0,
                    coordinator_epoch=0,
                    timestamp=1000,
                )
            )
        )
        write(in_txn(2))
        await fill(node, [1])
        (row,) = rows(await ask(node, ("t", 0, 0), isolation_level=1))
        assert (row.high_watermark, row.last_stable_offset) == (4, 2)
        assert offsets(row) == [0, 1]
        assert row.aborted_transactions is not None
        assert [(t.producer_id, t.first_offset) for t in row.aborted_transactions] == [(1, 0)]
        (row,) = rows(await ask(node, ("t", 0, 0), isolation_level=0))
        assert offsets(row) == [0, 1, 2, 3]

    on_node(check)


# -- how much ---------------------------------------------------------------------------------


def test_at_least_one_batch_is_answered_whatever_the_limits_say() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 2)
        await fill(node, [5000, 10])
        await fill(node, [5000], index=1)
        response = await ask(node, ("t", 0, 0), ("t", 1, 0), bytes_max=1, max_bytes=1)
        first, second = rows(response)
        assert offsets(first) == [0]
        assert second.records == b""

    on_node(check)


def test_max_bytes_holds_over_all_partitions() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 3)
        for index in range(3):
            await fill(node, [1000] * 4, index=index)
        size = partition_of(node).log.size_bytes // 4
        response = await ask(
            node, *(("t", index, 0) for index in range(3)), max_bytes=6 * size + size // 2
        )
        assert [len(row.records or b"") for row in rows(response)] == [
            4 * size,
            2 * size + size // 2,
            0,
        ]

    on_node(check)


def test_partition_max_bytes_may_end_inside_a_batch() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        await fill(node, [1000] * 4)
        (row,) = rows(await ask(node, ("t", 0, 0), bytes_max=2500))
        assert len(row.records or b"") == 2500
        assert offsets(row) == [0, 1]

    on_node(check)


def test_the_brokers_own_limit_holds_whatever_the_client_asks_for() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        await fill(node, [500] * 10)
        node.ctx.fetch_bytes_max = 1500
        (row,) = rows(await ask(node, ("t", 0, 0), bytes_max=2**31 - 1, max_bytes=2**31 - 1))
        assert len(row.records or b"") == 1500

    on_node(check)


def test_a_large_answer_is_the_files_bytes() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        await fill(node, [SLICE_BYTES_MIN, 10, SLICE_BYTES_MIN])
        (row,) = rows(await ask(node, ("t", 0, 0)))
        segment = partition_of(node).log.segments.active
        assert row.records == segment.file.read(0, segment.size)
        assert node.ctx.metrics.bytes_out.value == segment.size

    on_node(check)


# -- how long ---------------------------------------------------------------------------------


def test_without_data_it_waits_for_the_next_batch() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        pending = await park(node, ("t", 0, 0))
        assert not pending.is_answered
        assert watchers(node) == 1
        await node.produce("t", 1)
        (row,) = rows(await pending.reply())
        assert offsets(row) == [0]
        assert watchers(node) == 0

    on_node(check)


def test_after_max_wait_it_answers_with_what_there_is() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        await node.produce("t", 1)
        loop = asyncio.get_running_loop()
        start = loop.time()
        (row,) = rows(await ask(node, ("t", 0, 0), min_bytes=10_000, max_wait_ms=700))
        assert loop.time() - start == pytest.approx(0.7)
        assert offsets(row) == [0]
        assert watchers(node) == 0

    on_node(check)


def test_no_wait_is_longer_than_the_brokers_own_limit() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        loop = asyncio.get_running_loop()
        start = loop.time()
        await ask(node, ("t", 0, 0), max_wait_ms=2**31 - 1)
        assert loop.time() - start == pytest.approx(WAIT_MS_MAX / 1000)

    on_node(check)


def test_min_bytes_are_counted_over_all_partitions() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 2)
        pending = await park(node, ("t", 0, 0), ("t", 1, 0), min_bytes=1500)
        await fill(node, [800], index=0)
        await asyncio.sleep(0.1)
        assert not pending.is_answered
        await fill(node, [800], index=1)
        assert [offsets(row) for row in rows(await pending.reply())] == [[0], [0]]

    on_node(check)


def test_one_group_commit_wakes_a_fetch_once_for_all_its_partitions() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 2)
        pending = await park(node, ("t", 0, 0), ("t", 1, 0))
        for index in range(2):
            view = memoryview(encode([Record(0, 1000, None, b"v", ())]))
            partition_of(node, "t", index).append(view, read_header(view), 0)
        assert [offsets(row) for row in rows(await pending.reply())] == [[0], [0]]

    on_node(check)


def test_the_end_of_an_old_segment_does_not_wait_for_more() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1, segment_bytes="1048576")
        await fill(node, [100])
        partition_of(node).log.roll()
        await fill(node, [100])
        pending = await park(node, ("t", 0, 0), min_bytes=100_000)
        (row,) = rows(await pending.reply())
        assert offsets(row) == [0]
        assert asyncio.get_running_loop().time() < 10

    on_node(check)


def test_a_parked_fetch_whose_connection_is_lost_leaves_nothing_behind() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        pending = await park(node, ("t", 0, 0))
        view = memoryview(encode([Record(0, 1000, None, b"v", ())]))
        partition_of(node).append(view, read_header(view), 0)
        pending.call.abandon()
        assert watchers(node) == 0
        await asyncio.sleep(20)
        assert not pending.is_answered

    on_node(check)


def test_a_parked_fetch_hears_that_its_topic_was_deleted() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        await node.create("other", 1)
        pending = await park(node, ("t", 0, 0), ("other", 0, 0))
        await node.delete("t")
        gone, other = rows(await pending.reply())
        assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert other.error_code == 0
        assert watchers(node, "other") == 0

    on_node(check)


def test_a_parked_fetch_below_a_moved_start_is_out_of_range() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        await node.produce("t", 3)
        pending = await park(node, ("t", 0, 1), min_bytes=100_000)
        await partition_of(node).delete_before(2)
        (row,) = rows(await pending.reply())
        assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    on_node(check)


# -- the disk ---------------------------------------------------------------------------------


def test_an_offline_partition_is_an_error_even_at_its_end() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        await node.produce("t", 1)
        pending = await park(node, ("t", 0, 1))
        node.ctx.partitions.read_failed(partition_of(node), OSError(errno.EIO, "bad sector"))
        (row,) = rows(await pending.reply())
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        (row,) = rows(await ask(node, ("t", 0, 1)))
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    on_node(check)


@pytest.mark.parametrize("size", [100, SLICE_BYTES_MIN])
def test_what_is_not_in_memory_is_read_by_a_worker(size: int) -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        await fill(node, [size])
        node.disk.cold_ratio = 1.0
        (row,) = rows(await ask(node, ("t", 0, 0)))
        assert offsets(row) == [0]
        assert node.ctx.metrics.cold_reads.value == 1

    on_node(check)


@pytest.mark.parametrize("size", [100, SLICE_BYTES_MIN])
def test_bytes_that_cannot_be_read_take_the_partition_offline(size: int) -> None:
    async def check(node: Node) -> None:
        await node.create("t", 2)
        await fill(node, [size])
        await fill(node, [10], index=1)
        path = next(path for path in node.disk.files() if "/0/" in path and path.endswith(".log"))
        node.disk.damage(path, 0)
        first, second = rows(await ask(node, ("t", 0, 0), ("t", 1, 0)))
        assert first.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert offsets(second) == [0]
        assert partition_of(node).log.offline is not None

    on_node(check)


def test_an_error_while_looking_is_that_partitions_alone() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 2, segment_bytes="1048576")
        await fill(node, [100])
        await fill(node, [10], index=1)
        log = partition_of(node).log
        log.roll()
        await fill(node, [100])
        parked = await park(node, ("t", 0, 2))
        for segment in log.segments:
            segment.drop_tail()
            segment.forget()
        node.disk.inject(Fault("read", errno.EIO, path="/0/", times=1000))
        first, second = rows(await ask(node, ("t", 0, 1), ("t", 1, 0)))
        assert first.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert offsets(second) == [0]
        (row,) = rows(await parked.reply())
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    on_node(check)


# -- sessions ---------------------------------------------------------------------------------


async def open_session(node: Node, *parts: tuple[str, int, int]) -> FetchResponse:
    response: FetchResponse = await ask(node, *parts, session_epoch=0)
    assert response.session_id > 0
    return response


def names(response: FetchResponse) -> list[tuple[str, int]]:
    return [
        (topic.topic, row.partition_index)
        for topic in response.responses
        for row in topic.partitions
    ]


def test_an_incremental_answer_has_only_what_changed() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 3)
        full = await open_session(node, ("t", 0, 0), ("t", 1, 0), ("t", 2, 0))
        assert names(full) == [("t", 0), ("t", 1), ("t", 2)]
        session = full.session_id
        nothing = await ask(node, session_id=session, session_epoch=1)
        assert names(nothing) == []
        await node.produce("t", 1, index=1)
        news = await ask(node, session_id=session, session_epoch=2)
        assert names(news) == [("t", 1)]
        assert offsets(rows(news)[0]) == [0]
        # The consumer moves on; then only the start of another log changes.
        assert names(await ask(node, ("t", 1, 1), session_id=session, session_epoch=3)) == []
        await node.produce("t", 2, index=2)
        await ask(node, ("t", 2, 2), session_id=session, session_epoch=4)
        await partition_of(node, "t", 2).delete_before(1)
        moved = await ask(node, session_id=session, session_epoch=5)
        assert names(moved) == [("t", 2)]
        assert rows(moved)[0].log_start_offset == 1

    on_node(check)


def test_an_error_and_its_end_are_news() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        session = (await open_session(node, ("t", 0, 0), ("late", 0, 0))).session_id
        again = await ask(node, session_id=session, session_epoch=1)
        assert names(again) == [("late", 0)]
        await node.create("late", 1)
        better = await ask(node, session_id=session, session_epoch=2)
        assert names(better) == [("late", 0)]
        assert rows(better)[0].error_code == 0
        assert names(await ask(node, session_id=session, session_epoch=3)) == []

    on_node(check)


def test_partitions_are_added_and_forgotten() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 2)
        await node.produce("t", 1, index=0)
        session = (await open_session(node, ("t", 0, 0))).session_id
        added = await ask(node, ("t", 1, 0), session_id=session, session_epoch=1)
        assert names(added) == [("t", 0), ("t", 1)]
        forgotten = await ask(
            node,
            session_id=session,
            session_epoch=2,
            forgotten_topics_data=[FetchForgottenTopic(topic="t", partitions=[0])],
        )
        assert names(forgotten) == []

    on_node(check)


def test_who_had_data_goes_last_next_time() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 2)
        for index in range(2):
            await fill(node, [5000] * 3, index=index)
        response = await ask(node, ("t", 0, 0), ("t", 1, 0), session_epoch=0, max_bytes=1)
        assert [bool(row.records) for row in rows(response)] == [True, False]
        following = await ask(
            node, ("t", 0, 1), session_id=response.session_id, session_epoch=1, max_bytes=1
        )
        assert names(following) == [("t", 1)]

    on_node(check)


@pytest.mark.parametrize(
    ("session_shift", "epoch", "code"),
    [
        (1, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ],
)
def test_a_session_out_of_step_is_refused_as_a_whole(
    session_shift: int, epoch: int, code: ErrorCode
) -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        session = (await open_session(node, ("t", 0, 0))).session_id + session_shift
        response = await ask(node, session_id=session, session_epoch=epoch)
        assert (response.error_code, response.session_id, names(response)) == (code, 0, [])

    on_node(check)


def test_a_full_fetch_closes_the_session_that_it_names() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        first = (await open_session(node, ("t", 0, 0))).session_id
        again = await ask(node, ("t", 0, 0), session_id=first, session_epoch=0)
        assert again.session_id not in (0, first)
        closing = await ask(node, ("t", 0, 0), session_id=again.session_id, session_epoch=-1)
        assert closing.session_id == 0
        assert len(node.ctx.fetch_sessions) == 0

    on_node(check)


def test_a_session_survives_that_its_partition_was_forgotten_during_a_cold_read() -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        await node.produce("t", 1)
        session = (await open_session(node, ("t", 0, 1))).session_id
        node.disk.cold_ratio = 1.0
        slow = asyncio.ensure_future(ask(node, ("t", 0, 0), session_id=session, session_epoch=1))
        await asyncio.sleep(0)
        await ask(
            node,
            session_id=session,
            session_epoch=2,
            forgotten_topics_data=[FetchForgottenTopic(topic="t", partitions=[0])],
        )
        assert offsets(rows(await slow)[0]) == [0]

    on_node(check)


# -- configs ----------------------------------------------------------------------------------


def test_a_leader_that_moved_away_is_told_apart_from_a_topic_that_is_not() -> None:
    async def check(node: Node) -> None:
        record = keys.PartitionRecord((9,), 9, (9,))
        topic = keys.TopicRecord("AAAAAAAAAAAAAAAAAAAAAQ", (record,))
        revision = await node.store.commit([], [Put(keys.topic_key("far"), keys.encode(topic))])
        assert revision is not None
        await node.ctx.reached(revision)
        far, gone = rows(await ask(node, ("far", 0, 0), ("gone", 0, 0)))
        assert far.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    on_node(check)
