"""Redrives that the console started: how far each is, stopping it, and undoing it.

A redrive goes on when its page is closed. It can be stopped: what was sent is sent, the rest stays.
It can be undone as long as copies were not delivered (`doors.letters.Letters.take_back`). A node
that stops stops them; asking again goes on from there.

Bounds: `RUNNING_MAX` at a time, `KEPT_MAX` remembered, and of each `COPIES_MAX` copies to undo.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.client.letters import LetterFilter
from penstock.client.redriving import Copied
from penstock.doors.door import Door
from penstock.doors.letters import LETTERS_MAX

RUNNING_MAX = 4
KEPT_MAX = 50
COPIES_MAX = 20_000
ID_BYTES = 6


class State(StrEnum):
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    UNDONE = "undone"


@dataclass(slots=True)
class Redrive:
    id: str
    topic: str
    who: str
    to: str | None
    rate: float | None
    started_ms: int
    total: int
    state: State = State.RUNNING
    sent: int = 0
    skipped: int = 0
    taken_back: int = 0
    ended_ms: int | None = None
    error: str = ""
    copies: list[Copied] = field(default_factory=list)
    """Those that may still be undone."""
    task: "asyncio.Task[None] | None" = None

    @property
    def can_undo(self) -> bool:
        is_over = self.state in (State.DONE, State.STOPPED, State.FAILED)
        return is_over and any(copy.letter.group for copy in self.copies)


class Redrives:
    def __init__(self, door: Door) -> None:
        self._door = door
        self._redrives: OrderedDict[str, Redrive] = OrderedDict()

    def all(self) -> Sequence[Redrive]:
        """The newest first."""
        return list(reversed(self._redrives.values()))

    def find(self, redrive_id: str) -> Redrive:
        found = self._redrives.get(redrive_id)
        if found is None:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "this node does not know that redrive: it was long ago, or on another node",
            )
        return found

    async def start(
        self,
        principal: str,
        topic: str,
        chosen: LetterFilter,
        *,
        to: str | None,
        limit: int,
        rate: float | None,
        payload: bytes | None,
    ) -> Redrive:
        running = [one for one in self._redrives.values() if one.state is State.RUNNING]
        if len(running) >= RUNNING_MAX:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many redrives at a time")
        if any(one.topic == topic for one in running):
            raise Refused(ErrorCode.INVALID_REQUEST, f"a redrive of {topic} is already under way")
        letters, ctx = self._door.letters, self._door.ctx
        counted = await letters.kinds(principal, topic, "class", chosen)
        redrive = Redrive(
            ctx.random.random_bytes(ID_BYTES).hex(),
            topic,
            principal,
            to,
            rate,
            ctx.clock.now_ms(),
            min(counted.count, limit, LETTERS_MAX),
        )

        def told(count: int) -> None:
            redrive.sent += count

        def copied(copies: list[Copied]) -> None:
            room = COPIES_MAX - len(redrive.copies)
            redrive.copies += copies[:room]

        async def work() -> None:
            try:
                report = await letters.redrive(
                    principal,
                    topic,
                    chosen,
                    to=to,
                    limit=limit,
                    rate_per_s=rate,
                    payload=payload,
                    told=told,
                    copied=copied,
                )
                redrive.skipped = report.skipped
                redrive.state = State.DONE
            except asyncio.CancelledError:
                redrive.state = State.STOPPED
            except Refused as refused:
                redrive.state, redrive.error = State.FAILED, refused.message or refused.code.name
            except (OSError, PeerError) as error:
                redrive.state, redrive.error = State.FAILED, str(error)
            finally:
                redrive.ended_ms = ctx.clock.now_ms()

        redrive.task = asyncio.get_running_loop().create_task(work())
        self._redrives[redrive.id] = redrive
        while len(self._redrives) > KEPT_MAX:
            self._forget_one()
        return redrive

    def _forget_one(self) -> None:
        over = (name for name, one in self._redrives.items() if one.state is not State.RUNNING)
        del self._redrives[next(over)]

    async def stop(self, redrive_id: str) -> Redrive:
        redrive = self.find(redrive_id)
        if redrive.task is not None:
            redrive.task.cancel()
            await asyncio.gather(redrive.task, return_exceptions=True)
        return redrive

    async def undo(self, principal: str, redrive_id: str) -> Redrive:
        """Takes back what was not delivered yet."""
        redrive = self.find(redrive_id)
        if not redrive.can_undo:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "there is nothing to undo: it still runs, was undone, or was no queue's",
            )
        copies, redrive.copies = redrive.copies, []
        redrive.taken_back += await self._door.letters.take_back(principal, redrive.topic, copies)
        redrive.state = State.UNDONE
        return redrive
