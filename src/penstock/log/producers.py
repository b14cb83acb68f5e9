"""State of the idempotent and transactional producers of one partition (KIP-98, KIP-360, KIP-890).

Per producer id: its epoch and its last five batches, so that a retry is recognised and answered
with the offsets of the original. Also the open transactions of this partition, so that
read_committed consumers stop before them. The rules are those of Kafka's ProducerStateManager:

- An older epoch is refused with INVALID_PRODUCER_EPOCH; a newer one must start at sequence 0.
- Within an epoch sequences must continue without a gap (they wrap after 2**31 - 1), else
  OUT_OF_ORDER_SEQUENCE_NUMBER.
- An unknown producer may start at any sequence: its state may have expired, or been deleted with
  the records. A producer known only by a transaction marker must start at sequence 0.
- A batch without a sequence (-1, from a coordinator) is only checked for its epoch.
- A transactional batch opens a transaction; a marker ends it. Under transactions v2 (KIP-890) a
  marker's epoch must be above the producer's, unless it repeats the one that ended it.

Bounds: producer state expires `producer_expiration_ms` after the last batch. At `PRODUCERS_MAX`
producers the sixteenth part that has been idle longest is evicted; a producer with an open
transaction never is. After eviction a retry of the last batches is no longer recognised, but no
write is lost.

All state is in memory; `recovery` rebuilds it by replaying batch headers onto a snapshot.
"""

from collections import deque
from typing import TypeAlias

import msgspec

from penstock.base.errors import ErrorCode, Refused
from penstock.log.index_files import AbortedTxn
from penstock.wire.control_batches import ControlMarker
from penstock.wire.records import TRANSACTIONAL, BatchHeader

BATCHES_KEPT = 5
PRODUCERS_MAX = 20_000
SEQUENCE_MAX = 2**31 - 1
NO_EPOCH = -1
NO_OFFSET = -1
TRANSACTIONS_V2 = 2


Batch: TypeAlias = tuple[int, int, int, int, int]
"""One of a producer's last batches: first and last sequence, first and last offset, timestamp.

A plain tuple, because every appended batch allocates one.
"""


class ProducerState:
    __slots__ = ("batches", "coordinator_epoch", "epoch", "timestamp", "txn_first_offset")

    def __init__(self) -> None:
        self.epoch = NO_EPOCH
        self.coordinator_epoch = -1
        self.timestamp = -1
        self.txn_first_offset = NO_OFFSET
        self.batches: deque[Batch] = deque(maxlen=BATCHES_KEPT)


