"""Alert rules: PromQL over metrics that exist, YAML that Prometheus reads, a first step each."""

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from penstock.cli import main
from tests.deploy.catalogue import EVERYWHERE, samples, used
from tests.deploy.packaged import RULES, SETTINGS, alerts, read

ALL = alerts()
WANTED = {
    "PenstockPartitionLag": "5m",
    "PenstockUnderReplicated": "1m",
    "PenstockDeadLetters": "0m",
    "PenstockDiskFillsUp": "10m",
    "PenstockHotPartition": "10m",
    "PenstockFailedLogins": "5m",
    "PenstockLoopLag": "5m",
}


@pytest.mark.parametrize("alert", ALL, ids=lambda alert: alert["alert"])
def test_every_rule_queries_existing_metrics_and_labels(alert: dict[str, Any]) -> None:
    known = samples()
    metrics, grouped = used(alert["expr"])
    assert metrics
    for name, labels in metrics.items():
        assert name in known, f"{name} is in no catalogue"
        assert labels | grouped <= known[name], name
    # Labels in a message must still exist after the aggregation.
    shown = set(re.findall(r"\$labels\.(\w+)", " ".join(alert["annotations"].values())))
    left = grouped - {"le"} or set.intersection(*(known[name] for name in metrics)) | EVERYWHERE
    assert shown <= left, shown - left


@pytest.mark.parametrize("alert", ALL, ids=lambda alert: alert["alert"])
def test_every_rule_has_a_summary_and_an_action(alert: dict[str, Any]) -> None:
    assert alert["annotations"].keys() == {"summary", "action"}
    assert all(text.endswith(".") for text in alert["annotations"].values())
    assert alert["labels"]["severity"] in ("warning", "critical")
    assert re.fullmatch(r"\d+m", alert["for"])


def test_required_rules_exist() -> None:
    waits = {alert["alert"]: alert["for"] for alert in ALL}
    assert {name: waits.get(name) for name in WANTED} == WANTED
    assert len(waits) == len(ALL)


def generated(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main.run(["generate", "alerts", *options]) == 0
    return capsys.readouterr().out


def expressions(text: str) -> dict[str, str]:
    (group,) = yaml.safe_load(text)["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


def test_alert_file_is_printed_without_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert generated(capsys) == RULES.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("option", "former", "changed"),
    [
        ("--lag-records", "> 10000", {"PenstockPartitionLag", "PenstockLagGrows"}),
        ("--lag-seconds", "> 900", {"PenstockLagInTime", "PenstockQueueOld"}),
        ("--disk-percent", "< 15", {"PenstockDiskFillsUp"}),
        ("--skew", "> 4", {"PenstockHotPartition"}),
    ],
)
def test_threshold_changes_only_its_rules(
    option: str, former: str, changed: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = expressions(RULES.read_text(encoding="utf-8"))
    after = expressions(generated(capsys, option, "77"))
    assert {name for name in before if before[name] != after[name]} == changed
    for name in changed:
        assert after[name] == before[name].replace(former, f"{former[0]} 77")


def test_thresholds_are_independent(capsys: pytest.CaptureFixture[str]) -> None:
    """One option's value is not taken for another's default."""
    after = expressions(generated(capsys, "--lag-records", "900", "--lag-seconds", "15"))
    assert after["PenstockPartitionLag"].endswith("> 900")
    assert after["PenstockLagInTime"].endswith("> 15")


def test_alerts_watch_the_job_of_the_scrape_settings() -> None:
    (job,) = read(SETTINGS)["scrape_configs"]
    (down,) = (alert for alert in ALL if alert["alert"] == "PenstockNodeDown")
    assert down["expr"] == f'up{{job="{job["job_name"]}"}} == 0'
    assert read(SETTINGS)["rule_files"] == [RULES.name]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_the_rules() -> None:
    found = subprocess.run(
        ["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert f"{len(ALL)} rules found" in found.stdout
