"""Answers that may be large: built and encoded in turns, so that nobody else waits for them.

A handler's work is a generator that yields after each row. The first piece of it is done at once,
so what is small is answered as by any other handler; what is not goes on in the node's turns
(`base.fair_turns`), and its reply is encoded there, too.

`Listings` keeps encoded answers that many ask for and that change rarely: as long as the image does
not change, the same question is answered with the same bytes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from penstock.base.fair_turns import PIECE_STEPS, Steps, do_piece
from penstock.base.ports import Buffer
from penstock.security.acl_types import ANONYMOUS

if TYPE_CHECKING:
    from penstock.broker.api.call import Call
    from penstock.broker.api.context import AdminContext, GroupContext, MetadataContext

    Answering: TypeAlias = AdminContext | GroupContext | MetadataContext

T = TypeVar("T")
Written: TypeAlias = Sequence[Buffer]
PARTS_JOINED = 2_000
KEPT_MAX = 16
"""Each version, listener and, where there are rules, user has an answer of its own."""
KEPT_BYTES_MAX = 32 << 20


def holder_of(call: "Call") -> str:
    """Holder of a place in line for long work: a user, or the address of an anonymous client."""
    return call.caller.peer if call.principal == ANONYMOUS else call.principal


def in_turns(ctx: "Answering", call: "Call", steps: Steps[T]) -> T | Awaitable[T]:
    """The answer, at once if it is small."""
    found = do_piece(steps)
    return found[0] if found is not None else _go_on(ctx, call, steps)


async def _go_on(ctx: "Answering", call: "Call", steps: Steps[T]) -> T:
    return await ctx.turns.run(holder_of(call), _build(call, steps))


async def answered(ctx: "Answering", call: "Call", response: T, rows: int) -> T:
    """A response that is there already, encoded in turns if it has many rows."""
    if rows <= PIECE_STEPS or call.prepared.write_steps is None:
        return response
    give_written(call, await ctx.turns.run(holder_of(call), written(call, response)))
    return response


def _build(call: "Call", steps: Steps[T]) -> Steps[T]:
    response = yield from steps
    if call.prepared.write_steps is not None:
        give_written(call, (yield from written(call, response)))
    return response


def written(call: "Call", response: object) -> Steps[list[Buffer]]:
    """The body of the reply."""
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
    """Its reply will be these bytes. They are sent from where they are, not copied first."""
    views = [memoryview(part) for part in body]

    def write(response: Any, parts: list[Buffer]) -> None:
        parts.extend(views)

    call.prepared = replace(call.prepared, write=write, write_steps=None)


class Listings:
    """Encoded answers, by what was asked and by whom it may be seen."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, _Kept] = {}
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()
        self._begun = 0

    async def get(
        self, see: Callable[[], object], key: Hashable, make: Callable[[], Awaitable[Written]]
    ) -> Written:
        """Made unless it is there, or is being made: then all who ask wait for the same.

        `see` tells what the answer is made of at this moment. An answer that was begun after it was
        asked for is as good as one that is begun now: so those who wait do so for one answer,
        however often things change.
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
