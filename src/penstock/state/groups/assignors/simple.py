"""The simple assignor of share groups: every partition has readers, every member has partitions.

With fewer members than partitions each partition goes to one member; with more, members share
partitions. Who reads what follows from who is there: nothing needs to be remembered, and where
nobody owns a partition it costs nothing that it moves.
"""

from collections.abc import Mapping


def assign_simple(
    subscriptions: Mapping[str, frozenset[bytes]], partitions: Mapping[bytes, int]
) -> dict[str, set[tuple[bytes, int]]]:
    """Partitions by member; `partitions` says how many each topic has, in the order of names."""
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
    # Those who went away empty-handed join where the fewest read so far.
    for member in members:
        wanted = [slot for slot in sharing if slot[0] in subscriptions[member]]
        if not given[member] and wanted:
            slot = min(wanted, key=lambda slot: sharing[slot])
            given[member].add(slot)
            sharing[slot] += 1
    return given
