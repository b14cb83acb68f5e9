"""Record batches, magic 2: the unit of work of the broker (KIP-98, KIP-82).

On the produce and fetch path only the 61-byte batch header is read: `check_batch` once per
produced batch, `stamp` before the append, `batches` to walk a buffer. Where the content matters,
`decode` reads a batch column by column and `encode` writes one.

Invariants: `check_batch` accepts only a batch that a client may append; base offset and leader
epoch lie outside the checksum, so stamping them costs nothing; a decoded payload never exceeds
`bytes_max`, however small it was on the wire. `decode` does not verify the checksum: the caller
that received the bytes does, with `check_batch` or `check_stored`. The log checks offsets, epochs,
sequences and timestamp bounds. `penstock.wire.control_batches` decodes control batches.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Final

import crc32c

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Buffer
from penstock.wire._records_py import INT32_MAX, INT64_MAX, TIMESTAMPS, PlainRecord
from penstock.wire.columns import ALL, LENGTH_OVERHEAD, BatchHeader, Column, Columns, Record
from penstock.wire.compression import CODEC_MAX, Codec, compress, decompress

try:
    from penstock.wire._records import decode as _decode_records
    from penstock.wire._records import encode as _encode_records
except ImportError:
    from penstock.wire._records_py import decode as _decode_records
    from penstock.wire._records_py import encode as _encode_records

__all__ = [
    "ACCELERATED",
    "ALL",
    "APPEND_TIME",
    "ATTRIBUTES_AT",
    "BATCH_OVERHEAD",
    "CONTROL",
    "CRC_AT",
    "DECODED_BYTES_MAX",
    "DELETE_HORIZON",
    "ENCRYPTED",
    "LENGTH_OVERHEAD",
    "TRANSACTIONAL",
    "BatchHeader",
    "Codec",
    "Column",
    "Columns",
    "Record",
    "batches",
    "check_batch",
    "check_intact",
    "check_stored",
    "codec_of",
    "decode",
    "encode",
    "is_append_time",
    "is_compressed",
    "is_control",
    "is_transactional",
    "read_header",
    "seal",
    "stamp",
    "stamp_append_time",
    "unpacked",
]

# True while compiled code decodes and encodes records; a node logs it at the start.
ACCELERATED: Final = not isinstance(_decode_records, FunctionType)

BATCH_OVERHEAD: Final = 61
MAGIC: Final = 2
CODEC_MASK: Final = 0x07
APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
# Only in stored batches: the records are encrypted (`penstock.log.encryption.log_encryption`).
ENCRYPTED: Final = 0x4000
# Bits that only a broker may set.
BROKER_BITS: Final = APPEND_TIME | CONTROL | DELETE_HORIZON | ENCRYPTED
ATTRIBUTES_AT: Final = 21
CRC_AT: Final = 17
_MAX_TIMESTAMP_AT: Final = 35
_EPOCH_AT: Final = 12
_LENGTH_AT: Final = 8

# Memory limit of one decoded batch (Kafka's max.decompressed.message.bytes).
DECODED_BYTES_MAX: Final = 64 << 20

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_OFFSET: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT16: Final = struct.Struct(">h")
assert _HEADER.size == BATCH_OVERHEAD
# The constructor of a named tuple is a Python function, and takes a fifth of the time of a check.
_new_header: Final = tuple.__new__


def codec_of(attributes: int) -> int:
    return attributes & CODEC_MASK


def is_append_time(attributes: int) -> bool:
    return attributes & APPEND_TIME != 0


def is_transactional(attributes: int) -> bool:
    return attributes & TRANSACTIONAL != 0


def is_control(attributes: int) -> bool:
    return attributes & CONTROL != 0


def read_header(view: Buffer, position: int = 0) -> BatchHeader:
    """Reads the header unchecked. Needs 61 bytes from `position` on."""
    return _new_header(BatchHeader, _HEADER.unpack_from(view, position))


def age_seconds(view: Buffer, now_ms: int) -> float:
    """Age of the newest record of the batch by its header; 0 without a timestamp.

    Needs a whole header.
    """
    (newest_ms,) = _OFFSET.unpack_from(view, _MAX_TIMESTAMP_AT)
    return max(0, now_ms - newest_ms) / 1000 if newest_ms >= 0 else 0.0


def check_batch(view: memoryview) -> BatchHeader:
    """Accepts exactly one batch that a client may append; otherwise refuses with Kafka's code.

    It runs once per produced batch, so the valid case is one comparison chain; only a failure
    looks for the check that failed.
    """
    if len(view) < BATCH_OVERHEAD:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"a batch of {len(view)} bytes is too short for its header of {BATCH_OVERHEAD}",
        )
    header = _new_header(BatchHeader, _HEADER.unpack_from(view))
    _, length, _, magic, crc, attributes, last_delta, _, _, producer, _, sequence, count = header
    if (
        magic == MAGIC
        and length == len(view) - LENGTH_OVERHEAD
        and 0 < count == last_delta + 1
        and not attributes & BROKER_BITS
        and attributes & CODEC_MASK <= CODEC_MAX
        and (sequence >= 0 or producer < 0)
        and crc32c.crc32c(view[ATTRIBUTES_AT:]) == crc
    ):
        return header
    _require_one(view, header)
    _require_intact(view, header)
    raise _why_refused(header)


def check_stored(view: memoryview) -> BatchHeader:
    """Accepts exactly one intact batch in the stored form: including control batches, gaps from
    compaction and append times. For replication, recovery and reads."""
    if len(view) < BATCH_OVERHEAD:
        raise Refused(
            ErrorCode.CORRUPT_MESSAGE,
            f"a batch of {len(view)} bytes is too short for its header of {BATCH_OVERHEAD}",
        )
    header = _new_header(BatchHeader, _HEADER.unpack_from(view))
    check_intact(view, header)
    return header


def check_intact(view: memoryview, header: BatchHeader) -> None:
    """Like `check_stored`, for a batch whose header has been read."""
    if (
        header.magic == MAGIC
        and header.length == len(view) - LENGTH_OVERHEAD
        and 0 <= header.count <= header.last_offset_delta + 1
        and header.attributes & CODEC_MASK <= CODEC_MAX
        and crc32c.crc32c(view[ATTRIBUTES_AT:]) == header.crc
    ):
        return
    _require_intact(view, header)
    if not 0 <= header.count <= header.last_offset_delta + 1:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"{header.count} records over {header.last_offset_delta + 1} offsets",
        )
    _require_codec(header)


def stamp(view: memoryview | bytearray, base_offset: int, leader_epoch: int) -> None:
    """Writes base offset and leader epoch into a batch; the checksum covers neither field."""
    _OFFSET.pack_into(view, 0, base_offset)
    _INT32.pack_into(view, _EPOCH_AT, leader_epoch)


def stamp_append_time(view: memoryview, now_ms: int) -> None:
    """Sets `now_ms` as the timestamp of every record of the one batch in `view`."""
    (attributes,) = _INT16.unpack_from(view, ATTRIBUTES_AT)
    _INT16.pack_into(view, ATTRIBUTES_AT, attributes | APPEND_TIME)
    _OFFSET.pack_into(view, _MAX_TIMESTAMP_AT, now_ms)
    _UINT32.pack_into(view, CRC_AT, crc32c.crc32c(view[ATTRIBUTES_AT:]))


def batches(view: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch; a partial one at the end is left out.

    An impossible length, or another magic, is refused: the batches after it cannot be located.
    """
    position = 0
    end = len(view)
    while position + BATCH_OVERHEAD <= end:
        header = _new_header(BatchHeader, _HEADER.unpack_from(view, position))
        if header.length < BATCH_OVERHEAD - LENGTH_OVERHEAD or header.magic != MAGIC:
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"no valid batch at position {position}")
        following = position + LENGTH_OVERHEAD + header.length
        if following > end:
            return
        yield position, header
        position = following


