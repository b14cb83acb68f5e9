"""What an interrupted process left in a log directory, and what becomes of it at the next start.

- `.tmp`, `.cleaned`, `.replaced`: never finished, or replaced by compaction. Removed.
- `.deleted`: retired by retention. Removed. (`recovery` sees to those not yet renamed.)
- Caches without their segment: a flush wrote them when it had just been retired. Removed.
- `.swap`: compaction had finished and synced its work, and was about to put it in place. The
  segments it replaces are removed and it takes its name, as would have happened. Doing so again
  after another interruption is harmless.
"""

from penstock.base.ports import Disk
from penstock.log import files
from penstock.log.segment import Segment

REMOVED = (files.TEMPORARY, files.DELETED, files.CLEANED, files.REPLACED)


def tidy(disk: Disk, path: str, names: list[str]) -> list[str]:
    """The names that are left. Blocks, and is durable when something was changed."""
    swaps = [name for name in names if name.endswith(files.LOG + files.SWAP)]
    doomed = [name for name in names if name.endswith(REMOVED)]
    bases = files.offsets_in(names, files.LOG)
    for suffix in files.CACHES:
        orphans = [offset for offset in files.offsets_in(names, suffix) if offset not in bases]
        doomed += [files.file_name(offset, suffix) for offset in orphans]
    if not swaps and not doomed:
        return names
    for name in doomed:
        files.remove(disk, files.join(path, name))
    for name in swaps:
        _finish_swap(disk, path, name)
    disk.sync_dir(path)
    return disk.listdir(path)


def _finish_swap(disk: Disk, path: str, name: str) -> None:
    final = name[: -len(files.SWAP)]
    base_offset = files.offset_in(final, files.LOG)
    if base_offset is None:
        return
    swap_path = files.join(path, name)
    segment = Segment(disk, path, base_offset, disk.open(swap_path), 0)  # Only its headers.
    end_offset = base_offset
    for _, header in segment.headers():
        end_offset = header.next_offset
    segment.file.close()
    for other in disk.listdir(path):
        for suffix in (*files.CACHES, files.LOG):
            offset = files.offset_in(other, suffix)
            if offset is not None and base_offset <= offset < max(end_offset, base_offset + 1):
                files.remove(disk, files.join(path, other))
    disk.sync_dir(path)  # Never are an old and a new segment with the same offsets both there.
    disk.rename(swap_path, files.join(path, final))
