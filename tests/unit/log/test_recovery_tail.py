"""`penstock.log.recovery`: a kept tail is made durable before it counts as durable."""

import errno
import random

import pytest

from simulation.disk import Fault, SimDisk
from tests.unit.log.building import fill, flush, make_disk, offsets, open_log, read_all

pytestmark = pytest.mark.usefixtures("in_both_modes")


@pytest.mark.parametrize("seed", range(20))
def test_recovery_makes_pages_of_a_failed_sync_durable(
    seed: int,
) -> None:
    """The first process dies of a failed sync, the power stays on; it goes only later."""
    disk = make_disk(seed)
    log = open_log(disk)
    fill(log, 5)
    flush(log)
    fill(log, 20)
    disk.inject(Fault("sync", errno.EIO, path=".log", skip=seed % 3))
    with pytest.raises(OSError, match="error"):
        flush(log)
    again = open_log(disk)
    assert (again.offline, again.durable_offset) == (None, 25)
    rng = random.Random(seed)
    for _ in range(10):
        after = open_log(disk.crashed(rng))
        assert (after.offline, after.end_offset) == (None, 25)
        assert offsets(read_all(after)) == list(range(25))


def test_power_cut_while_the_tail_is_made_durable_loses_nothing_that_was() -> None:
    disk = make_disk()
    log = open_log(disk)
    fill(log, 5)
    flush(log)
    fill(log, 7)
    flush(log)  # Durable, although no checkpoint says so.
    fill(log, 20)
    rng = random.Random(1)
    cuts: list[SimDisk] = []
    disk.on_operation = lambda: cuts.extend(disk.crashed(rng) for _ in range(10))
    assert open_log(disk).end_offset == 32
    assert len(cuts) > 50
    for cut in cuts:
        after = open_log(cut)
        assert after.offline is None
        assert offsets(read_all(after))[:12] == list(range(12))
