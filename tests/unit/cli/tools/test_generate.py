"""`penstock generate`: to standard output or to files."""

import json
from pathlib import Path

import pytest
import yaml

from penstock.cli import main
from penstock.cli.tools.generate import DASHBOARDS
from tests.deploy.packaged import SETTINGS, read


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


def test_generate_without_a_name_or_a_directory_lists_the_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["generate", "grafana"]) == 1
    assert "overview, topics, queues, cluster" in capsys.readouterr().err


def test_alert_thresholds_are_configurable(tmp_path: Path) -> None:
    path = tmp_path / "alerts.yml"
    assert main.run(["generate", "alerts", "--lag-records", "7", "-o", str(path)]) == 0
    (group,) = yaml.safe_load(path.read_text())["groups"]
    (lag,) = (rule for rule in group["rules"] if rule["alert"] == "PenstockPartitionLag")
    assert lag["expr"].endswith("(penstock_group_partition_lag) > 7")


def test_scrape_settings_name_every_node(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["-t", "node:8080", "-t", "[::1]:80", "--interval", "30", "--rules", "r.yml", "--tls"]
    assert main.run(["generate", "prometheus", *options]) == 0
    settings = yaml.safe_load(capsys.readouterr().out)
    assert settings["global"] == {"scrape_interval": "30s", "evaluation_interval": "30s"}
    assert settings["rule_files"] == ["r.yml"]
    (job,) = settings["scrape_configs"]
    assert job["scheme"] == "https"
    assert job["static_configs"] == [{"targets": ["node:8080", "[::1]:80"]}]


def test_scrape_settings_default_to_the_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["generate", "prometheus"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == read(SETTINGS)


def test_invalid_target_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["generate", "prometheus", "-t", "http://node:8080"]) == 1
    assert "HOST:PORT" in capsys.readouterr().err
