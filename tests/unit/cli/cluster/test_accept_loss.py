"""`penstock cluster accept-loss`: names a replica that the data directory knows, and asks first."""

from pathlib import Path

from click.testing import CliRunner

from penstock.cli.cluster.accept_loss import accept_loss
from penstock.cluster.metadata import accepted_losses
from penstock.cluster.replication.high_watermark_checkpoint import (
    FORMAT,
    FORMAT_KEY,
    HighWatermarks,
)
from penstock.runtime.disk import LocalDisk


def known(tmp_path: Path) -> LocalDisk:
    disk = LocalDisk()
    ends = {FORMAT_KEY: FORMAT, "a.b.AAAAAAAAAAAAAAAAAAAAAA/0": 7, "a.BBBBBBBBBBBBBBBBBBBBBB/0": 3}
    HighWatermarks(disk, str(tmp_path)).write(ends)
    return disk


def call(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(accept_loss, words)
    return result.exit_code, result.output + str(result.exception or "")


def test_it_leaves_a_request_for_the_replica_that_was_named(tmp_path: Path) -> None:
    disk = known(tmp_path)
    code, said = call("a.b", "0", "--data", str(tmp_path), "--yes")
    assert code == 0, said
    assert accepted_losses.asked(disk, str(tmp_path)) == ["a.b.AAAAAAAAAAAAAAAAAAAAAA/0"]
    accepted_losses.done(disk, str(tmp_path), accepted_losses.asked(disk, str(tmp_path)))
    assert accepted_losses.asked(disk, str(tmp_path)) == []


def test_it_refuses_what_the_directory_does_not_know(tmp_path: Path) -> None:
    disk = known(tmp_path)
    for topic, index in (("a", "1"), ("b", "0")):
        code, said = call(topic, index, "--data", str(tmp_path), "--yes")
        assert code != 0
        assert "does not know of a replica" in said
    assert accepted_losses.asked(disk, str(tmp_path)) == []


def test_it_does_nothing_without_a_yes(tmp_path: Path) -> None:
    disk = known(tmp_path)
    code, _ = call("a", "0", "--data", str(tmp_path))
    assert code != 0
    assert accepted_losses.asked(disk, str(tmp_path)) == []
