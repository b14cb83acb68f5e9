"""Live tails: one reader for each topic that somebody watches, however many watch it.

A tail begins at the end of its topic and is read every `LOOK_SECONDS`. If more is written than
people can read, it jumps ahead and says how much it left out. What is read is made an event once,
and handed to every watcher whose rights still allow it; one that does not keep up loses the oldest.

Bounds: `TAILS_MAX` topics and `WATCHERS_MAX` watchers, of which one user, or one address where
nobody has logged in, has `TAILS_EACH_MAX` and `WATCHERS_EACH_MAX`; `WAITING_MAX` events for each
watcher; `LOOK_MESSAGES` messages at a time, and partitions that are further behind than that jump.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from msgspec import Struct

from penstock.base.errors import Corrupt, ErrorCode, PeerError, Refused
from penstock.base.fair_pool import FairPool
from penstock.broker.api.route_row import Operation
from penstock.client.consumer.fetched import FetchedRecord
from penstock.gateway.console.payload_decoding import Decoder
from penstock.gateway.console.record_view import ShownMessage, show_message
from penstock.gateway.console.sampler import SELF
from penstock.gateway.console.visibility import Visibility
from penstock.gateway.core.cluster_types import TopicImage
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.log_reader import Portion, within
from penstock.gateway.http.problems import entry_of
from penstock.gateway.http.server_sent_events import IDLE_MS, KEEP_ALIVE, event

TAILS_MAX, TAILS_EACH_MAX = 50, 10
WATCHERS_MAX, WATCHERS_EACH_MAX = 500, 20
WAITING_MAX = 20
LOOK_SECONDS = 0.3
LOOK_MESSAGES = 100
CHUNK_BYTES = 128 << 10
UNPACKED_BYTES = 2 << 20
"""Of a partition at a time; the rest is left out."""


class TailAnswer(Struct):
    messages: list[ShownMessage]
    skipped: int
    """Messages that were left out because there were too many."""


class Watcher:
    """One viewer of a tail."""

    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque(maxlen=WAITING_MAX)
        self.news = asyncio.Event()

    def tell(self, chunk: bytes) -> None:
        self.waiting.append(chunk)
        self.news.set()


class Tails:
    def __init__(self, gateway: Gateway, decoder: Decoder) -> None:
        self._gateway = gateway
        self._decoder = decoder
        self._tails: dict[str, _Tail] = {}
        self._topics = FairPool(TAILS_MAX, TAILS_EACH_MAX)
        self._watchers = FairPool(WATCHERS_MAX, WATCHERS_EACH_MAX)

    def __len__(self) -> int:
        return len(self._tails)

    async def watch(self, sight: Visibility, topic: TopicImage) -> AsyncIterator[bytes]:
        """Events, for as long as somebody reads them."""
        holder = sight.principal.holder
        try:
            tail = self._tail_for(holder, topic)
        except Refused as refused:
            yield event("problem", "", entry_of(refused))  # Others came since it was asked about.
            return
        watcher = Watcher()
        tail.watchers[watcher] = sight
        try:
            tail.start()
            yield KEEP_ALIVE
            while not tail.is_over:
                try:
                    async with asyncio.timeout(IDLE_MS / 1000):
                        await watcher.news.wait()
                except TimeoutError:
                    yield KEEP_ALIVE
                    continue
                watcher.news.clear()
                while watcher.waiting:
                    yield watcher.waiting.popleft()
        finally:
            del tail.watchers[watcher]
            self._watchers.give(holder)
            if not tail.watchers:
                self._topics.give(tail.holder)
                if self._tails.get(topic.name) is tail:
                    del self._tails[topic.name]
                await tail.stop()

    def check(self, sight: Visibility, topic: TopicImage) -> None:
        """Refuses one more watcher of the topic where there is no room for it."""
        holder = sight.principal.holder
        self._take(holder, topic)
        self._give(holder, topic)

    def _tail_for(self, holder: str, topic: TopicImage) -> "_Tail":
        """The topic's reader, begun if need be; both are counted for who asks."""
        self._take(holder, topic)
        if not self._is_watched(topic):
            self._tails[topic.name] = _Tail(self._gateway, self._decoder, topic.name, holder)
        return self._tails[topic.name]

    def _is_watched(self, topic: TopicImage) -> bool:
        tail = self._tails.get(topic.name)
        return tail is not None and not tail.is_over

    def _take(self, holder: str, topic: TopicImage) -> None:
        if not self._watchers.take(holder):
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many tails are watched")
        if not self._is_watched(topic) and not self._topics.take(holder):
            self._watchers.give(holder)
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many topics are watched")

    def _give(self, holder: str, topic: TopicImage) -> None:
        self._watchers.give(holder)
        if not self._is_watched(topic):
            self._topics.give(holder)


