"""Backlog of topics with a maximum: the bytes that their slowest group has not read.

For topics with `max.backlog.bytes` this node measures the partitions it leads every
`ROUND_SECONDS`: the bytes from the first record that some group still needs to the end of the log,
all of them if no group has an offset. The groups that count are as for retention `ack`
(`ack_retention`). A backlog above the maximum is reported to `cluster.storage.write_pressure`,
which applies backpressure to producers until groups have caught up or retention has deleted the
rest.

The bytes are those of whole segments, and of the first one the fraction according to its offsets:
nothing is read. A partition whose whole log is below the maximum costs a comparison; if offsets are
unavailable its state stays as it was.
"""

import asyncio
import logging
from collections.abc import Iterable

from penstock.base.errors import Corrupt, Refused
from penstock.cluster.configs.effective_configs import BrokerConfigs, topic_value
from penstock.cluster.replication.partition import Partition
from penstock.cluster.storage.write_pressure import Full, PartitionKey, Policy
from penstock.coordinator.groups_by_topic import GroupPosition, Positions
from penstock.coordinator.queues.ack_retention import first_needed, needing
from penstock.coordinator.queues.open_queues import QueueCoordinator
from penstock.log.log import Log

log = logging.getLogger("penstock.backlogs")

ROUND_SECONDS = 1.0


class BacklogLimits:
    """Measures led partitions of topics with a maximum."""

    def __init__(
        self, queues: QueueCoordinator, positions: Positions, configs: BrokerConfigs
    ) -> None:
        self._queues = queues
        self._positions = positions
        self._configs = configs
        self._full: dict[PartitionKey, Full] = {}

    async def run(self) -> None:
        """Runs rounds until cancelled."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            await self.run_round()

    async def run_round(self) -> None:
        """Runs one round over all affected partitions."""
        large = list(self._large())
        if not large:
            if self._full:
                self._tell({})
            return
        try:
            names = {partition.topic for partition, _ in large}
            listing = await self._positions.everywhere(names)
        except Refused as refused:
            log.info("backlogs were not measured, so their limits stay as they are: %s", refused)
            return
        full: dict[PartitionKey, Full] = {}
        for partition, bytes_max in large:
            key = partition.topic, partition.index
            there = [one for one in listing.positions if (one.topic, one.partition) == key]
            size = await self._size(partition, there)
            if size > bytes_max:
                full[key] = Full(self._policy(partition), _reason(partition, size, bytes_max))
        self._tell(full)

    def _large(self) -> Iterable[tuple[Partition, int]]:
        """Yields partitions whose whole log is above the maximum; the rest need no measurement."""
        topics = self._queues.around.watcher.image.topics_by_id
        for partition in list(self._queues.around.partitions.led()):
            topic = topics.get(partition.topic_id)
            if topic is None or topic.is_internal or "max.backlog.bytes" not in topic.configs:
                continue
            bytes_max = topic_value("max.backlog.bytes", topic.configs, self._configs)
            assert isinstance(bytes_max, int)
            if 0 <= bytes_max < partition.log.size_bytes:
                yield partition, bytes_max

    def _policy(self, partition: Partition) -> Policy:
        topic = self._queues.around.watcher.image.topics_by_id.get(partition.topic_id)
        configs = topic.configs if topic is not None else {}
        return Policy(str(topic_value("max.backlog.policy", configs, self._configs)))

    async def _size(self, partition: Partition, there: list[GroupPosition]) -> int:
        start = partition.log.start_offset
        try:
            needed = await first_needed(self._queues, partition, needing(there, ()))
        except (Refused, Corrupt, OSError) as error:
            log.info(
                "the first unread offset of %s-%d is unknown, so its whole log counts: %s",
                partition.topic,
                partition.index,
                error,
            )
            needed = None
        return bytes_since(partition.log, start if needed is None else needed)

    def _tell(self, full: dict[PartitionKey, Full]) -> None:
        for key in full.keys() - self._full.keys():
            log.warning("producers of %s-%d are blocked or rejected: %s", *key, full[key].reason)
        for key in self._full.keys() - full.keys():
            log.warning("producers of %s-%d are accepted again", *key)
        self._full = full
        self._queues.around.partitions.pressure.set_full_backlogs(full)


def bytes_since(held: Log, offset: int) -> int:
    """Returns approximately the bytes of a log from an offset on."""
    offset = max(offset, held.start_offset)
    if offset >= held.end_offset:
        return 0
    segments = held.segments
    first = segments.floor(offset)
    end = segments.end_of(first, held.end_offset)
    rest = sum(segment.size for segment in segments if segment.base_offset > first.base_offset)
    share = (end - offset) / max(1, end - first.base_offset)
    return rest + int(first.size * min(1.0, share))


def _reason(partition: Partition, size: int, bytes_max: int) -> str:
    return (
        f"the backlog of {partition.topic}-{partition.index} has {size} bytes, "
        f"max.backlog.bytes allows {bytes_max}"
    )
