"""Retention `ack`: deletes records that every group has finished with (consume-then-delete).

For topics with `retention.mode=ack` this node advances the start of the partitions it leads to the
first record that some group still needs; the segments before it are deleted like any below the
start (`log.retention`), and followers begin where their leader does. `retention.ms` and
`retention.bytes` apply as well: they limit what is kept, read or not.

Groups that count: those in `retention.ack.groups`, each of which must have an offset; or, if that
is empty, every share group that has state in the partition and every consumer group that has
committed an offset there. Without a group, nothing is deleted. A share group needs all records from
its first unfinished one on, a consumer group all from its committed offset on; a record that waits
for its dead letter is unfinished.

Never too much: only persisted state counts, so that no crash revives a need for a deleted record;
and nothing is deleted unless every shard of offsets in the cluster answered (`groups_by_topic`). A
group that is reset or created later finds what is left.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable

from penstock.base.errors import Corrupt, Refused
from penstock.base.ports import WallClock
from penstock.cluster.configs.effective_configs import BrokerConfigs, topic_value
from penstock.cluster.metadata.image import TopicImage
from penstock.cluster.replication.partition import Partition
from penstock.cluster.storage.housekeeping import Housekeeping
from penstock.coordinator.groups_by_topic import GroupPosition, PositionKind, Positions
from penstock.coordinator.queues.open_queues import QueueCoordinator
from penstock.state.queues.state_shard import QueueKey

log = logging.getLogger("penstock.retention")

ACK = "ack"
CURSORS = ("penstock-redrive.",)
"""Groups of tools that only record their progress; see `client.dead_letters.redrive`."""


class AckRetention:
    """Advances the start of led partitions of topics with retention `ack`."""

    def __init__(
        self,
        queues: QueueCoordinator,
        positions: Positions,
        configs: BrokerConfigs,
        housekeeping: Housekeeping,
        clock: WallClock,
    ) -> None:
        self._queues = queues
        self._positions = positions
        self._configs = configs
        self._housekeeping = housekeeping
        housekeeping.kept_from = queues.kept_from
        self._clock = clock
        self.records_deleted = 0

    async def run(self) -> None:
        """Runs rounds until cancelled."""
        while True:
            await asyncio.sleep(self._configs.integer("log.retention.ack.interval.ms") / 1000)
            await self.run_round()

    async def run_round(self) -> None:
        """Runs one round over all affected partitions."""
        led = [partition for partition in self._led() if _has_something(partition)]
        if not led:
            return
        try:
            names = {partition.topic for partition in led}
            listing = await self._positions.everywhere(names)
        except Refused as refused:
            log.info("nothing is deleted for now: %s", refused)
            return
        for partition in led:
            there = [
                one
                for one in listing.positions
                if (one.topic, one.partition) == (partition.topic, partition.index)
            ]
            try:
                await self._delete(partition, there)
            except (Refused, Corrupt, OSError) as error:
                log.info("%s-%d is looked at later: %s", partition.topic, partition.index, error)

    def _led(self) -> Iterable[Partition]:
        image = self._queues.around.watcher.image
        for partition in list(self._queues.around.partitions.led()):
            topic = image.topics_by_id.get(partition.topic_id)
            if topic is not None and self._is_acked(topic):
                yield partition

    def _is_acked(self, topic: TopicImage) -> bool:
        is_asked = topic_value("retention.mode", topic.configs, self._configs) == ACK
        return is_asked and not topic.is_internal

    async def _delete(self, partition: Partition, there: list[GroupPosition]) -> None:
        topic = self._queues.around.watcher.image.topics_by_id.get(partition.topic_id)
        if topic is None:
            return
        named = topic_value("retention.ack.groups", topic.configs, self._configs)
        assert isinstance(named, tuple)
        needed = await first_needed(self._queues, partition, needing(there, named))
        if needed is None or not partition.is_leader:
            return
        offset = min(needed, partition.high_watermark)
        before = partition.log.start_offset
        if offset <= before or not partition.log.config.cleanup_delete:
            return
        await partition.delete_before(offset)
        self.records_deleted += offset - before
        self._housekeeping.retain(partition, self._clock.now_ms(), is_settled=False)


async def first_needed(
    queues: QueueCoordinator, partition: Partition, positions: list[GroupPosition] | None
) -> int | None:
    """Returns the first offset that some group needs; None: no group has an offset yet."""
    if not positions:
        return None
    needed = []
    for one in positions:
        if one.kind is PositionKind.CONSUMER:
            needed.append(one.offset)
            continue
        key = QueueKey(one.group, partition.topic_id, partition.index)
        queue = queues.find_quietly(key)
        if queue is not None:
            needed.append(queue.kept_start)
            continue
        kept = await queues.look_up(key)
        if kept is None:
            return None  # Forgotten or moved meanwhile: the next round handles it.
        needed.append(kept.start)
    return min(needed)


def needing(there: list[GroupPosition], named: Collection[str]) -> list[GroupPosition] | None:
    """Returns the offsets that count; None if a group that must have one has none."""
    if not named:
        return [one for one in there if not one.group.startswith(CURSORS)]
    if set(named) - {one.group for one in there}:
        return None
    return [one for one in there if one.group in named]


def _has_something(partition: Partition) -> bool:
    return partition.log.start_offset < partition.high_watermark and not partition.is_under_repair
