"""Queue messages between Penstock's nodes; not listed for clients.

KeepQueueState (30001) goes to the node that stores the state of a queue. TellQueue (30002),
TakeFromQueues (30003) and SettleLeases (30004) go to the leader of the queue's partition.
Kafka's messages for the first (84-87) carry Kafka's state format, which differs from Penstock's.
"""

from collections.abc import Sequence

from penstock.base.ids import TopicId
from penstock.wire.schema import (
    array,
    boolean,
    bytes_,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uuid,
)


@struct()
class QueueStateCall:
    """Reads (0) the state of one queue, stores a delta (1) or a snapshot (2), or deletes it (3)."""

    kind: int = int8()
    group_id: str = string()
    topic_id: TopicId = uuid()
    partition: int = int32()
    leader_epoch: int = int32()
    number: int = int64(default=0)
    payload: bytes = bytes_(default=b"")


@message(key=30001, versions=(0, 0), flexible=0)
class KeepQueueStateRequest:
    """Reads, stores or deletes states of queues, in the given order."""

    calls: Sequence[QueueStateCall] = array(QueueStateCall)


@struct()
class QueueStateAnswer:
    """Result of one call, with the state if it was read."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    number: int = int64(default=0)
    snapshot: bytes | None = bytes_(nullable=True, default=None)
    deltas: Sequence[bytes] = array(bytes_, default=())


@message(key=30001, versions=(0, 0), flexible=0)
class KeepQueueStateResponse:
    """Results of the calls, in the same order."""

    answers: Sequence[QueueStateAnswer] = array(QueueStateAnswer)


@struct()
class QueueCall:
    """Describes a queue (0), moves its start (1), deletes it (2), or wakes it (3)."""

    kind: int = int8()
    group_id: str = string()
    topic_id: TopicId = uuid()
    partition: int = int32()
    start_offset: int = int64(default=-1)


@message(key=30002, versions=(0, 0), flexible=0)
class TellQueueRequest:
    """Administers queues whose partitions a node leads."""

    calls: Sequence[QueueCall] = array(QueueCall)


@struct()
class QueueAnswer:
    """Result of one call, and the offsets of the queue; -1 without a queue."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    start_offset: int = int64(default=-1)
    leader_epoch: int = int32(default=-1)
    lag: int = int64(default=-1)


@message(key=30002, versions=(0, 0), flexible=0)
class TellQueueResponse:
    """Results of the calls, in the same order."""

    answers: Sequence[QueueAnswer] = array(QueueAnswer)


@message(key=30003, versions=(0, 0), flexible=0)
class TakeFromQueuesRequest:
    """Acquires records for a member from a group's queues in one topic."""

    group_id: str = string()
    topic_id: TopicId = uuid()
    partitions: Sequence[int] = array(int32)
    member_id: str = string()
    records_max: int = int32()
    bytes_max: int = int32()
    wait_ms: int = int32()
    lock_ms: int = int64(default=-1)
    fills: bool = boolean(default=False)
    reset: str | None = string(nullable=True, default=None)
    with_followers: bool = boolean(default=False, tag=0)


@struct()
class TakenLease:
    """Records leased to the member."""

    first: int = int64()
    last: int = int64()
    deadline_ms: int = int64()
    delivery_count: int = int32()


@struct()
class TakenFromQueue:
    """Result of one partition: whole batches and the leases in them, or an error."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    records: bytes = bytes_(default=b"")
    leases: Sequence[TakenLease] = array(TakenLease, default=())


@message(key=30003, versions=(0, 0), flexible=0)
class TakeFromQueuesResponse:
    """Rows of the partitions with a result; `is_partial` if some are not available for now."""

    error_code: int = int16()
    is_partial: bool = boolean(default=False)
    rows: Sequence[TakenFromQueue] = array(TakenFromQueue, default=())


@struct()
class LeaseRuling:
    """Verdict on records that are leased to a member."""

    group_id: str = string()
    topic_id: TopicId = uuid()
    partition: int = int32()
    member_id: str = string()
    first: int = int64()
    last: int = int64()
    verdict: int = int8()
    delay_ms: int = int64(default=-1)
    lock_ms: int = int64(default=-1)
    error_class: str = string(default="")
    error_message: str = string(default="")
    traceback: str = string(default="", tag=0)


@message(key=30004, versions=(0, 0), flexible=0)
class SettleLeasesRequest:
    """Settles leases, and ends the wait of members for records."""

    rulings: Sequence[LeaseRuling] = array(LeaseRuling, default=())
    ended: Sequence[str] = array(string, default=())


@struct()
class RulingAnswer:
    """Result of one verdict."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


@message(key=30004, versions=(0, 0), flexible=0)
class SettleLeasesResponse:
    """Results of the verdicts, in the same order."""

    answers: Sequence[RulingAnswer] = array(RulingAnswer, default=())
