"""The examples, run as documented, compared with reference results computed without Spark."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from examples.activity import data as activity_data
from examples.logs import data as logs_data
from examples.orders import data as orders_data
from penstock import SyncClient
from penstock.cli.main import run as penstock
from penstock.pipelines import InputRecord, PipelineEnvironment, Runner
from penstock.pipelines.loader import load
from penstock.pipelines.progress import StageState
from tests.conftest import FreshBroker
from tests.spark.topics import Topics, topics_of

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
ORDERS = 2_000


def run_once(spark: Any, file: str, brokers: str, folder: Path) -> dict[str, StageState]:
    """Runs a pipeline like `penstock pipeline run FILE --once`, in the shared session."""
    pipeline = load(str(ROOT / "examples" / file))
    environment = PipelineEnvironment(spark, brokers, str(folder / "checkpoints"))
    return {
        state.stage: state for state in Runner(pipeline, environment, restarts=0).run(once=True)
    }


def last_values(topics: Topics, name: str) -> dict[str, Any]:
    """Last value of each key, as compaction would keep it."""
    return {
        (message.key or b"").decode(): json.loads(message.value or b"null")
        for message in topics.read(name)
    }


def test_orders_example_matches_its_reference(
    spark: Any,
    fresh_broker: FreshBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker = fresh_broker(sets={"num.partitions": 2})
    warehouse = tmp_path / "warehouse"
    monkeypatch.setenv("ORDERS_WAREHOUSE", str(warehouse))
    made = orders_data.orders(ORDERS, seed=7, start_ms=1_790_000_000_000)
    known = orders_data.customers()
    with SyncClient(broker.bootstrap) as client:
        orders_data.send_customers(client, known)
        orders_data.send_orders(client, made)

    states = run_once(spark, "orders/pipeline.py", broker.bootstrap, tmp_path)
    reference = orders_data.expected(made, known)
    assert 0 < reference.unknown < reference.invalid + ORDERS // 10
    assert states["validate"].rows_in == len(made)
    assert states["validate"].bad_rows == reference.invalid
    assert states["price"].bad_rows == reference.unknown
    checked = states["validate"].expectations
    assert checked["known-sku"] == {"passed": states["validate"].rows_out, "failed": 0}
    assert checked["cheap"]["failed"] > 0
    assert {state.lag for state in states.values()} == {0}
    with topics_of(broker.bootstrap) as topics:
        _assert_orders(spark, topics, warehouse, reference)

        # After the missing customers are added, their orders are redriven and loaded once.
        all_customers = orders_data.customers(with_unknown=True)
        with SyncClient(broker.bootstrap) as client:
            orders_data.send_customers(client, all_customers)
        page = tmp_path / "dead_letters.html"
        chosen = ("--redrive", "error_class = 'NotFound'", "--yes")
        found = _triage(broker.bootstrap, capsys, "--report", str(page), *chosen)
        assert "<svg" in page.read_text()
        assert found["letters"] == found["redriven"] == reference.unknown
        assert [kind["error_class"] for kind in found["kinds"]] == ["NotFound"]
        states = run_once(spark, "orders/pipeline.py", broker.bootstrap, tmp_path)
        assert states["validate"].rows_in == 0
        assert states["price"].rows_in == reference.unknown
        whole = orders_data.expected(made, all_customers)
        assert whole.unknown == 0
        _assert_orders(spark, topics, warehouse, whole)


def test_orders_example_matches_its_reference_in_the_test_kit(spark: Any) -> None:
    made = orders_data.orders(ORDERS, seed=9, start_ms=1_790_000_000_000)
    known = orders_data.customers()
    customers = [
        InputRecord(
            json.dumps({"customer": name, "country": country, "discount": discount}).encode(),
            name.encode(),
        )
        for name, (country, discount) in known.items()
    ]
    orders = [
        InputRecord(one.value, one.key, {"message_id": one.message_id.encode()}) for one in made
    ]
    pipeline = load(str(ROOT / "examples" / "orders" / "pipeline.py"))
    found = pipeline.test(spark).run_all({"orders": orders, "customers": customers})
    reference = orders_data.expected(made, known)
    assert len(found["validate"].dead_letters) == reference.invalid
    assert len(found["price"].dead_letters) == reference.unknown
    assert {row["id"]: row["total_cents"] for row in found["load"].rows} == reference.priced
    assert len(found["load"].rows) == len(reference.priced)
    totals = {
        (one.key or b"").decode(): json.loads(one.value or b"") for one in found["totals"].records
    }
    assert {k: (row["orders"], row["cents"]) for k, row in totals.items()} == reference.totals


def _triage(brokers: str, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    capsys.readouterr()
    command = ["job", "dlq-triage", "orders.price.dlq", "--format", "json", "-b", brokers]
    assert penstock([*command, *options]) == 0
    return json.loads(capsys.readouterr().out)


def _assert_orders(
    spark: Any, topics: Topics, warehouse: Path, reference: orders_data.Expected
) -> None:
    priced = [json.loads(message.value or b"") for message in topics.read("orders.priced")]
    assert len(priced) == len(reference.priced), "each order once"
    assert {row["id"]: row["total_cents"] for row in priced} == reference.priced
    totals = last_values(topics, "orders.totals")
    found = {key: (row["orders"], row["cents"]) for key, row in totals.items()}
    assert found == reference.totals
    loaded = spark.read.parquet(str(warehouse)).collect()
    assert len(loaded) == len(reference.priced)
    assert {row["id"]: row["total_cents"] for row in loaded} == reference.priced


def test_logs_example_matches_its_reference(
    spark: Any, fresh_broker: FreshBroker, tmp_path: Path
) -> None:
    broker = fresh_broker(sets={"num.partitions": 2})
    made = logs_data.lines(2_000, seed=3, start_ms=1_790_000_000_000)
    with SyncClient(broker.bootstrap) as client:
        logs_data.send(client, made)
    states = run_once(spark, "logs/pipeline.py", broker.bootstrap, tmp_path)
    counts, bad = logs_data.expected(made)
    assert states["parse"].bad_rows == bad > 0
    with topics_of(broker.bootstrap) as topics:
        found = last_values(topics, "logs.counts")
        assert {key: row["lines"] for key, row in found.items()} == counts
        reasons = {
            dict(message.headers)["penstock-dlq-error-message"]
            for message in topics.read("logs.parse.dlq")
        }
    assert reasons == {b"there is no level LOUD", b"not TIME LEVEL [SERVICE] MESSAGE"}


def test_activity_example_matches_its_reference(
    spark: Any, fresh_broker: FreshBroker, tmp_path: Path
) -> None:
    broker = fresh_broker(sets={"num.partitions": 2})
    made = activity_data.clicks(100, seed=5, start_ms=1_790_000_000_000)
    with SyncClient(broker.bootstrap) as client:
        activity_data.send(client, made)
    states = run_once(spark, "activity/pipeline.py", broker.bootstrap, tmp_path)
    assert states["visits"].rows_in == len(made)
    with topics_of(broker.bootstrap) as topics:
        rows = [json.loads(message.value or b"") for message in topics.read("activity.visits")]
    found = [
        activity_data.Visit(
            row["user"],
            round(datetime.fromisoformat(row["window_start"]).timestamp() * 1000),
            row["clicks"],
            row["first_page"],
        )
        for row in rows
    ]
    assert len(found) == len(set(found)), "each visit once"
    assert set(found) == activity_data.expected(made)