def is_compressed(view: memoryview) -> bool:
    """True if a whole batch in `view` is compressed.

    Its decompressed size is unknown, so code on an event loop decompresses it in a worker.
    """
    return any(header.attributes & CODEC_MASK for _, header in batches(view))


def decode(
    batch: memoryview, *, bytes_max: int = DECODED_BYTES_MAX, columns: Column = ALL
) -> Columns:
    """Decodes the records of the batch at the start of `batch`, as columns.

    Refuses with CORRUPT_MESSAGE bytes that are not a batch or do not decompress, with
    MESSAGE_TOO_LARGE a batch that exceeds `bytes_max`, with INVALID_RECORD an invalid record.
    """
    if len(batch) < BATCH_OVERHEAD:
        raise Refused(
            ErrorCode.CORRUPT_MESSAGE,
            f"a batch of {len(batch)} bytes is too short for its header of {BATCH_OVERHEAD}",
        )
    header = _new_header(BatchHeader, _HEADER.unpack_from(batch))
    _require_magic(header)
    if not BATCH_OVERHEAD <= header.size_bytes <= len(batch):
        raise Refused(
            ErrorCode.CORRUPT_MESSAGE,
            f"batch length {header.length} does not fit the {len(batch)} bytes that are there",
        )
    _require_codec(header)
    if header.base_offset > INT64_MAX - INT32_MAX:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"base offset {header.base_offset} is above {INT64_MAX - INT32_MAX}",
        )
    payload = batch[BATCH_OVERHEAD : header.size_bytes]
    codec = header.attributes & CODEC_MASK
    # An empty batch, which compaction keeps for its producer's state, has no payload.
    if codec and len(payload):
        payload = memoryview(decompress(codec, payload, bytes_max))
    elif len(payload) > bytes_max:
        raise Refused(ErrorCode.MESSAGE_TOO_LARGE, f"the batch is larger than {bytes_max} bytes")
    append_time = header.attributes & APPEND_TIME
    try:
        spans = _decode_records(
            payload,
            header.count,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
            int(columns) & ~TIMESTAMPS if append_time else int(columns),
        )
    except ValueError as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    decoded = Columns(header, payload, *spans)
    if append_time and columns & Column.TIMESTAMPS:
        decoded.timestamps.extend(array("q", [header.max_timestamp]) * header.count)
    return decoded


