"""Dashboards ask for what exists: every query is read, every metric and label looked up."""

import pytest

from penstock.observability.dashboards import DASHBOARDS
from penstock.observability.panels import Dashboard, Query
from tests.unit.observability.catalogue import samples, used

EVERY = [
    pytest.param(query, id=f"{name}/{panel.title}")
    for name, dashboard in DASHBOARDS.items()
    for panel in dashboard.panels
    for query in panel.queries
]


@pytest.mark.parametrize("query", EVERY)
def test_every_query_asks_for_metrics_and_labels_that_exist(query: Query) -> None:
    known = samples()
    metrics, grouped = used(query.expression)
    for name, labels in metrics.items():
        assert name in known, f"{name} is in no catalogue"
        assert labels <= known[name], f"{name} has no label {labels - known[name]}"
        assert grouped <= known[name], f"{name} has no label {grouped - known[name]}"
    assert metrics or "vector(" in query.expression


@pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=list(DASHBOARDS))
def test_a_legend_and_a_variable_name_labels_that_exist(dashboard: Dashboard) -> None:
    known = samples()
    for name, metric in dashboard.variables:
        assert name in known[metric]
    for panel in dashboard.panels:
        for query in panel.queries:
            metrics, _ = used(query.expression)
            shown = {part.partition("}}")[0] for part in query.legend.split("{{")[1:]}
            assert all(shown <= known[metric] for metric in metrics), query


def test_a_metric_that_does_not_exist_is_noticed() -> None:
    metrics, grouped = used('sum by (kind) (rate(penstock_renamed_total{a="b"}[$__rate_interval]))')
    assert metrics == {"penstock_renamed_total": {"a"}}
    assert grouped == {"kind"}
    assert "penstock_renamed_total" not in samples()
