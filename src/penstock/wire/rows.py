"""Conversion between record batches and Arrow columns, without an object per record.

`Collector` joins decoded batches into Arrow's buffers (the Spark source). `key_partitions`,
`group_rows` and `encode_batch` encode Arrow columns as batches (the Spark sink). The batches equal
those of `records.encode` for the same records, without headers; rows with headers go through
`records.encode`.
"""

from array import array

from penstock.wire._rows_py import Cells, Column, murmur2
from penstock.wire.records import BATCH_OVERHEAD, Codec, seal

try:
    from penstock.wire._rows import Collector, encode_rows, group_rows, key_partitions
except ImportError:
    from penstock.wire._rows_py import Collector, encode_rows, group_rows, key_partitions

__all__ = [
    "Cells",
    "Collector",
    "Column",
    "encode_batch",
    "group_rows",
    "key_partitions",
    "murmur2",
]


def encode_batch(
    rows: "array[int]",
    first: int,
    last: int,
    *,
    keys: Column | None,
    values: Column,
    timestamps: "array[int] | None",
    timestamp: int,
    bytes_max: int,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> tuple[bytearray, int]:
    """Encodes one batch of rows[first:last], or of as many as fit `bytes_max`; returns the row
    after the last one, too."""
    batch, stopped = encode_rows(
        rows, first, last, keys, values, timestamps, timestamp, BATCH_OVERHEAD, bytes_max
    )
    times = [timestamp] if timestamps is None else [timestamps[row] for row in rows[first:stopped]]
    sealed = seal(
        batch,
        count=stopped - first,
        codec=codec,
        base_timestamp=times[0],
        max_timestamp=max(times),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )
    return sealed, stopped
