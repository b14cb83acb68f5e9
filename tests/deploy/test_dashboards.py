"""Dashboards ask for what exists: every query is read, every metric and label looked up."""

import re
from typing import Any

import pytest

from penstock.cli.tools.generate import DASHBOARDS as NAMES
from tests.deploy.catalogue import samples, used
from tests.deploy.packaged import dashboards

DASHBOARDS = dashboards()
GRID_COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${source}"}
EVERY = [
    pytest.param(target["expr"], id=f"{name}/{panel['title']}")
    for name, dashboard in DASHBOARDS.items()
    for panel in dashboard["panels"]
    for target in panel["targets"]
]


def test_command_knows_every_dashboard() -> None:
    assert sorted(DASHBOARDS) == sorted(f"penstock-{name}" for name in NAMES)


@pytest.mark.parametrize("expression", EVERY)
def test_every_query_uses_existing_metrics_and_labels(expression: str) -> None:
    known = samples()
    metrics, grouped = used(expression)
    for name, labels in metrics.items():
        assert name in known, f"{name} is in no catalogue"
        assert labels <= known[name], f"{name} has no label {labels - known[name]}"
        assert grouped <= known[name], f"{name} has no label {grouped - known[name]}"
    assert metrics or "vector(" in expression


@pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=list(DASHBOARDS))
def test_legends_and_variables_use_existing_labels(dashboard: dict[str, Any]) -> None:
    known = samples()
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"])
            assert found is not None
            assert variable["query"]["query"] == variable["definition"]
            assert found[2] == variable["name"]
            assert found[2] in known[found[1]]
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            metrics, _ = used(target["expr"])
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert all(shown <= known[metric] for metric in metrics), target


def test_unknown_metric_is_noticed() -> None:
    metrics, grouped = used('sum by (kind) (rate(penstock_renamed_total{a="b"}[$__rate_interval]))')
    assert metrics == {"penstock_renamed_total": {"a"}}
    assert grouped == {"kind"}
    assert "penstock_renamed_total" not in samples()


def cells(place: dict[str, int]) -> set[tuple[int, int]]:
    return {
        (x, y)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    }


@pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=list(DASHBOARDS))
def test_panels_do_not_overlap_and_stay_on_the_grid(dashboard: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        mine = cells(panel["gridPos"])
        assert not mine & taken, panel["title"]
        assert max(x for x, _ in mine) < GRID_COLUMNS
        taken |= mine


@pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=list(DASHBOARDS))
def test_panel_has_an_id_a_description_and_the_selected_source(
    dashboard: dict[str, Any],
) -> None:
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    assert dashboard["templating"]["list"][0]["type"] == "datasource"
    for panel in dashboard["panels"]:
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        references = [target["refId"] for target in panel["targets"]]
        assert references == sorted(set(references))
        assert all(one["datasource"] == SOURCE for one in (panel, *panel["targets"]))


def test_import_replaces_only_its_own_dashboard() -> None:
    """Grafana identifies dashboards by `uid`, and an `id` would belong to another server."""
    assert {one["uid"] for one in DASHBOARDS.values()} == set(DASHBOARDS)
    assert not any("id" in one for one in DASHBOARDS.values())
