"""Acknowledged means on disk: one log, and the power cut at every operation of its life.

See `log_workload` for what happens to the log and `log_history` for what is checked. The planted
bugs of `test_log_planted_bugs` show that these checks find what they are for.
"""

import errno
import random

import pytest

from penstock.log import flusher, persistence
from simulation.disk import Fault
from tests.sim.log_damage import flip_and_check
from tests.sim.log_workload import PATH, Options, run_seed
from tests.sim.seeds import replayable, seeds

OPERATIONS = ("append", "truncate", "sync", "sync_dir", "open", "rename", "unlink", "read", "*")


@pytest.mark.parametrize("seed", seeds(6))
def test_power_cut_at_any_operation_loses_nothing_acknowledged(
    seed: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:  # Checkpoints also without a roll.
        monkeypatch.setattr(persistence, "CHECKPOINT_BYTES", 2_000)
    if seed % 3 == 0:  # The whole file system at once.
        monkeypatch.setattr(flusher, "SYNC_ALL_FILES", 0)
        monkeypatch.setattr(persistence, "SYNC_ALL_LOGS", 0)
    with replayable(seed, request):
        results = run_seed(seed)
    assert results.cuts >= results.operations > 300
    assert results.acknowledged > 0


@pytest.mark.parametrize("seed", seeds(120))
def test_io_error_at_any_operation_is_never_acknowledged(
    seed: int, request: pytest.FixtureRequest
) -> None:
    def faults(rng: random.Random) -> list[Fault]:
        operation = "sync" if rng.random() < 0.4 else rng.choice(OPERATIONS)
        return [Fault(operation, errno.EIO, path=PATH, skip=rng.randint(0, 60))]

    with replayable(seed, request):
        run_seed(seed, Options(cut_every_operation=False, faults=faults))


@pytest.mark.parametrize("seed", seeds(3))
def test_power_cuts_after_a_failed_sync_lose_nothing_acknowledged(
    seed: int, request: pytest.FixtureRequest
) -> None:
    def faults(rng: random.Random) -> list[Fault]:
        return [Fault("sync", errno.EIO, path=".log", skip=rng.randint(0, 8))]

    with replayable(seed, request):
        results = run_seed(seed, Options(faults=faults))
    assert results.faults > 0


@pytest.mark.parametrize("seed", seeds(80))
def test_full_disk_at_any_operation_breaks_nothing(
    seed: int, request: pytest.FixtureRequest
) -> None:
    def faults(rng: random.Random) -> list[Fault]:
        return [
            Fault(rng.choice(("append", "append", "open", "rename", "*")), errno.ENOSPC, PATH, skip)
            for skip in sorted(rng.randint(0, 80) for _ in range(6))
        ]

    with replayable(seed, request):
        run_seed(seed, Options(cut_every_operation=False, faults=faults))


@pytest.mark.parametrize("seed", seeds(60))
def test_damage_below_the_durable_offset_is_never_served_or_truncated(
    seed: int, request: pytest.FixtureRequest
) -> None:
    with replayable(seed, request):
        flip_and_check(seed)
