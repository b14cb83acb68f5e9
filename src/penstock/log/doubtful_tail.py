"""Doubtful tails: bytes that recovery truncates although more than the last write was in them.

A bad batch at the end of a log is a torn write if the process or the machine died during that
write. It is damage if the disk changed bytes that had been synced. Above the known end
(`recovery`) the node cannot always tell one from the other, and truncates in both cases. The tail
is doubtful if the bad batch is complete, or if an intact batch or another segment follows. A power
cut may leave that as well, because pages reach the disk in any order; a write that ends with the
file does not.

A replica with a doubtful tail may lack committed records that the other replicas have. So it
leaves ISR and ELR before its node registers, as long as another member is left (`unclean_restart`,
ADR 0031). A file in the log's directory records the doubt before anything is truncated, and is
removed after that, so that a crash in between forgets nothing.

Not detected: a changed length in the last batch of all, which looks like a write that was cut off.
"""

import struct
from collections.abc import Iterable, Sequence

from penstock.base.errors import Refused
from penstock.base.ports import Disk
from penstock.log import files
from penstock.log.segment import Segment
from penstock.wire.records import BATCH_OVERHEAD, LENGTH_OVERHEAD, MAGIC, check_stored, read_header

NAME = "doubtful-tail"
EPOCH_AT = 12
"""Position of leader epoch and magic in a batch."""
SEARCH_BYTES = 16 * 1024 * 1024
"""Bytes of the tail in which an intact batch is looked for."""
CANDIDATES_MAX = 1_000
"""Positions whose checksum is computed. Payloads may imitate headers: a tail with more of them is
doubtful, rather than recovery taking minutes."""
EPOCHS = 8
"""Number of leader epochs, from that of the batch before, of which one is looked for."""


def is_doubtful(segments: Sequence[Segment], position: int, epoch: int) -> bool:
    """True if the tail is doubtful that begins at `position` in the first of these segments.

    `epoch`: leader epoch of the batch before. Reads the tail; blocks.
    """
    if any(segment.size for segment in segments[1:]):
        return True
    segment = segments[0]
    tail = segment.file.read(position, min(segment.size - position, SEARCH_BYTES))
    view = memoryview(tail)
    if len(view) < BATCH_OVERHEAD or not any(tail):
        return False
    header = read_header(view)
    if BATCH_OVERHEAD <= LENGTH_OVERHEAD + header.length <= segment.size - position:
        return True
    first = max(epoch, 0)
    epochs = {header.leader_epoch, *range(first, first + EPOCHS)}
    return any(_has_batch(tail, view, one) for one in sorted(epochs))


def _has_batch(tail: bytes | bytearray, view: memoryview, epoch: int) -> bool:
    """True if an intact batch of this epoch begins somewhere in the tail."""
    pattern = struct.pack(">iB", epoch, MAGIC)
    at, candidates = tail.find(pattern), 0
    while at >= 0:
        candidates += 1
        if candidates > CANDIDATES_MAX:
            return True
        start = at - EPOCH_AT
        if start >= 0 and start + BATCH_OVERHEAD <= len(view):
            size = LENGTH_OVERHEAD + read_header(view, start).length
            try:
                check_stored(view[start : start + max(size, 0)])
            except Refused:
                pass
            else:
                return True
        at = tail.find(pattern, at + 1)
    return False


def note(disk: Disk, path: str) -> None:
    """Records that the tail of the log in directory `path` is doubtful. Durable when it returns."""
    files.write_durably(disk, files.join(path, NAME), b"")


def is_noted(disk: Disk, path: str) -> bool:
    return disk.exists(files.join(path, NAME))


def settle(disk: Disk, paths: Iterable[str]) -> None:
    """Removes the notes, once the replicas have left ISR and ELR or need not. Blocks."""
    for path in paths:
        files.remove(disk, files.join(path, NAME))
