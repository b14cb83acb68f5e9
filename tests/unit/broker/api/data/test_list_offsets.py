"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

import random

import pytest

from penstock.base.errors import Corrupt, ErrorCode
from penstock.broker.api.data.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    delete_records,
    list_offsets,
    offset_for_leader_epoch,
)
from penstock.broker.api.response_rows import CLUSTER_NAME
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.cluster.metadata.topics import NewTopic, create_topic, plan_topic
from penstock.log.log import Log
from penstock.wire.messages.list_offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node


async def make(node: Node, name: str = "t", **configs: str) -> None:
    ctx = node.ctx
    values = {key.replace("_", "."): value for key, value in configs.items()}
    plan = plan_topic(NewTopic(name, 2, configs=values), ctx.image, ctx.configs, ctx.random)
    await ctx.reached(await create_topic(ctx.admin.store, plan))


async def look_up(
    node: Node,
    timestamp: int,
    *,
    version: int = 11,
    name: str = "t",
    index: int = 0,
    epoch: int = -1,
    isolation: int = 0,
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(
        partition_index=index, current_leader_epoch=epoch, timestamp=timestamp
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=[asked])],
    )
    answer = await node.ask(list_offsets, version, request)
    row: ListOffsetsPartitionResponse = answer.topics[0].partitions[0]
    return row


@pytest.mark.parametrize("version", range(1, 12))
@run_with(on_node)
async def test_log_ends_are_found_in_every_version(node: Node, *, version: int) -> None:
    await make(node)
    await node.produce("t", 4, timestamp=1000, step=10)
    latest = await look_up(node, LATEST, version=version)
    assert (latest.error_code, latest.offset, latest.timestamp) == (ErrorCode.NONE, 4, -1)
    earliest = await look_up(node, EARLIEST, version=version)
    assert (earliest.error_code, earliest.offset, earliest.timestamp) == (0, 0, -1)
    timed = await look_up(node, 1011, version=version)
    assert (timed.error_code, timed.offset, timed.timestamp) == (0, 2, 1020)
    late = await look_up(node, 9999, version=version)
    assert (late.error_code, late.offset, late.timestamp) == (0, -1, -1)
    if version >= 4:
        assert latest.leader_epoch == earliest.leader_epoch == timed.leader_epoch == 0


@run_with(on_node)
async def test_empty_log_has_offsets_and_no_timestamps(node: Node) -> None:
    await make(node)
    assert (await look_up(node, LATEST)).offset == 0
    assert (await look_up(node, EARLIEST)).offset == 0
    assert (await look_up(node, 0)).offset == -1
    assert (await look_up(node, MAX_TIMESTAMP)).offset == -1


@run_with(on_node)
async def test_largest_timestamp_is_found(node: Node) -> None:
    await make(node)
    await node.produce("t", 3, timestamp=5000, step=-100)
    row = await look_up(node, MAX_TIMESTAMP)
    assert (row.offset, row.timestamp) == (0, 5000)


@run_with(on_node)
async def test_tiered_offsets_are_absent(node: Node) -> None:
    await make(node)
    await node.produce("t", 2)
    assert (await look_up(node, EARLIEST_LOCAL)).offset == 0
    for asked in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        row = await look_up(node, asked)
        assert (row.error_code, row.offset, row.timestamp) == (ErrorCode.NONE, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [
        (MAX_TIMESTAMP, 6),
        (EARLIEST_LOCAL, 7),
        (LATEST_TIERED, 8),
        (EARLIEST_PENDING_UPLOAD, 10),
        (-7, 11),
        (-(2**63), 11),
    ],
)
@run_with(on_node)
async def test_special_timestamp_unknown_to_the_version_is_refused(
    node: Node, *, timestamp: int, version: int
) -> None:
    await make(node)
    row = await look_up(node, timestamp, version=version)
    assert (row.error_code, row.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)


@run_with(on_node)
async def test_uncommitted_records_are_not_found(node: Node) -> None:
    await make(node)
    await node.produce("t", 4, timestamp=1000, step=10)
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    partition.high_watermark = 2
    assert (await look_up(node, LATEST)).offset == 2
    assert (await look_up(node, LATEST, isolation=READ_COMMITTED)).offset == 2
    assert (await look_up(node, 1010)).offset == 1
    assert (await look_up(node, 1020)).offset == -1
    assert (await look_up(node, MAX_TIMESTAMP)).offset == -1


@pytest.mark.parametrize("timestamp", [LATEST, EARLIEST, 0])
@run_with(on_node)
async def test_request_with_another_leader_epoch_is_fenced(node: Node, *, timestamp: int) -> None:
    await make(node)
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    partition.leader_epoch = 5
    old = await look_up(node, timestamp, epoch=4)
    assert old.error_code == ErrorCode.FENCED_LEADER_EPOCH
    new = await look_up(node, timestamp, epoch=6)
    assert new.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await look_up(node, timestamp, epoch=5)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("timestamp", [LATEST, 0])
