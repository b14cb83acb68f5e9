"""`penstock doctor` against a broker, and without one."""

import json
from pathlib import Path

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId, show_topic_id
from penstock.cli import main
from penstock.cli.cluster import doctor
from penstock.cli.cluster.doctor import Check, CheckVerdict, judge_cluster, judge_logs, unreachable
from penstock.client.metadata import PartitionInfo, TopicInfo

UNREACHABLE = "127.0.0.1:1"


def test_unreachable_cluster_fails_and_other_checks_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["doctor", "--data", str(tmp_path), "-b", UNREACHABLE, "--format", "json"]
    assert main.run(arguments) == 1
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["cluster"]["verdict"] == "fail"
    assert "penstock up" in found["cluster"]["action"]
    assert {"disk space", "sync", "open files", "clock", "config"} <= found.keys()


def test_action_is_printed_below_the_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    web = "http://127.0.0.1:1"
    assert main.run(["doctor", "--data", str(tmp_path), "-b", UNREACHABLE, "--http", web]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("fail") and web in line)
    assert "->" in lines[at + 1]


def test_invalid_http_address_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["doctor", "--data", str(tmp_path), "-b", UNREACHABLE, "--http", "x"]) == 1
    assert "--http" in capsys.readouterr().err


def topic(name: str, *rows: tuple[int, tuple[int, ...], tuple[int, ...]]) -> TopicInfo:
    """Leader, replicas and ISR of each partition."""
    partitions = {
        index: PartitionInfo(index, leader, 0, replicas, isr, (), ErrorCode.NONE)
        for index, (leader, replicas, isr) in enumerate(rows)
    }
    return TopicInfo(name, TopicId(bytes(16)), False, partitions)


def judged(topics: list[TopicInfo], nodes: list[int], controller: int = 1) -> dict[str, Check]:
    return {check.name: check for check in judge_cluster(topics, nodes, controller)}


def test_cluster_with_every_replica_in_sync_is_ok() -> None:
    found = judged([topic("t", (1, (1, 2, 3), (1, 2, 3)))], [1, 2, 3])
    assert {check.verdict for check in found.values()} == {CheckVerdict.ok}


def test_logs_of_unknown_topics_are_named() -> None:
    known = topic("t", (1, (1,), (1,)))
    ours = f"t.{show_topic_id(known.topic_id)}"
    other = f"orders.{show_topic_id(TopicId(b'x' * 16))}"
    assert judge_logs([known], [ours, ".retired"]).verdict is CheckVerdict.ok
    found = judge_logs([known], [ours, other])
    assert found.verdict is CheckVerdict.warn
    assert other in found.finding
    assert "restore-metadata" in found.action


def test_partition_without_a_leader_fails_by_name() -> None:
    found = judged([topic("t", (1, (1,), (1,)), (-1, (4,), (4,)))], [1, 2, 3])
    assert found["leaders"].verdict is CheckVerdict.fail
    assert "t-1" in found["leaders"].finding
    assert found["replication"].verdict is CheckVerdict.warn


def test_missing_replica_names_the_node_to_start() -> None:
    found = judged([topic("t", (1, (1, 2, 3), (1, 2)))], [1, 2])
    assert found["replicas"].verdict is CheckVerdict.warn
    assert "start node 3" in found["replicas"].action
    assert "third" in found["cluster"].action


def test_long_list_of_names_is_shortened() -> None:
    rows = [(1, (1, 2), (1,))] * 8
    found = judged([topic("t", *rows)], [1, 2, 3])
    assert found["replicas"].finding.startswith("t-0, t-1, t-2, t-3, t-4 and 3 more")


def test_missing_controller_fails() -> None:
    assert judged([], [1, 2, 3], 9)["cluster"].verdict is CheckVerdict.fail
    assert unreachable("refused").verdict is CheckVerdict.fail


def test_single_replica_is_ok_on_a_single_node() -> None:
    found = judged([topic("t", (1, (1,), (1,)))], [1])
    assert found["replication"].verdict is CheckVerdict.ok


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
def test_low_disk_space_is_reported_early(free: int, verdict: CheckVerdict) -> None:
    check = doctor.judge_space("disk space", "/data", 100 * GIB, free * GIB)
    assert check.verdict is verdict
    assert f"({free} %)" in check.finding
    assert ("retention" in check.action) == (verdict is not OK)


@pytest.mark.parametrize(("median", "verdict"), [(0.3, OK), (21, WARN), (201, FAIL)])
def test_disk_is_judged_by_its_median_sync(median: float, verdict: CheckVerdict) -> None:
    check = doctor.judge_syncs([median] * 9 + [900.0])
    assert check.verdict is verdict
    assert "900.0 ms" in check.finding


@pytest.mark.parametrize(
    ("soft", "verdict"), [(1024, FAIL), (20_000, WARN), (65_536, OK), (-1, OK)]
)
def test_low_open_file_limit_is_reported(soft: int, verdict: CheckVerdict) -> None:
    assert doctor.judge_files(soft).verdict is verdict


@pytest.mark.parametrize(
    ("state", "error_ms", "verdict"),
    [(0, 3.0, OK), (0, 2_000.0, WARN), (5, 0.0, WARN), (-1, 0.0, SKIPPED)],
)
def test_unsynchronized_clock_is_reported(
    state: int, error_ms: float, verdict: CheckVerdict
) -> None:
    assert doctor.judge_clock(state, error_ms).verdict is verdict


def test_disk_check_measures_the_data_directory_or_its_parent(tmp_path: Path) -> None:
    found = doctor.check_disk(tmp_path / "not" / "there" / "yet")
    assert [check.name for check in found] == ["disk space", "sync"]
    assert str(tmp_path) in found[0].finding
    assert "durable" in found[1].finding
    assert list(tmp_path.iterdir()) == []


def test_machine_checks_run_on_this_machine() -> None:
    assert doctor.check_files().name == "open files"
    assert doctor.check_clock().name == "clock"


def test_config_check_reads_files_like_the_node(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('data = "d"\n"num.partitions" = 3\n')
    assert doctor.check_config(str(path)).verdict is OK
    path.write_text('data = "d"\n"num.partitons" = 3\n')
    check = doctor.check_config(str(path))
    assert check.verdict is FAIL
    assert "num.partitons" in check.finding
    path.write_text("insecure = true\n")
    assert doctor.check_config(str(path)).verdict is WARN
    assert doctor.check_config(None).verdict is SKIPPED
