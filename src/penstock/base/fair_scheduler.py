"""Fair scheduling of long-running work on the event loop, across all callers.

Work is a generator that yields after every small step. A piece is `PIECE_STEPS` steps; after it all
other tasks have the loop for `REST_SECONDS`, however much work is queued: only one piece runs at a
time. Up to `RUNNING_MAX` works are in progress and alternate piece by piece; the rest has not begun
and holds no memory. Queued work begins round-robin by holder (a principal, or an address), so that
a holder with much work waits behind its own.

Pieces count steps, not time, so that they are the same on every machine and in every test.
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
RUNNING_MAX = 4


class FairScheduler:
    """Scheduler of the long-running work of one node."""

    def __init__(self) -> None:
        self._free = RUNNING_MAX
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Queued work per holder; the first holder is next, and then moves to the end."""
        self._lock = asyncio.Lock()
        """Held during a piece and the rest after it; first come, first served."""

    async def do(self, holder: str, steps: Steps[T]) -> T:
        """Returns the generator's result: at once, if it takes at most one piece."""
        found = do_piece(steps)
        return found[0] if found is not None else await self.run(holder, steps)

    async def run(self, holder: str, steps: Steps[T]) -> T:
        """Returns the generator's result in turn with other work."""
        await self._enter(holder)
        try:
            while True:
                async with self._lock:
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
                self._leave()  # It was started in the moment in which it was cancelled.
            else:
                self._forget(holder, turn)
            raise

    def _forget(self, holder: str, turn: "asyncio.Future[None]") -> None:
        queue = self._waiting.get(holder)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._waiting[holder]

    def _leave(self) -> None:
        """Starts the next queued work, or frees the slot."""
        while self._waiting:
            holder, queue = next(iter(self._waiting.items()))
            del self._waiting[holder]
            turn = queue.popleft()
            if queue:
                self._waiting[holder] = queue
            if not turn.done():  # Its task may have been cancelled, and not have run since.
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


def run_to_end(steps: Steps[T]) -> T:
    """Runs all pieces at once; returns the generator's result."""
    while (found := do_piece(steps)) is None:
        pass
    return found[0]


def do_piece(steps: Steps[T]) -> tuple[T] | None:
    """Runs one piece; returns the generator's result if that was the last piece."""
    try:
        for _ in range(PIECE_STEPS):
            next(steps)
    except StopIteration as end:
        return (end.value,)
    return None
