"""Lag of consumer groups, for the node's metrics.

A node reports the groups that it coordinates, so each is reported once. The end of a partition
comes from the node's own replica; for partitions without a replica here it asks the leaders. The
age of the first unread record comes from its own replica only.

A round covers all committed offsets in small steps, between which requests are served
(`CooperativeYield`). It counts offsets that are applied and not committed yet: the next round
corrects them.

Bounds: `POSITIONS_MAX` offsets in a round; `NAMES_MAX` partitions and groups have figures of their
own, those furthest behind. The rest of the groups is added up as `OTHERS`; the rest of the
partitions is not reported: each is less far behind than any of those.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.base.cooperative_yield import CooperativeYield
from penstock.base.errors import Corrupt, Refused
from penstock.cluster.replication.peer_connections import PEER_ERRORS
from penstock.coordinator.groups import GroupCoordinator
from penstock.coordinator.queues.inspection import NO_TIME, written_ms
from penstock.coordinator.queues.queue_metrics import NAMES_MAX, OTHERS
from penstock.coordinator.runtime.shard_host import HostContext
from penstock.state.groups.records import OffsetValue
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

log = logging.getLogger("penstock.groups")

ROUND_SECONDS = 10.0
POSITIONS_MAX = 1_000_000
KEPT_MAX = 4 * NAMES_MAX
STEP = 50
"""Offsets between two looks at the clock."""
REST_SECONDS = 0.005
"""Pause after a step: a round takes at most a tenth of the loop's time."""
CHANNEL = "group-watch"
TIMEOUT_MS = 5_000
LATEST = -1
CONSUMER = -1

GroupTopicKey = tuple[str, int]


class Behind(NamedTuple):
    """Lag of a group in one partition."""

    group: str
    topic: str
    partition: int
    committed: int
    records: int
    oldest_ms: int = NO_TIME

    def age_seconds(self, now_ms: int) -> float:
        return max(0, now_ms - self.oldest_ms) / 1000 if self.oldest_ms >= 0 else 0.0


@dataclass(slots=True)
class GroupLag:
    """Lag of a group in a topic."""

    records: int = 0
    oldest_ms: int = NO_TIME
    """Timestamp of the oldest unread record, if known."""

    trend: float = field(default=0.0, compare=False)
    """Records per second by which the lag grew, or fell, between the last two rounds."""

    def age_seconds(self, now_ms: int) -> float:
        return max(0, now_ms - self.oldest_ms) / 1000 if self.oldest_ms >= 0 else 0.0


class GroupWatch:
    """Results of the last round."""

    def __init__(self, around: HostContext, groups: GroupCoordinator) -> None:
        self.partitions: list[Behind] = []
        """Partitions furthest behind, largest lag first."""
        self.groups: dict[tuple[str, str], GroupLag] = {}
        """By group and topic."""
        self._around = around
        self._groups = groups
        self._looked_s = 0.0

    async def run_round(self) -> None:
        """Runs one round."""
        yielding = CooperativeYield(REST_SECONDS)
        draft = _Draft()
        away: list[tuple[str, str, int, int]] = []
        replica = self._around.partitions.replica
        steps = 0
        for group, places in self._groups_here():
            for (topic, index), value in places:
                here = replica(topic, index)
                if here is not None:
                    draft.add(group, topic, index, value.offset, here.high_watermark)
                else:
                    away.append((group, topic, index, value.offset))
                steps += 1
                if not steps % STEP:
                    await yielding.draw()
            if steps >= POSITIONS_MAX:
                break
        if away:
            ends = await ends_elsewhere(self._around, [(row[1], row[2]) for row in away])
            for group, topic, index, committed in away:
                if (topic, index) in ends:
                    draft.add(group, topic, index, committed, ends[topic, index])
                await yielding.draw()
        partitions = []
        for one in draft.furthest():
            partitions.append(await self._dated(one))
            await yielding.draw()
        before, self.groups = self.groups, await draft.largest(partitions, yielding)
        self.partitions = partitions
        self._compare(before)

    def _compare(self, before: dict[tuple[str, str], GroupLag]) -> None:
        now_s = asyncio.get_running_loop().time()
        elapsed_s, self._looked_s = now_s - self._looked_s, now_s
        for name, lag in self.groups.items():
            known = before.get(name)
            if known is not None and elapsed_s > 0:
                lag.trend = (lag.records - known.records) / elapsed_s

    def _groups_here(self) -> Iterator[tuple[str, list[tuple[GroupTopicKey, OffsetValue]]]]:
        """Yields groups with their offsets; changes meanwhile may be missed."""
        for _, shard in list(self._groups.host.active()):
            yield from shard.positions()

    async def _dated(self, one: Behind) -> Behind:
        """Adds the time of the first unread record."""
        replica = self._around.partitions.replica(one.topic, one.partition)
        if replica is None:
            return one
        first = max(one.committed, replica.log.start_offset)
        try:
            return one._replace(oldest_ms=await written_ms(self._around.workers, replica, first))
        except (Refused, Corrupt, OSError):
            return one  # It is moving, or the disk fails, which is reported elsewhere.


