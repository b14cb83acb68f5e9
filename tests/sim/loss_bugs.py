"""Bugs in how nodes deal with what they lost between two lives: see `test_loss_planted_bugs`.

As `cluster_bugs`, for runs of `simulation.lost_state_faults`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from penstock.cluster.replication import unclean_restart
from penstock.cluster.replication.high_watermark_checkpoint import HighWatermarkCheckpoint
from penstock.cluster.replication.partition import Partition
from penstock.cluster.replication.replica_follower import ReplicaFollower
from penstock.cluster.storage.log_directories import LogDirectories
from penstock.log import doubtful_tail, recovery
from penstock.node import data_directory, open_logs, process_lives

Patch = pytest.MonkeyPatch


class Bug(NamedTuple):
    """A change of the code, the promise it breaks, and a seed that shows it."""

    plant: Callable[[Patch], None]
    checker: str
    first: int


# -- what a node knows of itself ----------------------------------------------------------------


def a_missing_log_is_taken_for_a_new_one(patch: Patch) -> None:
    """As it was: what is not there has never been."""
    patch.setattr(HighWatermarkCheckpoint, "known_end", lambda self, name: -1)


def damage_is_taken_for_a_torn_tail(patch: Patch) -> None:
    """As it was: recovery cuts at the first bad batch, whatever was committed after it."""
    real = recovery._repair_tail

    def planted(disk: Any, path: str, segments: Any, point: Any, known_end: int) -> int:
        return real(disk, path, segments, point, -1)

    patch.setattr(recovery, "_repair_tail", planted)


def damage_above_the_known_end_raises_no_doubt(patch: Patch) -> None:
    """The former behaviour: what no checkpoint covers is a torn tail."""
    patch.setattr(doubtful_tail, "is_doubtful", lambda segments, position, epoch: False)


def an_older_copy_is_trusted(patch: Patch) -> None:
    """The former behaviour: a clean-shutdown marker is taken as proof of a complete log."""
    patch.setattr(process_lives, "is_older", lambda here, directory_id, last: False)


def a_life_is_written_down_nowhere_but_in_the_store(patch: Patch) -> None:
    """Then every directory seems older than its node."""
    patch.setattr(data_directory, "write_life", lambda disk, data_dir, number: None)


def what_is_not_on_disk_yet_counts_as_known(patch: Patch) -> None:
    """After a crash whole replicas are taken for lost, all of them at once."""
    patch.setattr(Partition, "known_end", property(lambda self: self.log.end_offset))


# -- who counts on it -----------------------------------------------------------------------------


def an_older_copy_keeps_its_place(patch: Patch) -> None:
    """It is found out, and only its marker is not believed."""
    real = unclean_restart.withdraw_unclean

    async def planted(*arguments: Any, **options: Any) -> int:
        return await real(*arguments, **{**options, "is_old": False})

    patch.setattr(open_logs, "withdraw_unclean", planted)


# -- going back -----------------------------------------------------------------------------------


def a_lost_log_is_made_anew_at_once(patch: Patch) -> None:
    """Empty and online, before the cluster knows of the loss."""
    real = LogDirectories._open

    def planted(self: LogDirectories, one: Any, clean: Any) -> Any:
        found = real(self, one, clean)
        if found.is_lost:
            if self._disk.exists(found.path):
                self._disk.rename(found.path, found.path + ".bad")
            return real(self, replace(one, known_end=-1), None)
        return found

    patch.setattr(LogDirectories, "_open", planted)


def a_lost_log_is_never_copied_anew(patch: Patch) -> None:
    patch.setattr(ReplicaFollower, "reconsider", lambda self: None)


BUGS = [
    Bug(a_missing_log_is_taken_for_a_new_one, "truncated", 1),
    Bug(damage_is_taken_for_a_torn_tail, "truncated", 1),
    Bug(damage_above_the_known_end_raises_no_doubt, "truncated", 18),
    Bug(an_older_copy_is_trusted, "truncated", 12),
    Bug(a_life_is_written_down_nowhere_but_in_the_store, "stuck", 0),
    Bug(what_is_not_on_disk_yet_counts_as_known, "stuck", 2),
    Bug(an_older_copy_keeps_its_place, "truncated", 15),
    Bug(a_lost_log_is_made_anew_at_once, "truncated", 4),
    Bug(a_lost_log_is_never_copied_anew, "stuck", 0),
]
