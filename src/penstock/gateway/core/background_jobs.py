"""Background jobs: redriving or purging dead letters without a client waiting for the response.

A job runs on the node that received the request, which keeps it and its progress in memory. If that
node stops, so does the job. Dead letters it has settled stay settled; a new request, to any node,
continues with the rest. Every principal that may read the dead letters may list and cancel the
jobs.

Bounds: `REMEMBERED_MAX` jobs; the oldest finished ones are dropped. `dead_letters` limits how many
run at a time.
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

ProgressCallback: TypeAlias = Callable[[int], None]
"""Progress callback: receives the number of dead letters settled since the last call."""


@dataclass(slots=True)
class BackgroundJob:
    """A background job and its progress."""

    name: str
    topic: str
    kind: str
    started_ms: int
    status: str = RUNNING
    settled: int = 0
    skipped: int = 0
    ended_ms: int | None = None
    reason: str | None = None
    """Reason for the failure, or for dead letters that were left."""
    targets: dict[TopicPartition, int] = field(default_factory=dict)
    """Redriven dead letters by target partition; known at the end."""


class BackgroundJobs:
    """Background jobs of this node."""

    def __init__(self, clock: WallClock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._jobs: dict[str, BackgroundJob] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(
        self,
        topic: str,
        kind: str,
        work: Callable[[ProgressCallback], Coroutine[Any, Any, RedriveReport]],
    ) -> "tuple[BackgroundJob, asyncio.Task[None]]":
        """Starts the work. The caller cancels the task when the node stops."""
        self._drop_finished()
        name = self._random.random_bytes(NAME_BYTES).hex()
        job = self._jobs[name] = BackgroundJob(name, topic, kind, self._clock.now_ms())

        def on_progress(count: int) -> None:
            job.settled += count

        task = asyncio.get_running_loop().create_task(self._do(job, Deferred(work, on_progress)))
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._ended(job, done))
        return job, task

    def _drop_finished(self) -> None:
        for name, job in list(self._jobs.items()):
            if len(self._jobs) < REMEMBERED_MAX:
                return
            if job.status != RUNNING:
                del self._jobs[name]
        if len(self._jobs) >= REMEMBERED_MAX:
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{REMEMBERED_MAX} background jobs are running on this node: wait for one to end, "
                "or cancel one",
            )

    async def _do(self, job: BackgroundJob, work: Deferred[RedriveReport]) -> None:
        try:
            report = await work
        except Refused as refused:
            job.status, job.reason = FAILED, refused.message or refused.code.name
        except (OSError, PeerError) as error:
            job.status, job.reason = FAILED, str(error)
        else:
            job.status = COMPLETED
            job.settled = report.settled
            job.skipped = report.skipped + len(report.too_large)
            job.reason = _reason_left(report)
            job.targets = report.targets

    def _ended(self, job: BackgroundJob, done: "asyncio.Task[None]") -> None:
        self._tasks.pop(job.name, None)
        job.ended_ms = self._clock.now_ms()
        if done.cancelled():
            job.status = CANCELLED

    def of(self, topic: str) -> list[BackgroundJob]:
        """Jobs of a topic, newest first."""
        return [one for one in reversed(self._jobs.values()) if one.topic == topic]

    def find(self, topic: str, name: str) -> BackgroundJob:
        job = self._jobs.get(name)
        if job is None or job.topic != topic:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"this node has no background job {name[:40]} of topic {topic}: it may run on "
                "another node, or may have been lost when this node restarted",
            )
        return job

    async def cancel(self, topic: str, name: str) -> BackgroundJob:
        """Cancels a job between two transactions; returns when it has stopped."""
        job = self.find(topic, name)
        task = self._tasks.get(name)
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        return job


def _reason_left(report: RedriveReport) -> str | None:
    if not report.too_large:
        return None
    name, why = next(iter(report.too_large.items()))
    more = len(report.too_large) - 1
    return f"dead letter {name}{f' and {more} more' if more else ''} not redriven: {why}"
