"""World of a simulated run: its seed, loop, cluster, results and first violation.

Shared by all parts of a run: workloads get clients and random numbers from it, faults get machines,
checkers report to it. Violations are not raised where they are found, which may be inside a node or
in a task that is never awaited. `violate` stores them, and the driver of the run checks `violation`
or waits with `sleep`.

An unhandled exception anywhere is a violation, too.
"""

import asyncio
import random
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from simulation.client import SimClient
from simulation.cluster import SimCluster
from simulation.disk import PowerCut
from simulation.loop import SimLoop
from simulation.results import Results, Violation

POLL_S = 0.25
JOURNAL_LINES = 400


class World:
    """Shared state of a run."""

    def __init__(self, seed: int, loop: SimLoop, cluster: SimCluster) -> None:
        self.seed = seed
        self.loop = loop
        self.cluster = cluster
        self.results = Results(seeds=1)
        self.violation: Violation | None = None
        self.clients: dict[str, SimClient] = {}
        self._journal: deque[tuple[float, str, object]] = deque(maxlen=JOURNAL_LINES)
        self.request_triggers: dict[str, Callable[[], None]] = {}
        """Functions called once when a client next sends a request of this name."""
        self._over = asyncio.Event()
        loop.set_exception_handler(self._unhandled)

    def rng(self, name: str) -> random.Random:
        """Separate random numbers for each part, so that parts do not affect each other."""
        return random.Random(f"{self.seed}/{name}")

    def now(self) -> float:
        return self.loop.time()

    def client(self, name: str, *, has_long_timeouts: bool = False) -> SimClient:
        """Creates a client process on a host of that name; replaces an earlier one."""
        client = self.clients[name] = SimClient(self, name, has_long_timeouts=has_long_timeouts)
        return client

    # -- events -----------------------------------------------------------------------------

    def reached(self, point: str) -> None:
        self.results.points[point] += 1

    def fault(self, kind: str) -> None:
        self.results.faults[kind] += 1
        self.note("fault", kind)

    def note(self, who: str, what: object) -> None:
        """Adds an event to the journal, formatted only when read."""
        self._journal.append((self.now(), who, what))

    def journal(self) -> tuple[str, ...]:
        """Last events, for the analysis of a violation."""
        return tuple(f"{at:9.4f} {who}: {what}" for at, who, what in self._journal)

    def sends(self, who: str, name: str, request: object) -> None:
        """Records a request before a client sends it."""
        self.results.operations[name] += 1
        self.note(who, request)
        trigger = self.request_triggers.pop(name, None)
        if trigger is not None:
            trigger()

    def violate(self, name: str, text: str) -> None:
        """Stores the first violation of an invariant."""
        if self.violation is None:
            self.violation = Violation(f"{name}: {text} [seed {self.seed}, {self.now():.3f} s]")
            self._over.set()

    def crashed(self, who: str, error: BaseException) -> None:
        """Reports an unexpected exception as a violation."""
        text = "".join(traceback.format_exception(error))
        self.violate("exception", f"{who} ended by {error!r}\n{text}")

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, PowerCut | asyncio.CancelledError):
            return
        if error is not None:
            self.crashed(str(context.get("message")), error)

    # -- time -------------------------------------------------------------------------------

    async def sleep(self, seconds: float) -> None:
        """Waits; raises a violation as soon as there is one."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return
        assert self.violation is not None
        raise self.violation

    async def until(
        self,
        what: str,
        within_s: float,
        is_so: Callable[[], bool] | Callable[[], Awaitable[bool]],
        why: Callable[[], object] = lambda: "",
    ) -> None:
        """Waits for a condition; exceeding `within_s` is the violation `stuck`."""
        end = self.now() + within_s
        while True:
            found = is_so()
            if await found if isinstance(found, Awaitable) else found:
                return
            if self.now() >= end:
                self.violate("stuck", f"{what} not within {within_s:g} s {why()}".rstrip())
            await self.sleep(POLL_S)
