"""Control batches: the markers that end a transaction on one partition (KIP-98).

A marker is a batch of one record with the control bit set. Its key is a version and a type, its
value a version and the epoch of the transaction coordinator that wrote it. The log tracks the
offsets that a marker commits or aborts.
"""

import struct
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode, Refused
from penstock.wire.records import CONTROL, Record, decode, encode

_MARKER_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")
_ABORT: Final = 0
_COMMIT: Final = 1


class ControlMarker(NamedTuple):
    """Record of a control batch: commit or abort of a transaction on this partition."""

    committed: bool
    coordinator_epoch: int


def encode_marker(
    *,
    committed: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Encodes the control batch that ends a transaction on one partition (KIP-98)."""
    key = _MARKER_KEY.pack(0, _COMMIT if committed else _ABORT)
    value = _MARKER_VALUE.pack(0, coordinator_epoch)
    return encode(
        [Record(base_offset, timestamp, key, value)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        attributes=CONTROL,
        leader_epoch=leader_epoch,
    )


def decode_marker(batch: memoryview) -> ControlMarker | None:
    """Decodes a control batch; None for control records that are not transaction markers."""
    columns = decode(batch)
    key = columns.key(0) if len(columns) else None
    value = columns.value(0) if len(columns) else None
    if key is None or len(key) < _MARKER_KEY.size:
        raise Refused(ErrorCode.INVALID_RECORD, "the control batch has no control record")
    _, kind = _MARKER_KEY.unpack_from(key)
    if kind not in (_ABORT, _COMMIT):
        return None
    if value is None or len(value) < _MARKER_VALUE.size:
        raise Refused(ErrorCode.INVALID_RECORD, "the transaction marker has no value")
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
    return ControlMarker(kind == _COMMIT, coordinator_epoch)
