"""Lock that allows one process per data directory, enforced by the operating system.

The lock ends with the process, however that ends, so there is no stale lock to clean up.
"""

import contextlib
import fcntl
import os


class InUse(Exception):
    """Another process holds the directory."""


class Unusable(Exception):
    """The directory cannot be created, or is not a directory."""


class DirectoryLock:
    """Exclusive lock on a directory, held until `release` or the end of the process."""

    def __init__(self, directory: str) -> None:
        try:
            _make_durably(directory)
            self._fd = os.open(f"{directory}/lock", os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as error:
            raise Unusable(
                f"cannot use data directory {directory}: {error.strerror}; choose another --data "
                "directory"
            ) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._fd, 32).decode(errors="replace").strip()
            os.close(self._fd)
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise InUse(
                f"{directory} is in use by {who}; stop it, or choose another --data directory"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._fd)


def _make_durably(directory: str) -> None:
    """Creates the directory, for its owner only, and its parents. They survive a power cut."""
    path, made = os.path.abspath(directory), []
    while not os.path.isdir(path):
        made.append(path)
        path = os.path.dirname(path)
    os.makedirs(os.path.dirname(os.path.abspath(directory)), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    for path in reversed(made):
        fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
