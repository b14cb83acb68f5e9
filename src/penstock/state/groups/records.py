"""What is kept of groups and offsets: keys and values of the internal topic.

A key is a msgpack array `[kind, version, ...ids]`, a value a tagged msgpack array; the same state
always gives the same bytes. No value means that the key is gone. A key of an unknown kind or
version is skipped when loading, so that an older broker can read what a newer one wrote.

`kind_of` looks at two bytes only: a million offsets are decoded on load, each by the one decoder
that fits it.

A position carries the id of its topic, last in its array: older brokers skip it (KIP-848 keeps it
in OffsetCommitValue v4 as a tagged field, for the same reason).
"""

from enum import IntEnum
from functools import lru_cache
from typing import Final

import msgspec

from penstock.base.ids import TopicId
from penstock.wire.encodable import STRING_BYTES_MAX


class RecordKind(IntEnum):
    """The first element of a key; never renumbered."""

    OFFSET = 1
    """Ids: group, topic, partition."""
    PENDING_OFFSET = 2
    """Ids: producer id, group, topic, partition."""
    PRODUCER = 3
    """Ids: producer id."""
    CLASSIC_GROUP = 4
    """Ids: group."""
    CLASSIC_MEMBER = 5
    """Ids: group, member."""
    CONSUMER_GROUP = 6
    """Ids: group."""
    CONSUMER_MEMBER = 7
    """Ids: group, member."""
    CONSUMER_TARGET = 8
    """Ids: group, member."""
    CONSUMER_CURRENT = 9
    """Ids: group, member."""
    SHARE_GROUP = 10
    """Ids: group."""
    SHARE_MEMBER = 11
    """Ids: group, member."""


VERSION: Final = 0
KEY_STARTS_REMEMBERED = 2_000
"""Groups commit to the same topics again and again."""
# Plain numbers: an enumeration's members take longer to look up and to encode, and of positions
# there are many.
OFFSET: Final = int(RecordKind.OFFSET)
_PENDING_OFFSET: Final = int(RecordKind.PENDING_OFFSET)


class OffsetValue(msgspec.Struct, array_like=True, tag="o", frozen=True, gc=False):
    """A committed position."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    sequence: int
    """Counts the shard's commits: which of two came later."""
    expires_ms: int = -1
    """Set by commits up to v4 that bring their own retention; -1: the broker's retention."""
    topic_id: bytes = b""
    """The topic it is a position in; empty in records of versions that did not keep it."""

    def is_in(self, topic_id: bytes) -> bool:
        """True if it is a position in this topic, and not in a deleted one of the same name."""
        return not self.topic_id or self.topic_id == topic_id


class PendingValue(msgspec.Struct, array_like=True, tag="p", frozen=True, gc=False):
    """A position that counts once its producer's transaction commits."""

    producer_epoch: int
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    sequence: int
    topic_id: bytes = b""
    """As in OffsetValue."""


class ProducerValue(msgspec.Struct, array_like=True, tag="e", frozen=True, gc=False):
    """The epoch of the last transaction that ended here: what fences its late requests."""

    producer_epoch: int
    ended_ms: int


class ClassicGroupValue(msgspec.Struct, array_like=True, tag="g", frozen=True):
    """A generation of a classic group."""

    generation: int
    state: str
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    since_ms: int
    """When this generation, or the group's emptiness, began."""


Protocols = tuple[tuple[str, bytes], ...]
"""Assignor names with the member's subscription in each one's words, most wanted first."""


class ClassicMemberValue(msgspec.Struct, array_like=True, tag="m", frozen=True):
    """A member of a generation of a classic group."""

    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes


class ConsumerGroupValue(msgspec.Struct, array_like=True, tag="G", frozen=True):
    """A consumer group's epochs."""

    epoch: int
    assignment_epoch: int
    """The group epoch from which the target was computed."""
    topics_hash: int
    """What the subscribed topics looked like at this epoch."""


class Embedded(msgspec.Struct, array_like=True, frozen=True):
    """The classic side of a member that speaks the old protocol inside a consumer group."""

    session_timeout_ms: int
    protocols: Protocols


