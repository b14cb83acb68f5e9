"""Ports: interfaces to disk, store, clock, randomness and threads, real or simulated.

Monotonic time and the network need no port: they are the event loop (`loop.time()`,
`loop.create_server`, `loop.create_connection`), uvloop in production and the simulator's loop in
tests. Everything else that is not a pure function of its input goes through one of these.

The real versions are in `penstock.runtime`, the simulated ones in `simulation`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeAlias, TypeVar

from penstock.base.ids import Millis

P = ParamSpec("P")
T = TypeVar("T")
Buffer: TypeAlias = bytes | bytearray | memoryview


class WallClock(Protocol):
    """Wall-clock time. May jump; never use it to measure a duration."""

    def now_ms(self) -> Millis: ...


class Random(Protocol):
    """Randomness for ids, jitter and salts."""

    def random_bytes(self, count: int) -> bytes: ...

    def uniform(self, low: float, high: float) -> float: ...

    def jitter(self) -> float:
        """Random number from 0 to below 1, from a stream of its own (see `base.retry`)."""
        ...


class Workers(Protocol):
    """Runs CPU-heavy or blocking work off the event loop. The simulator runs it inline."""

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...


class File(Protocol):
    """File that is appended at its end and read anywhere.

    Every method raises OSError as the operating system does. After a failed `sync` the content
    of the file is unknown (the kernel may have dropped the dirty pages): the caller must abandon
    the file, and never sync it again to take it for durable.
    """

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Writes all buffers at the end and returns the position where they start.

        A short write is undone (by truncation) before OSError is raised: all or nothing, as far
        as this process can tell.
        """
        ...

    def read(self, position: int, size: int) -> bytes:
        """Reads up to `size` bytes from `position`; fewer at the end of the file. May block."""
        ...

    def read_cached(self, position: int, size: int) -> bytes | None:
        """Like `read`, but returns None instead of waiting for the disk."""
        ...

    def is_at_hand(self, position: int, size: int) -> bool:
        """True if these bytes can probably be read without waiting for the disk."""
        ...

    def send_to(self, descriptor: int, position: int, size: int) -> int | None:
        """Sends bytes to a non-blocking socket without copying them into this process.

        Returns the number of bytes that the socket took, 0 when it is full, and None when that is
        unsupported here or would wait for the disk: then the caller reads and writes them itself.
        """
        ...

    def truncate(self, size: int) -> None: ...

    def rewrite(self, position: int, data: Buffer) -> None:
        """Overwrites bytes with the same bytes, so that the next sync really stores them.

        After a failed sync of another process the page cache holds bytes that are not on disk and
        never will be: the kernel considers them stored. Never grows the file.
        """
        ...

    def erase(self) -> None:
        """Overwrites the whole file with zeros, in place, so that it cannot be read again. The next
        sync makes it durable."""
        ...

    def sync(self) -> None:
        """Makes content and size durable (fdatasync). Blocks: call it through Workers."""
        ...

    def close(self) -> None: ...


class Slice(Protocol):
    """Bytes of a file to be sent to a socket, still unread."""

    def __len__(self) -> int:
        """Number of bytes left."""
        ...

    def send_to(self, descriptor: int) -> bool:
        """Sends as much as the socket takes: if bytes are left, the socket is full.

        False when that is unsupported: the caller uses `take` and writes the bytes itself.
        """
        ...

    def take(self, size: int) -> Buffer:
        """Reads and removes the next bytes, about `size`."""
        ...


class Disk(Protocol):
    """Directory tree. Paths are plain strings with '/'.

    Creation, renaming and removal of an entry is durable only after `sync_dir` of its directory.
    """

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def listdir(self, path: str) -> list[str]:
        """Sorted names of the entries; an empty list when the directory does not exist."""
        ...

    def mkdir(self, path: str) -> None:
        """Creates the directory and its parents; no error when it exists."""
        ...

    def rename(self, old: str, new: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def sync_all(self, path: str) -> None:
        """Syncs the whole file system that holds `path`: cheaper than many single syncs."""
        ...

    def free_bytes(self, path: str) -> int: ...

    def used_percent(self, path: str) -> float:
        """Used share of the file system that holds `path`, of the space that we may use."""
        ...


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """Key in the metadata store with its value and the revision that last changed it."""

    key: str
    value: bytes
    revision: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """Event of a watch: `value` is None when the key was deleted."""

    key: str
    value: bytes | None
    revision: int


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    key: str


@dataclass(frozen=True, slots=True)
class Expect:
    """Guard of a transaction: the key was last changed at `revision` (0: it does not exist)."""

    key: str
    revision: int


COMMIT_CHANGES_MAX = 128
"""Limit of etcd for one transaction, for guards and changes each."""


class UnknownResult(Exception):
    """The store may or may not have applied the change. Read again before acting."""


class WatchLost(Exception):
    """The watch fell behind a compaction. Read the range again, then watch from its revision."""


class Store(Protocol):
    """Metadata store: a small linearizable key-value store with etcd's semantics.

    Keys begin with '/'. Reads raise TimeoutError or ConnectionError when the store is unreachable.
    So do changes, if they were certainly not applied; otherwise they raise UnknownResult.
    """

    @property
    def random(self) -> Random:
        """Source of jitter for the backoff of retries; differs between nodes."""
        ...

    async def get(self, key: str) -> StoreEntry | None: ...

    async def range(self, prefix: str) -> tuple[int, list[StoreEntry]]:
        """Revision of the read, and all entries under `prefix`, sorted by key."""
        ...

    async def commit(
        self, expects: Sequence[Expect], changes: Sequence[Put | Delete]
    ) -> int | None:
        """Applies all changes at one new revision if every guard holds; None if one does not.

        At most `COMMIT_CHANGES_MAX` of each, and no key twice.
        """
        ...

    def watch(self, prefix: str, after: int) -> AsyncIterator[list[Change]]:
        """Yields every change under `prefix` with a revision above `after`, one list per revision.

        Continues over lost connections; raises WatchLost, and ends when the store is closed.
        """
        ...

    async def grant(self, ttl_ms: int) -> int:
        """Grants a lease. Its keys are deleted if it is not renewed in time: a hint, not a lock."""
        ...

    async def renew(self, lease: int) -> bool: ...

    async def revoke(self, lease: int) -> None: ...

    async def close(self) -> None: ...
