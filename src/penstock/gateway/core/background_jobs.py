"""Errands under way: redriving or purging dead letters while nobody waits for the answer.

An errand belongs to the node that was asked for it, and is remembered there, with how far it is.
If that node stops, so does the errand; what was settled is settled, and asking again goes on from
there, at any node. Whoever may read the dead letters may look at their errands and cancel them.

Bounds: `REMEMBERED_MAX` errands; the oldest that have ended are forgotten. How many run at a time
is bounded where the work is done (`letters`).
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.base.deferred import Deferred
from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.ports import Random, WallClock
from penstock.client.dead_letters.redrive import RedriveReport
from penstock.client.metadata import TopicPartition

RUNNING, COMPLETED, CANCELLED, FAILED = "running", "completed", "cancelled", "failed"
REMEMBERED_MAX = 100
NAME_BYTES = 8

Told: TypeAlias = Callable[[int], None]
"""Called with how many more letters were settled."""


@dataclass(slots=True)
class BackgroundJob:
    """One errand, and how far it is."""

    name: str
    topic: str
    kind: str
    started_ms: int
    status: str = RUNNING
    settled: int = 0
    skipped: int = 0
    ended_ms: int | None = None
    reason: str | None = None
    """Why it failed, or left something."""
    targets: dict[TopicPartition, int] = field(default_factory=dict)
    """Where letters went; known at the end."""


class BackgroundJobs:
    """Those of this node."""

    def __init__(self, clock: WallClock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._errands: dict[str, BackgroundJob] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(
        self, topic: str, kind: str, work: Callable[[Told], Coroutine[Any, Any, RedriveReport]]
    ) -> "tuple[BackgroundJob, asyncio.Task[None]]":
        """Begins the work; whoever stops the node has to cancel the task."""
        self._make_room()
        name = self._random.random_bytes(NAME_BYTES).hex()
        errand = self._errands[name] = BackgroundJob(name, topic, kind, self._clock.now_ms())

        def told(count: int) -> None:
            errand.settled += count

        task = asyncio.get_running_loop().create_task(self._do(errand, Deferred(work, told)))
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._ended(errand, done))
        return errand, task

    def _make_room(self) -> None:
        for name, errand in list(self._errands.items()):
            if len(self._errands) < REMEMBERED_MAX:
                return
            if errand.status != RUNNING:
                del self._errands[name]
        if len(self._errands) >= REMEMBERED_MAX:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many of these at a time")

    async def _do(self, errand: BackgroundJob, work: Deferred[RedriveReport]) -> None:
        try:
            report = await work
        except Refused as refused:
            errand.status, errand.reason = FAILED, refused.message or refused.code.name
        except (OSError, PeerError) as error:
            errand.status, errand.reason = FAILED, str(error)
        else:
            errand.status = COMPLETED
            errand.settled = report.settled
            errand.skipped = report.skipped + len(report.too_large)
            errand.reason = _left_of(report)
            errand.targets = report.targets

    def _ended(self, errand: BackgroundJob, done: "asyncio.Task[None]") -> None:
        self._tasks.pop(errand.name, None)
        errand.ended_ms = self._clock.now_ms()
        if done.cancelled():
            errand.status = CANCELLED

    def of(self, topic: str) -> list[BackgroundJob]:
        """The newest first."""
        return [one for one in reversed(self._errands.values()) if one.topic == topic]

    def find(self, topic: str, name: str) -> BackgroundJob:
        errand = self._errands.get(name)
        if errand is None or errand.topic != topic:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"this node knows of no errand {name[:40]} of {topic}: it may be another node's, "
                "or have been forgotten when the node was started again",
            )
        return errand

    async def cancel(self, topic: str, name: str) -> BackgroundJob:
        """Stops it between two transactions; answers when it has stopped."""
        errand = self.find(topic, name)
        task = self._tasks.get(name)
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        return errand


def _left_of(report: RedriveReport) -> str | None:
    if not report.too_large:
        return None
    name, why = next(iter(report.too_large.items()))
    more = len(report.too_large) - 1
    return f"letter {name}{f' and {more} more' if more else ''} left: {why}"
