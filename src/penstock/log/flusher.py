"""Group commit: one sync for everything that was appended since the last one.

`mark(log)` after an append. While there are dirty logs, one flush at a time is under way: it takes
the end offset of each dirty log, syncs the files in workers, and only then are those offsets
durable and the owners told (`Log.on_durable`). What is appended meanwhile is covered by the next
flush.

Files of one flush are synced by `SYNC_JOBS` workers side by side: they wait for the same disk, and
a journaling file system commits once for all of them. With more than `SYNC_ALL_FILES` files, one
sync of the whole file system is cheaper; all logs of a node are on one.

A file that was created is durable only with its directory, so a log with a new segment needs both.
Caches and checkpoints are written after the sync: a checkpoint never promises what is not there.

A failed sync is never repeated: the kernel has dropped the pages and a second sync would succeed
without them. Every log of that flush goes offline, unacknowledged, and `fail` is called.

`hold` keeps flushes away from one log while something else changes its files in a worker; what is
appended meanwhile is written, and acknowledged when it is over.

The worker touches the files handed to it and nothing else of a log. A topic may be deleted
meanwhile: its logs are taken offline first, and a directory that is gone then is no failure.
"""

import asyncio
import errno
import posixpath
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from penstock.base.metrics import Histogram
from penstock.base.ports import Disk, Workers
from penstock.log import files
from penstock.log.log import Log
from penstock.log.persistence import Flush

SYNC_ALL_FILES = 8
SYNC_JOBS = 4


class Flusher:
    def __init__(
        self,
        disk: Disk,
        workers: Workers,
        fail: Callable[[OSError], None],
        seconds: Histogram | None = None,
    ) -> None:
        """`seconds` is told how long each sync took, the wait for a worker included."""
        self._seconds = seconds if seconds is not None else Histogram()
        self._disk = disk
        self._workers = workers
        self._fail = fail
        self._dirty: list[Log] = []
        self._held: list[Log] = []
        self._task: asyncio.Task[None] | None = None
        self._round: asyncio.Future[None] | None = None  # Ends with the flush under way.
        self.flushes = 0
        self.files_synced = 0

    def mark(self, log: Log) -> None:
        """Notes that `log` has something to sync. Cheap when that is already known."""
        if log.marked or log.held or not log.is_dirty:
            return
        log.marked = True
        self._dirty.append(log)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(_reveal)

    @property
    def is_idle(self) -> bool:
        return self._task is None

    async def drain(self) -> None:
        """Returns when everything marked so far, and meanwhile, has been synced."""
        while self._task is not None or self._held:
            if self._task is not None:
                await asyncio.shield(self._task)
            else:
                await self._next_round()

    async def settle(self, log: Log) -> None:
        """Returns when no flush of `log` is running or due, whatever others still have to do."""
        while log.flushing or log.marked or log.held:
            await self._next_round()

    @asynccontextmanager
    async def hold(self, log: Log) -> AsyncIterator[None]:
        """No flush of `log` is running inside, nor begins. One at a time: others wait."""
        while log.held:
            await self._next_round()
        log.held = True
        self._held.append(log)
        try:
            while log.flushing:
                await self._next_round()
            yield
        finally:
            log.held = False
            self._held.remove(log)
            self.mark(log)
            if self._task is None:
                self._end_round()

    async def _next_round(self) -> None:
        if self._round is None:
            self._round = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._round)

    def _end_round(self) -> None:
        done, self._round = self._round, None
        if done is not None:
            done.set_result(None)

    async def _run(self) -> None:
        try:
            while self._dirty:
                dirty, self._dirty = self._dirty, []
                await self._flush(dirty)
                self._end_round()
        finally:
            self._task = None

    async def _flush(self, dirty: list[Log]) -> None:
        flushes = []
        for log in dirty:
            log.marked = False
            if log.offline is None and not log.held:
                flushes.append(log.begin_flush())
        now = asyncio.get_running_loop().time
        began_s = now()
        failure = await self._sync(flushes)
        self._seconds.observe(now() - began_s)
        if failure is not None:
            for flush in flushes:
                flush.log.flush_failed(failure)
            self._fail(failure)
            return
        self.flushes += 1
        self.files_synced += sum(len(flush.files) for flush in flushes)
        for flush in flushes:
            flush.log.mark_durable(flush)

    async def _sync(self, flushes: list[Flush]) -> OSError | None:
        """Why it failed, if it did; in any case nothing of it is under way any more."""
        jobs = [self._workers.run(sync, self._disk, share) for share in shares_of(flushes)]
        results = await asyncio.gather(*jobs, return_exceptions=True)
        for result in results:
            if isinstance(result, OSError):
                return result
            if isinstance(result, BaseException):
                raise result
        return None


def shares_of(flushes: list[Flush]) -> list[list[Flush]]:
    """What is synced side by side."""
    if sum(len(flush.files) for flush in flushes) > SYNC_ALL_FILES:
        return [flushes]
    return [flushes[at::SYNC_JOBS] for at in range(min(SYNC_JOBS, len(flushes)))]


def sync(disk: Disk, flushes: list[Flush]) -> None:
    """The work of one group commit, or a share of it. Blocks."""
    if sum(len(flush.files) for flush in flushes) > SYNC_ALL_FILES:
        _sync_all(disk, flushes)
    else:
        for flush in flushes:
            _sync_one(disk, flush)
    for flush in flushes:
        try:
            _write_down(disk, flush)
        except FileNotFoundError:
            if flush.log.offline is None:
                raise  # Else the topic was deleted meanwhile.
        except OSError as error:
            # A full disk costs the next start a longer scan; the data itself is synced.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            flush.unwritten = True


def _sync_all(disk: Disk, flushes: list[Flush]) -> None:
    try:
        disk.sync_all(posixpath.commonpath([flush.log.path for flush in flushes]))
    except FileNotFoundError:
        if any(flush.log.offline is None for flush in flushes):
            raise


def _sync_one(disk: Disk, flush: Flush) -> None:
    for file in flush.files:
        file.sync()
    if flush.directory is not None:
        try:
            disk.sync_dir(flush.directory)
        except FileNotFoundError:
            if flush.log.offline is None:
                raise


def _write_down(disk: Disk, flush: Flush) -> None:
    for path, body in flush.caches:
        files.write_cache(disk, path, body, flush.log.vault)
    if flush.checkpoint is not None:
        files.write_durably(disk, files.join(flush.log.path, files.CHECKPOINT), flush.checkpoint)
    for path in flush.obsolete:
        files.remove(disk, path)


def _reveal(task: "asyncio.Task[None]") -> None:
    """Lets the loop's exception handler see a bug; a cancelled flusher is none."""
    if not task.cancelled():
        task.result()
