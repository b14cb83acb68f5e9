"""The files that are deployed beside a cluster, as `deploy/` shows them."""

import json
from pathlib import Path
from typing import Any

import yaml

from tests.tidy.tree import ROOT

DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "penstock-alerts.yml"
SETTINGS = DEPLOY / "prometheus" / "prometheus.yml"


def dashboards() -> dict[str, dict[str, Any]]:
    paths = sorted((DEPLOY / "grafana").glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def alerts() -> list[dict[str, Any]]:
    (group,) = read(RULES)["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found