@run_with(on_node)
async def test_unavailable_partition_is_an_error_in_its_row(node: Node, *, timestamp: int) -> None:
    await make(node)
    elsewhere = PartitionRecord(replicas=(9,), leader=9, isr=(9,))
    await node.put("/topics/far", store_keys.TopicRecord("QUFBQUFBQUFBQUFBQUFBQQ", (elsewhere,)))
    far = await look_up(node, timestamp, name="far")
    assert far.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    for name, index in (("gone", 0), ("t", 2), ("t", -1)):
        row = await look_up(node, timestamp, name=name, index=index)
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "t")
    row = await look_up(node, timestamp)
    assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@run_with(on_node)
async def test_repeated_partition_is_refused(node: Node) -> None:
    await make(node)
    rows = [ListOffsetsPartition(partition_index=i, timestamp=LATEST) for i in (0, 1, 0)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=rows)]
    )
    answer = await node.ask(list_offsets, 11, request)
    assert [row.error_code for row in answer.topics[0].partitions] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]


@pytest.mark.parametrize("timestamp", [LATEST, EARLIEST, MAX_TIMESTAMP, 0])
@run_with(on_node)
async def test_offline_log_is_a_storage_error(node: Node, *, timestamp: int) -> None:
    await make(node)
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    partition.log.fail("as a test")
    row = await look_up(node, timestamp)
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR


class RottenWorkers:
    """Workers under whom the disk gives back other bytes than were written."""

    async def run(self, work: object, *args: object, **kwargs: object) -> object:
        raise Corrupt("crc")


@run_with(on_node)
async def test_corruption_found_by_a_search_takes_the_partition_offline(node: Node) -> None:
    await make(node)
    await node.produce("t", 1)
    ctx = node.ctx.metadata
    workers, ctx.workers = ctx.workers, RottenWorkers()  # type: ignore[assignment]
    row = await look_up(node, 0)
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    ctx.workers = workers
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    assert partition.log.offline is not None


# OffsetForLeaderEpoch.


async def epoch_end(
    node: Node, epoch: int, *, current: int = -1, name: str = "t", index: int = 0, version: int = 4
) -> tuple[int, int, int]:
    asked = OffsetForLeaderPartition(
        partition=index, current_leader_epoch=current, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=name, partitions=[asked])]
    )
    answer = await node.ask(offset_for_leader_epoch, version, request)
    row = answer.topics[0].partitions[0]
    return row.error_code, row.leader_epoch, row.end_offset


@pytest.mark.parametrize("version", range(2, 5))
@run_with(on_node)
async def test_epoch_end_is_its_last_record(node: Node, *, version: int) -> None:
    await make(node)
    await node.produce("t", 3)
    assert await epoch_end(node, 0, version=version) == (ErrorCode.NONE, 0, 3)
    assert await epoch_end(node, 7, version=version) == (ErrorCode.NONE, -1, -1)


@run_with(on_node)
async def test_epoch_end_requires_leader_and_permission(node: Node) -> None:
    await make(node)
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert await epoch_end(node, 0, name="gone") == unknown
    assert await epoch_end(node, 0, current=3) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "t")
    assert (await epoch_end(node, 0))[0] == ErrorCode.NONE
    node.rights.deny(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    assert (await epoch_end(node, 0))[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED


# DeleteRecords.


async def cut(
    node: Node, offset: int, *, name: str = "t", index: int = 0, version: int = 2
) -> tuple[int, int]:
    row = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=[row])], timeout_ms=1000
    )
    answer = await node.ask(delete_records, version, request)
    result = answer.topics[0].partitions[0]
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("version", range(3))
@run_with(on_node)
async def test_records_below_an_offset_are_deleted(node: Node, *, version: int) -> None:
    await make(node)
    await node.produce("t", 4)
    assert await cut(node, 2, version=version) == (ErrorCode.NONE, 2)
    assert (await look_up(node, EARLIEST)).offset == 2
    assert await cut(node, 1, version=version) == (ErrorCode.NONE, 2)
    assert await cut(node, -1, version=version) == (ErrorCode.NONE, 4)


@run_with(on_node)
async def test_acknowledged_deletion_survives_a_power_cut(node: Node) -> None:
    await make(node)
    await node.produce("t", 4)
    assert await cut(node, 3) == (ErrorCode.NONE, 3)
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    log = partition.log
    for seed in range(10):
        after = node.disk.crashed(random.Random(seed))
        opened = Log.open(after, log.path, log.config, node.ctx.clock.now_ms(), None)
        assert (opened.start_offset, opened.end_offset) == (3, 4)


@pytest.mark.parametrize(
    ("name", "index", "offset", "code"),
    [
        ("t", 0, 5, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", 0, -2, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", 9, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("gone", 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("compacted", 0, 0, ErrorCode.POLICY_VIOLATION),
        ("__consumer_offsets", 0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("hidden", 0, 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
@run_with(on_node)
async def test_refused_deletion_keeps_the_records(
    node: Node, *, name: str, index: int, offset: int, code: ErrorCode
) -> None:
    await make(node)
    await make(node, "compacted", cleanup_policy="compact")
    await make(node, "__consumer_offsets")
    await make(node, "hidden")
    await node.produce("t", 4)
    node.rights.deny(Operation.DELETE, ResourceType.TOPIC, "hidden")
    assert await cut(node, offset, name=name, index=index) == (code, -1)
