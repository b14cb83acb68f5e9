"""Alert rules: PromQL over metrics that exist, YAML that Prometheus reads, a first step each."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.observability.alerts import Alert, Thresholds, alerts, quoted, rules
from tests.unit.observability.catalogue import EVERYWHERE, samples, used

ALL = alerts(Thresholds())
WANTED = {
    "PenstockPartitionLag": "5m",
    "PenstockUnderReplicated": "1m",
    "PenstockDeadLetters": "0m",
    "PenstockDiskFillsUp": "10m",
    "PenstockHotPartition": "10m",
    "PenstockFailedLogins": "5m",
    "PenstockLoopLag": "5m",
}


@pytest.mark.parametrize("alert", ALL, ids=lambda alert: alert.name)
def test_every_rule_asks_for_metrics_and_labels_that_exist(alert: Alert) -> None:
    known = samples()
    metrics, grouped = used(alert.expression)
    assert metrics
    for name, labels in metrics.items():
        assert name in known, f"{name} is in no catalogue"
        assert labels | grouped <= known[name], name
    # What a message shows must still be there after the adding up.
    shown = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.action))
    left = grouped - {"le"} or set.intersection(*(known[name] for name in metrics)) | EVERYWHERE
    assert shown <= left, shown - left


@pytest.mark.parametrize("alert", ALL, ids=lambda alert: alert.name)
def test_every_rule_says_what_it_means_and_what_to_do(alert: Alert) -> None:
    assert alert.summary.endswith(".")
    assert alert.action.endswith(".")
    assert alert.severity in ("warning", "critical")
    assert re.fullmatch(r"\d+m", alert.wait)


def test_the_rules_that_every_operator_wants_are_there() -> None:
    assert {a.name: a.wait for a in ALL if a.name in WANTED} == WANTED
    assert len({a.name for a in ALL}) == len(ALL)


def test_thresholds_are_those_that_were_asked_for() -> None:
    text = rules(Thresholds(lag_records=77, lag_seconds=88, disk_percent=25, skew=2.5))
    for part in ("lag) > 77", "seconds) > 88", "percent > 75", "> 2.5 and"):
        assert part in text


def test_a_quote_in_a_message_stays_one() -> None:
    assert quoted("it's") == "'it''s'"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_own_tool_finds_nothing_wrong(tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(rules(Thresholds()))
    found = subprocess.run(
        ["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert f"{len(ALL)} rules found" in found.stdout
