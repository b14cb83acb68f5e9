"""File access of this machine's users, by the modes of a file and its directories.

Only modes are checked. Users that cannot enter a directory cannot read a file in it.
"""

import os
import stat
from enum import IntEnum
from pathlib import Path


class Readers(IntEnum):
    """Users with access; each level includes those before it."""

    OWNER = 0
    GROUP = 1
    EVERY_USER = 2


def readers_of(path: str, within: str = "/") -> Readers:
    """Users with access to the file. Raises OSError without such a file.

    `within` is a directory that all users may enter.
    """
    real = Path(os.path.realpath(path))
    found = _allowed(real, stat.S_IRGRP | stat.S_IWGRP, stat.S_IROTH | stat.S_IWOTH)
    for directory in real.parents:
        if found is Readers.OWNER or directory == Path(within):
            break
        found = min(found, _allowed(directory, stat.S_IXGRP, stat.S_IXOTH))
    return found


def _allowed(path: Path, group: int, other: int) -> Readers:
    mode = path.stat().st_mode
    if mode & other:
        return Readers.EVERY_USER
    return Readers.GROUP if mode & group else Readers.OWNER
