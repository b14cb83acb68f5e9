"""Persisted records of groups and offsets: keys and values of `__consumer_offsets`.

A key is a msgpack array `[kind, version, ...ids]`, a value a tagged msgpack array; the same state
always gives the same bytes. A record without a value is a tombstone. Keys of an unknown kind or
version are skipped on load, so that an older broker can read what a newer one wrote.

`kind_of` reads two bytes only: a million offsets are decoded on load, each by the one decoder that
fits it.

A committed offset carries its topic id, last in its array: older brokers skip it (KIP-848 keeps it
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
"""Maximum cached key prefixes: groups commit to the same topics again and again."""
# Plain ints: enum members take longer to look up and to encode, and offset records are many.
OFFSET: Final = int(RecordKind.OFFSET)
_PENDING_OFFSET: Final = int(RecordKind.PENDING_OFFSET)


class OffsetValue(msgspec.Struct, array_like=True, tag="o", frozen=True, gc=False):
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    sequence: int
    """Number of the commit within the shard; orders two commits."""
    expires_ms: int = -1
    """Expiry set by commits up to v4 that carry their own retention; -1: the broker's retention."""
    topic_id: bytes = b""
    """Id of the offset's topic; empty in records of versions that did not store it."""

    def is_in(self, topic_id: bytes) -> bool:
        """True if the offset belongs to this topic, not to a deleted one of the same name."""
        return not self.topic_id or self.topic_id == topic_id


class PendingValue(msgspec.Struct, array_like=True, tag="p", frozen=True, gc=False):
    """An offset that is committed once its producer's transaction commits."""

    producer_epoch: int
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    sequence: int
    topic_id: bytes = b""
    """As in OffsetValue."""


class ProducerValue(msgspec.Struct, array_like=True, tag="e", frozen=True, gc=False):
    """Epoch of the last transaction that ended here; fences the producer's late requests."""

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
    """Start of this generation, or the time at which the group became empty."""


Protocols = tuple[tuple[str, bytes], ...]
"""Assignor names with the member's subscription encoded for each, in order of preference."""


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
    """Epochs of a consumer group."""

    epoch: int
    assignment_epoch: int
    """Group epoch for which the target assignment was computed."""
    topics_hash: int
    """Hash of the subscribed topics at this epoch."""


class Embedded(msgspec.Struct, array_like=True, frozen=True):
    """Classic-protocol data of a member that speaks the old protocol inside a consumer group."""

    session_timeout_ms: int
    protocols: Protocols


class ConsumerMemberValue(msgspec.Struct, array_like=True, tag="M", frozen=True):
    """A member of a consumer group: its identity and subscription."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: tuple[str, ...]
    """Sorted, without duplicates."""
    regex: str
    """Subscription pattern; empty: none."""
    assignor: str | None
    embedded: Embedded | None
    principal: str = ""
    """The member's principal if it subscribes by pattern; empty otherwise."""


Owned = tuple[tuple[TopicId, tuple[int, ...]], ...]
"""Partitions by topic id; both sorted, no empty topic."""


class TargetValue(msgspec.Struct, array_like=True, tag="T", frozen=True):
    """Target assignment of a member."""

    owned: tuple[tuple[bytes, tuple[int, ...]], ...]


class CurrentValue(msgspec.Struct, array_like=True, tag="C", frozen=True):
    """Progress of a member towards its target assignment."""

    epoch: int
    previous_epoch: int
    state: str
    assigned: tuple[tuple[bytes, tuple[int, ...]], ...]
    revoking: tuple[tuple[bytes, tuple[int, ...]], ...]


class ShareGroupValue(msgspec.Struct, array_like=True, tag="S", frozen=True):
    """Epoch of a share group, and the topics in which it has delivery state."""

    epoch: int
    topics_hash: int
    """Hash of the subscribed topics at this epoch."""
    topics: tuple[bytes, ...]
    """Ids of all topics that members have read, until they are removed from the group; sorted."""


class ShareMemberValue(msgspec.Struct, array_like=True, tag="s", frozen=True):
    """A member of a share group: its identity and subscription."""

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
    """Kind of a key that this version understands, or -1.

    Kinds and versions stay below 128 and ids below 14, so each of the first three is one byte.
    """
    if len(key) < 3 or key[0] & 0xF0 != 0x90 or key[2] != VERSION:
        return -1
    return key[1]


def has_oversized_name(key: bytes) -> bool:
    """True if a name in the key is too long for Kafka's protocol: such names were once accepted
    over HTTP."""
    names = (part for part in msgspec.msgpack.decode(key) if isinstance(part, str))
    return any(len(name.encode()) > STRING_BYTES_MAX for name in names)


def offset_key(group: str, topic: str, partition: int) -> bytes:
    return encode((OFFSET, VERSION, group, topic, partition))


@lru_cache(maxsize=KEY_STARTS_REMEMBERED)
def offset_key_start(group: str, topic: str) -> bytes:
    """Prefix of the keys of a topic's offsets; the encoded partition follows."""
    return offset_key(group, topic, 0)[:-1]


def pending_key(producer_id: int, group: str, topic: str, partition: int) -> bytes:
    return encode((_PENDING_OFFSET, VERSION, producer_id, group, topic, partition))


def producer_key(producer_id: int) -> bytes:
    return encode((RecordKind.PRODUCER, VERSION, producer_id))


def group_key(kind: RecordKind, group: str) -> bytes:
    return encode((kind, VERSION, group))


def member_key(kind: RecordKind, group: str, member: str) -> bytes:
    return encode((kind, VERSION, group, member))
