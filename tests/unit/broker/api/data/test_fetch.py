"""Fetch: what is found, and how much of it."""

import asyncio
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId
from penstock.broker.api.data.fetch import RACK_AWARE, fetch, selects
from penstock.broker.api.data.fetch_reply import AGES_NOTED_MS, SLICE_BYTES_MIN
from penstock.broker.api.response_rows import CLUSTER_NAME
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import BrokerRecord
from penstock.wire.control_batches import encode_marker
from penstock.wire.messages.fetch import FetchPartitionData, FetchReplicaState
from penstock.wire.records import Record, encode, read_header, stamp
from tests.run_with import run_with
from tests.unit.broker.api.fetching import (
    ask,
    asked,
    fill,
    offsets,
    park,
    partition_of,
    request,
    rows,
)
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.replicating import EPOCH, append, led, replicate, synced


@run_with(on_node)
async def test_committed_batches_are_returned_from_the_offset(node: Node) -> None:
    await node.create("t", 1)
    await node.produce("t", 4)
    (row,) = rows(await ask(node, ("t", 0, 2)))
    assert offsets(row) == [2, 3]
    assert (row.error_code, row.high_watermark, row.last_stable_offset) == (0, 4, 4)
    assert row.log_start_offset == 0
    assert row.aborted_transactions is None


@pytest.mark.parametrize("version", range(4, 13))
@run_with(on_node)
async def test_every_version_with_topic_names_is_answered(node: Node, *, version: int) -> None:
    await node.create("t", 1)
    await node.produce("t", 1)
    (row,) = rows(await ask(node, ("t", 0, 0), version=version))
    assert offsets(row) == [0]


@pytest.mark.parametrize("version", range(13, 19))
@run_with(on_node)
async def test_topics_are_named_by_id_from_version_13(node: Node, *, version: int) -> None:
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


@run_with(on_node)
async def test_uncommitted_records_are_not_returned(node: Node) -> None:
    await node.create("t", 1)
    await node.produce("t", 1)
    node.workers.delay_s = (50.0, 50.0)
    view = memoryview(encode([Record(0, 1000, None, b"early", ())]))
    partition_of(node).append(view, read_header(view), 0)
    (row,) = rows(await ask(node, ("t", 0, 0)))
    assert offsets(row) == [0]
    (row,) = rows(await ask(node, ("t", 0, 1)))
    assert (row.error_code, row.records) == (0, b"")


@run_with(on_node)
async def test_every_refusal_is_in_its_row(node: Node) -> None:
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


@run_with(on_node)
async def test_error_is_answered_at_once(node: Node) -> None:
    await node.create("t", 1)
    pending = await park(node, ("t", 0, 0), ("gone", 0, 0))
    assert pending.is_answered


@run_with(on_node)
async def test_offset_below_the_log_start_is_out_of_range(node: Node) -> None:
    await node.create("t", 1)
    await node.produce("t", 3)
    await partition_of(node).delete_before(2)
    (row,) = rows(await ask(node, ("t", 0, 1)))
    assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.NONE),
        (3, ErrorCode.NONE),
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
@run_with(on_node)
async def test_request_with_another_leader_epoch_is_fenced(
    node: Node, *, epoch: int, code: ErrorCode
) -> None:
    await node.create("t", 1)
    partition_of(node).leader_epoch = 3
    (row,) = rows(await ask(node, ("t", 0, 0), epoch=epoch))
    assert row.error_code == code


@run_with(on_node)
async def test_diverging_epoch_of_the_client_is_returned(node: Node) -> None:
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


@run_with(on_node)
async def test_epoch_unknown_to_the_log_is_out_of_range(node: Node) -> None:
    await node.create("t", 1)
    await node.produce("t", 2)
    (row,) = rows(await ask(node, ("t", 0, 1), last_epoch=9))
    assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", [12, 15])
