"""Redrives started in the console, with undo.

The work is a background job of the node (`gateway.core.background_jobs`): it continues when its
page is closed, and can be cancelled. The places of its copies are kept here, so that copies not
delivered yet can be taken back (`gateway.core.dead_letters.DeadLetterAdmin.take_back`).

Bounds: `REDRIVES_MAX` redrives, and `COPIES_MAX` copies to undo of each.
"""

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.base.errors import ErrorCode, Refused
from penstock.client.dead_letters.filters import DeadLetterFilter
from penstock.client.dead_letters.redrive import RedrivenRecord, RedriveReport
from penstock.gateway.core.background_jobs import RUNNING, BackgroundJob, ProgressCallback
from penstock.gateway.core.dead_letters import DEAD_LETTERS_MAX
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.permissions import Principal

if TYPE_CHECKING:
    import asyncio

REDRIVES_MAX = 50
COPIES_MAX = 20_000
UNDONE = "undone"


@dataclass(slots=True)
class Redrive:
    """Background job with the details that the console shows."""

    who: str
    to: str | None
    rate: float | None
    total: int
    job: BackgroundJob
    copies: list[RedrivenRecord] = field(default_factory=list)
    """Copies that can still be taken back."""
    taken_back: int = 0
    is_undone: bool = False

    @property
    def state(self) -> str:
        return UNDONE if self.is_undone else self.job.status

    @property
    def can_undo(self) -> bool:
        is_over = self.job.status != RUNNING and not self.is_undone
        return is_over and any(copy.message.group for copy in self.copies)


class Redrives:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._redrives: dict[str, Redrive] = {}

    def all(self) -> Sequence[Redrive]:
        """Returns the redrives, newest first."""
        return list(reversed(self._redrives.values()))

    def find(self, name: str) -> Redrive:
        found = self._redrives.get(name)
        if found is None:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "this node does not have that redrive: it is too old, or runs on another node",
            )
        return found

    async def start(
        self,
        principal: Principal,
        topic: str,
        chosen: DeadLetterFilter,
        *,
        to: str | None,
        limit: int,
        rate: float | None,
        payload: bytes | None,
    ) -> "tuple[Redrive, asyncio.Task[None]]":
        """Starts a redrive. The caller cancels the task when the node stops."""
        if any(
            one.topic == topic and one.status == RUNNING
            for one in self._gateway.background_jobs.of(topic)
        ):
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"a job on {topic} is already running: wait for it to end, or stop it",
            )
        service = self._gateway.dead_letters
        service.check_limit(limit)
        counted = await service.kinds(principal, topic, "class", chosen)
        copies: list[RedrivenRecord] = []

        def work(on_progress: ProgressCallback) -> Coroutine[Any, Any, RedriveReport]:
            return service.redrive(
                principal,
                topic,
                chosen,
                to=to,
                limit=limit,
                rate_per_s=rate,
                payload=payload,
                on_progress=on_progress,
                on_copied=lambda some: copies.extend(some[: COPIES_MAX - len(copies)]),
            )

        job, task = self._gateway.background_jobs.start(topic, "redrive", work)
        total = min(counted.count, limit, DEAD_LETTERS_MAX)
        redrive = Redrive(principal.name, to, rate, total, job, copies)
        while len(self._redrives) >= REDRIVES_MAX:
            del self._redrives[next(iter(self._redrives))]
        self._redrives[job.name] = redrive
        return redrive, task

    async def stop(self, redrive: Redrive) -> None:
        await self._gateway.background_jobs.cancel(redrive.job.topic, redrive.job.name)

    async def undo(self, principal: Principal, redrive: Redrive) -> None:
        """Takes back copies not delivered yet; works once, also if it fails half way."""
        if not redrive.can_undo:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "the redrive cannot be undone: it is still running, was undone before, or its dead "
                "letters have no group",
            )
        copies = list(redrive.copies)
        redrive.copies.clear()
        redrive.is_undone = True
        topic = redrive.job.topic
        redrive.taken_back += await self._gateway.dead_letters.take_back(principal, topic, copies)
