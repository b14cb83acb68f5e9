"""`penstock cluster accept-loss`: names a replica that the data directory knows, and asks first."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.cluster.accept_loss import accept_loss
from penstock.cluster.metadata import accepted_losses
from penstock.cluster.replication.high_watermark_checkpoint import (
    FORMAT,
    FORMAT_KEY,
    HighWatermarkFile,
)
from penstock.runtime.disk import LocalDisk


def known(tmp_path: Path) -> LocalDisk:
    disk = LocalDisk()
    ends = {FORMAT_KEY: FORMAT, "a.b.AAAAAAAAAAAAAAAAAAAAAA/0": 7, "a.BBBBBBBBBBBBBBBBBBBBBB/0": 3}
    HighWatermarkFile(disk, str(tmp_path)).write(ends)
    return disk


def call(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(accept_loss, words)
    return result.exit_code, result.output + str(result.exception or "")


def test_accept_loss_leaves_a_request_for_the_named_replica(tmp_path: Path) -> None:
    disk = known(tmp_path)
    code, said = call("a.b", "0", "--data", str(tmp_path), "--yes")
    assert code == 0, said
    assert accepted_losses.asked(disk, str(tmp_path)) == ["a.b.AAAAAAAAAAAAAAAAAAAAAA/0"]
    accepted_losses.done(disk, str(tmp_path), accepted_losses.asked(disk, str(tmp_path)))
    assert accepted_losses.asked(disk, str(tmp_path)) == []


def test_accept_loss_refuses_an_unknown_replica(tmp_path: Path) -> None:
    disk = known(tmp_path)
    for topic, index in (("a", "1"), ("b", "0")):
        code, said = call(topic, index, "--data", str(tmp_path), "--yes")
        assert code != 0
        assert "does not know a replica" in said
    assert accepted_losses.asked(disk, str(tmp_path)) == []


@pytest.mark.parametrize("words", [("a", "0"), ("--all",)])
def test_accept_loss_needs_confirmation(tmp_path: Path, words: tuple[str, ...]) -> None:
    disk = known(tmp_path)
    code, said = call(*words, "--data", str(tmp_path))
    assert code != 0
    assert "pass --yes to confirm" in said
    assert accepted_losses.asked(disk, str(tmp_path)) == []


def test_accept_loss_all_requests_every_replica_without_a_log_file(tmp_path: Path) -> None:
    disk = known(tmp_path)
    for name in ("a.b.AAAAAAAAAAAAAAAAAAAAAA/0", "a.BBBBBBBBBBBBBBBBBBBBBB/0"):
        (tmp_path / "logs" / name).mkdir(parents=True)
    (tmp_path / "logs" / "a.BBBBBBBBBBBBBBBBBBBBBB" / "0" / f"{0:020d}.log").touch()
    code, said = call("--all", "--data", str(tmp_path))
    assert "Accept the loss of records of 1 replica on this node (a.b-0)?" in said
    code, said = call("--all", "--data", str(tmp_path), "--yes")
    assert code == 0, said
    assert accepted_losses.asked(disk, str(tmp_path)) == ["a.b.AAAAAAAAAAAAAAAAAAAAAA/0"]


def test_accept_loss_all_lists_some_replicas_and_counts_the_rest(tmp_path: Path) -> None:
    disk = LocalDisk()
    names = [f"t.BBBBBBBBBBBBBBBBBBBBBB/{index}" for index in range(50)]
    HighWatermarkFile(disk, str(tmp_path)).write({FORMAT_KEY: FORMAT, **dict.fromkeys(names, 1)})
    _, said = call("--all", "--data", str(tmp_path))
    assert "of 50 replicas on this node (t-0, " in said
    assert "and 30 more)?" in said
    assert call("--all", "--data", str(tmp_path), "--yes")[0] == 0
    assert sorted(accepted_losses.asked(disk, str(tmp_path))) == sorted(names)


def test_accept_loss_all_reports_that_nothing_is_missing(tmp_path: Path) -> None:
    disk = LocalDisk()
    code, said = call("--all", "--data", str(tmp_path), "--yes")
    assert code != 0
    assert "does not know any replica" in said
    HighWatermarkFile(disk, str(tmp_path)).write(
        {FORMAT_KEY: FORMAT, "t.BBBBBBBBBBBBBBBBBBBBBB/0": 1}
    )
    (tmp_path / "logs" / "t.BBBBBBBBBBBBBBBBBBBBBB" / "0").mkdir(parents=True)
    (tmp_path / "logs" / "t.BBBBBBBBBBBBBBBBBBBBBB" / "0" / f"{0:020d}.log").touch()
    code, said = call("--all", "--data", str(tmp_path), "--yes")
    assert code != 0
    assert "have log files" in said
    assert accepted_losses.asked(disk, str(tmp_path)) == []


@pytest.mark.parametrize("words", [(), ("a",), ("a", "0", "--all"), ("a", "--all")])
def test_accept_loss_takes_one_replica_or_all(tmp_path: Path, words: tuple[str, ...]) -> None:
    known(tmp_path)
    code, said = call(*words, "--data", str(tmp_path), "--yes")
    assert code == 2
    assert "pass a topic and a partition, or --all" in said
