"""Acknowledgements of a share consumer that are not confirmed yet (KIP-932). Pure.

Each partition has one `PendingAcks`, with acknowledgements in chunks. A chunk is sent in one
request, and the broker applies all of it or none: one record that is no longer leased makes it
refuse the chunk. A refused chunk is halved until that record is alone, so that an expired lease
fails only its own acknowledgement.

The options of an acknowledgement (delay, error, lease duration) are Penstock's extension; see
`wire.messages.share`.
"""

import asyncio
import enum
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from penstock.client.share.leases import HeldLease
from penstock.wire.messages.share import AcknowledgementBatch

CHUNK_MAX = 5_000
"""Limits the acknowledgements in one chunk."""


class AcknowledgementType(enum.IntEnum):
    """Kafka's acknowledge types."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AckOptions(NamedTuple):
    """Options of an acknowledgement; -1, None and False are defaults."""

    delay_ms: int = -1
    error_class: str | None = None
    error_message: str | None = None
    lock_ms: int = -1
    is_unseen: bool = False
    is_patient: bool = False
    """True if released records wait for the group's backoff, even if none is configured."""
    traceback: str | None = None


NO_OPTIONS: Final[AckOptions] = AckOptions()
NEVER_DELIVERED: Final[AckOptions] = AckOptions(delay_ms=0, is_unseen=True)


class Ack:
    """Acknowledgement of one record, with the future of its outcome."""

    __slots__ = ("done", "is_awaited", "kind", "lease", "offset", "options")

    def __init__(
        self,
        offset: int,
        kind: AcknowledgementType,
        options: AckOptions = NO_OPTIONS,
        lease: HeldLease | None = None,
        done: "asyncio.Future[None] | None" = None,
        is_awaited: bool = False,
    ) -> None:
        self.offset = offset
        self.kind = kind
        self.options = options
        self.lease = lease
        """None for an offset without record."""
        self.done = done
        self.is_awaited = is_awaited
        """True if the caller awaits the outcome; otherwise it may be sent with the next fetch."""

    def succeed(self) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)


class PendingAcks:
    """Acknowledgements for one partition that were not sent yet."""

    __slots__ = ("_chunks", "_open")

    def __init__(self) -> None:
        self._chunks: deque[list[Ack]] = deque()
        self._open: list[Ack] | None = None
        """Last chunk, while more acknowledgements may be added to it."""

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(self, ack: Ack) -> None:
        if self._open is None or len(self._open) >= CHUNK_MAX:
            self._open = []
            self._chunks.append(self._open)
        self._open.append(ack)

    def take(self) -> list[Ack]:
        """Removes and returns the next chunk by offset; of two for one offset, the later one."""
        chunk = self._chunks.popleft()
        if chunk is self._open:
            self._open = None
        latest: dict[int, Ack] = {}
        for ack in chunk:
            earlier = latest.get(ack.offset)
            if earlier is not None:
                earlier.succeed()  # A renewal that a later acknowledgement replaces.
            latest[ack.offset] = ack
        return [latest[offset] for offset in sorted(latest)]

    def put_back(self, chunk: list[Ack]) -> None:
        """Puts back a chunk that did not arrive; it is sent first, and alone."""
        self._chunks.appendleft(chunk)

    def halve(self, chunk: list[Ack]) -> None:
        """Splits a refused chunk, to find the record that caused it."""
        middle = len(chunk) // 2
        self._chunks.appendleft(chunk[middle:])
        self._chunks.appendleft(chunk[:middle])

    def drain(self) -> list[Ack]:
        """Removes and returns all acknowledgements."""
        found = [ack for chunk in self._chunks for ack in chunk]
        self._chunks.clear()
        self._open = None
        return found


def batches_of(acks: Iterable[Ack]) -> list[AcknowledgementBatch]:
    """Builds the batches of a request: runs of consecutive offsets with equal acknowledgements."""
    found: list[AcknowledgementBatch] = []
    run: list[Ack] = []
    for ack in acks:
        if run and (
            ack.offset != run[-1].offset + 1
            or ack.kind is not run[0].kind
            or ack.options != run[0].options
        ):
            found.append(_batch(run))
            run = []
        run.append(ack)
    if run:
        found.append(_batch(run))
    return found


def _batch(run: Sequence[Ack]) -> AcknowledgementBatch:
    options = run[0].options
    return AcknowledgementBatch(
        first_offset=run[0].offset,
        last_offset=run[-1].offset,
        acknowledge_types=(int(run[0].kind),),
        delay_ms=options.delay_ms,
        error_class=options.error_class,
        error_message=options.error_message,
        lock_ms=options.lock_ms,
        is_unseen=options.is_unseen,
        is_patient=options.is_patient,
        traceback=options.traceback,
    )
