"""Real disk: files of the operating system.

Owns only file descriptors. Invariants:

- A `LocalFile` is one inode during its lifetime, like a POSIX descriptor: it follows renames (of
  itself and of the directories above it), and stays readable after it was unlinked or replaced.
- At most `open_files_max` descriptors are kept, opened on first use and closed by the second-chance
  algorithm. A dirty file keeps its descriptor: the kernel reports a failed write-back only to open
  descriptors. So the limit is soft while more files than that are dirty at once.
- A descriptor is closed when the last reference to its `Descriptor` is gone, so a thread in the
  middle of a read can never see its number reused.
- A file whose sync failed stays failed: the kernel marks the lost pages clean, and a second
  fdatasync would succeed without them.

Appends and truncations of one file come from one thread at a time; reads and syncs from any. The
log decides when to sync, and handles errors.
"""

import contextlib
import ctypes
import errno
import os
import threading
import time
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Sequence

from penstock.base.ports import Buffer

BUFFERS_PER_WRITE_MAX = 1024  # IOV_MAX on Linux.

SCRATCH_BYTES = 64 << 10
"""Size limit of cached reads through a scratch buffer per thread: os.preadv fills only writable
buffers, and allocating one for each read costs more than the read."""

PROBE_BYTES = 1024 * 1024
"""Distance between probes of the page cache: pages enter and leave it in runs, so a few probes are
enough; one costs as much as sending twenty pages."""

PROBE_SECONDS = 0.2
"""Validity of a probe's result: the kernel first evicts pages that were not read recently."""

_probe = bytearray(1)
_scratch = threading.local()
_libc = ctypes.CDLL(None, use_errno=True)  # CDLL, not PyDLL: calls release the GIL.


