"""DescribeCluster (api 60), versions 0-2; DescribeLogDirs (35), 1-5; AlterReplicaLogDirs (34), 1-2;
UnregisterBroker (64), 0; UpdateFeatures (57), 0-2.

DescribeCluster: v1 endpoint type; v2 fenced brokers (there are none to list, since a fenced broker
has no lease). DescribeLogDirs: v3 a separate error, v4 bytes of the volume (the total is the part
that the node may use; -1 when it is full), v5 cordoned directories. A node has one log directory,
so AlterReplicaLogDirs cannot move a replica. There is no KRaft quorum to describe: metadata is in
the store. Features depend on the software version and cannot be set.
"""

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_scheduler import Steps
from penstock.base.ports import UnknownResult
from penstock.broker.api.api_versions import FEATURES
from penstock.broker.api.call import Call
from penstock.broker.api.context import AdminContext
from penstock.broker.api.large_replies import answered, holder_of
from penstock.broker.api.response_rows import cluster_operations, endpoints, may_cluster
from penstock.broker.api.route_row import Operation
from penstock.cluster.controller import topic_deletion
from penstock.cluster.metadata.image import Image
from penstock.cluster.replication.partition import Partition
from penstock.wire.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from penstock.wire.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

NOT_ASKED = -(2**31)
BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2
FEATURES_FOLLOW = "features depend on the software version and cannot be set"


def describe_cluster(
    ctx: AdminContext, call: Call, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    image = ctx.image
    if request.endpoint_type != BROKER_ENDPOINTS:
        return _wrong_endpoint(request.endpoint_type)
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        is_allowed = may_cluster(ctx, call, Operation.DESCRIBE)
        operations = cluster_operations(ctx, call) if is_allowed else 0
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        endpoint_type=BROKER_ENDPOINTS,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker.node_id, host=host, port=port, rack=broker.rack)
            for broker, (host, port) in endpoints(ctx.image, call)
        ],
        cluster_authorized_operations=operations,
    )


def _wrong_endpoint(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLER_ENDPOINTS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = (
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of "
            "type CONTROLLER"
        )
    else:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(
        error_code=code, error_message=message, cluster_id="", brokers=()
    )


# -- log directories --------------------------------------------------------------------------


async def describe_log_dirs(
    ctx: AdminContext, call: Call, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    if not may_cluster(ctx, call, Operation.DESCRIBE):
        return DescribeLogDirsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=()
        )
    result = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=ctx.directory.path,
        topics=await ctx.scheduler.do(holder_of(call), _sizes(ctx, request)),
        is_cordoned=any(ctx.configs.items("cordoned.log.dirs")),
    )
    try:
        result.usable_bytes, result.total_bytes = await ctx.workers.run(_volume, ctx)
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        result.topics = ()
    rows = sum(len(topic.partitions) + 1 for topic in result.topics)
    return await answered(ctx, call, DescribeLogDirsResponse(results=[result]), rows)


def _volume(ctx: AdminContext) -> tuple[int, int]:
    """Returns free and total bytes of the volume. Blocks."""
    free = ctx.directory.disk.free_bytes(ctx.directory.path)
    free_share = 1 - ctx.directory.disk.used_percent(ctx.directory.path) / 100
    return free, round(free / free_share) if free_share > 0 else -1


def _sizes(ctx: AdminContext, request: DescribeLogDirsRequest) -> Steps[list[DescribeLogDirsTopic]]:
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in _asked(ctx, request):
        yield
        row = DescribeLogDirsPartition(
            partition_index=partition.index,
            partition_size=partition.log.size_bytes,
            offset_lag=max(0, partition.high_watermark - partition.log.end_offset),
            is_future_key=False,
        )
        by_topic.setdefault(partition.topic, []).append(row)
    return [DescribeLogDirsTopic(name=name, partitions=rows) for name, rows in by_topic.items()]


def _asked(ctx: AdminContext, request: DescribeLogDirsRequest) -> list[Partition]:
    if request.topics is None:
        return list(ctx.partitions.replicas())
    wanted = dict.fromkeys(
        (topic.topic, index) for topic in request.topics for index in topic.partitions
    )
    found = [ctx.partitions.replica(name, index) for name, index in wanted]
    return [partition for partition in found if partition is not None]


def alter_replica_log_dirs(
    ctx: AdminContext, call: Call, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    is_allowed = may_cluster(ctx, call, Operation.ALTER)
    by_topic: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                if not is_allowed:
                    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                elif directory.path != ctx.directory.path:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                elif ctx.partitions.replica(topic.name, index) is None:
                    code = ErrorCode.REPLICA_NOT_AVAILABLE
                else:
                    code = ErrorCode.NONE
                row = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                by_topic.setdefault(topic.name, []).append(row)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=rows)
            for name, rows in by_topic.items()
        ]
    )


# -- brokers, quorum, features ----------------------------------------------------------------


async def unregister_broker(
    ctx: AdminContext, call: Call, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Removes a node that will not come back, so that no partition waits for it."""
    node_id = request.broker_id
    code, message = ErrorCode.NONE, None
    deleted = ctx.image.deleted
    is_awaited = any(
        node_id in record.replicas and node_id not in record.confirmed
        for record in deleted.values()
    )
    if not may_cluster(ctx, call, Operation.ALTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif node_id in ctx.image.brokers:
        # Registrations are leases, which expire when the node stops.
        code, message = ErrorCode.INVALID_REQUEST, f"broker {node_id} is up: stop it instead"
    elif not is_awaited and not _has_replicas(ctx.image, node_id):
        code = ErrorCode.BROKER_ID_NOT_REGISTERED
        message = f"Broker ID {node_id} is not currently registered."
    else:
        try:
            for topic_id in deleted:
                await topic_deletion.confirm(ctx.store, topic_id, node_id)
        except (UnknownResult, TimeoutError, ConnectionError, Refused):
            code = ErrorCode.REQUEST_TIMED_OUT
            message = "the metadata store did not confirm the change"
    return UnregisterBrokerResponse(error_code=code, error_message=message)


def _has_replicas(image: Image, node_id: int) -> bool:
    return any(
        node_id in record.replicas for topic in image.topics.values() for record in topic.partitions
    )


def update_features(
    ctx: AdminContext, call: Call, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    if not may_cluster(ctx, call, Operation.ALTER):
        return UpdateFeaturesResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None
        )
    for update in request.feature_updates:
        level = FEATURES.get(update.feature, 0)
        if update.max_version_level != level:
            # As in Kafka, one feature that cannot be updated fails all of them.
            return UpdateFeaturesResponse(
                error_code=ErrorCode.INVALID_UPDATE_VERSION,
                error_message=f"Invalid update version {update.max_version_level} for feature "
                f"{update.feature}: it is {level} here; {FEATURES_FOLLOW}.",
            )
    return UpdateFeaturesResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[
            UpdatableFeatureResult(
                feature=update.feature, error_code=ErrorCode.NONE, error_message=None
            )
            for update in request.feature_updates
        ],
    )
