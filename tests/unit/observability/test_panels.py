"""What Grafana imports: panels that do not overlap, each with a unit, a source and a meaning."""

import json
from typing import Any

import pytest

from penstock.observability.dashboards import DASHBOARDS
from penstock.observability.panels import GRID_COLUMNS, Dashboard, document


def cells(place: dict[str, int]) -> set[tuple[int, int]]:
    return {
        (x, y)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    }


@pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=list(DASHBOARDS))
def test_panels_do_not_overlap_and_stay_on_the_grid(dashboard: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in document(dashboard)["panels"]:
        mine = cells(panel["gridPos"])
        assert not mine & taken, panel["title"]
        assert max(x for x, _ in mine) < GRID_COLUMNS
        taken |= mine


@pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=list(DASHBOARDS))
def test_a_dashboard_is_json_with_ids_and_a_source_to_choose(dashboard: Dashboard) -> None:
    read: dict[str, Any] = json.loads(json.dumps(document(dashboard)))
    ids = [panel["id"] for panel in read["panels"]]
    assert len(set(ids)) == len(ids) == len(dashboard.panels)
    assert read["templating"]["list"][0]["type"] == "datasource"
    for panel in read["panels"]:
        assert panel["description"].endswith(".")
        assert panel["datasource"]["uid"] == "${source}"
        assert next(target["refId"] for target in panel["targets"]) == "A"


def test_uids_differ() -> None:
    assert len({document(one)["uid"] for one in DASHBOARDS.values()}) == len(DASHBOARDS)
