"""What a member of a share group has to say about records it holds, on its way (KIP-932). Pure.

One `Acks` per partition: verdicts wait there in groups. A group travels in one request and counts
as a whole at the broker: one record that is no longer held makes it refuse them all. Then the
group is halved until the culprit is alone, so that a lease that ran out fails its own verdict and
no other's.

The fields beside a verdict (a pause, an error, how long to hold) are Penstock's; see
`wire.messages.share`.
"""

import asyncio
import enum
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from penstock.client.share.leases import HeldLease

B = TypeVar("B")

GROUP_MAX = 5_000
"""Verdicts in one group."""


class AcknowledgementType(enum.IntEnum):
    """Kafka's acknowledge types."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class VerdictNote(NamedTuple):
    """What goes beside a verdict; -1, None and False say nothing."""

    delay_ms: int = -1
    error_class: str | None = None
    error_message: str | None = None
    lock_ms: int = -1
    is_unseen: bool = False
    is_patient: bool = False
    """True if released records wait for the group's backoff, also where none is configured."""


NOTHING: Final[VerdictNote] = VerdictNote()
UNSEEN: Final[VerdictNote] = VerdictNote(delay_ms=0, is_unseen=True)


class Ack:
    """One verdict about one record, and who is told of the outcome."""

    __slots__ = ("done", "is_awaited", "lease", "note", "offset", "verdict")

    def __init__(
        self,
        offset: int,
        verdict: AcknowledgementType,
        note: VerdictNote = NOTHING,
        lease: HeldLease | None = None,
        done: "asyncio.Future[None] | None" = None,
        is_awaited: bool = False,
    ) -> None:
        self.offset = offset
        self.verdict = verdict
        self.note = note
        self.lease = lease
        """None for an offset that has no record."""
        self.done = done
        self.is_awaited = is_awaited
        """Somebody goes on only when it is known; else it may wait for company."""

    def succeed(self) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)


class Acks:
    """The verdicts about one partition's records that are not with the broker yet."""

    __slots__ = ("_groups", "_open")

    def __init__(self) -> None:
        self._groups: deque[list[Ack]] = deque()
        self._open: list[Ack] | None = None
        """The last group, while more may join it."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, ack: Ack) -> None:
        if self._open is None or len(self._open) >= GROUP_MAX:
            self._open = []
            self._groups.append(self._open)
        self._open.append(ack)

    def take(self) -> list[Ack]:
        """The next group, in the order of its offsets; of two verdicts on one, the later."""
        group = self._groups.popleft()
        if group is self._open:
            self._open = None
        latest: dict[int, Ack] = {}
        for ack in group:
            earlier = latest.get(ack.offset)
            if earlier is not None:
                earlier.succeed()  # A renewal, overtaken by the verdict it was meant for.
            latest[ack.offset] = ack
        return [latest[offset] for offset in sorted(latest)]

    def put_back(self, group: list[Ack]) -> None:
        """It did not arrive: it goes first, and alone."""
        self._groups.appendleft(group)

    def halve(self, group: list[Ack]) -> None:
        """One of these is refused: find out which."""
        middle = len(group) // 2
        self._groups.appendleft(group[middle:])
        self._groups.appendleft(group[:middle])

    def drain(self) -> list[Ack]:
        """All there are; none is left."""
        found = [ack for group in self._groups for ack in group]
        self._groups.clear()
        self._open = None
        return found


def batches_of(acks: Iterable[Ack], declared: type[B]) -> list[B]:
    """The verdicts as a request has them: runs of neighbours with the same one."""
    found: list[B] = []
    run: list[Ack] = []
    for ack in acks:
        if run and (
            ack.offset != run[-1].offset + 1
            or ack.verdict is not run[0].verdict
            or ack.note != run[0].note
        ):
            found.append(_batch(run, declared))
            run = []
        run.append(ack)
    if run:
        found.append(_batch(run, declared))
    return found


def _batch(run: Sequence[Ack], declared: type[B]) -> B:
    make: Any = declared
    note = run[0].note
    batch: B = make(
        first_offset=run[0].offset,
        last_offset=run[-1].offset,
        acknowledge_types=(int(run[0].verdict),),
        delay_ms=note.delay_ms,
        error_class=note.error_class,
        error_message=note.error_message,
        lock_ms=note.lock_ms,
        is_unseen=note.is_unseen,
        is_patient=note.is_patient,
    )
    return batch
