"""Batch of records for one partition, and the delivery handle of each record.

One future serves all records of a batch: a `PendingRecord` is the batch and an index in it. A batch
that the broker refuses as too large is split, and the handles follow the halves.
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
    """Partition, offset and timestamp of a delivered record. The offset is -1 with acks=0."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Acked(NamedTuple):
    """Acknowledgement of a batch. `append_time` is -1 unless the topic uses LogAppendTime."""

    base_offset: int
    append_time: int


class BatchState(enum.Enum):
    WAITING = "waiting"
    IN_FLIGHT = "in flight"
    FAILED = "failed"  # Retried with the batches sent after it, in order, once those are answered.


def record_bytes(record: Record) -> int:
    """Upper bound of the bytes a record takes in an uncompressed batch."""
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += 10 + 4 * len(name) + len(value or b"")
    return size


class Batch:
    """Records for one partition, in order. Only its `PartitionQueue` changes it."""

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
        """Broker to which the batch was sent last."""
        self.tries = 0
        self.identity: ProducerIdentity | None = None
        self.sequence = -1
        self.may_be_written = False
        """True once a try ended without a reply: the broker may have written the batch."""
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
        """Sets the sequence; the batch is encoded again, since the CRC covers the sequence."""
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
        """Splits the batch into halves that keep its partition, age and sequences."""
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
        # Deliveries need only the timestamps of the records from now on.
        self.encoded = None
        if not self.future.done():
            self.future.set_result(outcome)


class PendingRecord:
    """Delivery of one record: `await` returns a `Sent` or raises the cause of failure."""

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
                # Shielded: a caller that stops waiting must not cancel it for other callers.
                await asyncio.shield(batch.future)
                continue
            outcome = batch.future.result()
            assert isinstance(outcome, (Acked, Exception))
            if isinstance(outcome, Exception):
                # A shared error object would collect the tracebacks of every record of the batch.
                raise _copy(outcome)
            timestamp = outcome.append_time
            if timestamp < 0:
                timestamp = batch.records[index].timestamp
            offset = outcome.base_offset
            topic, partition = batch.where
            return Sent(topic, partition, offset + index if offset >= 0 else -1, timestamp)

    def _locate(self) -> tuple[Batch, int]:
        """Returns the current batch of the record, after splits, and its index in it."""
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