def unpacked(batch: memoryview) -> memoryview:
    """Decompresses the batch at the start of `batch`, for internal use: the CRC is not updated.
    Refuses like `decode`."""
    header = read_header(batch)
    _require_codec(header)
    codec = header.attributes & CODEC_MASK
    payload = batch[BATCH_OVERHEAD : header.size_bytes]
    if not codec or not len(payload):
        return batch[: header.size_bytes]
    plain = decompress(codec, payload, DECODED_BYTES_MAX)
    made = bytearray(BATCH_OVERHEAD + len(plain))
    made[:BATCH_OVERHEAD] = batch[:BATCH_OVERHEAD]
    made[BATCH_OVERHEAD:] = plain
    _INT32.pack_into(made, _LENGTH_AT, len(made) - LENGTH_OVERHEAD)
    _INT16.pack_into(made, ATTRIBUTES_AT, header.attributes & ~CODEC_MASK)
    return memoryview(made)


def encode(
    records: Sequence[PlainRecord],
    *,
    base_offset: int = 0,
    codec: int = Codec.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    attributes: int = 0,
    leader_epoch: int = -1,
    keep_offsets: bool = False,
    last_offset: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
) -> bytearray:
    """Encodes `records` as one batch.

    The records get the offsets from `base_offset` on, regardless of `Record.offset`; with
    `keep_offsets` they keep their own, which must increase from `base_offset` on. `last_offset`
    is the batch's last offset where that is not its last record's (compaction); only with it may
    a batch be empty. `attributes` are ORed with the codec and the transactional bit. The two
    timestamps default to those of the first and of the newest record: compaction stores the
    delete horizon in the first (KIP-534) and the age of an empty batch in the second.
    """
    assert records or last_offset is not None, "an empty batch needs its last offset"
    if base_timestamp is None:
        base_timestamp = records[0][1] if records else -1
    if max_timestamp is None:
        max_timestamp = max([record[1] for record in records], default=-1)
    batch: bytearray = _encode_records(
        records, BATCH_OVERHEAD, base_offset, base_timestamp, keep_offsets
    )
    if last_offset is not None:
        last_delta = last_offset - base_offset
    elif keep_offsets:
        last_delta = records[-1][0] - base_offset
    else:
        last_delta = len(records) - 1
    return seal(
        batch,
        count=len(records),
        last_delta=last_delta,
        base_offset=base_offset,
        codec=codec,
        level=level,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        attributes=attributes,
        leader_epoch=leader_epoch,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
    )


