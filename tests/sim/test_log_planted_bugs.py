"""The crash tests can fail: each planted bug is found in a few seeds.

Every one is a mistake that a real system shipped (RELIABILITY, 2.3 and 3). A bug that is no longer
found means that the workload or the checker no longer sees it, not that the bug is harmless.
"""

import errno
import random
from collections.abc import Callable
from typing import Any

import pytest

from penstock.log import files, flusher, persistence, recovery, segment_scan, state_rebuild
from penstock.log.cleanup.retention import Removal
from penstock.log.expected_batches import ExpectedBatches
from penstock.log.flusher import Flusher
from penstock.log.log import Log
from penstock.log.persistence import Flush
from penstock.log.producers import Producers
from penstock.log.segment import Segment
from penstock.wire.records import read_header
from simulation.disk import Fault, SimDisk, SimFile
from tests.sim.log_damage import flip_and_check
from tests.sim.log_history import Violation
from tests.sim.log_workload import PATH, Options, run_seed

SEEDS_MAX = 100

Patch = pytest.MonkeyPatch


def find(run: Callable[[int], object], *names: str) -> None:
    """Runs seeds until one fails with a violation of one of these names."""
    for seed in range(SEEDS_MAX):
        try:
            run(seed)
        except Violation as violation:
            if str(violation).split(":")[0] in names:
                return
            raise
    pytest.fail(f"not found in {SEEDS_MAX} seeds")


class EagerFlusher(Flusher):
    """Acknowledges what is written, and syncs afterwards."""

    async def _flush(self, dirty: list[Log]) -> None:
        for log in dirty:
            log.mark_durable(Flush(log, log.end_offset, [], None))
        await super()._flush(dirty)


def test_acknowledgement_before_the_sync_is_found() -> None:
    find(lambda seed: run_seed(seed, Options(make_flusher=EagerFlusher)), "lost")


class ForgetfulDisk(SimDisk):
    """As if the log never synced a directory."""

    def sync_dir(self, path: str) -> None:
        if PATH not in path:
            super().sync_dir(path)


def test_missing_directory_sync_is_found() -> None:
    find(lambda seed: run_seed(seed, Options(make_disk=ForgetfulDisk)), "lost", "offline")


def test_unsynced_closed_segment_is_found(monkeypatch: Patch) -> None:
    plan = persistence.plan_flush

    def plan_active_only(log: Log) -> Flush:
        flush = plan(log)
        flush.files = [file for file in flush.files if file is log.segments.active.file]
        return flush

    monkeypatch.setattr(persistence, "plan_flush", plan_active_only)
    find(run_seed, "lost", "offline", "damaged")


def test_checkpoint_written_before_the_sync_is_found(monkeypatch: Patch) -> None:
    sync = flusher.sync

    def write_first(disk: SimDisk, flushes: list[Flush]) -> None:
        for flush in flushes:
            if flush.checkpoint is not None:
                path = files.join(flush.log.path, files.CHECKPOINT)
                files.write_durably(disk, path, flush.checkpoint)
        sync(disk, flushes)

    monkeypatch.setattr(flusher, "sync", write_first)
    find(run_seed, "lost", "offline", "damaged")


def test_retried_failed_sync_is_found(monkeypatch: Patch) -> None:
    sync = flusher.sync

    def insist(disk: SimDisk, flushes: list[Flush]) -> None:
        try:
            sync(disk, flushes)
        except OSError:
            sync(disk, flushes)

    def faults(rng: random.Random) -> list[Fault]:
        return [Fault("sync", errno.EIO, path=".log", skip=rng.randint(0, 8))]

    monkeypatch.setattr(flusher, "sync", insist)
    find(lambda seed: run_seed(seed, Options(faults=faults)), "lost", "offline", "damaged")


def test_recovery_that_accepts_any_batch_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(segment_scan, "check_stored", read_header)
    find(run_seed, "changed", "invented", "lost", "offline", "damaged")


def test_recovery_without_a_sync_is_found(monkeypatch: Patch) -> None:
    """A process that was killed left a tail in the page cache; its successor believes it."""
    opening = 0  # A count: at each operation of an opening, copies of the disk are opened, too.
    open_directory, sync = recovery.open_directory, SimFile.sync

    def open_lazily(*args: Any) -> recovery.Recovered:
        nonlocal opening
        opening += 1
        try:
            return open_directory(*args)
        finally:
            opening -= 1

    def sync_unless_opening(file: SimFile) -> None:
        if not (opening and file.path.endswith(".log")):
            sync(file)

    monkeypatch.setattr(recovery, "open_directory", open_lazily)
    monkeypatch.setattr(SimFile, "sync", sync_unless_opening)
    find(run_seed, "lost", "offline", "damaged")


def test_recovery_that_forgets_producers_is_found(monkeypatch: Patch) -> None:
    def no_producers(*args: Any) -> Producers:
        producers = Producers(args[-1])
        producers.end_offset = args[-2]
        return producers

    monkeypatch.setattr(recovery, "rebuild_producers", no_producers)
    monkeypatch.setattr(state_rebuild, "rebuild_producers", no_producers)
    find(run_seed, "forgetful")


def test_recovery_that_truncates_below_the_recovery_point_is_found(monkeypatch: Patch) -> None:
    def from_the_start(disk: SimDisk, path: str, segments: list[Any]) -> files.Checkpoint:
        first = segments[0].base_offset if segments else 0
        return files.Checkpoint(first, first, 0, first)

    monkeypatch.setattr(recovery, "recovery_point", from_the_start)
    find(flip_and_check, "lost")


def test_unchecked_offsets_and_epochs_are_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(ExpectedBatches, "admits", lambda self, header, next_offset: True)
    monkeypatch.setattr(Segment, "check_place", lambda self, header, position, next_offset: None)
    find(flip_and_check, "changed", "invented", "disordered", "lost")


def test_recovery_that_trusts_the_page_cache_is_found(monkeypatch: Patch) -> None:
    """It only syncs what it found, and a sync of pages that look clean does nothing."""

    def faults(rng: random.Random) -> list[Fault]:
        return [Fault("sync", errno.EIO, path=".log", skip=rng.randint(0, 8))]

    monkeypatch.setattr(recovery, "_rewrite", lambda file, position, end: None)
    find(lambda seed: run_seed(seed, Options(faults=faults)), "lost", "offline", "damaged")


def test_files_removed_before_the_start_offset_is_durable_are_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Removal, "is_due", lambda self, now_ms: True)
    options = Options(make_disk=lambda seed: SimDisk(seed, journaled=False))
    find(lambda seed: run_seed(seed, options), "lost", "offline", "damaged", "disordered")


def test_epochs_removed_before_the_start_offset_is_durable_are_found(monkeypatch: Patch) -> None:
    delete_before = Log.delete_before

    def forget(log: Log, offset: int) -> None:
        delete_before(log, offset)
        log.epochs.truncate_start(log.start_offset)

    monkeypatch.setattr(Log, "delete_before", forget)
    find(run_seed, "forgetful")


def test_reader_without_checksums_is_found(monkeypatch: Patch) -> None:
    from penstock.log.read_span import ReadSpan

    monkeypatch.setattr(ReadSpan, "_verify", lambda self, data: None)
    find(flip_and_check, "changed")
