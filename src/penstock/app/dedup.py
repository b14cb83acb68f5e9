"""Handlers that do not repeat themselves: a store of message ids, and a decorator that asks it.

    store = SqliteDedup("seen.db", scope="billing")

    @idempotent(store)
    async def charge(message: Message) -> None: ...

A message may be delivered more than once. The store remembers ids of messages that were handled
(`ttl`), and of those that are being handled (`claim_ttl`, so that a crash does not block a message
for ever). A repeated message is skipped; one that somebody is handling at the moment raises `Busy`,
so that it is delivered again later; one whose handler failed is forgotten, and may be tried again.

This is not a transaction: a crash between the handler's effects and the note leads to a repetition.
Where effects are in a database, `penstock.app.outbox.Inbox` notes the message with them.

Stores block; for asyncio handlers they are asked in a thread, except the one in memory.
"""

import asyncio
import enum
import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from penstock.app.durations import Duration, ms_of
from penstock.base.ports import Random, WallClock
from penstock.runtime.blocking import Mutex
from penstock.runtime.clock import SystemClock
from penstock.runtime.random import SystemRandom
from penstock.runtime.workers import ThreadWorkers

TTL = "1d"
CLAIM_TTL = "5m"
ENTRIES_MAX = 100_000
ID_HEADERS = ("message_id", "penstock-dedup-id")

Handler = TypeVar("Handler", bound=Callable[..., Any])


class Busy(Exception):
    """Somebody is handling the same message at the moment: try again later."""


class DedupVerdict(enum.Enum):
    """What a store says about an id."""

    NEW = "new"
    """It is the caller's now."""
    BUSY = "busy"
    """Another caller has it."""
    DONE = "done"


class DedupStore(Protocol):
    """Remembers ids. `token` tells the callers apart, so that nobody gives up another's claim."""

    is_blocking: bool

    def begin(self, message_id: str, token: str) -> DedupVerdict:
        """Claims the id, unless it is done or somebody else's."""
        ...

    def finish(self, message_id: str, token: str) -> None:
        """The message is handled, whatever has become of the claim meanwhile."""
        ...

    def forget(self, message_id: str, token: str) -> None:
        """The handler failed: gives the claim up, if it is there and still the caller's."""
        ...


class MemoryDedup:
    """Remembers ids for as long as the process lives, `entries_max` of them at most.

    Beyond that the least recently used ones are forgotten early, and counted.
    """

    is_blocking = False

    def __init__(
        self,
        *,
        ttl: Duration = TTL,
        claim_ttl: Duration = CLAIM_TTL,
        entries_max: int = ENTRIES_MAX,
        clock: WallClock | None = None,
    ) -> None:
        if entries_max < 1:
            raise ValueError(f"room for {entries_max} ids: at least one is needed")
        self.forgotten_early = 0
        self._ttl_ms, self._claim_ms = ms_of(ttl), ms_of(claim_ttl)
        self._entries_max = entries_max
        self._clock = clock or SystemClock()
        self._mutex = Mutex()
        # Id to who claimed it (None: done) and until when that counts; the latest used last.
        self._entries: OrderedDict[str, tuple[str | None, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self, message_id: str, token: str) -> DedupVerdict:
        now_ms = self._clock.now_ms()
        with self._mutex:
            entry = self._entries.get(message_id)
            if entry is not None and entry[1] > now_ms:
                self._entries.move_to_end(message_id)
                return DedupVerdict.DONE if entry[0] is None else DedupVerdict.BUSY
            self._put(message_id, (token, now_ms + self._claim_ms), now_ms)
        return DedupVerdict.NEW

    def finish(self, message_id: str, token: str) -> None:
        now_ms = self._clock.now_ms()
        with self._mutex:
            self._put(message_id, (None, now_ms + self._ttl_ms), now_ms)

    def forget(self, message_id: str, token: str) -> None:
        with self._mutex:
            entry = self._entries.get(message_id)
            if entry is not None and entry[0] == token:
                del self._entries[message_id]

    def _put(self, message_id: str, entry: tuple[str | None, int], now_ms: int) -> None:
        self._entries[message_id] = entry
        self._entries.move_to_end(message_id)
        while len(self._entries) > self._entries_max:
            _, (_, until_ms) = self._entries.popitem(last=False)
            self.forgotten_early += until_ms > now_ms


def message_id_of(message: Any) -> str:
    """The id in a message's headers, else its place in the log, which a copy does not share."""
    headers = message.headers
    pairs = dict(headers.items() if hasattr(headers, "items") else headers)
    for name in ID_HEADERS:
        value = pairs.get(name)
        if value:
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return f"{message.topic}-{message.partition}-{message.offset}"


def idempotent(
    store: DedupStore,
    *,
    key: Callable[[Any], str] = message_id_of,
    random: Random | None = None,
) -> Callable[[Handler], Handler]:
    """Has a handler, plain or asyncio, run once for each id of its first argument.

    Repetitions answer None without running it. `key` finds the id: another one than that of the
    message makes "the same" mean what the application means, e.g. an order's number.
    """
    source = random or SystemRandom()

    def decorate(handler: Handler) -> Handler:
        if inspect.iscoroutinefunction(handler):
            return cast("Handler", _wrap_async(handler, store, key, source))
        return cast("Handler", _wrap_sync(handler, store, key, source))

    return decorate


def _wrap_sync(
    handler: Callable[..., Any], store: DedupStore, key: Callable[[Any], str], random: Random
) -> Callable[..., Any]:
    @functools.wraps(handler)
    def handle(message: Any, *args: Any, **kwargs: Any) -> Any:
        message_id, token = key(message), random.random_bytes(12).hex()
        if not _is_ours(store.begin(message_id, token), message_id):
            return None
        try:
            result = handler(message, *args, **kwargs)
        except BaseException:
            store.forget(message_id, token)
            raise
        store.finish(message_id, token)
        return result

    return handle


def _wrap_async(
    handler: Callable[..., Any], store: DedupStore, key: Callable[[Any], str], random: Random
) -> Callable[..., Any]:
    threads = ThreadWorkers(1, name="dedup")  # One, so that what is asked later is done later.

    async def ask(work: Callable[..., Any], *args: str) -> Any:
        if not store.is_blocking:
            return work(*args)
        # Whoever is cancelled while it begins forgets it again: that must come after it.
        return await asyncio.shield(threads.run(work, *args))

    @functools.wraps(handler)
    async def handle(message: Any, *args: Any, **kwargs: Any) -> Any:
        message_id, token = key(message), random.random_bytes(12).hex()
        try:
            if not _is_ours(await ask(store.begin, message_id, token), message_id):
                return None
            result = await handler(message, *args, **kwargs)
        except BaseException:
            await ask(store.forget, message_id, token)
            raise
        await ask(store.finish, message_id, token)
        return result

    return handle


def _is_ours(verdict: DedupVerdict, message_id: str) -> bool:
    if verdict is DedupVerdict.BUSY:
        raise Busy(f"message {message_id!r} is being handled by somebody else")
    return verdict is DedupVerdict.NEW
