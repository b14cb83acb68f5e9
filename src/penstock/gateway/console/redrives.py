"""Redrives that the console started: who, how many are meant, and undoing them.

The work is an errand of the node (`gateway.core.background_jobs`): it goes on when its page is
closed and can be cancelled. Here is remembered where its copies went, so that it can be undone as
long as they were not delivered (`gateway.core.dead_letters.Letters.take_back`).

Bounds: `KEPT_MAX` redrives, and of each `COPIES_MAX` copies to undo.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.client.dead_letters.message import DeadLetterFilter
from penstock.client.dead_letters.redrive import RedrivenRecord, RedriveReport
from penstock.gateway.core.background_jobs import RUNNING, BackgroundJob, ProgressCallback
from penstock.gateway.core.caller import Principal
from penstock.gateway.core.dead_letters import DEAD_LETTERS_MAX
from penstock.gateway.core.gateway import Gateway

KEPT_MAX = 50
COPIES_MAX = 20_000
UNDONE = "undone"


@dataclass(slots=True)
class Redrive:
    """An errand, and what the console knows of it beside."""

    who: str
    to: str | None
    rate: float | None
    total: int
    errand: BackgroundJob
    copies: list[RedrivenRecord] = field(default_factory=list)
    """Those that may still be undone."""
    taken_back: int = 0
    is_undone: bool = False

    @property
    def state(self) -> str:
        return UNDONE if self.is_undone else self.errand.status

    @property
    def can_undo(self) -> bool:
        is_over = self.errand.status != RUNNING and not self.is_undone
        return is_over and any(copy.message.group for copy in self.copies)


class Redrives:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._redrives: dict[str, Redrive] = {}

    def all(self) -> Sequence[Redrive]:
        """The newest first."""
        return list(reversed(self._redrives.values()))

    def find(self, name: str) -> Redrive:
        found = self._redrives.get(name)
        if found is None:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "this node does not know that redrive: it was long ago, or on another node",
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
        """Whoever stops the node has to cancel the task."""
        if any(
            one.topic == topic and one.status == RUNNING
            for one in self._gateway.background_jobs.of(topic)
        ):
            raise Refused(ErrorCode.INVALID_REQUEST, f"an errand of {topic} is already under way")
        letters = self._gateway.dead_letters
        letters.check_limit(limit)
        counted = await letters.kinds(principal, topic, "class", chosen)
        copies: list[RedrivenRecord] = []

        def work(on_progress: ProgressCallback) -> Coroutine[Any, Any, RedriveReport]:
            return letters.redrive(
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

        errand, task = self._gateway.background_jobs.start(topic, "redrive", work)
        total = min(counted.count, limit, DEAD_LETTERS_MAX)
        redrive = Redrive(principal.name, to, rate, total, errand, copies)
        while len(self._redrives) >= KEPT_MAX:
            del self._redrives[next(iter(self._redrives))]
        self._redrives[errand.name] = redrive
        return redrive, task

    async def stop(self, redrive: Redrive) -> None:
        await self._gateway.background_jobs.cancel(redrive.errand.topic, redrive.errand.name)

    async def undo(self, principal: Principal, redrive: Redrive) -> None:
        """Takes back what was not delivered yet; once: what fails half way is not done again."""
        if not redrive.can_undo:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "there is nothing to undo: it still runs, was undone, or was no queue's",
            )
        copies = list(redrive.copies)
        redrive.copies.clear()
        redrive.is_undone = True
        topic = redrive.errand.topic
        redrive.taken_back += await self._gateway.dead_letters.take_back(principal, topic, copies)
