"""One simulated run: its seed, loop, cluster and tally, and the first promise that was broken.

Everybody in a run holds the world: workloads ask it for clients and randomness, faults for the
machines, checkers tell it what they found. Nothing is raised where it is found, since that may be
deep inside a node or in a task nobody awaits: `violate` keeps it, and whoever drives the run looks
at `violation` or waits with `sleep`.

An exception that nobody handles is a violation, too, wherever it happens.
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
    """What a run consists of."""

    def __init__(self, seed: int, loop: SimLoop, cluster: SimCluster) -> None:
        self.seed = seed
        self.loop = loop
        self.cluster = cluster
        self.tally = Results(seeds=1)
        self.violation: Violation | None = None
        self.clients: dict[str, SimClient] = {}
        self._journal: deque[tuple[float, str, object]] = deque(maxlen=JOURNAL_LINES)
        self.traps: dict[str, Callable[[], None]] = {}
        """What to do when a client next sends a request of a name; done once."""
        self._over = asyncio.Event()
        loop.set_exception_handler(self._unhandled)

    def rng(self, name: str) -> random.Random:
        """Randomness of its own for each part, so that one does not shift the others."""
        return random.Random(f"{self.seed}/{name}")

    def now(self) -> float:
        return self.loop.time()

    def client(self, name: str, *, is_patient: bool = False) -> SimClient:
        """A new client process on a host of that name. One that was there before is forgotten."""
        client = self.clients[name] = SimClient(self, name, is_patient=is_patient)
        return client

    # -- what happened ----------------------------------------------------------------------

    def reached(self, point: str) -> None:
        self.tally.points[point] += 1

    def fault(self, kind: str) -> None:
        self.tally.faults[kind] += 1
        self.note("fault", kind)

    def note(self, who: str, what: object) -> None:
        """One line of the journal; put into words only when somebody reads it."""
        self._journal.append((self.now(), who, what))

    def journal(self) -> tuple[str, ...]:
        """What happened last, for whoever looks for the cause of a violation."""
        return tuple(f"{at:9.4f} {who}: {what}" for at, who, what in self._journal)

    def sends(self, who: str, name: str, request: object) -> None:
        """A client is about to send a request."""
        self.tally.operations[name] += 1
        self.note(who, request)
        trap = self.traps.pop(name, None)
        if trap is not None:
            trap()

    def violate(self, name: str, text: str) -> None:
        """A promise was broken: `name` says which, `text` how."""
        if self.violation is None:
            self.violation = Violation(f"{name}: {text} [seed {self.seed}, {self.now():.3f} s]")
            self._over.set()

    def crashed(self, who: str, error: BaseException) -> None:
        """Something ended by an exception that it should not have."""
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
        """Lets time pass; raises the violation as soon as there is one."""
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
        """Waits until it is so; if that takes too long the run is stuck, which is a violation."""
        end = self.now() + within_s
        while True:
            found = is_so()
            if await found if isinstance(found, Awaitable) else found:
                return
            if self.now() >= end:
                self.violate("stuck", f"{what} not within {within_s:g} s {why()}".rstrip())
            await self.sleep(POLL_S)
