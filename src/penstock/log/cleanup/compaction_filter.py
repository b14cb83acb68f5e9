"""Filter of compaction: the part of a batch that is kept (Kafka's log cleaner; KIP-98, KIP-534).

Pure decisions over batches that were read and checked elsewhere:

- Of every key the record with the highest offset is kept; offsets never change, batches keep their
  first and last offset, producer and sequence. Records without a key are removed.
- A tombstone is kept until `delete_retention_ms` after the first compaction that saw it as the
  newest of its key. That time, the delete horizon, is written into the batch.
- Records of aborted transactions are removed. A marker is kept while records of its transaction
  are, and then as long as a tombstone.
- A producer's last batch is kept, if necessary without records: its sequence tells a retry from a
  new batch. So is the last batch of a segment: it marks the end of the segment.
- Records above the end of the offset map are kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass
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
    """The key itself when short, else a collision-resistant digest of it.

    Sixteen bytes are always a digest, so the two kinds cannot be confused.
    """
    return key if len(key) < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()


class OffsetMap:
    """Newest offset of each key in the dirty part of a log, up to `end_offset`."""

    __slots__ = ("_newest", "end_offset", "is_full", "keys_max")

    def __init__(self, start_offset: int, keys_max: int = KEYS_MAX) -> None:
        self._newest: dict[bytes, int] = {}
        self.end_offset = start_offset
        self.keys_max = keys_max
        self.is_full = False

    def __len__(self) -> int:
        return len(self._newest)

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        """Adds the keys of a batch, or sets `is_full` if they exceed `keys_max`."""
        if self._newest and len(self._newest) + header.count > self.keys_max:
            self.is_full = True
            return
        if header.count:
            try:
                columns = decode(batch, columns=Column.OFFSETS | Column.KEYS)
            except Refused:
                # An intact batch whose records do not decode: its producer sent it so. No keys.
                self.skip(header)
                return
            newest = self._newest
            for at, offset in enumerate(columns.offsets):
                key = columns.key(at)
                if key is not None:
                    newest[fingerprint(key)] = offset
        self.end_offset = header.next_offset

    def skip(self, header: BatchHeader) -> None:
        """Skips a batch whose records do not count: a marker, or an aborted batch."""
        self.end_offset = header.next_offset

    def is_newest(self, key: bytes, offset: int) -> bool:
        return offset >= self._newest.get(fingerprint(key), -1)


class Transactions:
    """Aborted transactions during a pass through the log in offset order."""

    __slots__ = ("_aborting", "_committing", "_upcoming", "kept")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._upcoming = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._aborting: dict[int, tuple[AbortedTxn, bool]] = {}
        """Producer id -> its aborted transaction, and True once a batch of it was seen."""
        self._committing: set[int] = set()
        self.kept: list[AbortedTxn] = []
        """Aborted transactions whose marker is still needed."""

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
        """True if no batch is left of the transaction that this marker ended."""
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
    """Decides for each batch, in offset order, which part of it is kept."""

    newest: OffsetMap
    transactions: Transactions
    last_offsets: dict[int, int]
    """Producer id -> last offset of its last data batch, for producers with a known batch."""
    marker_epochs: dict[int, int]
    """Producer id -> epoch of its marker, for producers known only by a marker."""
    delete_retention_ms: int
    now_ms: int

    def clean(self, header: BatchHeader, batch: memoryview, *, is_last: bool) -> bytes | None:
        """Returns the kept part of the batch: all of it, a smaller batch, or None."""
        attributes = header.attributes
        horizon_ms = header.base_timestamp if attributes & DELETE_HORIZON else None
        expired = horizon_ms is not None and horizon_ms <= self.now_ms
        must_stay = is_last or self._is_last_of_producer(header)
        if attributes & CONTROL:
            spent = self.transactions.is_spent(header, batch)
            if spent and (expired or not header.count):
                return _emptied(header) if must_stay else None
            if spent and horizon_ms is None:
                return self._rewritten(header, list(decode(batch)))
            return bytes(batch)
        if self.transactions.is_aborted(header):
            return _emptied(header) if must_stay else None
        if header.base_offset >= self.newest.end_offset:
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
            return bytes(batch)  # Its records do not decode, so it is kept: see `OffsetMap.add`.
        kept = [
            record
            for record in records
            if record.key is not None
            and self.newest.is_newest(record.key, record.offset)
            and not (record.value is None and expired)
        ]
        if not kept:
            return _emptied(header) if must_stay else None
        needs_horizon = horizon_ms is None and any(record.value is None for record in kept)
        if len(kept) == header.count and not needs_horizon:
            return bytes(batch)
        if needs_horizon or horizon_ms is not None:
            return self._rewritten(header, kept)
        return _encoded(header, kept, header.attributes, None)

    def _rewritten(self, header: BatchHeader, records: list[Record]) -> bytes:
        """Encodes the batch with its delete horizon: the existing one, or a new one."""
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
