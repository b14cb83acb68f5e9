"""Number of unread records of a group in whole topics."""

from collections.abc import Iterable

from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import committed_offsets
from penstock.client.consumer.isolation import READ_COMMITTED
from penstock.client.list_offsets import EARLIEST, LATEST, list_offsets, partitions_of


async def count_unread(cluster: Cluster, group: str, topics: Iterable[str]) -> int:
    """Counts offsets after the committed one, or all offsets of a partition without commit."""
    places = [where for topic in topics for where in await partitions_of(cluster, topic)]
    kept = await committed_offsets(cluster, group)
    starts = await list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = await list_offsets(
        cluster, dict.fromkeys(places, LATEST), isolation_level=READ_COMMITTED
    )
    begun = {w: kept[w].offset if w in kept else starts[w].offset for w in places}
    return sum(max(0, ends[w].offset - begun[w]) for w in places)
