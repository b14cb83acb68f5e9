"""Live tails: one reader per watched topic, shared by all its watchers.

A tail starts at the end of its topic and polls it every `POLL_SECONDS`. If more records arrive than
people can read, it skips some and reports their number. Each poll's messages are encoded as an
event once, and sent to every watcher that still has the permission. A slow watcher loses its oldest
events.

Bounds: `TAILS_MAX` topics and `WATCHERS_MAX` watchers, of which one user, or one address of
anonymous users, may hold `TAILS_EACH_MAX` and `WATCHERS_EACH_MAX`; `WAITING_MAX` events per
watcher; `POLL_MESSAGES_MAX` messages per poll, and partitions further behind than that skip ahead.
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
POLL_SECONDS = 0.3
POLL_MESSAGES_MAX = 100
CHUNK_BYTES = 128 << 10
DECOMPRESSED_BYTES = 2 << 20
"""Decompressed bytes of a partition per poll; the rest is skipped."""


class TailAnswer(Struct):
    messages: list[ShownMessage]
    skipped: int
    """Number of messages skipped because there were too many."""


class Watcher:
    """Watcher of a tail."""

    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque(maxlen=WAITING_MAX)
        self.has_events = asyncio.Event()

    def add(self, chunk: bytes) -> None:
        self.waiting.append(chunk)
        self.has_events.set()


class LiveTails:
    def __init__(self, gateway: Gateway, decoder: Decoder) -> None:
        self._gateway = gateway
        self._decoder = decoder
        self._tails: dict[str, _Tail] = {}
        self._topics = FairPool(TAILS_MAX, TAILS_EACH_MAX)
        self._watchers = FairPool(WATCHERS_MAX, WATCHERS_EACH_MAX)

    def __len__(self) -> int:
        return len(self._tails)

    async def watch(self, visibility: Visibility, topic: TopicImage) -> AsyncIterator[bytes]:
        """Yields events while the client reads them."""
        holder = visibility.principal.holder
        try:
            tail = self._tail_for(holder, topic)
        except Refused as refused:
            yield event("problem", "", entry_of(refused))  # The limit was reached after `check`.
            return
        watcher = Watcher()
        tail.watchers[watcher] = visibility
        try:
            tail.start()
            yield KEEP_ALIVE
            while not tail.is_over:
                try:
                    async with asyncio.timeout(IDLE_MS / 1000):
                        await watcher.has_events.wait()
                except TimeoutError:
                    yield KEEP_ALIVE
                    continue
                watcher.has_events.clear()
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

    def check(self, visibility: Visibility, topic: TopicImage) -> None:
        """Refuses one more watcher of the topic if a limit is reached."""
        holder = visibility.principal.holder
        self._take(holder, topic)
        self._give(holder, topic)

    def _tail_for(self, holder: str, topic: TopicImage) -> "_Tail":
        """Returns the topic's tail, created if needed; counts both for `holder`."""
        self._take(holder, topic)
        if not self._is_watched(topic):
            self._tails[topic.name] = _Tail(self._gateway, self._decoder, topic.name, holder)
        return self._tails[topic.name]

    def _is_watched(self, topic: TopicImage) -> bool:
        tail = self._tails.get(topic.name)
        return tail is not None and not tail.is_over

    def _take(self, holder: str, topic: TopicImage) -> None:
        if not self._watchers.take(holder):
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"too many live tails: at most {WATCHERS_EACH_MAX} per user and {WATCHERS_MAX} per "
                "node; close one",
            )
        if not self._is_watched(topic) and not self._topics.take(holder):
            self._watchers.give(holder)
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"live tails of too many topics: at most {TAILS_EACH_MAX} per user and {TAILS_MAX} "
                "per node; close one",
            )

    def _give(self, holder: str, topic: TopicImage) -> None:
        self._watchers.give(holder)
        if not self._is_watched(topic):
            self._topics.give(holder)


class _Tail:
    """Reader of a topic for all its watchers."""

    def __init__(self, gateway: Gateway, decoder: Decoder, name: str, holder: str) -> None:
        """`holder`: the user or address that the tail counts for."""
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
                messages, skipped = await self._poll()
                if messages:
                    shown = [await show_message(one, self._decoder) for one in messages]
                    self._send(event("messages", "", TailAnswer(shown, skipped)))
                await asyncio.sleep(POLL_SECONDS)
        except Refused as refused:
            self._end(refused)
        except (PeerError, OSError, Corrupt) as error:
            self._end(Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))

    def _end(self, why: Refused) -> None:
        self.is_over = True
        self._send(event("problem", "", entry_of(why)))

    def _send(self, chunk: bytes) -> None:
        for watcher, visibility in list(self.watchers.items()):
            if visibility.topic(self._name, Operation.READ):
                watcher.add(chunk)

    async def _ends(self) -> dict[int, int]:
        """Returns the current end offsets."""
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

    async def _poll(self) -> tuple[list[FetchedRecord], int]:
        """Reads new messages up to the limits; returns them and the number of skipped ones."""
        ends = await self._ends()
        skipped = 0
        behind: dict[int, int] = {}
        for at, end in ends.items():
            position = min(self._positions.get(at, end), end)
            share = max(1, POLL_MESSAGES_MAX // len(ends))
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
        return found[-POLL_MESSAGES_MAX:], skipped + max(0, len(found) - POLL_MESSAGES_MAX)


def _decode(portion: Portion) -> list[FetchedRecord]:
    return list(within(portion.fetched.messages(), DECOMPRESSED_BYTES))
