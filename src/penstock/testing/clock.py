"""Time that a test advances: an event loop and a wall clock with one skew between them.

Between two calls of `advance` time flows as usual; `advance` adds to it. The broker's timers, its
wall clock and everything on its loop jump together, so delays, leases, backoffs, time limits of
messages and transactions, retention and long polls are all counted in virtual time.

It is one jump: first the broker finishes its current work, so that no request in flight is
overtaken by its own timeout; then the time changes, and everything due meanwhile happens now, the
earliest first. A lease given on that occasion begins at the new time, so a waiting consumer has all
of it left. Where one event leads to another (a lease expires, then a backoff begins) and both
should happen within the same call, `step` limits each jump.

Sessions of group members are counted in real time (`SessionClock`): their heartbeats come from real
clients, which know nothing of the skew and would all seem to be dead after an advance. A test of
sessions passes `advance(..., sessions=True)`.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, ParamSpec, Protocol, TypeVar

from penstock.app.durations import Duration, seconds_of
from penstock.base.ids import Millis
from penstock.base.ports import Delete, Expect, Put, Workers
from penstock.runtime.sqlite_store import SqliteStore

STEPS_MAX = 10_000
QUIET_TURNS = 3
"""Turns of the loop in a row without work after which the broker has settled."""
LINGER_S = 0.005
"""Seconds until a timer that `advance` waits for: clocks are read in whole milliseconds."""
LINGERS_MAX = 4
SETTLE_S_MAX = 0.1
WORKERS_POLL_S = 0.0002
PATIENCE_S = 60.0
"""Real seconds that an advance may take before it is called stuck."""

P = ParamSpec("P")
T = TypeVar("T")


class SkewedLoop(asyncio.SelectorEventLoop):
    """A loop whose time can be put forward. The skew changes on the loop's own thread only."""

    def __init__(self) -> None:
        self.skew_s = 0.0
        super().__init__()

    def time(self) -> float:
        return super().time() + self.skew_s

    @property
    def is_quiet(self) -> bool:
        """True if no callback but the caller's runs in this turn."""
        ready: Any = self._ready  # type: ignore[attr-defined]
        return not ready

    def next_timer(self) -> float:
        """Returns the due time of the earliest timer."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return scheduled[0].when() if scheduled else float("inf")


class CountedWorkers:
    """Workers that count their unfinished work."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self.unfinished = 0

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
        running = asyncio.ensure_future(self._workers.run(work, *args, **kwargs))
        self.unfinished += 1
        running.add_done_callback(self._finished)
        return running

    def _finished(self, running: "asyncio.Future[Any]") -> None:
        self.unfinished -= 1


class CountedStore(SqliteStore):
    """Embedded metadata that counts changes being written."""

    unfinished = 0

    async def commit(
        self, expects: Sequence[Expect], changes: Sequence[Put | Delete]
    ) -> int | None:
        self.unfinished += 1
        try:
            return await super().commit(expects, changes)
        finally:
            self.unfinished -= 1


class BusyWork(Protocol):
    """Work outside of the loop that the loop waits for."""

    unfinished: int


class SessionClock:
    """The time that sessions of group members go by: real time, unless a test says otherwise."""

    def __init__(self) -> None:
        self.skew_s = 0.0

    def now_s(self) -> float:
        return time.monotonic() + self.skew_s

    def now_ms(self) -> Millis:
        return Millis(time.time_ns() // 1_000_000 + round(self.skew_s * 1000))


class VirtualClock:
    """The broker's clock, for the test's thread and as the broker's WallClock port."""

    def __init__(self, loop: SkewedLoop) -> None:
        self.busy: list[BusyWork] = []
        """Work that `settle` waits for."""
        self._loop = loop
        self.sessions = SessionClock()
        self._turn: asyncio.Lock | None = None

    def now_ms(self) -> Millis:
        """Returns the broker's wall-clock time."""
        return Millis(time.time_ns() // 1_000_000 + round(self._loop.skew_s * 1000))

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    @property
    def advanced_s(self) -> float:
        """Returns how far the broker's clock is ahead of real time."""
        return self._loop.skew_s

    def advance(
        self, duration: Duration, *, step: Duration | None = None, sessions: bool = False
    ) -> None:
        """Lets this much time pass at once; returns when the broker has handled what became due.

        With `step` it passes in jumps of that size. With `sessions` it passes for members of groups
        as well: members with a shorter session expire.
        """
        self._ask(duration, step, sessions).result(PATIENCE_S)

    async def advance_async(
        self, duration: Duration, *, step: Duration | None = None, sessions: bool = False
    ) -> None:
        """As `advance`, without blocking the caller's loop."""
        await asyncio.wrap_future(self._ask(duration, step, sessions))

    def settle(self) -> None:
        """Returns when the broker has no work left at the present time."""
        self.advance(0)

    def _ask(self, duration: Duration, step: Duration | None, sessions: bool) -> "Future[None]":
        whole_s = seconds_of(duration)
        step_s = whole_s if step is None else seconds_of(step)
        count = math.ceil(whole_s / step_s) if step_s else 1
        if count > STEPS_MAX:
            raise ValueError(f"{duration!r} in steps of {step!r} are more than {STEPS_MAX} steps")
        jumps = [min(step_s, whole_s - at * step_s) for at in range(count)]
        return asyncio.run_coroutine_threadsafe(self._advance(jumps, sessions), self._loop)

    async def _advance(self, jumps: Sequence[float], sessions: bool) -> None:
        loop = self._loop
        self._turn = self._turn or asyncio.Lock()
        async with self._turn:
            await self._settle()
            for jump_s in jumps:
                loop.skew_s += jump_s
                if sessions:
                    self.sessions.skew_s += jump_s
                await self._settle()
            for _ in range(LINGERS_MAX):
                if loop.next_timer() - loop.time() > LINGER_S:
                    break
                await asyncio.sleep(LINGER_S / 2)
                await self._settle()

    async def _settle(self) -> None:
        """Runs the loop until it, and the threads that work for it, are idle.

        Clients that never stop sending requests are waited for at most `SETTLE_S_MAX` seconds.
        """
        loop = self._loop
        until_s = time.monotonic() + SETTLE_S_MAX
        quiet = 0
        while quiet < QUIET_TURNS and time.monotonic() < until_s:
            await asyncio.sleep(0)
            if any(one.unfinished for one in self.busy):
                quiet = 0
                await asyncio.sleep(WORKERS_POLL_S)
            elif loop.is_quiet and loop.next_timer() > loop.time():
                quiet += 1
            else:
                quiet = 0
