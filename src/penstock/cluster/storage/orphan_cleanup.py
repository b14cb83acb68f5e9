"""Orphan cleanup: removes files of deleted topics and of replicas that moved away.

Both happen with the image that says so, or after a restart, when the folder is compared with the
image. Removal waits for the disk, so it runs on workers, one at a time; what the disk refuses is
retried.

Invariants: only directories of topics are touched that the image knows, as existing or as deleted;
of an existing topic only partitions without a replica here by the image. A replica that returns
before its files are removed keeps them. A deletion is confirmed once this node's files are removed.
Elsewhere: ending reads and writes first (`partitions`), the record of the deletion
(`topic_deletion`).
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
        """Replicas that moved away, with files to remove."""
        self._removed: dict[TopicId, None] = {}
        """Deleted topics whose files are removed here."""

    def schedule(self, topic_id: TopicId, index: int) -> None:
        """Schedules the removal of a moved replica's files, which are no longer in use."""
        self._moved[topic_id, index] = None

    async def find_moved(self, image: Image) -> None:
        """Finds replicas that moved away while this node was down."""
        for topic_id, index in await self._workers.run(
            self._directories.find_moved, image, self._node_id
        ):
            self.schedule(topic_id, index)

    async def remove_moved(self, image: Image) -> bool:
        """Removes the files of replicas that moved away; False if some are left."""
        moved, self._moved = self._moved, {}
        for topic_id, index in moved:
            topic = image.topics_by_id.get(topic_id)
            if topic is None or self._node_id in topic.partitions[index].replicas:
                continue  # It is removed with its topic, or has a replica here again.
            try:
                await self._workers.run(self._directories.remove_partition, topic, index)
            except (OSError, Refused) as error:
                log.warning("files of %s-%d are removed later: %s", topic.name, index, error)
                self.schedule(topic_id, index)
        return not self._moved

    async def remove_deleted(self, image: Image) -> bool:
        """Removes the files of deleted topics and confirms it; False if some are left.

        The record of a deleted topic may wait for other nodes long after that.
        """
        self._removed = {one: None for one in self._removed if one in image.deleted}
        for topic_id, record in image.deleted.items():
            if topic_id in self._removed or self._node_id in record.confirmed:
                continue
            try:
                await self._workers.run(self._directories.remove, topic_id)
                await topic_deletion.confirm(self._store, topic_id, self._node_id)
            except (UnknownResult, OSError, Refused) as error:
                # The record stays, and the next round or the next start retries.
                log.warning("the files of a deleted topic are removed later: %s", error)
                return False
            self._removed[topic_id] = None
        return True
