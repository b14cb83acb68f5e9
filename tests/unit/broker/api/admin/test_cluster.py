"""DescribeCluster, log directories, and what is refused because it is not there."""

import errno

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId
from penstock.broker.api.admin.cluster import (
    NOT_ASKED,
    alter_replica_log_dirs,
    describe_cluster,
    describe_log_dirs,
    unregister_broker,
    update_features,
)
from penstock.broker.api.context import DataDirectory
from penstock.broker.api.response_rows import CLUSTER_NAME
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import DeletedRecord, PartitionRecord
from penstock.cluster.metadata.topics import NewTopic, create_topic, plan_topic
from penstock.wire.messages.cluster import (
    DescribeClusterRequest,
    FeatureUpdateKey,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from penstock.wire.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node


async def make(node: Node, name: str, partitions: int) -> None:
    ctx = node.ctx
    plan = plan_topic(NewTopic(name, partitions), ctx.image, ctx.configs, ctx.random)
    await ctx.reached(await create_topic(ctx.admin.store, plan))


def deny_cluster(node: Node, operation: Operation) -> None:
    node.rights.deny(operation, ResourceType.CLUSTER, CLUSTER_NAME)


@pytest.mark.parametrize("version", range(3))
@run_with(on_node)
async def test_describe_cluster_returns_the_brokers(node: Node, *, version: int) -> None:
    asked = DescribeClusterRequest(include_cluster_authorized_operations=False)
    answer = await node.ask(describe_cluster, version, asked)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (
        ErrorCode.NONE,
        "the-cluster",
        1,
    )
    [broker] = answer.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.rack) == (
        1,
        "localhost",
        9092,
        "r1",
    )
    assert answer.cluster_authorized_operations == NOT_ASKED


@run_with(on_node)
async def test_describe_cluster_returns_authorized_operations_on_request(node: Node) -> None:
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    deny_cluster(node, Operation.CREATE)
    rights = (await node.ask(describe_cluster, 0, asked)).cluster_authorized_operations
    assert rights & 1 << Operation.DESCRIBE
    assert not rights & 1 << Operation.CREATE
    deny_cluster(node, Operation.DESCRIBE)
    answer = await node.ask(describe_cluster, 0, asked)
    assert answer.cluster_authorized_operations == 0


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
@run_with(on_node)
async def test_describe_cluster_accepts_brokers_only(
    node: Node, *, endpoint_type: int, code: ErrorCode
) -> None:
    asked = DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=endpoint_type
    )
    answer = await node.ask(describe_cluster, 1, asked)
    assert (answer.error_code, list(answer.brokers)) == (code, [])
    assert answer.error_message


@pytest.mark.parametrize("version", range(1, 6))
@run_with(on_node)
async def test_log_directory_reports_sizes(node: Node, *, version: int) -> None:
    await make(node, "t", 2)
    await node.produce("t", 3)
    answer = await node.ask(describe_log_dirs, version, DescribeLogDirsRequest(topics=None))
    [result] = answer.results
    assert (result.error_code, result.log_dir) == (ErrorCode.NONE, "data")
    [topic] = result.topics
    sizes = {row.partition_index: row.partition_size for row in topic.partitions}
    assert sizes[0] > 3 * 61
    assert sizes[1] == 0
    if version >= 4:
        disk = node.disk
        assert result.usable_bytes == disk.free_bytes("data") < disk.capacity_bytes
        assert result.total_bytes == pytest.approx(disk.capacity_bytes, rel=1e-6)


@run_with(on_node)
async def test_log_directory_lists_only_the_requested_partitions(node: Node) -> None:
    await make(node, "t", 2)
    rows = [
        DescribableLogDirTopic(topic="t", partitions=[1, 1, 9]),
        DescribableLogDirTopic(topic="gone", partitions=[0]),
    ]
    answer = await node.ask(describe_log_dirs, 4, DescribeLogDirsRequest(topics=rows))
    [topic] = answer.results[0].topics
    assert [row.partition_index for row in topic.partitions] == [1]
    none = await node.ask(describe_log_dirs, 4, DescribeLogDirsRequest(topics=[]))
    assert list(none.results[0].topics) == []


