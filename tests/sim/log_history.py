"""Checker of the crash tests: compares a log with the history of its operations.

`History` records every append before it is made, and every acknowledgement, deletion and
truncation. `check` compares a log that came back from a disk with it and raises `Violation` by
name:

- lost: an acknowledged batch is not served;
- changed: a batch is served with other bytes than were appended;
- invented: a batch is served that was never appended there, or was truncated for good;
- disordered: offsets do not follow each other;
- undeleted: records below an acknowledged DeleteRecords are back;
- offline, damaged: a log that only had a power cut does not open or read;
- forgetful: a retry of an existing batch is not recognized, or a missing one is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.base.errors import Refused
from penstock.log.log import Log
from penstock.wire.records import BatchHeader, batches, check_batch

READ_BYTES = 5_000


class Violation(AssertionError):
    """The log broke a promise; the first word of the message says which."""


@dataclass(frozen=True, slots=True)
class Written:
    base_offset: int
    last_offset: int
    data: bytes
    request: bytes
    """The batch as the producer sent it, before it was stamped."""
    producer_id: int
    epoch: int


@dataclass(slots=True)
class History:
    written: list[Written] = field(default_factory=list)
    acknowledged: int = 0
    """Batches that end below this offset were promised to survive."""
    start_max: int = 0
    """Records below this offset were given up: they may be gone."""
    start_acknowledged: int = 0
    """Records below this offset were promised to be gone."""
    cut_from: int | None = None
    """A cut from here on is under way: it may or may not have happened."""

    def is_promised(self, batch: Written, start_offset: int) -> bool:
        if self.cut_from is not None and batch.last_offset >= self.cut_from:
            return False
        return batch.last_offset >= start_offset and batch.last_offset < self.acknowledged

    def check(self, log: Log, start_max: int) -> list[Written]:
        """The batches that `log` serves, all of them as they should be."""
        if log.offline is not None:
            raise Violation(f"offline: {log.offline}")
        found = self.check_served(read_all(log))
        start_max = max(start_max, self.start_max)
        present = {batch.base_offset for batch in found}
        for batch in self.written:
            if self.is_promised(batch, start_max) and batch.base_offset not in present:
                raise Violation(
                    f"lost: the batch {batch.base_offset}..{batch.last_offset}, acknowledged up "
                    f"to {self.acknowledged}; the log has {log.start_offset}..{log.end_offset}"
                )
        if log.start_offset < self.start_acknowledged and self.cut_from is None:
            raise Violation(f"undeleted: {log.start_offset} below {self.start_acknowledged}")
        if log.durable_offset != log.end_offset:
            raise Violation(f"lost: an opened log is durable to {log.durable_offset} only")
        if found and log.end_offset != found[-1].last_offset + 1:
            raise Violation(f"invented: the end {log.end_offset} after {found[-1].last_offset}")
        for batch in found:
            if log.epochs.of(batch.last_offset) != batch.epoch:
                raise Violation(f"forgetful: epoch {batch.epoch} of the batch {batch.base_offset}")
        return found

    def check_served(self, served: Sequence[tuple[int, bytes]]) -> list[Written]:
        """Appended batches that equal the served ones; there are no others, in order."""
        by_offset = {batch.base_offset: batch for batch in self.written}
        found: list[Written] = []
        for base_offset, data in served:
            batch = by_offset.get(base_offset)
            if batch is None:
                raise Violation(f"invented: a batch at {base_offset}")
            if batch.data != data:
                raise Violation(f"changed: the batch at {base_offset}")
            if found and base_offset != found[-1].last_offset + 1:
                raise Violation(f"disordered: {base_offset} after {found[-1].last_offset}")
            found.append(batch)
        return found

    def check_retries(self, log: Log, found: list[Written], now_ms: int) -> None:
        """Every producer sends its last batches again. Appends to the log."""
        last: dict[int, Written] = {}
        for batch in found:
            if batch.producer_id >= 0:
                last[batch.producer_id] = batch
        for batch in last.values():
            again = log.append(*_request(batch), log.epochs.latest, now_ms)
            if not again.duplicate or again.base_offset != batch.base_offset:
                raise Violation(f"forgetful: a retry of {batch.base_offset} gave {again}")
        present = {batch.base_offset for batch in found}
        tried: set[int] = set()
        for batch in self.written:
            producer_id = batch.producer_id
            missing = producer_id >= 0 and batch.base_offset not in present
            before = last.get(producer_id)
            if not missing or before is None or batch.base_offset < before.base_offset:
                continue
            if producer_id not in tried:
                tried.add(producer_id)
                try:
                    fresh = log.append(*_request(batch), log.epochs.latest, now_ms)
                except Refused as refusal:
                    raise Violation(f"forgetful: {refusal} for {batch.base_offset}") from refusal
                if fresh.duplicate:
                    raise Violation(f"forgetful: {batch.base_offset} is gone, yet a duplicate")


def read_all(log: Log, served: list[tuple[int, bytes]] | None = None) -> list[tuple[int, bytes]]:
    """Every batch the log serves, as a consumer that starts at the beginning gets them.

    They are added to `served`, so that what came before an error is known, too.
    """
    served = [] if served is None else served
    offset = log.start_offset
    while offset < log.end_offset:
        span = log.locate(offset, READ_BYTES, log.end_offset)
        assert span is not None
        data = span.read()
        before = offset
        for position, header in batches(memoryview(data)):
            batch = bytes(data[position : position + header.size_bytes])
            served.append((header.base_offset, batch))
            offset = header.next_offset
        if offset <= before:
            raise Violation(f"lost: nothing is read at {before}, the end is {log.end_offset}")
    return served


def _request(batch: Written) -> tuple[memoryview, BatchHeader]:
    view = memoryview(bytearray(batch.request))
    return view, check_batch(view)
