"""What Penstock's nodes tell each other about queues; clients are not told of these.

KeepQueueState (30001) goes to the node that keeps a queue's state, TellQueue (30002) to the node
that leads the queue's partition. Kafka's own messages for the first (84-87) carry its kind of
state, and ours is another one.

What holds what:

- KeepQueueStateRequest > QueueStateCall
- KeepQueueStateResponse > QueueStateAnswer
- TellQueueRequest > QueueCall
- TellQueueResponse > QueueAnswer
"""

from collections.abc import Sequence

from penstock.base.ids import TopicId
from penstock.wire.schema import (
    array,
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