@run_with(on_node)
async def test_describe_log_dirs_requires_the_permission(node: Node) -> None:
    deny_cluster(node, Operation.DESCRIBE)
    answer = await node.ask(describe_log_dirs, 4, DescribeLogDirsRequest(topics=None))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert list(answer.results) == []


class BrokenDisk:
    def free_bytes(self, path: str) -> int:
        raise OSError(errno.EIO, "Input/output error")


@run_with(on_node)
async def test_failing_disk_is_an_error_of_its_directory(node: Node) -> None:
    node.ctx.admin.directory = DataDirectory(BrokenDisk(), "data")  # type: ignore[arg-type]
    answer = await node.ask(describe_log_dirs, 4, DescribeLogDirsRequest(topics=None))
    assert answer.results[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


@run_with(on_node)
async def test_replica_can_only_be_moved_to_its_own_directory(node: Node) -> None:
    await make(node, "t", 1)

    async def move(path: str, index: int) -> int:
        topics = [AlterReplicaLogDirTopic(name="t", partitions=[index])]
        asked = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
        answer = await node.ask(alter_replica_log_dirs, 2, asked)
        [topic] = answer.results
        code: int = topic.partitions[0].error_code
        return code

    assert await move("data", 0) == ErrorCode.NONE
    assert await move("elsewhere", 0) == ErrorCode.LOG_DIR_NOT_FOUND
    assert await move("data", 5) == ErrorCode.REPLICA_NOT_AVAILABLE
    deny_cluster(node, Operation.ALTER)
    assert await move("data", 0) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@run_with(on_node)
async def test_live_broker_cannot_be_unregistered(node: Node) -> None:
    for broker_id, code in [
        (1, ErrorCode.INVALID_REQUEST),
        (9, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ]:
        asked = UnregisterBrokerRequest(broker_id=broker_id)
        answer = await node.ask(unregister_broker, 0, asked)
        assert answer.error_code == code
    deny_cluster(node, Operation.ALTER)
    answer = await node.ask(unregister_broker, 0, UnregisterBrokerRequest(broker_id=9))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@run_with(on_node)
async def test_unregistered_broker_is_no_longer_waited_for(node: Node) -> None:
    gone = TopicId(bytes([9]) * 16)
    await node.put(store_keys.deleted_key(gone), DeletedRecord("old", 1, (1, 9), (1,)))
    answer = await node.ask(unregister_broker, 0, UnregisterBrokerRequest(broker_id=9))
    assert answer.error_code == ErrorCode.NONE
    assert await node.store.get(store_keys.deleted_key(gone)) is None
    # One that has replicas may be given up as well; they stay until they are reassigned.
    await make(node, "t", 1)
    await node.put(
        store_keys.partition_key(node.ctx.image.topics["t"].id, 0),
        PartitionRecord(replicas=(1, 8), leader=1, isr=(1,)),
    )
    answer = await node.ask(unregister_broker, 0, UnregisterBrokerRequest(broker_id=8))
    assert answer.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(3))
@run_with(on_node)
async def test_features_cannot_be_changed(node: Node, *, version: int) -> None:
    def asked_for(**levels: int) -> UpdateFeaturesRequest:
        return UpdateFeaturesRequest(
            feature_updates=[
                FeatureUpdateKey(feature=name.replace("_", "."), max_version_level=level)
                for name, level in levels.items()
            ]
        )

    invalid, asked = ErrorCode.INVALID_UPDATE_VERSION, asked_for(group_version=1)
    for some, code in (
        (asked, ErrorCode.NONE),
        (asked_for(group_version=0), invalid),
        (asked_for(group_version=2), invalid),
        (asked_for(share_version=1, metadata_version=27), invalid),
        (asked_for(unknown=0), ErrorCode.NONE),
    ):
        assert (await node.ask(update_features, version, some)).error_code == code
    deny_cluster(node, Operation.ALTER)
    answer = await node.ask(update_features, version, asked)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