class _Tail:
    """The one reader of a topic."""

    def __init__(self, gateway: Gateway, decoder: Decoder, name: str, holder: str) -> None:
        """`holder`: for whom it was begun, and is counted."""
        self.holder = holder
        self.watchers: dict[Watcher, Visibility] = {}
        self.is_over = False
        self._gateway = gateway
        self._decoder = decoder
        self._name = name
        self._positions: dict[int, int] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            self._positions = await self._ends()
            while True:
                messages, skipped = await self._look()
                if messages:
                    shown = [await show_message(one, self._decoder) for one in messages]
                    self._tell(event("messages", "", TailAnswer(shown, skipped)))
                await asyncio.sleep(LOOK_SECONDS)
        except Refused as refused:
            self._end(refused)
        except (PeerError, OSError, Corrupt) as error:
            self._end(Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))

    def _end(self, why: Refused) -> None:
        self.is_over = True
        self._tell(event("problem", "", entry_of(why)))

    def _tell(self, chunk: bytes) -> None:
        for watcher, sight in list(self.watchers.items()):
            if sight.topic(self._name, Operation.READ):
                watcher.tell(chunk)

    async def _ends(self) -> dict[int, int]:
        """Where the partitions end now."""
        ctx = self._gateway.ctx
        topic = self._gateway.topics.one(SELF, self._name)
        found: dict[int, int] = {}
        away: list[tuple[str, int]] = []
        for index in range(len(topic.partitions)):
            here = ctx.partitions.get(topic.name, index)
            if here is None:
                away.append((topic.name, index))
            else:
                found[index] = here.last_stable_offset
        if away:
            elsewhere = await self._gateway.log.offsets_elsewhere(away)
            found |= {index: end for (_, index), end in elsewhere.items()}
        return found

    async def _look(self) -> tuple[list[FetchedRecord], int]:
        """What is new, at most so much; and how many were left out."""
        ends = await self._ends()
        skipped = 0
        behind: dict[int, int] = {}
        for at, end in ends.items():
            position = min(self._positions.get(at, end), end)
            share = max(1, LOOK_MESSAGES // len(ends))
            if end - position > share:
                skipped += end - share - position
                position = end - share
            self._positions[at] = position
            if position < end:
                behind[at] = position
        if not behind:
            return [], 0
        topic = self._gateway.topics.one(SELF, self._name)
        found: list[FetchedRecord] = []
        for portion in await self._gateway.log.portions(
            SELF, topic, behind, partition_bytes=CHUNK_BYTES
        ):
            if portion.error_code:
                continue
            found += await self._gateway.ctx.workers.run(_decode, portion)
            self._positions[portion.partition] = portion.fetched.next_offset
        found.sort(key=lambda one: (one.timestamp, one.partition, one.offset))
        return found[-LOOK_MESSAGES:], skipped + max(0, len(found) - LOOK_MESSAGES)


def _decode(portion: Portion) -> list[FetchedRecord]:
    return list(within(portion.fetched.messages(), UNPACKED_BYTES))