class Producers:
    __slots__ = ("_open", "_undurable", "by_id", "end_offset", "expiration_ms")

    def __init__(self, expiration_ms: int) -> None:
        self.expiration_ms = expiration_ms
        self.by_id: dict[int, ProducerState] = {}
        self.end_offset = 0
        """State includes every batch below this offset, and no other."""
        self._open: dict[int, int] = {}
        """Producer id -> first offset of its open transaction, in the order of opening."""
        self._undurable: list[tuple[int, int]] = []
        """First offset and marker offset of ended transactions; see `last_stable_offset`."""

    # Before the append.

    def check(self, header: BatchHeader) -> Batch | None:
        """Refuses a batch that breaks the rules; returns the original of a retried batch."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            return None
        epoch, sequence = header.producer_epoch, header.base_sequence
        if epoch < producer.epoch:
            raise _stale_epoch(header, producer)
        if sequence >= 0:
            batches = producer.batches
            if epoch != producer.epoch:
                if sequence != 0:
                    raise _out_of_order(header, "a new epoch must start at sequence 0")
            elif not batches:
                if sequence != 0:
                    raise _out_of_order(
                        header, "after a transaction marker alone the next sequence must be 0"
                    )
            else:
                last = batches[-1][1]
                expected = last + 1 if last != SEQUENCE_MAX else 0
                if sequence != expected:
                    return _repeated(header, producer)
        if producer.txn_first_offset >= 0 and not header.attributes & TRANSACTIONAL:
            raise Refused(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction and sent a batch that is "
                "not transactional",
            )
        return None

    def check_marker(
        self, header: BatchHeader, marker: ControlMarker, transaction_version: int
    ) -> None:
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            return
        epoch = header.producer_epoch
        stale = epoch < producer.epoch
        if transaction_version >= TRANSACTIONS_V2 and epoch == producer.epoch:
            stale = producer.txn_first_offset >= 0
        if stale:
            raise _stale_epoch(header, producer)
        if producer.coordinator_epoch > marker.coordinator_epoch:
            raise Refused(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} of producer {header.producer_id} "
                f"is older than {producer.coordinator_epoch}",
            )

    # After the append.

    def apply(self, header: BatchHeader, base_offset: int) -> None:
        """Updates producer state from a data batch that was appended at `base_offset`."""
        producer_id, epoch, first = header.producer_id, header.producer_epoch, header.base_sequence
        delta = header.last_offset_delta
        producer = self.by_id.get(producer_id) or self._add(producer_id)
        if epoch != producer.epoch:
            producer.batches.clear()
            producer.epoch = epoch
        last = first
        if first >= 0:
            last = first + delta
            if last > SEQUENCE_MAX:
                last -= SEQUENCE_MAX + 1
        timestamp = producer.timestamp = header.max_timestamp
        last_offset = base_offset + delta
        producer.batches.append((first, last, base_offset, last_offset, timestamp))
        if header.attributes & TRANSACTIONAL and producer.txn_first_offset < 0:
            producer.txn_first_offset = base_offset
            self._open[producer_id] = base_offset
        self.end_offset = last_offset + 1

    def apply_marker(
        self, header: BatchHeader, marker: ControlMarker | None, offset: int
    ) -> AbortedTxn | None:
        """Updates producer state from a control batch at `offset`; returns the transaction that it
        aborted, if any.

        `marker` is None for a control batch that compaction has emptied: only its epoch counts.
        """
        producer_id = header.producer_id
        producer = self.by_id.get(producer_id) or self._add(producer_id)
        first_offset = self._open.pop(producer_id, NO_OFFSET)
        if header.producer_epoch != producer.epoch:
            producer.batches.clear()
            producer.epoch = header.producer_epoch
        producer.timestamp = header.max_timestamp
        producer.txn_first_offset = NO_OFFSET
        self.end_offset = offset + header.last_offset_delta + 1
        if marker is not None:
            producer.coordinator_epoch = marker.coordinator_epoch
        if first_offset < 0:
            return None
        self._undurable.append((first_offset, offset))
        if marker is None or marker.committed:
            return None
        stable = next(iter(self._open.values()), offset + 1)
        return AbortedTxn(producer_id, first_offset, offset, stable)

    # Transactions.

    @property
    def first_open_offset(self) -> int:
        """First offset of the oldest open transaction, or NO_OFFSET."""
        return next(iter(self._open.values()), NO_OFFSET)

    def first_unstable_offset(self, high_watermark: int) -> int:
        """First offset of a transaction that is not decided below `high_watermark`, or NO_OFFSET.

        An ended transaction counts until its marker is below the high watermark, because until
        then a new leader may not know that it ended.
        """
        if not self._open and not self._undurable:
            return NO_OFFSET
        if self._undurable:
            self._undurable = [txn for txn in self._undurable if txn[1] >= high_watermark]
        first = self.first_open_offset
        for offset, _ in self._undurable:
            if first < 0 or offset < first:
                first = offset
        return first

    # Bounds.

    def expire(self, now_ms: int) -> None:
        """Removes the producers that have been idle for `expiration_ms`."""
        for producer_id in [
            producer_id
            for producer_id, producer in self.by_id.items()
            if producer.txn_first_offset < 0 and now_ms - producer.timestamp >= self.expiration_ms
        ]:
            del self.by_id[producer_id]

    def _add(self, producer_id: int) -> ProducerState:
        if len(self.by_id) >= PRODUCERS_MAX:
            self._evict()
        producer = self.by_id[producer_id] = ProducerState()
        return producer

    def _evict(self) -> None:
        idle = [
            (producer.timestamp, producer_id)
            for producer_id, producer in self.by_id.items()
            if producer.txn_first_offset < 0
        ]
        idle.sort()
        for _, producer_id in idle[: PRODUCERS_MAX // 16]:
            del self.by_id[producer_id]

    # Snapshots.

    def encode(self) -> bytes:
        rows = [
            (
                producer_id,
                producer.epoch,
                producer.coordinator_epoch,
                producer.timestamp,
                producer.txn_first_offset,
                list(producer.batches),
            )
            for producer_id, producer in self.by_id.items()
        ]
        return msgspec.msgpack.encode((self.end_offset, rows))


_ROW = tuple[int, int, int, int, int, list[Batch]]


def decode(body: bytes, expiration_ms: int) -> Producers | None:
    """Decodes a snapshot; None when the body is not one."""
    try:
        end_offset, rows = msgspec.msgpack.decode(body, type=tuple[int, list[_ROW]])
    except msgspec.MsgspecError:
        return None
    found = Producers(expiration_ms)
    found.end_offset = end_offset
    for producer_id, epoch, coordinator_epoch, timestamp, txn_first_offset, batches in rows:
        producer = found.by_id[producer_id] = ProducerState()
        producer.epoch = epoch
        producer.coordinator_epoch = coordinator_epoch
        producer.timestamp = timestamp
        producer.txn_first_offset = txn_first_offset
        producer.batches.extend(batches)
    open_txns = [(row[4], row[0]) for row in rows if row[4] >= 0]
    found._open = {producer_id: first for first, producer_id in sorted(open_txns)}
    return found


def _repeated(header: BatchHeader, producer: ProducerState) -> Batch:
    """Finds the original of a retried batch; refuses when it is not among the last ones."""
    first = header.base_sequence
    last = first + header.last_offset_delta
    if last > SEQUENCE_MAX:
        last -= SEQUENCE_MAX + 1
    for batch in producer.batches:
        if batch[0] == first and batch[1] == last:
            return batch
    raise _out_of_order(header, f"the last sequence was {producer.batches[-1][1]}")


def _stale_epoch(header: BatchHeader, producer: ProducerState) -> Refused:
    return Refused(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {header.producer_epoch} of producer {header.producer_id} is older than "
        f"{producer.epoch}",
    )


def _out_of_order(header: BatchHeader, why: str) -> Refused:
    return Refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {header.base_sequence} of producer {header.producer_id}, "
        f"epoch {header.producer_epoch}: {why}",
    )
