"""Embedded metadata store of a single node: SQLite on disk, the whole content in memory.

Metadata is small and read far more often than written, so a `StoreModel` in memory serves reads and
watches, and SQLite only persists it: with WAL and synchronous=FULL, so a commit survives a power
cut once `commit` has returned. Invariants:

- a change is applied in memory (and so visible to readers) only after SQLite committed it;
- changes are decided, written and applied one after another, by callbacks of the loop, so that a
  cancelled caller does not affect them;
- one dedicated thread uses SQLite, and locks the file exclusively: a second process on the same
  file does not start;
- after an error that leaves the content on disk unknown, every change fails: the node must restart.
  A full disk is not such an error;
- a damaged entry is found when the file is opened: SQLite checks the structure of its pages, not
  their content, so each entry has a checksum in a table of its own.

Releases before the checksums ignore them. Entries that they changed are recognized by their
revision, and get a checksum at the next start; `CHECKED` is the last revision that was written with
checksums, so if it is the current one, a missing entry or checksum is damage as well.

Leases survive a restart with a renewed time to live, as etcd's do when its leader changes. The
history does not survive it: watches from before it are lost, and their watchers read again.
"""

import asyncio
import contextlib
import errno
import os
import sqlite3
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import crc32c

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.base.ports import Change, Delete, Expect, Put, StoreEntry, WatchLost
from penstock.base.store_model import StoreModel
from penstock.runtime.random import SystemRandom
from penstock.runtime.workers import ThreadWorkers

