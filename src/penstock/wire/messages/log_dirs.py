"""Log directories: AlterReplicaLogDirs (34), DescribeLogDirs (35).

DescribeLogDirs v3 has a top-level error, v4 the volume's size (KIP-827), v5 cordoned directories
(KIP-1066).
"""

from collections.abc import Sequence

from penstock.wire.schema import array, boolean, int16, int32, int64, message, string, struct


@struct()
class AlterReplicaLogDirTopic:
    """Partitions of one topic to move."""

    name: str = string()
    partitions: Sequence[int] = array(int32, default=())


@struct()
class AlterReplicaLogDir:
    """Directory and the replicas to move into it."""

    path: str = string()
    topics: Sequence[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


@message(key=34, versions=(1, 2), flexible=2)
class AlterReplicaLogDirsRequest:
    """Moves replicas between a broker's directories."""

    dirs: Sequence[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@struct()
class AlterReplicaLogDirPartitionResult:
    """Result of starting one move."""

    partition_index: int = int32()
    error_code: int = int16()


@struct()
class AlterReplicaLogDirTopicResult:
    """Results of one topic."""

    topic_name: str = string()
    partitions: Sequence[AlterReplicaLogDirPartitionResult] = array(
        AlterReplicaLogDirPartitionResult
    )


@message(key=34, versions=(1, 2), flexible=2)
class AlterReplicaLogDirsResponse:
    """Results of the moves."""

    throttle_time_ms: int = int32(default=0)
    results: Sequence[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)


@struct()
class DescribableLogDirTopic:
    """Requested partitions of one topic."""

    topic: str = string()
    partitions: Sequence[int] = array(int32, default=())


@message(key=35, versions=(1, 5), flexible=2)
class DescribeLogDirsRequest:
    """Requests the logs in a broker's directories; null topics means all."""

    topics: Sequence[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable=True)


@struct()
class DescribeLogDirsPartition:
    """Size and lag of one log."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@struct()
class DescribeLogDirsTopic:
    """Logs of one topic in a directory."""

    name: str = string()
    partitions: Sequence[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@struct()
class DescribeLogDirsResult:
    """Directory with its logs and volume."""

    error_code: int = int16()
    log_dir: str = string()
    topics: Sequence[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(since=4, default=-1)
    usable_bytes: int = int64(since=4, default=-1)
    is_cordoned: bool = boolean(since=5, default=False)


@message(key=35, versions=(1, 5), flexible=2)
class DescribeLogDirsResponse:
    """Log directories of a broker."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(since=3, default=0)
    results: Sequence[DescribeLogDirsResult] = array(DescribeLogDirsResult)
