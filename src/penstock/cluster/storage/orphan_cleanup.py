"""Removing files that this node should no longer have: of deleted topics, of replicas moved away.

Both happen with the image that says so, or when the node returns, if it was away: then the folder
is compared with the image. Removing waits for the disk, so it runs on workers, one thing at a
time; what the disk refuses is tried again.

Invariants: only a directory whose topic the image knows, as living or as deleted, is touched, and
of a living topic only partitions that the image gives to others. A replica that came back before
its files were gone keeps them. A deletion is confirmed when our part of it is off the disk.
Leaves to others: whether anybody still reads or writes there (`partitions` closes first), the
record of the deletion (`removals`).
"""

import logging

from penstock.base.errors import Refused
from penstock.base.ids import NodeId, TopicId
from penstock.base.ports import Store, UnknownResult, Workers
from penstock.cluster.controller import topic_deletion
from penstock.cluster.metadata.image import Image
from penstock.cluster.storage.log_directories import LogDirectories

log = logging.getLogger("penstock.partitions")


class OrphanCleanup:
    def __init__(
        self, node_id: NodeId, store: Store, workers: Workers, directories: LogDirectories
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._workers = workers
        self._directories = directories
        self._moved: dict[tuple[TopicId, int], None] = {}
        """Not ours any more; their files are to go."""
        self._removed: dict[TopicId, None] = {}
        """Deleted topics whose files are gone from here."""

    def leave(self, topic_id: TopicId, index: int) -> None:
        """This replica has moved to another node, and nobody uses its files."""
        self._moved[topic_id, index] = None

    async def look(self, image: Image) -> None:
        """Finds what moved away while this node was not there."""
        for topic_id, index in await self._workers.run(
            self._directories.find_moved, image, self._node_id
        ):
            self.leave(topic_id, index)

    async def clear_moved(self, image: Image) -> bool:
        """Removes the files of replicas that moved away; False: some are still there."""
        moved, self._moved = self._moved, {}
        for topic_id, index in moved:
            topic = image.topics_by_id.get(topic_id)
            if topic is None or self._node_id in topic.partitions[index].replicas:
                continue  # It goes with its topic, or it is ours again.
            try:
                await self._workers.run(self._directories.remove_partition, topic, index)
            except (OSError, Refused) as error:
                log.warning("files of %s-%d stay for now: %s", topic.name, index, error)
                self.leave(topic_id, index)
        return not self._moved

    async def clear_deleted(self, image: Image) -> bool:
        """Removes the files of deleted topics and says so; False: some are still there.

        The record of a deleted topic may stay for others' sake long after our files went.
        """
        self._removed = {one: None for one in self._removed if one in image.deleted}
        for topic_id, record in image.deleted.items():
            if topic_id in self._removed or self._node_id in record.confirmed:
                continue
            try:
                await self._workers.run(self._directories.remove, topic_id)
                await topic_deletion.confirm(self._store, topic_id, self._node_id)
            except (UnknownResult, OSError, Refused) as error:
                # The record stays, and the next round or the next start tries again.
                log.warning("the files of a deleted topic are removed later: %s", error)
                return False
            self._removed[topic_id] = None
        return True
