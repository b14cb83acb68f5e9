"""Group commit: one sync for everything that was appended since the last one.

Call `mark(log)` after an append. While there are dirty logs, one flush at a time is in progress: it
takes the end offset of each dirty log and syncs the files in workers. Only then are those offsets
durable, and the owners are notified (`Log.on_durable`). The next flush covers later appends.

Files of one flush are synced by `SYNC_JOBS` workers in parallel: they wait for the same disk, and
a journaling file system commits once for all of them. With more than `SYNC_ALL_FILES` files, one
sync of the whole file system is cheaper; all logs of a node are on one.

A new file is durable only with its directory, so a log with a new segment needs both synced.
Caches and checkpoints are written after the sync: a checkpoint covers only bytes that are on disk.

A failed sync is never repeated: the kernel has dropped the pages and a second sync would succeed
without them. Every log of that flush goes offline, nothing is acknowledged, and `fail` is called.

`hold` keeps flushes away from one log while another task changes its files in a worker. Batches
appended meanwhile are written, and acknowledged after the hold.

The worker touches only the files handed to it, and nothing else of a log. A topic may be deleted
meanwhile: its logs go offline first, and then a missing directory is not a failure.
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
        """`seconds` observes the duration of each sync, including the wait for a worker."""
        self._seconds = seconds if seconds is not None else Histogram()
        self._disk = disk
        self._workers = workers
        self._fail = fail
        self._dirty: list[Log] = []
        self._held: list[Log] = []
        self._task: asyncio.Task[None] | None = None
        self._round: asyncio.Future[None] | None = None  # Ends with the flush in progress.
        self.flushes = 0
        self.files_synced = 0

    def mark(self, log: Log) -> None:
        """Queues a dirty `log` for the next flush. Cheap when it is already queued."""
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
        """Waits until every marked log, including those marked meanwhile, has been synced."""
        while self._task is not None or self._held:
            if self._task is not None:
                await asyncio.shield(self._task)
            else:
                await self._next_round()

    async def settle(self, log: Log) -> None:
        """Waits until no flush of `log` is running or due; flushes of other logs do not matter."""
        while log.flushing or log.marked or log.held:
            await self._next_round()

    @asynccontextmanager
    async def hold(self, log: Log) -> AsyncIterator[None]:
        """Keeps flushes of `log` from running inside. One holder at a time; the next one waits."""
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
        """Syncs in workers; returns the error of a failure. All workers are done in any case."""
        jobs = [self._workers.run(sync, self._disk, share) for share in shares_of(flushes)]
        results = await asyncio.gather(*jobs, return_exceptions=True)
        for result in results:
            if isinstance(result, OSError):
                return result
            if isinstance(result, BaseException):
                raise result
        return None


def shares_of(flushes: list[Flush]) -> list[list[Flush]]:
    """Splits flushes into shares to be synced in parallel."""
    if sum(len(flush.files) for flush in flushes) > SYNC_ALL_FILES:
        return [flushes]
    return [flushes[at::SYNC_JOBS] for at in range(min(SYNC_JOBS, len(flushes)))]


def sync(disk: Disk, flushes: list[Flush]) -> None:
    """Performs one group commit, or a share of it. Blocks."""
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
                raise  # Otherwise the topic was deleted meanwhile.
        except OSError as error:
            # On a full disk the next start needs a longer scan; the data itself is synced.
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
        files.write_cache(disk, path, body, flush.log.cipher)
    if flush.checkpoint is not None:
        files.write_durably(disk, files.join(flush.log.path, files.CHECKPOINT), flush.checkpoint)
    for path in flush.obsolete:
        files.remove(disk, path)


def _reveal(task: "asyncio.Task[None]") -> None:
    """Passes a bug to the loop's exception handler; a cancelled flusher is not one."""
    if not task.cancelled():
        task.result()
