"""Samples the cluster's state every two seconds while the console is in use.

All viewers share one sampler, so fifty cost as much as one. It runs from the first request until
some minutes after the last (`ScrapeActivity`). Without viewers it takes a sample every
`HISTORY_SECONDS` for the history, or none with `console.history.enable=false`. Rates are the growth
of offsets between two samples over the whole cluster; bytes are the counters of this node.

Bounds: `SAMPLES_MAX` samples are kept here; only the `NAMES_MAX` largest topics, groups and queues
are in a sample; `QUEUES_MAX` queues are sampled per round. After a long round the sampler pauses
for `PAUSE_FACTOR` times its duration.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from penstock.base.errors import Corrupt, PeerError, Refused
from penstock.base.scrape_activity import ScrapeActivity
from penstock.gateway.core.cluster_types import DEAD_LETTERS, PositionKind, TopicImage
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.permissions import Principal
from penstock.gateway.core.queues import QueueStanding
from penstock.gateway.core.topics import EARLIEST
from penstock.security.acl_types import NODE_USER
from penstock.wire.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

log = logging.getLogger("penstock.console")

SAMPLE_SECONDS = 2.0
PAUSE_FACTOR = 10
PAUSE_SECONDS_MAX = 60.0
HISTORY_SECONDS = 30.0
"""Distance of samples for the history, and of attempts after a failure."""
FRESH_SECONDS = 6.0
SLOW_SECONDS = 15.0
"""Maximum age of values that change slowly: sizes and start offsets."""
SAMPLES_MAX = 150
NAMES_MAX = 500
QUEUES_MAX = 200
STEP = 500
"""Partitions sampled between two yields to the event loop."""
SELF = Principal(f"User:{NODE_USER}")
"""Principal of the sampler, which may see everything; viewers are shown what they may describe."""

Name = TypeVar("Name")
Value = TypeVar("Value")

TopicReader = tuple[str, str]
"""Group and topic that it reads."""


class GroupProgress(NamedTuple):
    """Progress of a group in a topic."""

    kind: PositionKind
    lag: int
    done: int
    """Sum of the group's offsets; only its growth is meaningful."""


class Sample(NamedTuple):
    """Sample of the cluster, as kept for the history."""

    at_s: float
    at_ms: int
    written: Mapping[str, int]
    """Sum of the end offsets by topic."""
    progress: Mapping[TopicReader, GroupProgress]
    dead: Mapping[str, int]
    """Open dead letters by dead-letter topic."""
    bytes_in: float
    bytes_out: float


@dataclass(slots=True)
class Detail:
    """Details of the last sample, by partition."""

    starts: dict[tuple[str, int], int] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    sizes: dict[tuple[str, int], int] = field(default_factory=dict)
    positions: dict[TopicReader, dict[int, int]] = field(default_factory=dict)
    """Committed offsets of consumer groups, by partition."""
    queues: dict[TopicReader, QueueStanding] = field(default_factory=dict)
    dead_letters: dict[str, QueueStanding] = field(default_factory=dict)
    trouble: str = ""
    """Reason why groups or queues are missing in this sample."""


