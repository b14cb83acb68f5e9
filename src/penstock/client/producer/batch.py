"""A batch in the making, and the handle that its records' senders hold.

One future serves all records of a batch: a `PendingRecord` is the batch and a place in it. A batch
that the broker calls too large is split, and its deliveries follow the halves.
"""

import asyncio
import enum
from collections.abc import Generator
from typing import NamedTuple

from penstock.base.errors import Refused
from penstock.client.metadata import TopicPartition
from penstock.client.producer.identity import ProducerIdentity as ProducerIdentity
from penstock.wire.compression import Codec
from penstock.wire.records import BATCH_OVERHEAD, Record, encode

# Length, attributes, timestamp and offset deltas, key, value and header counts: at most this.
_RECORD_OVERHEAD = 21


class Sent(NamedTuple):
    """Where a record went. The offset is -1 where the broker was not asked to tell (acks=0)."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Acked(NamedTuple):
    """How a whole batch ended well. `append_time` is -1 unless the topic uses LogAppendTime."""

    base_offset: int
    append_time: int


class BatchState(enum.Enum):
    WAITING = "waiting"
    IN_FLIGHT = "in flight"
    FAILED = "failed"  # for now: it waits for those sent after it, then all go again, in order


def record_bytes(record: Record) -> int:
    """An upper bound of what a record takes in an uncompressed batch."""
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += 10 + 4 * len(name) + len(value or b"")
    return size


class Batch:
    """Records for one partition, in order. Only its lane changes it."""

    __slots__ = (
        "created_at",
        "encoded",
        "future",
        "identity",
        "is_closed",
        "last_error",
        "may_be_written",
        "node_id",
        "records",
        "sequence",
        "size_bytes",
        "state",
        "tries",
        "where",
    )

    def __init__(self, where: TopicPartition, created_at: float) -> None:
        self.where = where
        self.created_at = created_at
        self.records: list[Record] = []
        self.size_bytes = BATCH_OVERHEAD
        self.is_closed = False
        self.state = BatchState.WAITING
        self.node_id = -1
        """Where it is in flight."""
        self.tries = 0
        self.identity: ProducerIdentity | None = None
        self.sequence = -1
        self.may_be_written = False
        """A try ended without an answer: the broker may have it already."""
        self.last_error: Exception | None = None
        self.encoded: bytearray | None = None
        self.future: asyncio.Future[Acked | Exception | tuple[Batch, Batch]]
        self.future = asyncio.get_running_loop().create_future()

    def add(self, record: Record, size_bytes: int) -> "PendingRecord":
        assert not self.is_closed
        self.records.append(record)
        self.size_bytes += size_bytes
        return PendingRecord(self, len(self.records) - 1)

    def number(self, identity: ProducerIdentity | None, sequence: int) -> None:
        """Gives the batch its sequence; it is encoded anew, the sequence being under the CRC."""
        self.identity = identity
        self.sequence = sequence
        self.encoded = None

    def encode(self, codec: Codec) -> bytearray:
        if self.encoded is None:
            producer_id, producer_epoch = self.identity or (-1, -1)
            self.encoded = encode(
                self.records,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=self.sequence,
            )
        return self.encoded

    def split(self) -> "tuple[Batch, Batch]":
        """Two halves that keep the place, the age and the sequences of the whole."""
        assert len(self.records) > 1
        middle = len(self.records) // 2
        halves = Batch(self.where, self.created_at), Batch(self.where, self.created_at)
        for half, records, skipped in (
            (halves[0], self.records[:middle], 0),
            (halves[1], self.records[middle:], middle),
        ):
            for record in records:
                half.add(record, record_bytes(record))
            half.is_closed = True
            if self.identity is not None:
                half.number(self.identity, (self.sequence + skipped) & 0x7FFFFFFF)
        self.future.set_result(halves)
        return halves

    def resolve(self, outcome: Acked | Exception) -> None:
        # A timestamp is all that deliveries still need of the records.
        self.encoded = None
        if not self.future.done():
            self.future.set_result(outcome)


class PendingRecord:
    """A record on its way: `await` it for where it went, or for why it did not arrive."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def partition(self) -> int:
        return self._batch.where.partition

    def done(self) -> bool:
        batch, _ = self._locate()
        return batch.future.done()

    def __await__(self) -> Generator[object, None, Sent]:
        return self._wait().__await__()

    async def _wait(self) -> Sent:
        while True:
            batch, index = self._locate()
            if not batch.future.done():
                # Shielded: a caller that stops waiting must not cancel it for the others.
                await asyncio.shield(batch.future)
                continue
            outcome = batch.future.result()
            assert isinstance(outcome, (Acked, Exception))
            if isinstance(outcome, Exception):
                # One error object would gather the tracebacks of every record of the batch.
                raise _copy(outcome)
            timestamp = outcome.append_time
            if timestamp < 0:
                timestamp = batch.records[index].timestamp
            offset = outcome.base_offset
            topic, partition = batch.where
            return Sent(topic, partition, offset + index if offset >= 0 else -1, timestamp)

    def _locate(self) -> tuple[Batch, int]:
        """The batch the record is in now, after splits, and its place there."""
        batch, index = self._batch, self._index
        while batch.future.done():
            outcome = batch.future.result()
            if isinstance(outcome, (Acked, Exception)):
                break
            first, second = outcome
            skipped = len(first.records)
            batch, index = (first, index) if index < skipped else (second, index - skipped)
        self._batch, self._index = batch, index
        return batch, index


def _copy(error: Exception) -> Exception:
    if isinstance(error, Refused):
        return Refused(error.code, error.message)
    return type(error)(*error.args)
