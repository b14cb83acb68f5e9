"""Server-side assignors by name: members and topics in, partitions per member out.

An assignor is a pure function. It assigns every partition of a subscribed topic to exactly one
member that subscribes to the topic.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

Slots = set[tuple[bytes, int]]
"""Topic ids and partitions."""


@dataclass(frozen=True)
class Spec:
    """Input of an assignor: members, subscriptions and previous targets.

    Only existing topics have an id here.
    """

    subscriptions: Mapping[str, frozenset[bytes]]
    """Ids of existing topics, by member."""
    partitions: Mapping[bytes, int]
    """Number of partitions, by topic id. Ordered by topic name."""
    previous: Mapping[str, set[tuple[bytes, int]]]
    """Last target, by member; may contain topics and members that are gone."""
    instance_ids: Mapping[str, str | None]
    """Instance id, by member. Static members come first in every order."""

    @cached_property
    def order(self) -> list[str]:
        """Static members by instance id, then dynamic ones by member id."""

        def rank(member: str) -> tuple[bool, str]:
            instance_id = self.instance_ids.get(member)
            return (instance_id is None, instance_id or member)

        return sorted(self.subscriptions, key=rank)


def assign_range(spec: Spec) -> dict[str, set[tuple[bytes, int]]]:
    """Range assignor: each subscriber of a topic gets one contiguous range of its partitions.

    Members with the same subscriptions get the same partition numbers of every topic, which keeps
    co-partitioned topics together.
    """
    given: dict[str, set[tuple[bytes, int]]] = {member: set() for member in spec.order}
    for topic_id, count in spec.partitions.items():
        subscribers = [m for m in spec.order if topic_id in spec.subscriptions[m]]
        if not subscribers:
            continue
        each, extra = divmod(count, len(subscribers))
        start = 0
        for n, member in enumerate(subscribers):
            end = start + each + (n < extra)
            given[member].update((topic_id, partition) for partition in range(start, end))
            start = end
    return given


def assign_uniform(spec: Spec) -> dict[str, Slots]:
    """Uniform assignor: balanced and sticky; a partition moves only if balance requires it.

    If all members have the same subscriptions, their numbers of partitions differ by at most one,
    and as few as possible move. If subscriptions differ, partitions go to the least loaded
    subscriber and then from the most to the least loaded member until no move helps.
    """
    if not spec.order:
        return {}
    if len(set(spec.subscriptions.values())) == 1:
        return _alike(spec)
    return _different(spec)


def _kept(spec: Spec) -> tuple[dict[str, Slots], Slots]:
    """Partitions that members had and may keep, and those left to assign."""
    subscribed = frozenset().union(*spec.subscriptions.values())
    free = {
        (topic_id, partition)
        for topic_id, count in spec.partitions.items()
        if topic_id in subscribed
        for partition in range(count)
    }
    kept: dict[str, Slots] = {}
    for member in spec.order:
        wanted = spec.subscriptions[member]
        kept[member] = {
            slot for slot in spec.previous.get(member, ()) if slot in free and slot[0] in wanted
        }
        free -= kept[member]
    return kept, free


def _alike(spec: Spec) -> dict[str, Slots]:
    kept, free = _kept(spec)
    total = len(free) + sum(len(slots) for slots in kept.values())
    each, extra = divmod(total, len(spec.order))
    # Members that already have one more than the rest keep it, as many of them as possible.
    rich = [member for member in spec.order if len(kept[member]) > each]
    quota = dict.fromkeys(spec.order, each)
    for member in rich[:extra]:
        quota[member] += 1
    for member in spec.order:
        for slot in sorted(kept[member])[quota[member] :]:
            kept[member].remove(slot)
            free.add(slot)
    poor = [member for member in spec.order if quota[member] == each]
    for member in sorted(poor, key=lambda m: -len(kept[m]))[: extra - len(rich[:extra])]:
        quota[member] += 1
    capacity = [(len(kept[m]), n, m) for n, m in enumerate(spec.order) if len(kept[m]) < quota[m]]
    heapq.heapify(capacity)
    for slot in sorted(free):
        size, n, member = heapq.heappop(capacity)
        kept[member].add(slot)
        if size + 1 < quota[member]:
            heapq.heappush(capacity, (size + 1, n, member))
    return kept


def _different(spec: Spec) -> dict[str, Slots]:
    given, free = _kept(spec)
    readers = {
        topic_id: [m for m in spec.order if topic_id in spec.subscriptions[m]]
        for topic_id in spec.partitions
    }
    rank = {member: n for n, member in enumerate(spec.order)}
    # Partitions with few possible readers go first, so that flexible members fill the gaps.
    for slot in sorted(free, key=lambda slot: (len(readers[slot[0]]), slot)):
        taker = min(readers[slot[0]], key=lambda m: (len(given[m]), rank[m]))
        given[taker].add(slot)
    total = sum(len(slots) for slots in given.values())
    # Every move brings two loads closer, so the sum of squares falls and the loop ends by itself;
    # the bound only makes that explicit.
    for _ in range(total * len(spec.order) + 1):
        if not _move_one(given, readers, rank):
            break
    return given


def _move_one(
    given: dict[str, Slots], readers: dict[bytes, list[str]], rank: dict[str, int]
) -> bool:
    for giver in sorted(given, key=lambda m: (-len(given[m]), rank[m])):
        for topic_id in sorted({slot[0] for slot in given[giver]}):
            taker = min(readers[topic_id], key=lambda m: (len(given[m]), rank[m]))
            if len(given[giver]) - len(given[taker]) >= 2:
                slot = max(slot for slot in given[giver] if slot[0] == topic_id)
                given[giver].remove(slot)
                given[taker].add(slot)
                return True
    return False


def assign_simple(
    subscriptions: Mapping[str, frozenset[bytes]], partitions: Mapping[bytes, int]
) -> dict[str, set[tuple[bytes, int]]]:
    """Simple assignor of share groups: every partition has readers, every member has partitions.

    With fewer members than partitions each partition goes to one member; with more, members
    share partitions. The assignment depends only on the current members, so nothing is stored.
    Members of share groups do not own partitions, so moving one costs nothing.

    `partitions` has the number of partitions of each topic, ordered by topic name.
    """
    members = sorted(subscriptions)
    given: dict[str, set[tuple[bytes, int]]] = {member: set() for member in members}
    readers = {
        topic_id: [member for member in members if topic_id in subscriptions[member]]
        for topic_id in partitions
    }
    turn = 0
    sharing: dict[tuple[bytes, int], int] = {}
    for topic_id, count in partitions.items():
        if not readers[topic_id]:
            continue
        for index in range(count):
            given[readers[topic_id][turn % len(readers[topic_id])]].add((topic_id, index))
            sharing[topic_id, index] = 1
            turn += 1
    # Members without a partition join the ones that have the fewest readers so far.
    for member in members:
        wanted = [slot for slot in sharing if slot[0] in subscriptions[member]]
        if not given[member] and wanted:
            slot = min(wanted, key=lambda slot: sharing[slot])
            given[member].add(slot)
            sharing[slot] += 1
    return given


Assignor = Callable[[Spec], Mapping[str, set[tuple[bytes, int]]]]

ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
