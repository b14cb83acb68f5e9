"""Graph of a pipeline by topics."""

from typing import Any

from penstock.pipelines import Files, Latest, Pipeline
from penstock.pipelines.graph import Edge, draw, edges


def made() -> Pipeline:
    pipeline = Pipeline("orders")

    def stage(rows: Any, **tables: Any) -> Any:
        return rows

    customers = {"customers": Latest("customers", "customer string")}
    pipeline.extract("orders", to="orders.valid", name="validate")(stage)
    pipeline.enrich(tables=customers, to="orders.known", name="know")(stage)
    pipeline.transform("orders.valid", to="orders.hourly", name="hourly")(stage)
    pipeline.load("orders.known", to=Files("/data"), name="load")(stage)
    return pipeline


def test_graph_is_drawn_by_topics() -> None:
    assert draw(made()) == [
        "orders",
        "└─ validate → orders.valid",
        "   ├─ know with customers → orders.known",
        "   │  └─ load → parquet /data",
        "   └─ hourly → orders.hourly",
    ]


def test_edges_name_topics_tables_and_dead_letters() -> None:
    found = edges(made())
    assert Edge("orders", "validate", "reads") in found
    assert Edge("customers", "know", "looks up") in found
    assert Edge("know", "orders.known", "writes") in found
    assert Edge("load", "orders.load.dlq", "rejects to") in found
    assert len(found) == 13
