"""What compaction keeps of a batch (Kafka's log cleaner; KIP-98, KIP-534).

Pure decisions over batches that were read and checked elsewhere:

- Of every key the record with the highest offset stays; offsets never change, batches keep their
  first and last offset, producer and sequence. Records without a key go.
- A tombstone stays until `delete_retention_ms` after the first compaction that saw it as the
  newest of its key. That moment, the delete horizon, is written into the batch.
- Records of aborted transactions go. A marker stays while records of its transaction do, and then
  as long as a tombstone.
- A producer's last batch stays, if need be without records: it has the sequence that tells a retry
  from a new batch. So does the last batch of a segment: it says where the segment ends.
- Records above the map's end are not judged: they stay.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

from penstock.base.errors import Refused
from penstock.log.index_files import AbortedTxn
from penstock.wire.control_batches import decode_marker
from penstock.wire.records import (
    CONTROL,
    DELETE_HORIZON,
    TRANSACTIONAL,
    BatchHeader,
    Column,
    Record,
    codec_of,
    decode,
    encode,
)

KEYS_MAX = 500_000
DIGEST_BYTES = 16


def fingerprint(key: bytes) -> bytes:
    """The key itself when short, else a digest of it that nobody can make collide.

    Sixteen bytes are always a digest, so the two kinds are never mistaken for each other.
    """
    return key if len(key) < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()


class OffsetMap:
    """The newest offset of each key in the dirty part of a log, up to `end_offset`."""

    __slots__ = ("_newest", "end_offset", "is_full", "keys_max")

    def __init__(self, start_offset: int, keys_max: int = KEYS_MAX) -> None:
        self._newest: dict[bytes, int] = {}
        self.end_offset = start_offset
        self.keys_max = keys_max
        self.is_full = False

    def __len__(self) -> int:
        return len(self._newest)

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        """Takes in a batch, or finds that there is no room for its keys."""
        if self._newest and len(self._newest) + header.count > self.keys_max:
            self.is_full = True
            return
        if header.count:
            try:
                columns = decode(batch, columns=Column.OFFSETS | Column.KEYS)
            except Refused:
                # Intact, and still no records: whoever sent it wrote nonsense. It has no keys.
                self.skip(header)
                return
            newest = self._newest
            for at, offset in enumerate(columns.offsets):
                key = columns.key(at)
                if key is not None:
                    newest[fingerprint(key)] = offset
        self.end_offset = header.next_offset

    def skip(self, header: BatchHeader) -> None:
        """Passes a batch whose records do not count: a marker, or aborted."""
        self.end_offset = header.next_offset

    def is_newest(self, key: bytes, offset: int) -> bool:
        return offset >= self._newest.get(fingerprint(key), -1)


class Transactions:
    """Which batches of a walk through the log belong to aborted transactions."""

    __slots__ = ("_aborting", "_committing", "_upcoming", "kept")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._upcoming = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._aborting: dict[int, tuple[AbortedTxn, bool]] = {}
        """By producer: its aborted transaction, and whether a batch of it was seen."""
        self._committing: set[int] = set()
        self.kept: list[AbortedTxn] = []
        """Those whose marker is still needed."""

    def is_aborted(self, header: BatchHeader) -> bool:
        self._advance(header.last_offset)
        if not header.attributes & TRANSACTIONAL:
            return False
        found = self._aborting.get(header.producer_id)
        if found is None:
            self._committing.add(header.producer_id)
            return False
        self._aborting[header.producer_id] = (found[0], True)
        return True

    def is_spent(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether nothing is left of the transaction that this marker ended."""
        self._advance(header.last_offset)
        if header.count == 0:
            return True
        marker = decode_marker(batch)
        if marker is None:
            return False
        if marker.committed:
            seen = header.producer_id in self._committing
            self._committing.discard(header.producer_id)
            return not seen
        txn, seen = self._aborting.pop(header.producer_id, (None, False))
        if txn is not None and seen:
            self.kept.append(txn)
        return not seen

    def _advance(self, offset: int) -> None:
        while self._upcoming and self._upcoming[-1].first_offset <= offset:
            txn = self._upcoming.pop()
            self._aborting.setdefault(txn.producer_id, (txn, False))


