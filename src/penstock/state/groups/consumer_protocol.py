"""Consumer protocol: the subscriptions and assignments that consumers embed in classic groups.

The coordinator of a classic group forwards these bytes unread. It reads them only to learn the
group's topics and to migrate members to a consumer group and back. A version newer than ours is
read as our newest: Kafka promises that versions only add fields at the end.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.base.errors import PeerError
from penstock.wire.codec import reader, writer
from penstock.wire.schema import array, bytes_, int32, string, struct

CONSUMER: Final = "consumer"
"""Protocol type of groups whose members are consumers."""

VERSION_MAX: Final = 3


@struct()
class ProtocolTopicPartitions:
    """Partitions of one topic, by name."""

    topic: str = string()
    partitions: Sequence[int] = array(int32, default=())


@struct()
class Subscription:
    """Topics that a member subscribes to and the partitions it still owns."""

    topics: Sequence[str] = array(string)
    user_data: bytes | None = bytes_(nullable=True, default=None)
    owned_partitions: Sequence[ProtocolTopicPartitions] = array(
        ProtocolTopicPartitions, since=1, default=()
    )
    generation_id: int = int32(since=2, default=-1)
    rack_id: str | None = string(since=3, nullable=True, default=None)


@struct()
class Assignment:
    """Partitions assigned to a member."""

    assigned_partitions: Sequence[ProtocolTopicPartitions] = array(ProtocolTopicPartitions)
    user_data: bytes | None = bytes_(nullable=True, default=None)


def read_subscription(data: bytes) -> tuple[int, Subscription]:
    """Decodes a subscription; raises PeerError if the bytes are not one."""
    version, found = _read(data, reader)(Subscription)
    return version, found


def read_assignment(data: bytes) -> Assignment:
    """Decodes an assignment; raises PeerError if the bytes are not one. No bytes: no partitions."""
    if not data:
        return Assignment(assigned_partitions=())
    found: Assignment = _read(data, reader)(Assignment)[1]
    return found


def write_subscription(subscription: Subscription, version: int = VERSION_MAX) -> bytes:
    return _write(subscription, version)


def write_assignment(assignment: Assignment, version: int) -> bytes:
    return _write(assignment, version)


def _read(data: bytes, compiled: Callable[..., Any]) -> Callable[[Any], tuple[int, Any]]:
    if len(data) < 2:
        raise PeerError(f"consumer protocol data has {len(data)} bytes: at least 2 are needed")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise PeerError(f"invalid consumer protocol version {version}: must not be negative")

    def read(shape: Any) -> tuple[int, Any]:
        known = min(version, VERSION_MAX)
        return known, compiled(shape, known)(memoryview(data), 2, len(data))[0]

    return read


def _write(value: Any, version: int) -> bytes:
    parts: list[Any] = []
    known = min(version, VERSION_MAX)
    writer(type(value), known)(value, parts)
    return known.to_bytes(2, "big") + b"".join(parts)
