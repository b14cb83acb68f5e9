"""Long work on the loop for many who ask at once: they take turns, and together hold it briefly.

Work is a generator that yields after every small step. A piece of it is `PIECE_STEPS` steps, then
everybody else has the loop for `REST_SECONDS`, however many wait for long work: one piece is done
at a time, whoever it is for. `PLACES` works are under way and take turns piece by piece; the rest
has not begun and holds no memory. Whose work begins next goes round by holder (a principal, or an
address), so that whoever asks for much waits behind themselves.

Counted in steps and not in time, so that it is the same on every machine and in every test.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")
Steps = Generator[None, None, T]

PIECE_STEPS = 100
REST_SECONDS = 0.001
PLACES = 4


class FairTurns:
    """The long work of one node."""

    def __init__(self) -> None:
        self._free = PLACES
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By holder; the first of them is next, and goes to the end then."""
        self._floor = asyncio.Lock()
        """Held by whoever does a piece, and while others rest from it; first come, first served."""

    async def do(self, holder: str, steps: Steps[T]) -> T:
        """Returns what the generator returns: at once, if that takes at most one piece."""
        found = do_piece(steps)
        return found[0] if found is not None else await self.run(holder, steps)

    async def run(self, holder: str, steps: Steps[T]) -> T:
        """Returns what the generator returns, in the end."""
        await self._enter(holder)
        try:
            while True:
                async with self._floor:
                    found = do_piece(steps)
                    await asyncio.sleep(REST_SECONDS)
                if found is not None:
                    return found[0]
        finally:
            self._leave()

    async def _enter(self, holder: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(holder, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # It was let in at the moment it was given up.
            else:
                self._forget(holder, turn)
            raise

    def _forget(self, holder: str, turn: "asyncio.Future[None]") -> None:
        turns = self._waiting.get(holder)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[holder]

    def _leave(self) -> None:
        """Lets the next one in, or frees the place."""
        while self._waiting:
            holder, turns = next(iter(self._waiting.items()))
            del self._waiting[holder]
            turn = turns.popleft()
            if turns:
                self._waiting[holder] = turns
            if not turn.done():  # It may have been given up, and not know it yet.
                turn.set_result(None)
                return
        self._free += 1


def picked(items: Iterable[S], pick: Callable[[S], T | None]) -> Steps[list[T]]:
    """Results of `pick` for each item, without those that are None."""
    found = []
    for item in items:
        one = pick(item)
        if one is not None:
            found.append(one)
        yield
    return found


def do_piece(steps: Steps[T]) -> tuple[T] | None:
    """Runs one piece; returns the generator's result if that was the last piece."""
    try:
        for _ in range(PIECE_STEPS):
            next(steps)
    except StopIteration as end:
        return (end.value,)
    return None