class ConsumerMemberValue(msgspec.Struct, array_like=True, tag="M", frozen=True):
    """A member of a consumer group: who it is and what it wants."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: tuple[str, ...]
    """Sorted, without duplicates."""
    regex: str
    """Empty: none."""
    assignor: str | None
    embedded: Embedded | None
    principal: str = ""
    """Who it is, where it subscribes by pattern; empty otherwise."""


Owned = tuple[tuple[TopicId, tuple[int, ...]], ...]
"""Partitions by topic id; both sorted, no empty topic."""


class TargetValue(msgspec.Struct, array_like=True, tag="T", frozen=True):
    """What a member shall own in the end."""

    owned: tuple[tuple[bytes, tuple[int, ...]], ...]


class CurrentValue(msgspec.Struct, array_like=True, tag="C", frozen=True):
    """Where a member is on its way to the target."""

    epoch: int
    previous_epoch: int
    state: str
    assigned: tuple[tuple[bytes, tuple[int, ...]], ...]
    revoking: tuple[tuple[bytes, tuple[int, ...]], ...]


class ShareGroupValue(msgspec.Struct, array_like=True, tag="S", frozen=True):
    """A share group's epoch, and the topics it has positions in."""

    epoch: int
    topics_hash: int
    """What the subscribed topics looked like at this epoch."""
    topics: tuple[bytes, ...]
    """Ids of all topics that members have read since they were last taken off it; sorted."""


class ShareMemberValue(msgspec.Struct, array_like=True, tag="s", frozen=True):
    """A member of a share group: who it is and what it wants."""

    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    """Sorted, without duplicates."""


_encoder: Final = msgspec.msgpack.Encoder()
encode: Final = _encoder.encode

read_offset_key: Final = msgspec.msgpack.Decoder(tuple[int, int, str, str, int]).decode
read_pending_key: Final = msgspec.msgpack.Decoder(tuple[int, int, int, str, str, int]).decode
read_producer_key: Final = msgspec.msgpack.Decoder(tuple[int, int, int]).decode
read_group_key: Final = msgspec.msgpack.Decoder(tuple[int, int, str]).decode
read_member_key: Final = msgspec.msgpack.Decoder(tuple[int, int, str, str]).decode

read_offset: Final = msgspec.msgpack.Decoder(OffsetValue).decode
read_pending: Final = msgspec.msgpack.Decoder(PendingValue).decode
read_producer: Final = msgspec.msgpack.Decoder(ProducerValue).decode
read_classic_group: Final = msgspec.msgpack.Decoder(ClassicGroupValue).decode
read_classic_member: Final = msgspec.msgpack.Decoder(ClassicMemberValue).decode
read_consumer_group: Final = msgspec.msgpack.Decoder(ConsumerGroupValue).decode
read_consumer_member: Final = msgspec.msgpack.Decoder(ConsumerMemberValue).decode
read_target: Final = msgspec.msgpack.Decoder(TargetValue).decode
read_current: Final = msgspec.msgpack.Decoder(CurrentValue).decode
read_share_group: Final = msgspec.msgpack.Decoder(ShareGroupValue).decode
read_share_member: Final = msgspec.msgpack.Decoder(ShareMemberValue).decode


def kind_of(key: bytes) -> int:
    """The kind of a key that this code understands, or -1.

    Kinds and versions stay below 128 and ids below 14, so each of the first three is one byte.
    """
    if len(key) < 3 or key[0] & 0xF0 != 0x90 or key[2] != VERSION:
        return -1
    return key[1]


def has_unspeakable_name(key: bytes) -> bool:
    """True if a name in the key is longer than Kafka's protocol can carry: such names were once
    taken over HTTP."""
    names = (part for part in msgspec.msgpack.decode(key) if isinstance(part, str))
    return any(len(name.encode()) > STRING_BYTES_MAX for name in names)


def offset_key(group: str, topic: str, partition: int) -> bytes:
    return encode((OFFSET, VERSION, group, topic, partition))


@lru_cache(maxsize=KEY_STARTS_REMEMBERED)
def offset_key_start(group: str, topic: str) -> bytes:
    """What the keys of a topic's positions begin with; the partition follows, encoded."""
    return offset_key(group, topic, 0)[:-1]


def pending_key(producer_id: int, group: str, topic: str, partition: int) -> bytes:
    return encode((_PENDING_OFFSET, VERSION, producer_id, group, topic, partition))


def producer_key(producer_id: int) -> bytes:
    return encode((RecordKind.PRODUCER, VERSION, producer_id))


def group_key(kind: RecordKind, group: str) -> bytes:
    return encode((kind, VERSION, group))


def member_key(kind: RecordKind, group: str, member: str) -> bytes:
    return encode((kind, VERSION, group, member))
