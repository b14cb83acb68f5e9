"""Inspection and repair of queues (internal: for Penstock's tools and between its nodes).

InspectQueues (30005) and ChangeQueues (30006) go to the leader of a queue's partition;
ListPositions (30007) goes to every node, each of which knows the positions that it stores.
ApiVersions does not list them: a broker that is not Penstock does not have them.
"""

from collections.abc import Sequence

from penstock.wire.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
)


@struct()
class InspectedPartition:
    """Requested partition: its figures, and runs of unfinished records from an offset on."""

    partition: int = int32()
    from_offset: int = int64(default=0)
    runs_max: int = int32(default=0)


@message(key=30005, versions=(0, 0), flexible=0)
class InspectQueuesRequest:
    """Requests the state of a group's queues in partitions of a topic, record by record."""

    group_id: str = string()
    topic: str = string()
    partitions: Sequence[InspectedPartition] = array(InspectedPartition)


@struct()
class QueueRun:
    """Run of records in one state: waiting (0), leased (1), failed (2) or given up (3).

    `until_ms` is the time at which the lease ends, or the next delivery is due.
    """

    first: int = int64()
    last: int = int64()
    state: int = int8()
    delivery_count: int = int32(default=0)
    until_ms: int = int64(default=-1)
    member: str = string(default="")


@struct()
class QueueReport:
    """State of one partition of a queue; a start offset of -1 means that none is stored.

    Counts of ready records per priority are given for open queues only.
    """

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    log_start_offset: int = int64(default=-1)
    high_watermark: int = int64(default=-1)
    start_offset: int = int64(default=-1)
    is_open: bool = boolean(default=False)
    ready: int = int64(default=0)
    leased: int = int64(default=0)
    delayed: int = int64(default=0)
    given_up: int = int64(default=0)
    unfinished: int = int64(default=0)
    oldest_ms: int = int64(default=-1)
    runs: Sequence[QueueRun] = array(QueueRun, default=())
    next_offset: int = int64(default=-1)
    ready_by_priority: Sequence[int] = array(int64, default=(), tag=0)


@message(key=30005, versions=(0, 0), flexible=0)
class InspectQueuesResponse:
    """State of the group's queues, per partition."""

    partitions: Sequence[QueueReport] = array(QueueReport)


@struct()
class OffsetRun:
    """Range of offsets, both ends included."""

    first: int = int64()
    last: int = int64()


@struct()
class ChangedPartition:
    """Records of one partition to change."""

    partition: int = int32()
    runs: Sequence[OffsetRun] = array(OffsetRun)


@message(key=30006, versions=(0, 0), flexible=0)
class ChangeQueuesRequest:
    """Finishes records without a lease (0), redelivers finished ones (1), or finishes records only
    if all of a partition's still wait for their first delivery (2)."""

    group_id: str = string()
    topic: str = string()
    kind: int = int8()
    partitions: Sequence[ChangedPartition] = array(ChangedPartition)


@struct()
class QueueChange:
    """Result: the number of changed records, and the new start offset of the group."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    changed: int = int64(default=0)
    start_offset: int = int64(default=-1)


@message(key=30006, versions=(0, 0), flexible=0)
class ChangeQueuesResponse:
    """Results per partition."""

    partitions: Sequence[QueueChange] = array(QueueChange)


@message(key=30007, versions=(0, 0), flexible=0)
class ListPositionsRequest:
    """Requests the group positions that a node stores, in some topics or in all."""

    topics: Sequence[str] | None = array(string, nullable=True)


@struct()
class KeptPosition:
    """State of a share group (0), or position of a consumer group (1), in a partition."""

    kind: int = int8()
    group_id: str = string()
    topic: str = string()
    partition: int = int32()
    offset: int = int64(default=-1)


@message(key=30007, versions=(0, 0), flexible=0)
class ListPositionsResponse:
    """Stored positions, and the shards of states and groups that they come from."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    state_shards: Sequence[int] = array(int32, default=())
    group_shards: Sequence[int] = array(int32, default=())
    positions: Sequence[KeptPosition] = array(KeptPosition, default=())
