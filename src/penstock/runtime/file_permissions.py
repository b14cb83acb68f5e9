"""Users of this machine that may read or write a file, by its mode and its directories' modes.

Only modes are looked at. A file in a directory that others cannot enter is not theirs to read.
"""

import os
import stat
from enum import IntEnum
from pathlib import Path


class Readers(IntEnum):
    """Users that have access; each level beside those before."""

    OWNER = 0
    GROUP = 1
    EVERYBODY = 2


def readers_of(path: str, within: str = "/") -> Readers:
    """Raises OSError where there is no such file. `within`: a directory that everybody enters."""
    real = Path(os.path.realpath(path))
    found = _allowed(real, stat.S_IRGRP | stat.S_IWGRP, stat.S_IROTH | stat.S_IWOTH)
    for directory in real.parents:
        if found is Readers.OWNER or directory == Path(within):
            break
        found = min(found, _allowed(directory, stat.S_IXGRP, stat.S_IXOTH))
    return found


def _allowed(path: Path, group: int, everybody: int) -> Readers:
    mode = path.stat().st_mode
    if mode & everybody:
        return Readers.EVERYBODY
    return Readers.GROUP if mode & group else Readers.OWNER
