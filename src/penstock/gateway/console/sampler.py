"""How the cluster goes, looked at every other second while somebody watches.

One sampler serves everybody: a look costs the same for one viewer as for fifty. It begins with the
first question and ends some minutes after the last (`ScrapeActivity`), so that a node nobody
watches does nothing for this. Rates are what offsets have grown by between two looks, over the
whole cluster; bytes are what this node has counted.

Bounds: `SAMPLES_MAX` looks are kept; `NAMES_MAX` topics, groups and queues have a history, those
with the most to tell; `QUEUES_MAX` queues are looked at in a round. A round that takes long is
followed by a pause of `REST` times its length.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from penstock.base.errors import Corrupt, PeerError, Refused
from penstock.base.scrape_activity import ScrapeActivity
from penstock.gateway.core.caller import Principal
from penstock.gateway.core.cluster_types import DEAD_LETTERS, PositionKind, TopicImage
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.queues import QueueStanding
from penstock.gateway.core.topics import EARLIEST
from penstock.security.acl_types import NODE_USER
from penstock.wire.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

log = logging.getLogger("penstock.console")

LOOK_SECONDS = 2.0
REST = 10
PAUSE_SECONDS_MAX = 60.0
FRESH_SECONDS = 6.0
SLOW_SECONDS = 15.0
"""How old what hardly changes may be: sizes, and where logs begin."""
SAMPLES_MAX = 150
NAMES_MAX = 500
QUEUES_MAX = 200
STEP = 500
"""Partitions looked at between two breaths."""
SELF = Principal(f"User:{NODE_USER}")
"""The sampler may see everything; what a viewer is shown of it is another matter."""

Name = TypeVar("Name")
Value = TypeVar("Value")

TopicReader = tuple[str, str]
"""Group and topic."""


class GroupLine(NamedTuple):
    """How far a group was in a topic."""

    kind: PositionKind
    lag: int
    done: int
    """What it has read so far: only how this grows means something."""


class Sample(NamedTuple):
    """One look, as it is kept."""

    at_s: float
    at_ms: int
    written: Mapping[str, int]
    """Where the partitions of a topic end, added up."""
    lines: Mapping[TopicReader, GroupLine]
    dead: Mapping[str, int]
    """Open dead letters by their topic."""
    bytes_in: float
    bytes_out: float


@dataclass(slots=True)
class Detail:
    """The last look, partition by partition."""

    starts: dict[tuple[str, int], int] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    sizes: dict[tuple[str, int], int] = field(default_factory=dict)
    positions: dict[TopicReader, dict[int, int]] = field(default_factory=dict)
    """Of consumer groups: the next offset by partition."""
    queues: dict[TopicReader, QueueStanding] = field(default_factory=dict)
    letters: dict[str, QueueStanding] = field(default_factory=dict)
    trouble: str = ""
    """Why the groups or queues of this look are not all there."""


class Sampler:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._attention = ScrapeActivity()
        self._looking = asyncio.Lock()
        self._slow_s = float("-inf")
        self._news = asyncio.Event()
        self.samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self.detail = Detail()
        self.looks = 0
        """How many there were: another number is another look."""

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._attention.wait()
            began_s = loop.time()
            try:
                await self._look_once()
            except (Refused, PeerError, OSError, Corrupt) as error:
                # Whatever is wrong, others tell of it: those who look are shown what was before.
                log.info("the console could not look at the cluster: %s", error)
            rest_s = (loop.time() - began_s) * REST
            await asyncio.sleep(min(max(LOOK_SECONDS, rest_s), PAUSE_SECONDS_MAX))

    async def fresh(self) -> Sample:
        """The last look, or a new one if that is old; and from now on there are more."""
        self._attention.note_scrape()
        now_s = asyncio.get_running_loop().time()
        if not self.samples or now_s - self.samples[-1].at_s > FRESH_SECONDS:
            await self._look_once()
        return self.samples[-1]

    async def next(self, looks: int) -> None:
        """Waits for a look later than number `looks`."""
        self._attention.note_scrape()
        while self.looks <= looks:
            await self._news.wait()

    async def _look_once(self) -> None:
        before = self.looks
        async with self._looking:
            if self.looks == before:  # Else somebody else has just looked.
                await self.look()

    # -- looking ----------------------------------------------------------------------------

    async def look(self) -> None:
        loop, ctx = asyncio.get_running_loop(), self._gateway.ctx
        topics = [topic for topic in ctx.image.topics.values() if not topic.is_internal]
        detail = Detail()
        await self._look_at_logs(topics, detail)
        try:
            await self._look_at_groups(detail)
        except Refused as refused:
            detail.trouble = refused.message or refused.code.name
        written: dict[str, int] = {}
        for (topic, _), end in detail.ends.items():
            written[topic] = written.get(topic, 0) + end
        lines = {reader: self._line(reader, detail) for reader in detail.positions}
        lines |= {
            reader: GroupLine(
                PositionKind.SHARE,
                queue.unfinished,
                sum(row.high_watermark - row.unfinished for row in queue.partitions),
            )
            for reader, queue in detail.queues.items()
        }
        metrics = ctx.metrics
        self.detail = detail
        self.samples.append(
            Sample(
                loop.time(),
                ctx.clock.now_ms(),
                _largest(written, lambda count: count),
                _largest(lines, lambda line: line.lag),
                {topic: queue.unfinished for topic, queue in detail.letters.items()},
                metrics.bytes_in.value,
                metrics.bytes_out.value,
            )
        )
        self.looks += 1
        self._news.set()
        self._news = asyncio.Event()

    def _line(self, reader: TopicReader, detail: Detail) -> GroupLine:
        lag = done = 0
        for index, offset in detail.positions[reader].items():
            end = detail.ends.get((reader[1], index))
            if end is not None:
                lag += max(0, end - offset)
                done += offset
        return GroupLine(PositionKind.CONSUMER, lag, done)

    async def _look_at_logs(self, topics: Iterable[TopicImage], detail: Detail) -> None:
        """Where partitions begin and end, and how large they are: here by looking, else asking."""
        loop, ctx = asyncio.get_running_loop(), self._gateway.ctx
        away: list[tuple[str, int]] = []
        steps = 0
        for topic in topics:
            for index in range(len(topic.partitions)):
                here = ctx.partitions.get(topic.name, index)
                place = topic.name, index
                if here is None:
                    away.append(place)
                else:
                    detail.starts[place] = here.log.start_offset
                    detail.ends[place] = here.high_watermark
                    detail.sizes[place] = here.log.size_bytes
                steps += 1
                if not steps % STEP:
                    await asyncio.sleep(0)
        if not away:
            return
        detail.ends |= await self._gateway.log.offsets_elsewhere(away)
        if loop.time() - self._slow_s < SLOW_SECONDS:
            for place in away:
                detail.starts[place] = self.detail.starts.get(place, 0)
                detail.sizes[place] = self.detail.sizes.get(place, 0)
            return
        self._slow_s = loop.time()
        detail.starts |= await self._gateway.log.offsets_elsewhere(away, EARLIEST)
        nodes = [node_id for node_id in ctx.image.brokers if node_id != ctx.node_id]
        for found in await asyncio.gather(*map(self._sizes, nodes)):
            for place, size in found.items():
                if place not in detail.sizes:
                    detail.sizes[place] = size

    async def _sizes(self, node_id: int) -> dict[tuple[str, int], int]:
        try:
            answer = await self._gateway.coordinators.ask_node(
                node_id, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse
            )
        except (Refused, PeerError):
            return {}
        return {
            (topic.name, row.partition_index): row.partition_size
            for folder in answer.results
            for topic in folder.topics
            for row in topic.partitions
        }

    async def _look_at_groups(self, detail: Detail) -> None:
        """Positions of consumer groups, queues of share groups, and dead letters."""
        gateway = self._gateway
        letters = [topic.name for topic in gateway.dead_letters.topics()][:QUEUES_MAX]
        listing = await gateway.ctx.queue.positions.everywhere(None)
        queues: dict[TopicReader, None] = {}
        for row in listing.positions:
            if row.kind is PositionKind.CONSUMER and not row.group.startswith("__"):
                detail.positions.setdefault((row.group, row.topic), {})[row.partition] = row.offset
            elif row.kind is PositionKind.SHARE and row.group != DEAD_LETTERS:
                queues[row.group, row.topic] = None
        for group, topic in list(queues)[:QUEUES_MAX]:
            await self._look_at_queue(group, topic, detail)
        for topic in letters:
            await self._look_at_queue(DEAD_LETTERS, topic, detail)

    async def _look_at_queue(self, group: str, topic: str, detail: Detail) -> None:
        await asyncio.sleep(0)  # There may be many.
        try:
            queue = await self._gateway.queues.one(SELF, topic, group)
        except Refused as refused:
            detail.trouble = f"{group} in {topic}: {refused.message or refused.code.name}"
            return
        if group == DEAD_LETTERS:
            detail.letters[topic] = queue
        else:
            detail.queues[group, topic] = queue


def _largest(table: dict[Name, Value], size: Callable[[Value], int]) -> dict[Name, Value]:
    """All of it, or the largest."""
    if len(table) <= NAMES_MAX:
        return table
    return dict(sorted(table.items(), key=lambda item: -size(item[1]))[:NAMES_MAX])
