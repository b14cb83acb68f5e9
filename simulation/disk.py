"""Disk in memory with power cuts, torn writes, full disk, I/O errors and bit rot, by the seed.

`disk_contents` determines what survives a power cut; this module implements the port
(`penstock.base.ports.Disk`) and fault injection:

- `crashed(rng)` returns a copy as a power cut at this moment would leave it; this disk continues.
  So a test can try a cut at every operation of one run (`on_operation` is called at each).
  `crash(rng)` does it in place; files opened before are dead.
- `crash_after(n)` raises `PowerCut` out of the n-th operation from now and of all later ones;
  `on_cut` is called at that moment. `cut()` does it at once. `abandon()` only ends the process:
  unsynced bytes survive.
- `inject(Fault(...))` makes an operation fail with an errno. A failed sync loses the dirty pages
  and reports success the next time, as Linux does. A failed append leaves half of it to a crash.
- `flip_bit` and `damage` simulate bit rot: wrong bytes, and unreadable sectors.
- `remove_path`, `shorten` and `restore_copy` simulate operators and file system repairs between two
  processes: lost paths, or an earlier copy of the whole disk.
- `journaled=False` lets changes of names survive in any order, as POSIX allows. Common file systems
  journal them in order (ext4, XFS, Btrfs), as is the default here.

An operation changes the disk or makes it durable; reads do not count. All random choices come from
the seed, so the same calls give the same disk.
"""

import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.base.ports import Buffer
from simulation.disk_contents import (
    SECTOR_BYTES,
    DirectoryNode,
    Entry,
    FileNode,
    Link,
    Node,
    apply_durable,
    apply_live,
    live_copy,
    needed_for,
    surviving_tree,
)


class PowerCut(BaseException):
    """Power cut of the machine; a BaseException, so that no error handler catches it."""


@dataclass(slots=True)
class Fault:
    """Fails `times` operations of one kind after `skip` successful ones.

    `operation` is append, rewrite, erase, truncate, sync, open, mkdir, rename, unlink, rmdir,
    sync_dir, sync_all, read, or * for any of them; `path` is a substring of the affected paths.
    """

    operation: str
    error: int = errno.EIO
    path: str = ""
    skip: int = 0
    times: int = 1


