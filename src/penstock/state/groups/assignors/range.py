"""Range assignor: each subscriber of a topic gets one contiguous range of its partitions.

Members with the same subscriptions get the same partition numbers of every topic, which keeps
co-partitioned topics together.
"""

from penstock.state.groups.assignors.spec import Spec


def assign_range(spec: Spec) -> dict[str, set[tuple[bytes, int]]]:
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