FORMAT = 1
WAITING_MAX = 10_000
EXPIRY_INTERVAL_S = 0.05  # Minimum time between checks for expired leases.
CHECKED = "checked"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL, lease INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (lease INTEGER PRIMARY KEY, ttl_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS checksums (
    key TEXT PRIMARY KEY, revision INTEGER NOT NULL, crc INTEGER NOT NULL
) WITHOUT ROWID;
"""

Statement = tuple[str, tuple[object, ...]]


@dataclass(slots=True)
class WritePlan:
    """Writes of one step: SQL first, then, when that is durable, the change in memory."""

    statements: list[Statement]
    apply: Callable[[], int]


@dataclass(slots=True)
class StoreStep:
    """Queued change. `decide` returns an immediate result, or a plan to write."""

    decide: Callable[[], WritePlan | int | None]
    done: "asyncio.Future[int | None]"


class SqliteStore:
    """Implements `penstock.base.ports.Store`. Created by `open`."""

    def __init__(self, database: sqlite3.Connection, thread: ThreadWorkers) -> None:
        self.random = SystemRandom()
        self._database = database
        self._thread = thread
        self._space = StoreModel()
        self._next_lease = 1
        self._steps: deque[StoreStep] = deque()
        self._writing = False
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._failure: BaseException | None = None
        self._closed = False

    @classmethod
    async def open(cls, path: str) -> Self:
        """Opens or creates the database file `path`; its directory must exist."""
        thread = ThreadWorkers(1, name="store")
        try:
            database, entries, leases, counters = await thread.run(_load, path)
        except BaseException:
            thread.close()
            raise
        store = cls(database, thread)
        now_s = asyncio.get_running_loop().time()
        for lease, ttl_ms in leases:
            store._space.grant(lease, ttl_ms / 1000, now_s)
        for entry in entries:
            store._space.restore(entry)
        store._space.restart(counters.get("revision", 0))
        store._next_lease = counters.get("lease", 0) + 1
        store._arm()
        return store

    async def get(self, key: str) -> StoreEntry | None:
        return self._space.get(key)

    async def range(self, prefix: str) -> tuple[int, list[StoreEntry]]:
        return self._space.revision, self._space.range(prefix)

    async def commit(
        self, expects: Sequence[Expect], changes: Sequence[Put | Delete]
    ) -> int | None:
        def decide() -> WritePlan | int | None:
            effective = self._space.plan(expects, changes)
            if effective is None:
                return None
            return self._plan(effective) if effective else self._space.revision

        return await self._enqueue(decide)

    async def watch(self, prefix: str, after: int) -> AsyncIterator[list[Change]]:
        space = self._space
        while not self._closed:
            while after < space.revision:
                if after < space.compacted:
                    raise WatchLost(
                        f"revision {after} was compacted: the oldest one left is {space.compacted}"
                    )
                after += 1
                changes = space.changes_at(after, prefix)
                if changes:
                    yield changes
            await self._changed.wait()

    async def grant(self, ttl_ms: int) -> int:
        assert ttl_ms > 0

        def decide() -> WritePlan:
            lease = self._next_lease
            self._next_lease += 1

            def apply() -> int:
                self._space.grant(lease, ttl_ms / 1000, asyncio.get_running_loop().time())
                self._arm()
                return lease

            return WritePlan(
                [
                    ("INSERT INTO leases VALUES (?, ?)", (lease, ttl_ms)),
                    ("REPLACE INTO counters VALUES ('lease', ?)", (lease,)),
                ],
                apply,
            )

        lease = await self._enqueue(decide)
        assert lease is not None
        return lease

    async def renew(self, lease: int) -> bool:
        return self._space.renew(lease, asyncio.get_running_loop().time())

    async def revoke(self, lease: int) -> None:
        await self._enqueue(partial(self._plan_end, lease))

    async def close(self) -> None:
        """Waits for writes in progress, ends the watches, closes the file."""
        if self._closed:
            return
        self._closed = True
        last: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._steps.append(StoreStep(lambda: 0, last))
        self._advance()
        await asyncio.wait([last])
        last.exception()  # Each failure was raised to its own caller.
        if self._timer is not None:
            self._timer.cancel()
        self._notify()
        await self._thread.run(self._database.close)
        self._thread.close()

    # Changes, one after another.

    def _enqueue(
        self, decide: Callable[[], WritePlan | int | None]
    ) -> "asyncio.Future[int | None]":
        assert not self._closed, "the store is closed"
        if len(self._steps) >= WAITING_MAX:
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{WAITING_MAX} metadata changes are queued already: retry later",
            )
        done: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._steps.append(StoreStep(decide, done))
        self._advance()
        return done

    def _advance(self) -> None:
        while self._steps and not self._writing:
            step = self._steps.popleft()
            if self._failure is not None:
                _answer(step.done, None, self._failure)
                continue
            decision = step.decide()
            if not isinstance(decision, WritePlan):
                _answer(step.done, decision, None)
                continue
            self._writing = True
            written = self._thread.run(_write, self._database, decision.statements)
            written.add_done_callback(partial(self._written, decision, step))

    def _written(self, plan: WritePlan, step: StoreStep, written: "asyncio.Future[None]") -> None:
        self._writing = False
        error = written.exception()
        if error is None:
            _answer(step.done, plan.apply(), None)
            self._notify()
        else:
            if not (isinstance(error, OSError) and error.errno == errno.ENOSPC):
                self._failure = error
            _answer(step.done, None, error)
        self._advance()

    def _plan(self, changes: Sequence[Put | Delete]) -> WritePlan:
        revision = self._space.revision + 1
        statements: list[Statement] = [
            ("REPLACE INTO counters VALUES ('revision', ?), (?, ?)", (revision, CHECKED, revision))
        ]
        for change in changes:
            if isinstance(change, Put):
                entry = StoreEntry(change.key, change.value, revision, change.lease)
                row = (entry.key, entry.value, entry.revision, entry.lease)
                statements.append(("REPLACE INTO entries VALUES (?, ?, ?, ?)", row))
                statements.append(_checksum_of(entry))
            else:
                statements.append(("DELETE FROM entries WHERE key = ?", (change.key,)))
                statements.append(("DELETE FROM checksums WHERE key = ?", (change.key,)))
        return WritePlan(statements, lambda: self._space.apply(changes))

    # Leases.

    def _plan_end(self, lease: int) -> WritePlan | int:
        if lease not in self._space.leases:
            return self._space.revision
        changes = self._space.keys_of(lease)
        plan = self._plan(changes) if changes else WritePlan([], lambda: self._space.revision)
        plan.statements.append(("DELETE FROM leases WHERE lease = ?", (lease,)))
        apply_changes = plan.apply

        def apply() -> int:
            revision = apply_changes()
            self._space.end(lease)
            return revision

        return WritePlan(plan.statements, apply)

    def _arm(self, not_before_s: float = 0.0) -> None:
        """Sets the timer to the next deadline; after a renewal it only fires early."""
        if self._timer is not None:
            self._timer.cancel()
        deadline_s = self._space.next_deadline_s()
        if deadline_s is not None and not self._closed:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(deadline_s, not_before_s), self._expire)

    def _expire(self) -> None:
        if self._closed or self._failure is not None:
            return
        now_s = asyncio.get_running_loop().time()
        for lease in self._space.expired(now_s):
            # The lease counts as expired until it is removed: it cannot be renewed meanwhile.
            self._enqueue(partial(self._plan_end, lease)).add_done_callback(_ignore)
        self._arm(now_s + EXPIRY_INTERVAL_S)  # Retries leases whose end could not be written.

    def _notify(self) -> None:
        self._changed.set()
        self._changed.clear()


def _answer(
    done: "asyncio.Future[int | None]", result: int | None, error: BaseException | None
) -> None:
    if done.done():
        return  # The caller was cancelled.
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)


def _ignore(done: "asyncio.Future[int | None]") -> None:
    done.exception()


def _close_to_others(path: str) -> None:
    """Makes the file private to its owner: the store holds secrets of users.

    SQLite gives its other files the same permissions.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for name in (path, f"{path}-wal", f"{path}-shm"):
        # The mode of a file of another user stays unchanged.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if os.stat(name).st_mode & 0o077:
                os.chmod(name, 0o600)


def _load(
    path: str,
) -> tuple[sqlite3.Connection, list[StoreEntry], list[tuple[int, int]], dict[str, int]]:
    """Opens the database. Runs in the store's thread, like `_write`: SQLite is used in no other."""
    try:
        _close_to_others(path)
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1)
        try:
            database.execute("PRAGMA locking_mode=EXCLUSIVE")
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            if database.execute("PRAGMA quick_check").fetchone()[0] != "ok":
                raise Corrupt(f"{path}: the metadata store is damaged")
            database.execute("BEGIN IMMEDIATE")
            version = database.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, FORMAT):
                raise OSError(
                    errno.EPROTO,
                    f"unknown metadata format {version}, this release reads {FORMAT}",
                    path,
                )
            for statement in _SCHEMA.split(";"):
                database.execute(statement)
            database.execute(f"PRAGMA user_version={FORMAT}")
            database.execute("COMMIT")
            _sync_directory(os.path.dirname(path) or ".")
            rows = database.execute("SELECT key, value, revision, lease FROM entries").fetchall()
            entries = [StoreEntry(*row) for row in rows]
            leases = database.execute("SELECT lease, ttl_ms FROM leases").fetchall()
            counters = dict(database.execute("SELECT name, value FROM counters").fetchall())
            _check(database, path, entries, counters)
        except BaseException:
            database.close()
            raise
    except sqlite3.Error as error:
        raise _translate(error, path) from error
    return database, entries, leases, counters