def seal(
    batch: bytearray,
    *,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    last_delta: int | None = None,
    base_offset: int = 0,
    codec: int = Codec.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    attributes: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Compresses `count` encoded records and fills in the header, for which `batch` reserves
    space at its start; returns the batch."""
    if codec and count:
        compressed = compress(codec, memoryview(batch)[BATCH_OVERHEAD:], level)
        batch = bytearray(BATCH_OVERHEAD)
        batch += compressed
    _HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LENGTH_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        attributes | codec | (TRANSACTIONAL if transactional else 0),
        count - 1 if last_delta is None else last_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    crc = crc32c.crc32c(memoryview(batch)[ATTRIBUTES_AT:])
    _UINT32.pack_into(batch, CRC_AT, crc)
    return batch


def _require_magic(header: BatchHeader) -> None:
    if header.magic in (0, 1):
        raise Refused(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"message format {header.magic} is not supported, only 2",
        )
    if header.magic != MAGIC:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"unknown magic {header.magic}, only 2 is valid")


def _require_codec(header: BatchHeader) -> None:
    codec = header.attributes & CODEC_MASK
    if codec > CODEC_MAX:
        raise Refused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"unknown codec {codec}, the highest is {CODEC_MAX}",
        )


def _require_intact(view: memoryview, header: BatchHeader) -> None:
    _require_magic(header)
    if header.length != len(view) - LENGTH_OVERHEAD:
        raise Refused(
            ErrorCode.CORRUPT_MESSAGE,
            f"batch length {header.length} does not match the {len(view)} bytes of the batch",
        )
    if crc32c.crc32c(view[ATTRIBUTES_AT:]) != header.crc:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, "the checksum of the batch does not match")


def _require_one(view: memoryview, header: BatchHeader) -> None:
    """Refuses permanent errors with INVALID_RECORD, so that the client does not retry them."""
    if header.magic in (0, 1):
        raise Refused(
            ErrorCode.INVALID_RECORD, f"message format {header.magic} is not supported, only 2"
        )
    length = len(view) - LENGTH_OVERHEAD
    if header.magic == MAGIC and header.length > length:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"batch length {header.length}, but only {length} bytes were sent",
        )
    if header.magic == MAGIC and BATCH_OVERHEAD - LENGTH_OVERHEAD <= header.length < length:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"{length - header.length} bytes after the batch: send one batch per partition",
        )


def _why_refused(header: BatchHeader) -> Refused:
    """Error for an intact batch that breaks a rule for clients (LogValidator in Kafka)."""
    if header.attributes & CODEC_MASK > CODEC_MAX:
        return Refused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"unknown codec {header.attributes & CODEC_MASK}, the highest is {CODEC_MAX}",
        )
    if header.count <= 0 or header.count != header.last_offset_delta + 1:
        return Refused(
            ErrorCode.INVALID_RECORD,
            f"{header.count} records over {header.last_offset_delta + 1} offsets",
        )
    if header.attributes & APPEND_TIME:
        return Refused(ErrorCode.INVALID_TIMESTAMP, "clients may not set the append time")
    if header.attributes & ENCRYPTED:
        return Refused(ErrorCode.INVALID_RECORD, "clients may not set the attribute bit ENCRYPTED")
    if header.attributes & BROKER_BITS:
        return Refused(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    return Refused(
        ErrorCode.INVALID_RECORD,
        f"producer {header.producer_id} sent sequence {header.base_sequence}, below 0",
    )