class Descriptor:
    """File descriptor that is closed with its last reference."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)


class LocalFile:
    """File of a `LocalDisk`. Implements `penstock.base.ports.File`."""

    __slots__ = (
        "__weakref__",
        "_descriptor",
        "_device",
        "_disk",
        "_failed",
        "_path",
        "_pinned",
        "_seen",
        "_size",
        "_synced",
        "_used",
        "_writes",
    )

    def __init__(self, disk: "LocalDisk", path: str, size: int) -> None:
        self._disk = disk
        self._path = path
        self._size = size
        self._descriptor: Descriptor | None = None
        self._device = 0
        self._used = False  # Second chance: True once used since the clock hand last passed.
        self._pinned = False  # True once the path leads elsewhere: the descriptor must stay.
        self._failed = False
        self._writes = 0  # Number of changes; equal to _synced when all of them are durable.
        self._synced = 0
        self._seen = (0, 0, 0.0)  # Range found in the page cache, and the end of its validity.

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> int:
        self._writes += 1  # First: a dirty file keeps its descriptor.
        descriptor = self._descriptor or self._disk._descriptor_of(self)
        position = self._size
        total = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        if os.pwritev(descriptor.fd, buffers[:BUFFERS_PER_WRITE_MAX], position) != total:
            self._append_rest(descriptor.fd, b"".join(buffers), position)
        self._size = position + total
        return position

    def _append_rest(self, fd: int, data: bytes, position: int) -> None:
        """Repeats a short write to get its error, and undoes it if that fails."""
        view = memoryview(data)
        try:
            while view:
                count = os.pwrite(fd, view, position + len(data) - len(view))
                if count == 0:
                    raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
                view = view[count:]
        except OSError:
            os.ftruncate(fd, position)
            raise

    def erase(self) -> None:
        self.rewrite(0, bytes(self._size))

    def rewrite(self, position: int, data: Buffer) -> None:
        assert position + len(data) <= self._size, "rewriting never grows a file"
        self._writes += 1
        descriptor = self._descriptor or self._disk._descriptor_of(self)
        view = memoryview(data)
        while view:
            count = os.pwrite(descriptor.fd, view, position)
            position += count
            view = view[count:]

    def read(self, position: int, size: int) -> bytes:
        descriptor = self._descriptor or self._disk._descriptor_of(self)
        self._used = True
        return os.pread(descriptor.fd, size, position)

    def read_cached(self, position: int, size: int) -> bytes | None:
        descriptor = self._descriptor or self._disk._descriptor_of(self)
        self._used = True
        size = min(size, self._size - position)
        if size > SCRATCH_BYTES:
            return self._read_much_cached(position, size)
        if size <= 0:
            return b""
        try:
            scratch = _scratch.view[:size]
        except AttributeError:  # First read of this thread.
            _scratch.view = memoryview(bytearray(SCRATCH_BYTES))
            scratch = _scratch.view[:size]
        try:
            count = os.preadv(descriptor.fd, (scratch,), position, os.RWF_NOWAIT)
        except OSError as error:
            # EAGAIN: not in the page cache. EOPNOTSUPP: this file system cannot say (tmpfs).
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                return None
            raise
        return bytes(scratch) if count == size else None

    def _read_much_cached(self, position: int, size: int) -> bytes | None:
        """Probes first, then reads directly into the result: no copy, and no buffer to clear."""
        if not self.is_at_hand(position, size):
            return None
        descriptor = self._descriptor or self._disk._descriptor_of(self)
        data = os.pread(descriptor.fd, size, position)
        return data if len(data) == size else None

    def is_at_hand(self, position: int, size: int) -> bool:
        """Probes the page cache, unless a recent probe is valid: large slices are sent in pieces.

        A wrong result costs one disk read on the event loop.
        """
        start, end, until = self._seen
        now, last = time.monotonic(), position + size
        first = position
        if start <= position <= end and now < until:
            if last <= end:
                return True
            first += PROBE_BYTES  # The range continues the last one.
        descriptor = self._descriptor or self._disk._descriptor_of(self)
        try:
            for at in (*range(first, last, PROBE_BYTES), last - 1):
                if not os.preadv(descriptor.fd, (_probe,), at, os.RWF_NOWAIT):
                    return False
        except OSError as error:
            # EAGAIN: not in the page cache. EOPNOTSUPP: this file system cannot say (tmpfs).
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                return False
            raise
        self._seen = (position, last, now + PROBE_SECONDS)
        return True

    def send_to(self, descriptor: int, position: int, size: int) -> int | None:
        start, end, until = self._seen
        is_seen = start <= position and position + size <= end and time.monotonic() < until
        if not is_seen and not self.is_at_hand(position, size):
            return None
        source = self._descriptor or self._disk._descriptor_of(self)
        self._used = True
        try:
            return os.sendfile(descriptor, source.fd, position, size)
        except BlockingIOError:
            return 0
        except OSError as error:
            # Some file systems and kinds of sockets do not support it.
            if error.errno in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
                return None
            raise

    def truncate(self, size: int) -> None:
        self._writes += 1
        descriptor = self._descriptor or self._disk._descriptor_of(self)
        os.ftruncate(descriptor.fd, size)
        self._size = size

    def sync(self) -> None:
        if self._failed:
            raise OSError(errno.EIO, "an earlier sync of this file failed", self._path)
        writes = self._writes  # Read before the sync: later appends stay dirty.
        descriptor = self._descriptor or self._disk._descriptor_of(self)
        try:
            os.fdatasync(descriptor.fd)
        except OSError:
            self._failed = True
            raise
        self._synced = writes

    def close(self) -> None:
        self._disk._forget(self)


class LocalDisk:
    """Directory trees of this machine. Implements `penstock.base.ports.Disk`."""

    def __init__(self, *, open_files_max: int = 512) -> None:
        assert open_files_max > 0
        self._open_files_max = open_files_max
        self._lock = threading.Lock()
        # Files by directory: a rename must not look at the files of every partition.
        self._files: defaultdict[str, weakref.WeakSet[LocalFile]] = defaultdict(weakref.WeakSet)
        # Files with a descriptor, in clock order. Weak, because an unlinked and unused file would
        # otherwise keep its descriptor, and the disk its space.
        self._opened: OrderedDict[weakref.ref[LocalFile], None] = OrderedDict()
        self._file_systems: dict[int, Descriptor] = {}

    @property
    def open_files(self) -> int:
        return sum(opened() is not None for opened in tuple(self._opened))

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        if not create:
            file = LocalFile(self, path, os.stat(path).st_size)
        else:
            descriptor = Descriptor(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
            file = LocalFile(self, path, os.fstat(descriptor.fd).st_size)
            with self._lock:
                self._attach(file, descriptor)
        with self._lock:
            self._files[os.path.dirname(path)].add(file)
        return file

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def mkdir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        if old == new:
            return
        with self._lock:
            self._pin(new)
            os.rename(old, new)
            moved = self._at(old)
            if os.path.isdir(new):
                inside = old + "/"
                for directory in [one for one in self._files if f"{one}/".startswith(inside)]:
                    moved += self._files.pop(directory)
            for file in moved:
                if not file._pinned:
                    self._detach(file)
                    file._path = new + file._path[len(old) :]
                    self._files[os.path.dirname(file._path)].add(file)

    def unlink(self, path: str) -> None:
        with self._lock:
            self._pin(path)
            os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)
        with self._lock:
            self._files.pop(path, None)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, path: str) -> None:
        with self._lock:
            device = os.stat(path).st_dev
            anchor = self._file_system(device, path)
            dirty = [
                (file, file._writes)
                for file in self._alive()
                if file._device == device and file._writes != file._synced
            ]
        failed = _libc.syncfs(anchor.fd) != 0
        code = ctypes.get_errno()
        for file, writes in dirty:
            if failed:
                file._failed = True
            else:
                file._synced = max(file._synced, writes)
        if failed:
            raise OSError(code, os.strerror(code), path)

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def used_percent(self, path: str) -> float:
        status = os.statvfs(path)
        used = status.f_blocks - status.f_bfree
        return 100 * used / max(1, used + status.f_bavail)

    def _file_system(self, device: int, path: str) -> Descriptor:
        """Descriptor kept for syncfs, which reports only errors since it was opened."""
        anchor = self._file_systems.get(device)
        if anchor is None:
            directory = path if os.path.isdir(path) else os.path.dirname(path) or "."
            anchor = Descriptor(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            self._file_systems[device] = anchor
        return anchor

    def _descriptor_of(self, file: LocalFile) -> Descriptor:
        with self._lock:
            descriptor = file._descriptor
            if descriptor is None:
                if file._pinned or file not in self._siblings(file._path):
                    raise OSError(errno.EBADF, "the file was closed", file._path)
                descriptor = Descriptor(os.open(file._path, os.O_RDWR | os.O_CLOEXEC))
                self._attach(file, descriptor)
            return descriptor

    def _attach(self, file: LocalFile, descriptor: Descriptor) -> None:
        file._device = os.fstat(descriptor.fd).st_dev
        self._file_system(file._device, file._path)
        for _ in range(2 * len(self._opened)):
            if len(self._opened) < self._open_files_max:
                break
            self._advance_hand()
        file._descriptor = descriptor
        file._used = True
        self._opened[weakref.ref(file)] = None

    def _alive(self) -> list[LocalFile]:
        return [file for opened in self._opened if (file := opened()) is not None]

    def _advance_hand(self) -> None:
        """Closes the file at the clock hand unless it was used since, is dirty or is pinned."""
        opened, _ = self._opened.popitem(last=False)
        file = opened()
        if file is None:
            return
        if file._used or file._pinned or file._writes != file._synced:
            file._used = False
            self._opened[opened] = None
        else:
            file._descriptor = None

    def _pin(self, path: str) -> None:
        """Pins the files at `path` to their inode, because the path is about to lead elsewhere."""
        for file in self._at(path):
            if file._descriptor is None:
                with contextlib.suppress(FileNotFoundError):
                    self._attach(file, Descriptor(os.open(path, os.O_RDWR | os.O_CLOEXEC)))
            file._pinned = True

    def _at(self, path: str) -> list[LocalFile]:
        """Returns the open files that `path` leads to."""
        return [one for one in self._siblings(path) if one._path == path and not one._pinned]

    def _siblings(self, path: str) -> Collection[LocalFile]:
        return self._files.get(os.path.dirname(path), ())

    def _detach(self, file: LocalFile) -> None:
        directory = os.path.dirname(file._path)
        files = self._files.get(directory)
        if files is not None:
            files.discard(file)
            if not files:
                del self._files[directory]

    def _forget(self, file: LocalFile) -> None:
        with self._lock:
            self._detach(file)
            file._descriptor = None
            self._opened.pop(weakref.ref(file), None)
