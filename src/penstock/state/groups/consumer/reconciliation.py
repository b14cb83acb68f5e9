"""Reconciliation of one member: from the partitions it owns to its target.

Stable: at its epoch, with all of that epoch's target. Unrevoked: asked to revoke partitions, and
held at its epoch until it has. Unreleased: at the target's epoch, waiting for partitions that
other members have not revoked yet.

Invariant: a partition is assigned to a member only when no other owns it or is still revoking it.

Owned partitions, as a set for computation and as sorted tuples for records.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from penstock.base.ids import TopicId
from penstock.state.groups.config import TopicCatalogue
from penstock.state.groups.consumer_protocol import ProtocolTopicPartitions
from penstock.state.groups.records import CurrentValue, Owned

Slot = tuple[bytes, int]
"""A topic id and a partition."""


def flat(owned: Iterable[tuple[bytes, Iterable[int]]]) -> set[Slot]:
    return {(topic_id, partition) for topic_id, rows in owned for partition in rows}


def packed(slots: Iterable[Slot]) -> Owned:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(slots):
        by_topic.setdefault(topic_id, []).append(partition)
    return tuple((TopicId(topic_id), tuple(rows)) for topic_id, rows in by_topic.items())


def from_names(named: Iterable[ProtocolTopicPartitions], topics: TopicCatalogue) -> set[Slot]:
    """Partitions by topic id; topics that are gone are omitted."""
    slots: set[Slot] = set()
    for row in named:
        known = topics.by_name.get(row.topic)
        if known is not None:
            slots.update((known[0], partition) for partition in row.partitions)
    return slots


def to_names(owned: Owned, names: Mapping[TopicId, str]) -> list[ProtocolTopicPartitions]:
    """Partitions by topic name, sorted; topics that are gone are omitted."""
    known = [(names[topic_id], rows) for topic_id, rows in owned if topic_id in names]
    return [ProtocolTopicPartitions(topic=n, partitions=rows) for n, rows in sorted(known)]


MEMBER_STABLE: Final = "stable"
UNREVOKED: Final = "unrevoked"
UNRELEASED: Final = "unreleased"

JOINING: Final = CurrentValue(0, 0, MEMBER_STABLE, (), ())
"""Initial state of a member."""


def reconcile(
    current: CurrentValue,
    target_epoch: int,
    target: Owned,
    reported: set[Slot] | None,
    is_free: Callable[[Slot], bool],
) -> CurrentValue:
    """Next state of the member. `reported` is what it reports to own; None: it did not report."""
    if current.state == MEMBER_STABLE:
        if current.epoch == target_epoch:
            return current
        return _advance(current, current.epoch, target_epoch, target, reported, is_free)
    if current.state == UNREVOKED:
        if _owns_any(reported, flat(current.revoking)):
            return current
        # The revocation is done, so the member reaches the epoch that required it.
        return _advance(current, current.epoch + 1, target_epoch, target, reported, is_free)
    return _advance(current, current.epoch, target_epoch, target, reported, is_free)


def _owns_any(reported: set[Slot] | None, slots: set[Slot]) -> bool:
    """True if the member owns any of the slots; one that does not report owns all of them."""
    return reported is None or not reported.isdisjoint(slots)


def _advance(
    current: CurrentValue,
    epoch: int,
    target_epoch: int,
    target: Owned,
    reported: set[Slot] | None,
    is_free: Callable[[Slot], bool],
) -> CurrentValue:
    wanted = flat(target)
    held = flat(current.assigned)
    kept = held & wanted
    revoking = held - wanted
    if revoking and _owns_any(reported, revoking):
        return _moved(current, min(epoch, target_epoch), UNREVOKED, kept, revoking)
    missing = wanted - kept
    free = {slot for slot in missing if is_free(slot)}
    state = MEMBER_STABLE if free == missing else UNRELEASED
    return _moved(current, target_epoch, state, kept | free, set())


def _moved(
    current: CurrentValue, epoch: int, state: str, assigned: set[Slot], revoking: set[Slot]
) -> CurrentValue:
    previous = current.epoch if epoch != current.epoch else current.previous_epoch
    return CurrentValue(epoch, previous, state, packed(assigned), packed(revoking))