@run_with(on_node)
async def test_unauthorized_replica_fetch_is_refused(node: Node, *, version: int) -> None:
    await node.create("t", 1)
    topics = asked(("t", 0, 0))
    topics[0].topic_id = node.ctx.image.topics["t"].id
    state = FetchReplicaState(replica_id=2, replica_epoch=1) if version >= 15 else None
    options = {"replica_state": state} if state else {"replica_id": 2}
    node.rights.deny(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    response = await node.ask(fetch, version, request(topics, **options))
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert not rows(response)


@run_with(on_node)
async def test_read_committed_stops_at_an_open_transaction_and_lists_aborted_ones(
    node: Node,
) -> None:
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


# -- how much ---------------------------------------------------------------------------------


@run_with(on_node)
async def test_at_least_one_batch_is_returned_despite_the_limits(node: Node) -> None:
    await node.create("t", 2)
    await fill(node, [5000, 10])
    await fill(node, [5000], index=1)
    response = await ask(node, ("t", 0, 0), ("t", 1, 0), bytes_max=1, max_bytes=1)
    first, second = rows(response)
    assert offsets(first) == [0]
    assert second.records == b""


@run_with(on_node)
async def test_max_bytes_limits_all_partitions_together(node: Node) -> None:
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


@run_with(on_node)
async def test_partition_max_bytes_may_end_inside_a_batch(node: Node) -> None:
    await node.create("t", 1)
    await fill(node, [1000] * 4)
    (row,) = rows(await ask(node, ("t", 0, 0), bytes_max=2500))
    assert len(row.records or b"") == 2500
    assert offsets(row) == [0, 1]


@run_with(on_node)
async def test_broker_limit_overrides_the_client_limit(node: Node) -> None:
    await node.create("t", 1)
    await fill(node, [500] * 10)
    node.ctx.fetch.fetch_bytes_max = 1500
    (row,) = rows(await ask(node, ("t", 0, 0), bytes_max=2**31 - 1, max_bytes=2**31 - 1))
    assert len(row.records or b"") == 1500


@run_with(on_node)
async def test_large_response_equals_the_bytes_of_the_file(node: Node) -> None:
    await node.create("t", 1)
    await fill(node, [SLICE_BYTES_MIN, 10, SLICE_BYTES_MIN])
    (row,) = rows(await ask(node, ("t", 0, 0)))
    segment = partition_of(node).log.segments.active
    assert row.records == segment.file.read(0, segment.size)
    assert node.ctx.metrics.bytes_out.value == segment.size


@run_with(on_node)
async def test_record_age_is_sampled_for_large_responses(
    node: Node,
) -> None:
    await node.create("t", 1)
    await node.create("small", 1)
    await fill(node, [SLICE_BYTES_MIN])
    await node.produce("small", 1)
    ages = node.ctx.metrics.age_at_fetch
    await asyncio.sleep(1)
    for _ in range(5):
        await ask(node, ("t", 0, 0))
    assert sum(ages.counts) == 1, "one of these at the same time"
    for _ in range(5):
        await ask(node, ("small", 0, 0))
    assert sum(ages.counts) == 6, "small ones are in memory anyway"
    await asyncio.sleep(AGES_NOTED_MS / 1000)
    await ask(node, ("t", 0, 0))
    assert sum(ages.counts) == 7


async def read(
    node: Node, offset: int = 0, *, rack: str = "", version: int = 12, **options: Any
) -> FetchPartitionData:
    epoch = options.pop("epoch", -1)
    topics = asked(("t", 0, offset), epoch=epoch)
    (row,) = rows(await node.ask(fetch, version, request(topics, rack_id=rack, **options)))
    return row


def fetched(node: Node, node_id: int, offset: int, start_offset: int = 0) -> None:
    now_s = asyncio.get_running_loop().time()
    led(node).replica_fetched(node_id, 100 + node_id, offset, now_s, start_offset=start_offset)


async def three_copies(node: Node) -> None:
    """Two records, committed on nodes 1, 2 and 3 in racks r1, r2 and r3."""
    node.ctx.fetch.replicas.has_selector = True
    await replicate(node)
    append(node)
    append(node)
    await synced(node)
    fetched(node, 2, 2)
    fetched(node, 3, 2)


def test_rack_aware_selector_has_its_kafka_class_name() -> None:
    assert selects(RACK_AWARE)
    assert not selects(None)
    assert not selects("org.apache.kafka.common.replica.LeaderSelector")


@run_with(on_node)
async def test_consumer_is_redirected_to_the_in_sync_replica_in_its_rack(node: Node) -> None:
    await three_copies(node)
    row = await read(node, rack="r3")
    assert (row.error_code, row.preferred_read_replica) == (0, 3)
    assert not row.records


@pytest.mark.parametrize("rack", ["", "r1", "r9"])
@run_with(on_node)
async def test_consumer_without_a_matching_rack_reads_from_the_leader(
    node: Node, *, rack: str
) -> None:
    await three_copies(node)
    row = await read(node, rack=rack)
    assert row.preferred_read_replica == -1
    assert offsets(row) == [0, 1]


@run_with(on_node)
async def test_consumer_reads_from_the_leader_without_a_selector(node: Node) -> None:
    await three_copies(node)
    node.ctx.fetch.replicas.has_selector = False
    assert offsets(await read(node, rack="r3")) == [0, 1]


@run_with(on_node)
async def test_lagging_or_leaving_replica_is_not_preferred(node: Node) -> None:
    await three_copies(node)
    fetched(node, 3, 1)
    assert (await read(node, 2, rack="r3", max_wait_ms=0)).preferred_read_replica == -1
    fetched(node, 3, 2, start_offset=1)
    assert (await read(node, 0, rack="r3")).preferred_read_replica == -1
    assert (await read(node, 1, rack="r3")).preferred_read_replica == 3
    leaving = BrokerRecord(3, "host3", 9092, epoch=103, rack="r3", is_draining=True)
    await node.put(store_keys.broker_key(3), leaving)
    assert (await read(node, 1, rack="r3")).preferred_read_replica == -1
    await node.put(store_keys.broker_key(3), BrokerRecord(3, "host3", 9092, epoch=103, rack="r3"))
    await replicate(node, isr=(1, 2), partition_epoch=11)
    assert (await read(node, 1, rack="r3")).preferred_read_replica == -1


@run_with(on_node)
async def test_preferred_replica_is_returned_within_a_session(node: Node) -> None:
    await three_copies(node)
    topics = asked(("t", 0, 0))
    opened = await node.ask(fetch, 12, request(topics, session_epoch=0))
    later = request([], session_id=opened.session_id, session_epoch=1, rack_id="r2")
    (row,) = rows(await node.ask(fetch, 12, later))
    assert row.preferred_read_replica == 2


async def follow(node: Node, count: int = 3, committed: int = 2) -> None:
    """This node follows node 2, and has copied so much."""
    await replicate(node, leader=2)
    replica = node.ctx.partitions.replica("t", 0)
    assert replica is not None
    for number in range(count):
        copied = memoryview(encode([Record(0, 1000, None, b"v%d" % number, ())]))
        stamp(copied, number, EPOCH)
        replica.log.append_replica(copied, 0)
    replica.copied()
    replica.learn_high_watermark(committed)


@run_with(on_node)
async def test_follower_serves_records_below_its_high_watermark(node: Node) -> None:
    await follow(node)
    for row in (await read(node, rack="r1"), await read(node, epoch=EPOCH)):
        assert offsets(row) == [0, 1]
        assert row.high_watermark == 2


@run_with(on_node)
async def test_parked_consumer_is_woken_by_the_follower_high_watermark(node: Node) -> None:
    await follow(node)
    topics = asked(("t", 0, 2))
    pending = await node.send(fetch, 12, request(topics, rack_id="r1", max_wait_ms=9000))
    await asyncio.sleep(0.1)
    assert not pending.is_answered
    replica = node.ctx.partitions.replica("t", 0)
    assert replica is not None
    replica.learn_high_watermark(3)
    (row,) = rows(await pending.reply())
    assert offsets(row) == [2]


@run_with(on_node)
async def test_request_without_rack_or_epoch_is_sent_to_the_leader(node: Node) -> None:
    await follow(node)
    assert (await read(node)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    old = await read(node, epoch=EPOCH, version=10)
    assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@run_with(on_node)
async def test_old_epoch_is_fenced_by_a_follower_with_the_leader(
    node: Node,
) -> None:
    await follow(node)
    row = await read(node, epoch=EPOCH - 1)
    assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert row.current_leader is not None
    assert row.current_leader.leader_id == 2


@run_with(on_node)
async def test_offset_beyond_the_follower_is_not_available(node: Node) -> None:
    await follow(node)
    assert (await read(node, 9, rack="r1")).error_code == ErrorCode.OFFSET_NOT_AVAILABLE


@run_with(on_node)
async def test_log_under_repair_is_not_read(node: Node) -> None:
    await follow(node)
    replica = node.ctx.partitions.replica("t", 0)
    assert replica is not None
    replica.is_under_repair = True
    assert (await read(node, rack="r1")).error_code == ErrorCode.REPLICA_NOT_AVAILABLE