# -- partitions without a replica here ----------------------------------------------------------


async def ends_elsewhere(
    around: HostContext, places: Iterable[GroupTopicKey], timestamp: int = LATEST
) -> dict[GroupTopicKey, int]:
    """Returns the end offsets of partitions, from those of their leaders that answer.

    Or their start, or the offset for a timestamp: `timestamp` is as in ListOffsets.
    """
    image = around.watcher.image
    wanted: dict[int, dict[str, dict[int, None]]] = {}
    for topic, index in places:
        record = image.partition(topic, index)
        if record is not None and record.leader in image.brokers:
            wanted.setdefault(record.leader, {}).setdefault(topic, {})[index] = None
    ends: dict[GroupTopicKey, int] = {}
    asked = (_ask(around, node_id, rows, timestamp) for node_id, rows in wanted.items())
    for answer in await asyncio.gather(*asked):
        ends |= answer
    return ends


async def _ask(
    around: HostContext, node_id: int, wanted: dict[str, dict[int, None]], timestamp: int
) -> dict[GroupTopicKey, int]:
    request = ListOffsetsRequest(
        replica_id=CONSUMER,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                    for index in indexes
                ],
            )
            for topic, indexes in wanted.items()
        ],
    )
    try:
        response = await around.peers.ask(
            node_id, request, ListOffsetsResponse, channel=CHANNEL, timeout_ms=TIMEOUT_MS
        )
    except PEER_ERRORS as error:
        log.info("offsets in partitions of node %d are not known: %s", node_id, error)
        return {}
    return {
        (topic.name, row.partition_index): row.offset
        for topic in response.topics
        for row in topic.partitions
        if not row.error_code
    }


class _Draft:
    """A round in progress: sums by group and topic, and the partitions furthest behind."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], GroupLag] = {}
        self._records = 0
        self._behind: list[Behind] = []
        self._floor = 0
        """A partition with at most this lag is not among the furthest."""

    def add(self, group: str, topic: str, index: int, committed: int, end: int) -> None:
        lag = self._totals.get((group, topic))
        if lag is None:
            lag = self._totals[group, topic] = GroupLag()
        records = end - committed
        if records <= 0:
            return
        lag.records += records
        self._records += records
        if records > self._floor:
            self._behind.append(Behind(group, topic, index, committed, records))
            if len(self._behind) >= KEPT_MAX:
                self._behind = self.furthest()
                self._floor = self._behind[-1].records

    def furthest(self) -> list[Behind]:
        return sorted(self._behind, key=lambda one: (-one.records, one))[:NAMES_MAX]

    async def largest(
        self, dated: list[Behind], yielding: CooperativeYield
    ) -> dict[tuple[str, str], GroupLag]:
        """Returns the groups furthest behind, with the known ages of their oldest records."""
        for one in dated:
            lag = self._totals[one.group, one.topic]
            if one.oldest_ms >= 0:
                known = lag.oldest_ms
                lag.oldest_ms = one.oldest_ms if known < 0 else min(known, one.oldest_ms)
        ranked: list[tuple[tuple[str, str], GroupLag]] = []
        for item in self._totals.items():
            ranked.append(item)
            if len(ranked) >= KEPT_MAX:
                ranked = _first(ranked)
                await yielding.draw()
        shown = dict(_first(ranked))
        if len(self._totals) > NAMES_MAX:
            told = sum(lag.records for lag in shown.values())
            shown[OTHERS, OTHERS] = GroupLag(self._records - told)
        return shown


def _first(
    groups: list[tuple[tuple[str, str], GroupLag]],
) -> list[tuple[tuple[str, str], GroupLag]]:
    return sorted(groups, key=lambda item: (-item[1].records, item[0]))[:NAMES_MAX]
