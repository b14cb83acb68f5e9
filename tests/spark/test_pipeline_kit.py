"""Expectations, SQL stages and the test kit: rows in memory through stages of a pipeline."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines import (
    InputRecord,
    Latest,
    Pipeline,
    PipelineEnvironment,
    PipelineError,
    Runner,
    Topic,
    dedup,
    expect,
    lookup,
    reject,
)
from penstock.wire.records import Record
from tests.spark.topics import Topics

pytestmark = pytest.mark.spark

SCHEMA = "id string not null, customer string, quantity int"


def orders(topic: str = "orders") -> Pipeline:
    pipeline = Pipeline("p" + topic[-60:])

    @pipeline.extract(topic, schema=SCHEMA, to=Topic(f"{topic}.valid"), key="customer")
    @expect("positive", "quantity > 0", on_fail="dlq")
    @expect("small", "quantity < 100", on_fail="drop")
    @expect("even", "quantity % 2 = 0")
    def validate(rows: Any) -> Any:
        return dedup(reject(rows, "customer is null", "no customer"), "1 day", by=["id"])

    pipeline.sql(
        "know",
        "select rows.*, upper(country) as country from rows left join customers using (customer)",
        tables={"customers": Latest("customers", "customer string, country string")},
        to=f"{topic}.known",
    )
    return pipeline


def order(number: int, quantity: int | None, customer: str | None = "ann") -> dict[str, Any]:
    return {"id": f"o{number}", "customer": customer, "quantity": quantity}


ROWS = [order(1, 2), order(1, 2), order(2, 0), order(3, None), order(4, 500), order(5, 3)]


def test_stage_is_tested_without_a_broker(spark: Any) -> None:
    given: list[Any] = [*ROWS, order(6, 1, None), b"not JSON", InputRecord(b'{"id": "o9"}', b"key")]
    found = orders().test(spark).run("validate", given)
    assert sorted(found.rows, key=str) == [order(1, 2), order(5, 3)]
    assert sorted((r.key, json.loads(r.value or b"")["id"]) for r in found.records) == [
        (b"ann", "o1"),
        (b"ann", "o5"),
    ]
    assert sorted((one.error_class, one.message) for one in found.dead_letters) == [
        ("ExpectationFailed", "expectation positive failed: quantity > 0"),
        ("ExpectationFailed", "expectation positive failed: quantity > 0"),
        ("MalformedValue", "the value is not valid JSON for the stage's schema"),
        ("Rejected", "no customer"),
        ("Rejected", "no customer"),
    ]
    assert {one.value for one in found.dead_letters} >= {b"not JSON", b'{"id": "o9"}'}
    assert found.expectations == {"positive": (3, 2), "small": (3, 2), "even": (3, 2)}


def test_whole_pipeline_is_tested_without_a_broker(spark: Any) -> None:
    customers = [
        InputRecord(b'{"customer": "ann", "country": "at"}', b"ann"),
        InputRecord(b'{"customer": "ann", "country": "de"}', b"ann"),
        InputRecord(None, b"bob"),
    ]
    found = orders().test(spark).run_all({"orders": ROWS, "customers": customers})
    assert sorted(found["know"].rows, key=str) == [
        {**order(1, 2), "country": "DE"},
        {**order(5, 3), "country": "DE"},
    ]
    with pytest.raises(PipelineError, match="no table 'customer'"):
        orders().test(spark).run("know", [], tables={"customer": []})


def test_expectations_of_a_running_stage_are_counted(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
) -> None:
    pipeline = orders(topic)
    topics.fill(topic, [Record(0, -1, None, json.dumps(row).encode()) for row in ROWS])
    environment = PipelineEnvironment(spark, topics.bootstrap, str(tmp_path))
    (state,) = Runner(pipeline, environment, restarts=0, only=["validate"]).run(once=True)
    counted = {name: (n["passed"], n["failed"]) for name, n in state.expectations.items()}
    assert counted == {"positive": (3, 2), "small": (3, 2), "even": (3, 2)}
    written = [json.loads(message.value or b"")["id"] for message in topics.read(f"{topic}.valid")]
    assert sorted(written) == ["o1", "o5"]
    assert [one.error_class for one in topics.dead_letters(f"{pipeline.name}.validate.dlq")] == [
        "ExpectationFailed",
        "ExpectationFailed",
    ]


def test_failed_expectation_ends_the_stage(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
) -> None:
    pipeline = Pipeline("p" + topic[-60:])

    @pipeline.extract(topic, schema=SCHEMA, to=f"{topic}.valid")
    @expect("positive", "quantity > 0", on_fail="fail")
    def validate(rows: Any) -> Any:
        return rows

    topics.fill(topic, [Record(0, -1, None, json.dumps(order(1, 0)).encode())])
    environment = PipelineEnvironment(spark, topics.bootstrap, str(tmp_path))
    with pytest.raises(PipelineError, match="expectation positive failed: quantity > 0"):
        Runner(pipeline, environment).run(once=True)


def test_dead_letters_of_an_expectation_need_the_record(spark: Any) -> None:
    pipeline = Pipeline("p")

    @pipeline.extract("orders", schema=SCHEMA, to="t")
    @expect("many", "n > 1", on_fail="dlq")
    def count(rows: Any) -> Any:
        return rows.groupBy("customer").count().withColumnRenamed("count", "n")

    with pytest.raises(PipelineError, match="use drop, warn or fail"):
        pipeline.test(spark).run("count", [])


def test_table_of_a_tested_stage_has_the_given_rows(spark: Any) -> None:
    pipeline = Pipeline("p")
    customers = Latest("customers", "customer string, country string")

    @pipeline.enrich("orders", schema=SCHEMA, tables={"customers": customers}, to="t")
    def know(rows: Any, customers: Any) -> Any:
        return lookup(rows, customers, ["customer"])

    tables = {"customers": [{"customer": "ann", "country": "at"}]}
    found = pipeline.test(spark).run("know", [order(1, 2), order(2, 2, "bob")], tables=tables)
    assert [row["country"] for row in found.rows] == ["at"]
    assert [one.error_class for one in found.dead_letters] == ["NotFound"]