class Sampler:
    def __init__(self, gateway: Gateway, keep: Callable[[Sample], None]) -> None:
        """`keep` receives a sample about every `HISTORY_SECONDS`."""
        self._gateway = gateway
        self._keep = keep
        self._kept_s = float("-inf")  # Time of the last sample, or attempt, for the history.
        self._activity = ScrapeActivity()
        self._sampling = asyncio.Lock()
        self._slow_s = float("-inf")
        self._next_sample = asyncio.Event()
        self.samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self.detail = Detail()
        self.rounds = 0
        """Number of samples so far."""

    async def run(self) -> None:
        """Samples until cancelled, while the console is in use or the history needs a sample."""
        loop = asyncio.get_running_loop()
        while True:
            is_used = await self._wait_turn()
            began_s = loop.time()
            try:
                if is_used:
                    await self._sample_once()
                else:
                    self._kept_s = began_s
                    self._keep((await self._take())[0])
            except (Refused, PeerError, OSError, Corrupt) as error:
                # Other components report the cause; viewers keep seeing the last sample.
                log.info("console: cannot sample the cluster: %s", error)
            rest_s = (loop.time() - began_s) * PAUSE_FACTOR
            await asyncio.sleep(min(max(SAMPLE_SECONDS, rest_s), PAUSE_SECONDS_MAX))

    async def _wait_turn(self) -> bool:
        """Waits until the console is used, or until the history needs a sample: False."""
        configs = self._gateway.ctx.configs
        if not (configs.flag("console.enable") and configs.flag("console.history.enable")):
            await self._activity.wait()
            return True
        rest_s = self._kept_s + HISTORY_SECONDS - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(max(rest_s, SAMPLE_SECONDS)):
                await self._activity.wait()
        except TimeoutError:
            return False
        return True

    async def fresh(self) -> Sample:
        """Returns the last sample, or a new one if it is old; keeps the sampler running."""
        self._activity.note_scrape()
        now_s = asyncio.get_running_loop().time()
        if not self.samples or now_s - self.samples[-1].at_s > FRESH_SECONDS:
            await self._sample_once()
        return self.samples[-1]

    async def next(self, rounds: int) -> None:
        """Waits for a sample later than number `rounds`."""
        self._activity.note_scrape()
        while self.rounds <= rounds:
            await self._next_sample.wait()

    async def _sample_once(self) -> None:
        before = self.rounds
        async with self._sampling:
            if self.rounds == before:  # Otherwise another caller has just sampled.
                await self.sample()

    # -- sampling ---------------------------------------------------------------------------

    async def sample(self) -> None:
        """Takes a sample for the viewers, who then see it."""
        sample, self.detail = await self._take()
        self.samples.append(sample)
        if sample.at_s - self._kept_s >= HISTORY_SECONDS - SAMPLE_SECONDS / 2:
            self._kept_s = sample.at_s
            self._keep(sample)
        self.rounds += 1
        self._next_sample.set()
        self._next_sample = asyncio.Event()

    async def _take(self) -> tuple[Sample, Detail]:
        loop, ctx = asyncio.get_running_loop(), self._gateway.ctx
        topics = [topic for topic in ctx.image.topics.values() if not topic.is_internal]
        detail = Detail()
        await self._sample_logs(topics, detail)
        try:
            await self._sample_groups(detail)
        except Refused as refused:
            detail.trouble = refused.message or refused.code.name
        written: dict[str, int] = {}
        for (topic, _), end in detail.ends.items():
            written[topic] = written.get(topic, 0) + end
        progress = {reader: self._progress(reader, detail) for reader in detail.positions}
        progress |= {
            reader: GroupProgress(
                PositionKind.SHARE,
                queue.unfinished,
                sum(row.high_watermark - row.unfinished for row in queue.partitions),
            )
            for reader, queue in detail.queues.items()
        }
        metrics = ctx.metrics
        sample = Sample(
            loop.time(),
            ctx.clock.now_ms(),
            _largest(written, lambda count: count),
            _largest(progress, lambda one: one.lag),
            {topic: queue.unfinished for topic, queue in detail.dead_letters.items()},
            metrics.bytes_in.value,
            metrics.bytes_out.value,
        )
        return sample, detail

    def _progress(self, reader: TopicReader, detail: Detail) -> GroupProgress:
        lag = done = 0
        for index, offset in detail.positions[reader].items():
            end = detail.ends.get((reader[1], index))
            if end is not None:
                lag += max(0, end - offset)
                done += offset
        return GroupProgress(PositionKind.CONSUMER, lag, done)

    async def _sample_logs(self, topics: Iterable[TopicImage], detail: Detail) -> None:
        """Samples offsets and sizes of partitions: local ones directly, others by requests."""
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

    async def _sample_groups(self, detail: Detail) -> None:
        """Samples offsets of consumer groups, queues of share groups, and dead letters."""
        gateway = self._gateway
        dead_letters = [topic.name for topic in gateway.dead_letters.topics()][:QUEUES_MAX]
        listing = await gateway.ctx.queue.positions.everywhere(None)
        queues: dict[TopicReader, None] = {}
        for row in listing.positions:
            if row.kind is PositionKind.CONSUMER and not row.group.startswith("__"):
                detail.positions.setdefault((row.group, row.topic), {})[row.partition] = row.offset
            elif row.kind is PositionKind.SHARE and row.group != DEAD_LETTERS:
                queues[row.group, row.topic] = None
        for group, topic in list(queues)[:QUEUES_MAX]:
            await self._sample_queue(group, topic, detail)
        for topic in dead_letters:
            await self._sample_queue(DEAD_LETTERS, topic, detail)

    async def _sample_queue(self, group: str, topic: str, detail: Detail) -> None:
        await asyncio.sleep(0)  # There may be many queues.
        try:
            queue = await self._gateway.queues.one(SELF, topic, group)
        except Refused as refused:
            detail.trouble = f"{group} in {topic}: {refused.message or refused.code.name}"
            return
        if group == DEAD_LETTERS:
            detail.dead_letters[topic] = queue
        else:
            detail.queues[group, topic] = queue


def _largest(table: dict[Name, Value], size: Callable[[Value], int]) -> dict[Name, Value]:
    """Returns the `NAMES_MAX` largest entries."""
    if len(table) <= NAMES_MAX:
        return table
    return dict(sorted(table.items(), key=lambda item: -size(item[1]))[:NAMES_MAX])
