"""`penstock generate`: to standard output or to files."""

import json
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.observability.dashboards import DASHBOARDS


def test_one_dashboard_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["generate", "grafana", "queues"]) == 0
    assert json.loads(capsys.readouterr().out)["uid"] == "penstock-queues"


def test_all_dashboards_are_written_to_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["generate", "grafana", "-o", str(tmp_path / "new")]) == 0
    written = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert written == sorted(f"penstock-{name}.json" for name in DASHBOARDS)
    assert len(capsys.readouterr().out.splitlines()) == len(DASHBOARDS)


def test_without_a_name_or_a_directory_the_names_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["generate", "grafana"]) == 1
    assert "overview, topics, queues, cluster" in capsys.readouterr().err


def test_alerts_take_thresholds(tmp_path: Path) -> None:
    path = tmp_path / "alerts.yml"
    assert main.run(["generate", "alerts", "--lag-records", "7", "-o", str(path)]) == 0
    assert "penstock_group_partition_lag) > 7'" in path.read_text()


def test_a_target_must_be_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["generate", "prometheus", "-t", "node:8080", "-t", "[::1]:80"]) == 0
    assert "'node:8080'" in capsys.readouterr().out
    assert main.run(["generate", "prometheus", "-t", "http://node:8080"]) == 1
    assert "HOST:PORT" in capsys.readouterr().err
