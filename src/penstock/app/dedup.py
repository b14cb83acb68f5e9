"""Idempotent handlers: a decorator, and the stores of message ids that it consults.

    store = SqliteDedup("seen.db", scope="billing")

    @idempotent(store)
    async def charge(message: Message) -> None: ...

A message may be delivered more than once. The store remembers the ids of handled messages for
`ttl`, and of messages being handled for `claim_ttl`, so that a crash does not block a message for
ever. A repeated message is skipped. A message that another handler is processing raises `Busy`, so
that it is redelivered later. If the handler fails, the id is forgotten and may be tried again.

This is not a transaction: after a crash between the handler's effects and `finish`, the handler
runs again. If the effects are in a database, use `penstock.app.outbox.Inbox`: it commits the id
with them.

Stores block; for asyncio handlers they are called in a thread, except the one in memory.
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
    """Another handler is processing the same message: retry later."""


class DedupVerdict(enum.Enum):
    """Answer of a store about an id."""

    NEW = "new"
    """The caller has claimed the id."""
    BUSY = "busy"
    """Another caller has claimed the id."""
    DONE = "done"


class DedupStore(Protocol):
    """Remembers ids. `token` identifies the caller: only the claim's owner may release it."""

    is_blocking: bool

    def begin(self, message_id: str, token: str) -> DedupVerdict:
        """Claims the id, unless it is done or claimed by another caller."""
        ...

    def finish(self, message_id: str, token: str) -> None:
        """Marks the message as handled, even if the claim has expired meanwhile."""
        ...

    def forget(self, message_id: str, token: str) -> None:
        """Releases the claim after a failed handler, if the caller still owns it."""
        ...


class MemoryDedup:
    """Store in the memory of this process, of at most `entries_max` ids.

    Beyond that, the least recently used ids are evicted early; `forgotten_early` counts them.
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
            raise ValueError(f"entries_max={entries_max}: pass 1 or more")
        self.forgotten_early = 0
        self._ttl_ms, self._claim_ms = ms_of(ttl), ms_of(claim_ttl)
        self._entries_max = entries_max
        self._clock = clock or SystemClock()
        self._mutex = Mutex()
        # Id to (token of its claim, None: done; expiry time in ms); most recently used last.
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
    """Id from the message's headers, else topic, partition and offset (a copy has others)."""
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
    """Runs a plain or asyncio handler once for each id of its first argument.

    Repetitions return None without running it. `key` returns the id of a message. Pass another one
    to deduplicate by the application's identity, for example by order number.
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
        if not _is_claimed(store.begin(message_id, token), message_id):
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
    threads = ThreadWorkers(1, name="dedup")  # One thread, so that calls run in order.

    async def call(work: Callable[..., Any], *args: str) -> Any:
        if not store.is_blocking:
            return work(*args)
        # A cancelled caller calls `forget` next; that must run after `begin` has ended.
        return await asyncio.shield(threads.run(work, *args))

    @functools.wraps(handler)
    async def handle(message: Any, *args: Any, **kwargs: Any) -> Any:
        message_id, token = key(message), random.random_bytes(12).hex()
        try:
            if not _is_claimed(await call(store.begin, message_id, token), message_id):
                return None
            result = await handler(message, *args, **kwargs)
        except BaseException:
            await call(store.forget, message_id, token)
            raise
        await call(store.finish, message_id, token)
        return result

    return handle


def _is_claimed(verdict: DedupVerdict, message_id: str) -> bool:
    if verdict is DedupVerdict.BUSY:
        raise Busy(f"message {message_id!r} is being processed by another handler; retry later")
    return verdict is DedupVerdict.NEW
