"""The metrics that a node has, and the queries that are asked of them."""

from types import SimpleNamespace
from typing import Any

import promql_parser

from penstock.base.metrics import Family
from penstock.broker.api.metrics import Metrics
from penstock.gateway.http.metrics import sample_name
from penstock.node.metrics.node_metrics import observe

OF_PROMETHEUS = {"up": {"job", "instance"}}
EVERYWHERE = {"instance", "job"}


def samples() -> dict[str, set[str]]:
    """Every name that a query may use, with its labels."""
    metrics = Metrics()
    node: Any = SimpleNamespace(metrics=metrics)
    observe(node)
    names = dict(OF_PROMETHEUS)
    for family in metrics.catalogue.families.values():
        labels = {*family.labels, *EVERYWHERE}
        names |= dict.fromkeys(_names(family), labels)
        if family.kind == "histogram":
            names[f"{family.name}_bucket"] = {*labels, "le"}
    return names


def _names(family: Family) -> list[str]:
    if family.kind == "histogram":
        return [f"{family.name}_sum", f"{family.name}_count"]
    return [sample_name(family)]


def used(expression: str) -> tuple[dict[str, set[str]], set[str]]:
    """The metrics of an expression with the labels they are chosen by, and the labels it adds up
    by; raises if it is not PromQL."""
    metrics: dict[str, set[str]] = {}
    grouped: set[str] = set()

    def visit(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            chosen = {matcher.name for matcher in node.matchers.matchers}
            metrics.setdefault(node.name or "", set()).update(chosen)
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            grouped.update(node.modifier.labels)
        return True

    promql_parser.walk(_parse(expression), visit)
    return metrics, grouped


def _parse(expression: str) -> promql_parser.Expr:
    # Variables that Grafana replaces before the query.
    return promql_parser.parse(expression.replace("$__rate_interval", "1m"))