class SimFile:
    """Open file of a `SimDisk`; implements `penstock.base.ports.File`."""

    def __init__(self, disk: "SimDisk", node: FileNode) -> None:
        self._disk = disk
        self._node = node
        self._boot = disk.boots
        self._closed = False

    @property
    def path(self) -> str:
        return _path_of(self._node)

    def size(self) -> int:
        return len(self._use().live)

    def append(self, buffers: Sequence[Buffer]) -> int:
        node, disk = self._change(), self._disk
        data = b"".join(buffers)
        position = len(node.live)
        try:
            disk._check("append", self.path)
            if len(data) > disk.free_bytes(self.path):
                raise _error(errno.ENOSPC, self.path)
        except OSError:
            # Half of it was written and truncated again, neither of which is durable.
            node.write(position, data[: len(data) // 2])
            node.truncate(position)
            raise
        disk.used_bytes += len(data)
        node.write(position, data)
        disk._count()
        return position

    def read(self, position: int, size: int) -> bytes:
        node = self._use()
        self._disk._check("read", self.path)
        for start, end in node.bad:
            if position < end and start < position + size:
                raise _error(errno.EIO, self.path)
        return bytes(node.live[position : position + size])

    def read_cached(self, position: int, size: int) -> bytes | None:
        return None if self._is_cold() else self.read(position, size)

    def is_at_hand(self, position: int, size: int) -> bool:
        node, end = self._use(), position + size
        if self._is_cold() or end > len(node.live):
            return False
        return not any(position < bad_end and bad < end for bad, bad_end in node.bad)

    def _is_cold(self) -> bool:
        disk = self._disk
        return bool(disk.cold_ratio) and disk.rng.random() < disk.cold_ratio

    def send_to(self, descriptor: int, position: int, size: int) -> int | None:
        return None  # There are no descriptors: data always passes through the process.

    def rewrite(self, position: int, data: Buffer) -> None:
        node, disk = self._change(), self._disk
        disk._check("rewrite", self.path)
        assert node.live[position : position + len(data)] == data, "rewrite must not change bytes"
        node.write(position, bytes(data))
        disk._count()

    def erase(self) -> None:
        node, disk = self._change(), self._disk
        disk._check("erase", self.path)
        node.write(0, bytes(len(node.live)))
        disk._count()

    def truncate(self, size: int) -> None:
        node = self._change()
        self._disk._check("truncate", self.path)
        self._disk.used_bytes += size - len(node.live)
        node.truncate(size)
        self._disk._count()

    def sync(self) -> None:
        node, disk = self._use(), self._disk
        try:
            disk._check("sync", self.path)
        except OSError:
            node.lose_pending(disk.rng)
            raise
        disk._count()
        node.sync()
        disk._unsynced.pop(id(node), None)

    def close(self) -> None:
        self._closed = True

    def _use(self) -> FileNode:
        if self._disk.dead or self._boot != self._disk.boots:
            raise PowerCut
        if self._closed:
            raise _error(errno.EBADF, self.path)
        return self._node

    def _change(self) -> FileNode:
        node = self._use()
        self._disk._unsynced[id(node)] = node
        return node


class SimDisk:
    """Implements `penstock.base.ports.Disk`. One file system; '/a' and 'a' are the same path."""

    def __init__(
        self,
        seed: int = 0,
        *,
        capacity_bytes: int = 1 << 40,
        cold_ratio: float = 0.0,
        journaled: bool = True,
    ) -> None:
        self.rng = random.Random(seed)
        self.capacity_bytes = capacity_bytes
        self.cold_ratio = cold_ratio
        self.journaled = journaled
        self.used_bytes = 0
        self.operations = 0
        self.boots = 0
        self.dead = False
        self.on_operation: Callable[[], None] | None = None
        self.on_cut: Callable[[], None] | None = None
        self._cut_at: int | None = None
        self._faults: list[Fault] = []
        self._root = DirectoryNode()
        self._links: list[Link] = []
        # Files with pending content by identity, including unlinked ones.
        self._unsynced: dict[int, FileNode] = {}

    # Port used by the node.

    def open(self, path: str, *, create: bool = False) -> SimFile:
        node = self._find(path)
        if isinstance(node, DirectoryNode):
            raise _error(errno.EISDIR, path)
        if node is None:
            if not create:
                raise _error(errno.ENOENT, path)
            self._check("open", path)
            directory, name = self._parent(path)
            node = FileNode()
            self._link((Entry(directory, name, node),))
        return SimFile(self, node)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def size(self, path: str) -> int:
        return len(self._file(path).live)

    def listdir(self, path: str) -> list[str]:
        node = self._find(path)
        if isinstance(node, FileNode):
            raise _error(errno.ENOTDIR, path)
        return sorted(node.live) if node is not None else []

    def mkdir(self, path: str) -> None:
        directory = self._root
        for name in _parts(path):
            node = directory.live.get(name)
            if node is None:
                self._check("mkdir", path)
                node = DirectoryNode()
                self._link((Entry(directory, name, node),))
            if isinstance(node, FileNode):
                raise _error(errno.ENOTDIR, path)
            directory = node

    def rename(self, old: str, new: str) -> None:
        self._check("rename", old)
        node, target = self._find(old), self._find(new)
        if node is None:
            raise _error(errno.ENOENT, old)
        if node is target:
            return
        if isinstance(target, DirectoryNode) and target.live:
            raise _error(errno.ENOTEMPTY, new)
        source, destination = self._parent(old), self._parent(new)
        self._free(target)
        self._link((Entry(*source, None), Entry(*destination, node)))

    def unlink(self, path: str) -> None:
        self._check("unlink", path)
        self._free(self._file(path))
        self._link((Entry(*self._parent(path), None),))

    def rmdir(self, path: str) -> None:
        self._check("rmdir", path)
        node = self._directory(path)
        if node.live:
            raise _error(errno.ENOTEMPTY, path)
        self._link((Entry(*self._parent(path), None),))

    def sync_dir(self, path: str) -> None:
        self._check("sync_dir", path)
        node = self._directory(path)
        self._count()
        inside = [any(entry.directory is node for entry in link) for link in self._links]
        kept = needed_for(inside, self._links)
        pairs = list(zip(kept, self._links, strict=True))
        apply_durable(link for keep, link in pairs if keep)
        self._links = [link for keep, link in pairs if not keep]

    def sync_all(self, path: str) -> None:
        try:
            self._check("sync_all", path)
        except OSError:
            for node in self._unsynced.values():
                node.lose_pending(self.rng)
            raise
        self._count()
        apply_durable(self._links)
        self._links.clear()
        for node in self._unsynced.values():
            node.sync()
        self._unsynced.clear()

    def free_bytes(self, path: str) -> int:
        return self.capacity_bytes - self.used_bytes

    def used_percent(self, path: str) -> float:
        return 100 * self.used_bytes / max(1, self.capacity_bytes)

    # Fault injection by tests.

    def crashed(self, rng: random.Random) -> "SimDisk":
        """Copy of this disk after a power cut at this moment. This one continues."""
        disk = SimDisk(
            rng.getrandbits(32),
            capacity_bytes=self.capacity_bytes,
            cold_ratio=self.cold_ratio,
            journaled=self.journaled,
        )
        disk._root = surviving_tree(self._root, self._links, rng, self.journaled)
        disk.used_bytes = _size(disk._root)
        return disk

    def crash(self, rng: random.Random) -> None:
        """Cuts the power and switches it on again: all open files are dead."""
        after = self.crashed(rng)
        self._root, self.used_bytes = after._root, after.used_bytes
        self._links, self._unsynced = [], {}
        self._cut_at, self.dead = None, False
        self.boots += 1

    def crash_after(self, operations: int) -> None:
        assert operations > 0
        self._cut_at = self.operations + operations

    def cancel_crash(self) -> None:
        """Cancels `crash_after`."""
        self._cut_at = None

    def cut(self) -> None:
        """Cuts the power: nothing works until `crash`, which determines what survived."""
        if not self.dead:
            self.dead = True
            if self.on_cut is not None:
                self.on_cut()

    def abandon(self) -> None:
        """Ends the process, not the machine: closes its files and keeps the page cache."""
        self._cut_at = None
        self.boots += 1

    def inject(self, fault: Fault) -> None:
        self._faults.append(fault)

    def heal(self) -> None:
        """Removes injected faults that have not happened yet."""
        self._faults.clear()

    def flip_bit(self, path: str, bit: int) -> None:
        node = self._file(path)
        for image in (node.live, node.durable):
            if bit // 8 < len(image):
                image[bit // 8] ^= 1 << (bit % 8)

    def damage(self, path: str, position: int) -> None:
        """Makes the sector at `position` unreadable."""
        start = position - position % SECTOR_BYTES
        self._file(path).bad.append((start, start + SECTOR_BYTES))

    def copy(self) -> DirectoryNode:
        """Copy of the live tree for `restore_copy`, like a backup of an idle disk."""
        return live_copy(self._root)

    def restore_copy(self, tree: DirectoryNode) -> None:
        """Restores the tree of an earlier `copy`. No process may be running."""
        self._root = live_copy(tree)
        self.used_bytes = _size(self._root)
        self._links, self._unsynced = [], {}
        self.boots += 1

    def remove_path(self, path: str) -> None:
        """Removes a file or directory durably. No process may be running."""
        directory, name = self._parent(path)
        for entries in (directory.live, directory.durable):
            entries.pop(name, None)
        self._links = [
            link
            for link in self._links
            if not any(entry.directory is directory and entry.name == name for entry in link)
        ]
        self.used_bytes = _size(self._root)

    def shorten(self, path: str, size: int) -> None:
        """Cuts off the end of a file, as a file system repair may do."""
        node = self._file(path)
        node.pending.clear()
        del node.live[size:]
        node.durable = bytearray(node.live)

    def files(self) -> list[str]:
        """Paths of all files, sorted."""
        return sorted(_walk(self._root))

    # Internals.

    def _check(self, operation: str, path: str) -> None:
        if self.dead:
            raise PowerCut
        for fault in self._faults:
            if fault.operation not in (operation, "*") or fault.path not in path:
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            fault.times -= 1
            if fault.times == 0:
                self._faults.remove(fault)
            raise _error(fault.error, path)

    def _count(self) -> None:
        """Counts an operation, and cuts the power if it is the last one."""
        self.operations += 1
        if self.on_operation is not None:
            self.on_operation()
        if self._cut_at is not None and self.operations >= self._cut_at:
            self.cut()
            raise PowerCut

    def _link(self, link: Link) -> None:
        self._links.append(link)
        apply_live(link)
        self._count()

    def _free(self, node: Node | None) -> None:
        if isinstance(node, FileNode):
            self.used_bytes -= len(node.live)

    def _find(self, path: str) -> Node | None:
        if self.dead:
            raise PowerCut
        node: Node | None = self._root
        for name in _parts(path):
            node = node.live.get(name) if isinstance(node, DirectoryNode) else None
        return node

    def _file(self, path: str) -> FileNode:
        node = self._find(path)
        if isinstance(node, DirectoryNode):
            raise _error(errno.EISDIR, path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node

    def _directory(self, path: str) -> DirectoryNode:
        node = self._find(path)
        if isinstance(node, FileNode):
            raise _error(errno.ENOTDIR, path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        *above, name = _parts(path)
        return self._directory("/".join(above)), name


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _path_of(node: FileNode) -> str:
    assert node.parent is not None
    return f"{node.parent.path()}/{node.name}"


def _walk(node: Node) -> list[str]:
    if isinstance(node, FileNode):
        return [_path_of(node)]
    return [path for child in node.live.values() for path in _walk(child)]


def _size(node: Node) -> int:
    if isinstance(node, FileNode):
        return len(node.live)
    return sum(_size(child) for child in node.live.values())


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
