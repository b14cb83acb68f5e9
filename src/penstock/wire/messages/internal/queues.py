"""What Penstock's nodes tell each other about queues; clients are not told of these.

KeepQueueState (30001) goes to the node that keeps a queue's state, TellQueue (30002),
TakeFromQueues (30003) and SettleLeases (30004) to the node that leads the queue's partition.
Kafka's own messages for the first (84-87) carry its kind of state, and ours is another one.

What holds what:

- KeepQueueStateRequest > QueueStateCall
- KeepQueueStateResponse > QueueStateAnswer
- TellQueueRequest > QueueCall
- TellQueueResponse > QueueAnswer
- TakeFromQueuesResponse > TakenFromQueue > TakenLease
- SettleLeasesRequest > LeaseRuling
- SettleLeasesResponse > RulingAnswer
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
    """Reads (0), keeps a delta (1) or a snapshot (2) of one queue, or forgets it (3)."""

    kind: int = int8()
    group_id: str = string()
    topic_id: TopicId = uuid()
    partition: int = int32()
    leader_epoch: int = int32()
    number: int = int64(default=0)
    payload: bytes = bytes_(default=b"")


@message(key=30001, versions=(0, 0), flexible=0)
class KeepQueueStateRequest:
    """Has the states of queues read, kept or forgotten, in this order."""

    calls: Sequence[QueueStateCall] = array(QueueStateCall)


@struct()
class QueueStateAnswer:
    """What one call came to; the state only where it was read."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    number: int = int64(default=0)
    snapshot: bytes | None = bytes_(nullable=True, default=None)
    deltas: Sequence[bytes] = array(bytes_, default=())


@message(key=30001, versions=(0, 0), flexible=0)
class KeepQueueStateResponse:
    """One answer for each call, in the same order."""

    answers: Sequence[QueueStateAnswer] = array(QueueStateAnswer)


@struct()
class QueueCall:
    """Describes a queue (0), moves its start (1), forgets it (2), or wakes it (3)."""

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
    """What one call came to, and where the queue stands; -1 where there is none."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    start_offset: int = int64(default=-1)
    leader_epoch: int = int32(default=-1)
    lag: int = int64(default=-1)


@message(key=30002, versions=(0, 0), flexible=0)
class TellQueueResponse:
    """One answer for each call, in the same order."""

    answers: Sequence[QueueAnswer] = array(QueueAnswer)


@message(key=30003, versions=(0, 0), flexible=0)
class TakeFromQueuesRequest:
    """Takes records for a member from a group's queues in one topic; see `queue_taking.Wanted`."""

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
    """Records that the member holds now."""

    first: int = int64()
    last: int = int64()
    deadline_ms: int = int64()
    delivery_count: int = int32()


@struct()
class TakenFromQueue:
    """What came of one partition: whole batches and the leases in them, or why there is nothing."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    records: bytes = bytes_(default=b"")
    leases: Sequence[TakenLease] = array(TakenLease, default=())


@message(key=30003, versions=(0, 0), flexible=0)
class TakeFromQueuesResponse:
    """A row for each partition that has something to say; `is_partial` if some cannot for now."""

    error_code: int = int16()
    is_partial: bool = boolean(default=False)
    rows: Sequence[TakenFromQueue] = array(TakenFromQueue, default=())


@struct()
class LeaseRuling:
    """What becomes of records that a member holds; see `queue_settling.Ruling`."""

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


@message(key=30004, versions=(0, 0), flexible=0)
class SettleLeasesRequest:
    """Settles leases; and names members that no longer wait for records."""

    rulings: Sequence[LeaseRuling] = array(LeaseRuling, default=())
    ended: Sequence[str] = array(string, default=())


@struct()
class RulingAnswer:
    """Whether one ruling counts."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


@message(key=30004, versions=(0, 0), flexible=0)
class SettleLeasesResponse:
    """One answer for each ruling, in the same order."""

    answers: Sequence[RulingAnswer] = array(RulingAnswer, default=())
