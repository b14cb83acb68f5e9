"""Simple assignor of share groups: every partition has readers, every member has partitions.

With fewer members than partitions each partition goes to one member; with more, members share
partitions. The assignment depends only on the current members, so nothing is stored. Share group
members do not own partitions, so moving one costs nothing.
"""

from collections.abc import Mapping


def assign_simple(
    subscriptions: Mapping[str, frozenset[bytes]], partitions: Mapping[bytes, int]
) -> dict[str, set[tuple[bytes, int]]]:
    """Partitions by member; `partitions` has the number of each topic's, ordered by topic name."""
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