@dataclass(slots=True)
class Cleaner:
    """Decides what becomes of each batch, in offset order."""

    newest: OffsetMap
    transactions: Transactions
    last_offsets: dict[int, int]
    """By producer that is still known: the last offset of its last data batch."""
    marker_epochs: dict[int, int]
    """By producer of whom only a marker is known: the epoch of that."""
    delete_retention_ms: int
    now_ms: int
    records_seen: int = field(default=0)
    records_kept: int = field(default=0)

    def clean(self, header: BatchHeader, batch: memoryview, *, is_last: bool) -> bytes | None:
        """What stays of the batch: itself, a smaller one, or nothing."""
        self.records_seen += header.count
        attributes = header.attributes
        horizon_ms = header.base_timestamp if attributes & DELETE_HORIZON else None
        expired = horizon_ms is not None and horizon_ms <= self.now_ms
        must_stay = is_last or self._is_last_of_producer(header)
        if attributes & CONTROL:
            spent = self.transactions.is_spent(header, batch)
            if spent and (expired or not header.count):
                return _emptied(header) if must_stay else None
            self.records_kept += header.count
            if spent and horizon_ms is None:
                return self._rewritten(header, list(decode(batch)))
            return bytes(batch)
        if self.transactions.is_aborted(header):
            return _emptied(header) if must_stay else None
        if header.base_offset >= self.newest.end_offset:
            self.records_kept += header.count
            return bytes(batch)
        return self._filtered(header, batch, horizon_ms, expired, must_stay)

    def _filtered(
        self,
        header: BatchHeader,
        batch: memoryview,
        horizon_ms: int | None,
        expired: bool,
        must_stay: bool,
    ) -> bytes | None:
        try:
            records = decode(batch)
        except Refused:
            self.records_kept += header.count
            return bytes(batch)  # Nonsense, which is nobody's to judge: see `OffsetMap.add`.
        kept = [
            record
            for record in records
            if record.key is not None
            and self.newest.is_newest(record.key, record.offset)
            and not (record.value is None and expired)
        ]
        self.records_kept += len(kept)
        if not kept:
            return _emptied(header) if must_stay else None
        needs_horizon = horizon_ms is None and any(record.value is None for record in kept)
        if len(kept) == header.count and not needs_horizon:
            return bytes(batch)
        if needs_horizon or horizon_ms is not None:
            return self._rewritten(header, kept)
        return _encoded(header, kept, header.attributes, None)

    def _rewritten(self, header: BatchHeader, records: list[Record]) -> bytes:
        """The batch with its delete horizon: the one it has, or a new one."""
        horizon_ms = self.now_ms + self.delete_retention_ms
        if header.attributes & DELETE_HORIZON:
            horizon_ms = header.base_timestamp
        return _encoded(header, records, header.attributes | DELETE_HORIZON, horizon_ms)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        producer_id = header.producer_id
        if producer_id < 0:
            return False
        if header.attributes & CONTROL:
            return self.marker_epochs.get(producer_id) == header.producer_epoch
        return self.last_offsets.get(producer_id) == header.last_offset


def _emptied(header: BatchHeader) -> bytes:
    attributes = header.attributes & ~DELETE_HORIZON
    return _encoded(header, [], attributes, None)


def _encoded(
    header: BatchHeader, records: list[Record], attributes: int, base_timestamp: int | None
) -> bytes:
    return bytes(
        encode(
            records,
            base_offset=header.base_offset,
            codec=codec_of(attributes),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            attributes=attributes,
            leader_epoch=header.leader_epoch,
            keep_offsets=True,
            last_offset=header.last_offset,
            base_timestamp=base_timestamp,
            max_timestamp=None if records else header.max_timestamp,
        )
    )
