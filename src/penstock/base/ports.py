"""The doors to the outside world, each with a real and a simulated version.

Monotonic time and the network need no port: they are the event loop (`loop.time()`,
`loop.create_server`, `loop.create_connection`), uvloop in production and the simulator's loop in
tests. Everything else that is not a pure function of its input comes through one of these.

The real versions live in `penstock.runtime`, the simulated ones in `simulation`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeAlias, TypeVar

from penstock.base.ids import Millis

P = ParamSpec("P")
T = TypeVar("T")
Buffer: TypeAlias = bytes | bytearray | memoryview


class WallClock(Protocol):
    """What the calendar says. May jump; never use it to measure a duration."""

    def now_ms(self) -> Millis: ...


class Random(Protocol):
    """Randomness for ids, jitter and salts."""

    def random_bytes(self, count: int) -> bytes: ...

    def uniform(self, low: float, high: float) -> float: ...

    def jitter(self) -> float:
        """A number from 0 to below 1, from a stream of its own (see `base.retry`)."""
        ...


class Workers(Protocol):
    """Runs CPU-heavy or blocking work off the event loop. The simulator runs it inline."""

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...


class File(Protocol):
    """One file, appended at its end and read anywhere.

    Every method raises OSError as the operating system does. After a failed `sync` the content
    of the file is unknown (the kernel may have dropped the dirty pages): the caller must give the
    file up, never sync again and call it durable.
    """

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Writes all buffers at the end and returns the position where they start.

        A short write is undone (truncated back) before OSError is raised: all or nothing, as
        far as this process can see.
        """
        ...

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer at the end of the file. May block."""
        ...

    def read_cached(self, position: int, size: int) -> bytes | None:
        """As `read`, but answers None instead of waiting for the disk."""
        ...

    def is_at_hand(self, position: int, size: int) -> bool:
        """Whether these bytes can be had without waiting for the disk, as far as can be told."""
        ...

    def send_to(self, descriptor: int, position: int, size: int) -> int | None:
        """Hands bytes to a non-blocking socket without taking them into this process.

        Answers how many the socket took, 0 when it is full, and None when that is not possible
        here or would wait for the disk: then the caller reads and writes them itself.
        """
        ...

    def truncate(self, size: int) -> None: ...

    def rewrite(self, position: int, data: Buffer) -> None:
        """Writes bytes over the same bytes, so that the next sync really stores them.

        After a failed sync of another process the page cache shows bytes that are not on disk and
        never will be: the kernel takes them for stored. Never grows the file.
        """
        ...

    def erase(self) -> None:
        """Writes zeros over everything, in place: for what nobody may read again. The next sync
        makes it durable."""
        ...

    def sync(self) -> None:
        """Makes content and size durable (fdatasync). Blocks: call it through Workers."""
        ...

    def close(self) -> None: ...


class Slice(Protocol):
    """Bytes of a file on their way to a socket, still unread."""

    def __len__(self) -> int:
        """What is left of it."""
        ...

    def send_to(self, descriptor: int) -> bool:
        """Sends as much as the socket takes: if something is left, the socket is full.

        False when that is not possible: the caller takes them and writes them itself.
        """
        ...

    def take(self, size: int) -> Buffer:
        """Reads the next bytes, about `size`, which are then the caller's."""
        ...


class Disk(Protocol):
    """A directory tree. Paths are plain strings with '/'.

    Creating, renaming and removing entries is durable only after `sync_dir` of the directory
    that holds them.
    """

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def listdir(self, path: str) -> list[str]:
        """Sorted names of the entries; an empty list when the directory is not there."""
        ...

    def mkdir(self, path: str) -> None:
        """Makes the directory and its parents; no error when it exists."""
        ...

    def rename(self, old: str, new: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def sync_all(self, path: str) -> None:
        """One syncfs of the file system that holds `path`: cheaper than many single syncs."""
        ...

    def free_bytes(self, path: str) -> int: ...

    def used_percent(self, path: str) -> float:
        """How full the file system that holds `path` is, of what we may use of it."""
        ...


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """A key in the metadata store with the revision that last changed it."""

    key: str
    value: bytes
    revision: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a watch: `value` is None when the key was deleted."""

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
    """A guard of a transaction: the key was last changed at `revision` (0: it does not exist)."""

    key: str
    revision: int


COMMIT_CHANGES_MAX = 128
"""What etcd takes in one transaction, guards and changes each."""


class UnknownResult(Exception):
    """The store may or may not have done it. Read again before acting."""


class WatchLost(Exception):
    """The watch fell behind a compaction. Read the range again, then watch from there."""


class Store(Protocol):
    """Cluster metadata: a small linearizable key-value store with etcd's semantics.

    Keys begin with '/'. Reading raises TimeoutError or ConnectionError when the store cannot be
    reached; so does changing, if it is certain that nothing was done, and else UnknownResult.
    """

    @property
    def random(self) -> Random:
        """Jitter for the pauses before the store is asked again; differs between nodes."""
        ...

    async def get(self, key: str) -> StoreEntry | None: ...

    async def range(self, prefix: str) -> tuple[int, list[StoreEntry]]:
        """Everything under `prefix`, sorted by key, and the revision it was read at."""
        ...

    async def commit(
        self, expects: Sequence[Expect], changes: Sequence[Put | Delete]
    ) -> int | None:
        """All changes at one new revision if every guard holds; None if one does not.

        At most `COMMIT_CHANGES_MAX` of each, and no key is changed twice.
        """
        ...

    def watch(self, prefix: str, after: int) -> AsyncIterator[list[Change]]:
        """Every change under `prefix` with a revision above `after`, one list per revision.

        Goes on over lost connections; raises WatchLost, and ends when the store is closed.
        """
        ...

    async def grant(self, ttl_ms: int) -> int:
        """A lease. Keys put with it vanish when it is not renewed in time: a hint, not a lock."""
        ...

    async def renew(self, lease: int) -> bool: ...

    async def revoke(self, lease: int) -> None: ...

    async def close(self) -> None: ...
