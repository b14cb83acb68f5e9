"""Stands for the active segment's file of a log whose files are gone.

An offline log has a segment like any other, but nothing may be created where its directory was:
the next start has to find it missing, too.
"""

import errno
import os
from collections.abc import Sequence

from penstock.base.ports import Buffer


class AbsentFile:
    """An empty file that cannot be written. See `penstock.base.ports.File`."""

    def __init__(self, path: str) -> None:
        self.path = path

    def size(self) -> int:
        return 0

    def append(self, buffers: Sequence[Buffer]) -> int:
        raise self._error()

    def read(self, position: int, size: int) -> bytes:
        return b""

    def read_cached(self, position: int, size: int) -> bytes | None:
        return b""

    def is_at_hand(self, position: int, size: int) -> bool:
        return False

    def send_to(self, descriptor: int, position: int, size: int) -> int | None:
        return None

    def truncate(self, size: int) -> None:
        raise self._error()

    def rewrite(self, position: int, data: Buffer) -> None:
        raise self._error()

    def erase(self) -> None:
        raise self._error()

    def sync(self) -> None:
        raise self._error()

    def close(self) -> None:
        pass

    def _error(self) -> OSError:
        return OSError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
