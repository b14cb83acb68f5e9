"""What the doctor says of a machine: each finding where it begins to matter, with what to do."""

from pathlib import Path

import pytest

from penstock.cli.cluster import machine_checks
from penstock.cli.cluster.machine_checks import CheckVerdict

OK, WARN, FAIL, SKIPPED = (
    CheckVerdict.ok,
    CheckVerdict.warn,
    CheckVerdict.fail,
    CheckVerdict.skipped,
)
GIB = 1 << 30


@pytest.mark.parametrize(
    ("free", "verdict"), [(50, OK), (15, OK), (14, WARN), (5, WARN), (4, FAIL), (0, FAIL)]
)
def test_space_matters_long_before_there_is_none(free: int, verdict: CheckVerdict) -> None:
    check = machine_checks.judge_space("disk space", "/data", 100 * GIB, free * GIB)
    assert check.verdict is verdict
    assert f"({free} %)" in check.finding
    assert ("retention" in check.action) == (verdict is not OK)


@pytest.mark.parametrize(("median", "verdict"), [(0.3, OK), (21, WARN), (201, FAIL)])
def test_a_disk_is_judged_by_its_usual_sync_not_by_its_worst(
    median: float, verdict: CheckVerdict
) -> None:
    check = machine_checks.judge_syncs([median] * 9 + [900.0])
    assert check.verdict is verdict
    assert "900.0 ms" in check.finding


@pytest.mark.parametrize(
    ("soft", "verdict"), [(1024, FAIL), (20_000, WARN), (65_536, OK), (-1, OK)]
)
def test_few_open_files_are_too_few(soft: int, verdict: CheckVerdict) -> None:
    assert machine_checks.judge_files(soft).verdict is verdict


@pytest.mark.parametrize(
    ("state", "error_ms", "verdict"),
    [(0, 3.0, OK), (0, 2_000.0, WARN), (5, 0.0, WARN), (-1, 0.0, SKIPPED)],
)
def test_a_clock_that_nobody_keeps_is_told_of(
    state: int, error_ms: float, verdict: CheckVerdict
) -> None:
    assert machine_checks.judge_clock(state, error_ms).verdict is verdict


def test_the_disk_is_measured_where_the_data_is_or_would_be(tmp_path: Path) -> None:
    found = machine_checks.check_disk(tmp_path / "not" / "there" / "yet")
    assert [check.name for check in found] == ["disk space", "sync"]
    assert str(tmp_path) in found[0].finding
    assert "durable" in found[1].finding
    assert list(tmp_path.iterdir()) == []


def test_this_machine_can_be_asked() -> None:
    assert machine_checks.check_files().name == "open files"
    assert machine_checks.check_clock().name == "clock"


def test_a_config_is_read_as_the_node_would(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('data = "d"\n"num.partitions" = 3\n')
    assert machine_checks.check_config(str(path)).verdict is OK
    path.write_text('data = "d"\n"num.partitons" = 3\n')
    check = machine_checks.check_config(str(path))
    assert check.verdict is FAIL
    assert "num.partitons" in check.finding
    path.write_text("insecure = true\n")
    assert machine_checks.check_config(str(path)).verdict is WARN
    assert machine_checks.check_config(None).verdict is SKIPPED
