"""Large responses: built and encoded in steps, so that they do not block the event loop.

A handler's work is a generator that yields after each row. Its first step runs at once, so a small
response is as fast as any other. A large one continues in the node's fair scheduling
(`base.fair_scheduler`), where its reply is encoded, too.

`Listings` caches encoded responses that many clients request and that change rarely: while the
image does not change, the same request gets the same bytes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from penstock.base.fair_scheduler import PIECE_STEPS, Steps, do_piece
from penstock.base.ports import Buffer
from penstock.security.acl_types import ANONYMOUS

if TYPE_CHECKING:
    from penstock.broker.api.call import Call
    from penstock.broker.api.context import (
        AdminContext,
        GroupContext,
        MetadataContext,
        SecurityContext,
        TransactionContext,
    )

    Answering: TypeAlias = (
        AdminContext | GroupContext | MetadataContext | SecurityContext | TransactionContext
    )

T = TypeVar("T")
Written: TypeAlias = Sequence[Buffer]
PARTS_JOINED = 2_000
KEPT_MAX = 16
"""Limits cached responses; they differ by version, listener and, with ACLs, by user."""
KEPT_BYTES_MAX = 32 << 20


def holder_of(call: "Call") -> str:
    """Returns the holder for fair scheduling: a user, or the address of an anonymous client."""
    return call.caller.peer if call.principal == ANONYMOUS else call.principal


def in_steps(ctx: "Answering", call: "Call", steps: Steps[T]) -> T | Awaitable[T]:
    """Returns the response at once if it is small, otherwise an awaitable of it."""
    found = do_piece(steps)
    return found[0] if found is not None else _go_on(ctx, call, steps)


async def _go_on(ctx: "Answering", call: "Call", steps: Steps[T]) -> T:
    return await ctx.scheduler.run(holder_of(call), _build(call, steps))


async def answered(ctx: "Answering", call: "Call", response: T, rows: int) -> T:
    """Encodes a finished response, in steps if it has many rows."""
    if rows <= PIECE_STEPS or call.prepared.write_steps is None:
        return response
    give_written(call, await ctx.scheduler.run(holder_of(call), written(call, response)))
    return response


def _build(call: "Call", steps: Steps[T]) -> Steps[T]:
    response = yield from steps
    if call.prepared.write_steps is not None:
        give_written(call, (yield from written(call, response)))
    return response


def written(call: "Call", response: object) -> Steps[list[Buffer]]:
    """Encodes the body of the reply in steps."""
    assert call.prepared.write_steps is not None
    parts: list[Buffer] = []
    joined: list[Buffer] = []
    for _ in call.prepared.write_steps(response, parts):
        if len(parts) >= PARTS_JOINED:
            joined.append(b"".join(parts))
            parts.clear()
        yield
    joined.append(b"".join(parts))
    return joined


def give_written(call: "Call", body: Written) -> None:
    """Sets the encoded reply of a call. The bytes are sent without a copy."""
    views = [memoryview(part) for part in body]

    def write(response: Any, parts: list[Buffer]) -> None:
        parts.extend(views)

    call.prepared = replace(call.prepared, write=write, write_steps=None)


class Listings:
    """Cache of encoded responses, by request and by permissions of the caller."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, _Kept] = {}
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()
        self._begun = 0

    async def get(
        self, see: Callable[[], object], key: Hashable, make: Callable[[], Awaitable[Written]]
    ) -> Written:
        """Returns a cached response, or builds it; concurrent callers wait for the same one.

        `see` returns the current source of the response. A response that was begun after the call
        is fresh enough, so a caller waits for at most one build, however often the source changes.
        """
        asked = self._begun
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        async with lock:
            kept = self._kept.get(key)
            if kept is not None and (kept.source is see() or kept.begun > asked):
                return kept.parts
            self._begun += 1
            begun, source = self._begun, see()
            made = await make()
            self._keep(key, _Kept(source, begun, made))
            return made

    def _keep(self, key: Hashable, made: "_Kept") -> None:
        for other, kept in list(self._kept.items()):
            if kept.source is not made.source or other == key:
                del self._kept[other]
        self._kept[key] = made
        while len(self._kept) > KEPT_MAX or self.kept_bytes > KEPT_BYTES_MAX:
            del self._kept[next(iter(self._kept))]

    @property
    def kept_bytes(self) -> int:
        return sum(len(part) for kept in self._kept.values() for part in kept.parts)


class _Kept(NamedTuple):
    source: object
    begun: int
    parts: Written
