"""Uniform assignor: balanced and sticky; a partition moves only if balance requires it.

If all members have the same subscriptions, their numbers of partitions differ by at most one, and
as few as possible move. If subscriptions differ, partitions go to the least loaded subscriber and
then from the most to the least loaded member until no move helps.
"""

import heapq

from penstock.state.groups.assignors.spec import Spec

Slots = set[tuple[bytes, int]]


def assign_uniform(spec: Spec) -> dict[str, Slots]:
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
    room = [(len(kept[m]), n, m) for n, m in enumerate(spec.order) if len(kept[m]) < quota[m]]
    heapq.heapify(room)
    for slot in sorted(free):
        size, n, member = heapq.heappop(room)
        kept[member].add(slot)
        if size + 1 < quota[member]:
            heapq.heappush(room, (size + 1, n, member))
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