def _check(
    database: sqlite3.Connection,
    path: str,
    entries: Sequence[StoreEntry],
    counters: Mapping[str, int],
) -> None:
    """Compares entries with their checksums; adds those that an earlier release left out."""
    kept = database.execute("SELECT key, revision, crc FROM checksums").fetchall()
    revision, checked = counters.get("revision", 0), counters.get(CHECKED, 0)
    sums = {key: (at, crc) for key, at, crc in kept}
    damaged, unchecked = [], []
    for entry in entries:
        at, crc = sums.pop(entry.key, (0, 0))
        if not _is_typed(entry):
            damaged.append(entry.key)
        elif at < entry.revision <= revision and checked < revision:
            unchecked.append(entry)
        elif at != entry.revision or crc != _crc_of(entry) or entry.revision > revision:
            damaged.append(entry.key)
    if checked >= revision:
        damaged += sums  # An entry without which its checksum would not be here.
    if damaged or checked > revision:
        names = ", ".join(map(repr, sorted(damaged)[:5])) or "the revision"
        raise Corrupt(
            f"{path}: the metadata store is damaged: {names} ({max(len(damaged), 1)} in all) "
            "changed on the disk. Restore a backup of the file, or move it away and run: penstock "
            "cluster recover-metadata"
        )
    if checked < revision:
        leftover: list[Statement] = [("DELETE FROM checksums WHERE key = ?", (k,)) for k in sums]
        mark = ("REPLACE INTO counters VALUES (?, ?)", (CHECKED, revision))
        _write(database, [*leftover, *map(_checksum_of, unchecked), mark])


def _is_typed(entry: StoreEntry) -> bool:
    """True if every value has the type that it was written with, which SQLite stores in the row."""
    values = entry.key, entry.value, entry.revision, entry.lease
    return tuple(map(type, values)) == (str, bytes, int, int)


def _checksum_of(entry: StoreEntry) -> Statement:
    row = (entry.key, entry.revision, _crc_of(entry))
    return "REPLACE INTO checksums VALUES (?, ?, ?)", row


def _crc_of(entry: StoreEntry) -> int:
    numbers = struct.pack(">qq", entry.revision, entry.lease)
    key = entry.key.encode()
    crc: int = crc32c.crc32c(b"".join((numbers, len(key).to_bytes(4, "big"), key, entry.value)))
    return crc


def _write(database: sqlite3.Connection, statements: Sequence[Statement]) -> None:
    try:
        database.execute("BEGIN IMMEDIATE")
        try:
            for statement, row in statements:
                database.execute(statement, row)
            database.execute("COMMIT")
        except sqlite3.Error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
    except sqlite3.Error as error:
        raise _translate(error, "metadata store") from error


def _translate(error: sqlite3.Error, path: str) -> Exception:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    # A text that is not UTF-8 is an error of the module, without a code.
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "UTF-8" in str(error):
        return Corrupt(f"{path}: {error}")
    if code == sqlite3.SQLITE_FULL:
        # Nothing was written, and a retry may succeed: like an unreachable store.
        return ConnectionError(errno.ENOSPC, str(error), path)
    number = errno.EBUSY if code == sqlite3.SQLITE_BUSY else errno.EIO
    return OSError(number, str(error), path)


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
