"""Grafana dashboards as data, and the JSON that Grafana imports.

Owns the layout: rows of panels on Grafana's grid of 24 columns, from left to right and top to
bottom. What is shown is `dashboards`'. The data source is chosen in Grafana when a dashboard is
imported or opened, so no address is written into one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

GRID_COLUMNS = 24
PANEL_ROWS = 8
STAT_ROWS = 4
SCHEMA_VERSION = 39
"""Grafana 10 and newer; newer ones migrate it by themselves."""
SOURCE = {"type": "prometheus", "uid": "${source}"}


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression and what its lines are called (`{{topic}}` is a label's value)."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart, or one number where `is_number`."""

    title: str
    meaning: str
    queries: Sequence[Query]
    unit: str = "short"
    width: int = 8
    is_number: bool = False
    bad_from: float | None = None
    """The number is red from here on."""

    @property
    def height(self) -> int:
        return STAT_ROWS if self.is_number else PANEL_ROWS


@dataclass(frozen=True, slots=True)
class Dashboard:
    name: str
    title: str
    panels: Sequence[Panel]
    variables: Sequence[tuple[str, str]] = ()
    """A name and the metric whose label of that name has the values to choose from."""


def document(dashboard: Dashboard) -> dict[str, Any]:
    """What Grafana imports."""
    return {
        "uid": f"penstock-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["penstock"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(_variables(dashboard))},
        "links": [
            {
                "type": "dashboards",
                "tags": ["penstock"],
                "title": "Penstock",
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "panels": list(_placed(dashboard.panels)),
    }


def _variables(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    yield {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}
    for name, metric in dashboard.variables:
        query = f"label_values({metric}, {name})"
        yield {
            "name": name,
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": query, "refId": name},
            "definition": query,
            "refresh": 2,
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
        }


def _placed(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    x = y = tallest = 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > GRID_COLUMNS:
            x, y, tallest = 0, y + tallest, 0
        place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        yield {"id": number, "gridPos": place, **_panel(panel)}
        x, tallest = x + panel.width, max(tallest, panel.height)


def _panel(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    options: dict[str, Any] = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    if panel.is_number:
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
    if panel.bad_from is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.bad_from}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return {
        "type": "stat" if panel.is_number else "timeseries",
        "title": panel.title,
        "description": panel.meaning,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend or "__auto",
                "range": not panel.is_number,
                "instant": panel.is_number,
            }
            for at, query in enumerate(panel.queries)
        ],
    }
