"""Pipelines: stop and resume, new versions of stages, failures, and the published status."""

import io
import itertools
import json
import threading
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import fastavro
import pytest

from penstock import SyncClient
from penstock.cli.main import run as penstock
from penstock.pipelines import (
    EachBatch,
    Files,
    Latest,
    Pipeline,
    PipelineEnvironment,
    PipelineError,
    Queue,
    Runner,
    Topic,
    aggregate,
    dedup,
    lookup,
    reject,
)
from penstock.pipelines.progress import FINISHED, STOPPED, StageState
from penstock.spark.schemas import schema_cache
from penstock.wire.records import Record
from tests.conftest import Broker
from tests.ports import free_port
from tests.spark.topics import Topics

pytestmark = pytest.mark.spark

SCHEMA = "n int not null, k string, at timestamp"


def numbers(first: int, count: int) -> list[Record]:
    rows: list[dict[str, Any]] = [
        {"n": n, "k": f"k{n % 3}", "at": f"2026-11-16T10:00:{n % 60:02}Z"}
        for n in range(first, first + count)
    ]
    return [Record(0, -1, b"%d" % row["n"], json.dumps(row).encode()) for row in rows]


def runner(pipeline: Pipeline, spark: Any, topics: Topics, folder: Path, **options: Any) -> Runner:
    environment = PipelineEnvironment(
        spark, topics.bootstrap, str(folder / "checkpoints"), per_batch=40
    )
    return Runner(pipeline, environment, restarts=0, **options)


def test_stopped_pipeline_resumes_at_its_checkpoint(
    spark: Any,
    topics: Topics,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "p" + topic[-60:]
    pipeline = Pipeline(name)

    @pipeline.extract(topic, schema=SCHEMA, to=Topic(f"{topic}-out", partitions=2), every="100ms")
    def keep(rows: Any) -> Any:
        return reject(rows, "n % 10 = 9", "ends in nine")

    brokers = ["-b", topics.bootstrap]
    topics.create(topic, 2)
    topics.fill(topic, numbers(0, 100))
    requests: list[int] = []

    def on_change(state: StageState) -> None:
        """Requests a stop after the first batch."""
        if state.rows_in >= 40 and not requests:
            requests.append(penstock(["pipeline", "stop", name, "--no-wait", *brokers]))

    states = runner(pipeline, spark, topics, tmp_path, on_change=on_change).run()
    assert requests == [0]
    assert [state.state for state in states] == [STOPPED]
    assert penstock(["pipeline", "stop", name, *brokers]) == 1
    assert "is not running" in capsys.readouterr().err

    topics.fill(topic, numbers(100, 50))
    states = runner(pipeline, spark, topics, tmp_path).run(once=True)
    assert [(state.state, state.lag) for state in states] == [(FINISHED, 0)]
    good = sorted(json.loads(message.value or b"")["n"] for message in topics.read(f"{topic}-out"))
    bad = sorted(int(message.key or b"") for message in topics.read(f"{name}.keep.dlq"))
    assert good == [n for n in range(150) if n % 10 != 9]
    assert bad == list(range(9, 150, 10))

    capsys.readouterr()
    assert penstock(["pipeline", "status", name, "--format", "json", *brokers]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert (line["pipeline"], line["stage"], line["state"]) == (name, "keep", FINISHED)
    assert line["bad_rows"] == states[0].bad_rows > 0
    assert penstock(["pipeline", "status", name[:-1] + "x", *brokers]) == 1
    assert f"did you mean '{name}'" in capsys.readouterr().err


def test_incompatible_state_needs_a_new_version_which_resumes(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, 1)
    out = f"{topic}-out"

    def made(by: list[str], version: int) -> Pipeline:
        pipeline = Pipeline("counting")

        @pipeline.extract(
            topic,
            schema=SCHEMA,
            to=Topic(out, partitions=1, compact=True),
            mode="update",
            key="window_start",
            version=version,
        )
        def count(rows: Any) -> Any:
            return aggregate(
                rows, by, window="1 hour", event_time="at", late="1 day", rows="count(*)"
            )

        return pipeline

    topics.fill(topic, numbers(0, 30))
    runner(made(["k"], 1), spark, topics, tmp_path).run(once=True)
    topics.fill(topic, numbers(30, 6))
    with pytest.raises(PipelineError, match="version=2"):
        runner(made(["k", "n"], 1), spark, topics, tmp_path).run(once=True)
    (state,) = runner(made(["k", "n"], 2), spark, topics, tmp_path).run(once=True)
    assert state.rows_in == 6, "the records after version 1, once"
    values = [json.loads(message.value or b"") for message in topics.read(out)]
    assert sum(row["rows"] for row in values if "n" not in row) == 30
    assert sorted(row["n"] for row in values if "n" in row) == list(range(30, 36))


def test_new_version_skips_a_batch_committed_before_the_crash(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """The old version died after the last commit, before Spark's commit log entry."""
    out = f"{topic}-out"

    def made(version: int) -> Pipeline:
        pipeline = Pipeline("copying")

        @pipeline.extract(topic, schema=SCHEMA, to=out, version=version)
        def copy(rows: Any) -> Any:
            return rows

        return pipeline

    topics.create(topic, 1)
    topics.fill(topic, numbers(0, 100))
    runner(made(1), spark, topics, tmp_path).run(once=True)
    commits = tmp_path / "checkpoints" / "copying" / "copy" / "v1" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    (commits / str(last)).unlink()
    topics.fill(topic, numbers(100, 7))
    (state,) = runner(made(2), spark, topics, tmp_path).run(once=True)
    assert state.rows_in == 7
    assert sorted(int(message.key or b"") for message in topics.read(out)) == list(range(107))


def test_new_version_of_a_file_stage_needs_a_new_folder(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Spark numbers batches from 0 again, and skips those in the log of the folder."""

    def made(version: int, folder: str) -> Pipeline:
        pipeline = Pipeline("filing")

        @pipeline.load(topic, schema=SCHEMA, to=Files(str(tmp_path / folder)), version=version)
        def load(rows: Any) -> Any:
            return rows

        return pipeline

    def loaded(folder: str) -> list[int]:
        return sorted(row["n"] for row in spark.read.parquet(str(tmp_path / folder)).collect())

    topics.create(topic, 1)
    topics.fill(topic, numbers(0, 10))
    runner(made(1, "one"), spark, topics, tmp_path).run(once=True)
    topics.fill(topic, numbers(10, 10))
    with pytest.raises(PipelineError, match=r"to=Files\(...\)"):
        runner(made(2, "one"), spark, topics, tmp_path).run(once=True)
    runner(made(2, "two"), spark, topics, tmp_path).run(once=True)
    assert (loaded("one"), loaded("two")) == (list(range(10)), list(range(10, 20)))


def test_failed_stage_is_restarted(spark: Any, topics: Topics, topic: str, tmp_path: Path) -> None:
    topics.create(topic, 1)
    topics.fill(topic, numbers(0, 10))
    seen: list[int] = []
    fails = [True]

    def take(batch: Any, number: int) -> None:
        if fails.pop() if fails else False:
            raise RuntimeError("the warehouse is closed")
        seen.extend(row["n"] for row in batch.collect())

    pipeline = Pipeline("failing")

    @pipeline.load(topic, schema=SCHEMA, to=EachBatch(take))
    def load(rows: Any) -> Any:
        return rows

    with pytest.raises(PipelineError, match="the warehouse is closed"):
        runner(pipeline, spark, topics, tmp_path).run(once=True)
    # The dead-letter query may be ahead; the group has the offsets of the rows.
    assert set(topics.committed("failing.load").values()) <= {0}
    environment = PipelineEnvironment(spark, topics.bootstrap, str(tmp_path / "checkpoints"))
    fails.append(True)
    (state,) = Runner(pipeline, environment, restarts=1).run(once=True)
    assert (state.state, state.restarts, state.error) == (FINISHED, 1, None)
    assert sorted(seen) == list(range(10))
    assert topics.committed("failing.load") == {(topic, 0): 10}


@pytest.mark.parametrize("keeps_state", [False, True])
def test_changing_table_is_consistent_within_a_batch(
    spark: Any, topics: Topics, topic: str, tmp_path: Path, keeps_state: bool
) -> None:
    """Every row is either found or rejected."""
    name = f"known-{keeps_state}"
    table, out, dlq = f"{topic}-table", f"{topic}-out", f"{name}.know.dlq"
    pipeline = Pipeline(name)

    @pipeline.enrich(
        topic, schema=SCHEMA, to=out, tables={"known": Latest(table, "n int, name string")}
    )
    def know(rows: Any, known: Any) -> Any:
        found = lookup(dedup(rows, "1 day") if keeps_state else rows, known, ["n"])
        return reject(found, "name is null", "has no name")

    for one in (topic, table):
        topics.create(one, 2)
    topics.fill(topic, numbers(0, 3_000))
    stop = threading.Event()

    def change() -> None:
        """Changes the table every few milliseconds while the batch runs."""
        with SyncClient(topics.bootstrap) as client:
            for n in itertools.cycle(range(3_000)):
                if stop.wait(0.003):
                    return
                row = {"n": n, "name": f"name {n}"} if n % 7 else None
                client.publish(table, row, key=str(n))

    writer = threading.Thread(target=change)
    writer.start()
    try:
        environment = PipelineEnvironment(spark, topics.bootstrap, str(tmp_path / "checkpoints"))
        (state,) = Runner(pipeline, environment, restarts=0).run(once=True)
    finally:
        stop.set()
        writer.join()
    assert state.rows_in >= 3_000
    found = [json.loads(message.value or b"")["n"] for message in topics.read(out)]
    missed = [int(message.key or b"") for message in topics.read(dlq)]
    assert found
    assert missed
    assert sorted(found + missed) == list(range(3_000))


def test_invalid_stages_are_refused_before_the_start(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
) -> None:
    pipeline = Pipeline("missing")

    @pipeline.extract(topic, to=f"{topic}-out")
    def nothing(rows: Any) -> Any:
        return None

    with pytest.raises(PipelineError, match="does not exist"):
        runner(pipeline, spark, topics, tmp_path).run(once=True)
    topics.create(topic)
    with pytest.raises(PipelineError, match="must return a DataFrame"):
        runner(pipeline, spark, topics, tmp_path).run(once=True)
    changing = Pipeline("changing")

    @changing.enrich(
        topic,
        schema=SCHEMA,
        to=Files(str(tmp_path)),
        tables={"known": Latest(topic, "n int, name string")},
    )
    def know(rows: Any, known: Any) -> Any:
        return lookup(rows, known, ["n"])

    with pytest.raises(PipelineError, match="must write to a topic"):
        runner(changing, spark, topics, tmp_path).run(once=True)


def test_unreachable_registry_is_retried(
    spark: Any, topics: Topics, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_cache, "BACKOFF_S", 0.01)
    pipeline = Pipeline("waiting")

    @pipeline.extract(topic, subject="missing", to=f"{topic}-out")
    def copy(rows: Any) -> Any:
        return rows

    topics.create(topic)
    nowhere = f"http://127.0.0.1:{free_port()}"
    environment = PipelineEnvironment(spark, topics.bootstrap, str(tmp_path), registry=nowhere)
    waiting = Runner(pipeline, environment, restarts=1)
    with pytest.raises(PipelineError, match="is not reachable"):
        waiting.run(once=True)
    assert waiting.states[0].restarts == 1


def test_queue_stage_decodes_registered_schemas(
    spark: Any, broker: Broker, topics: Topics, topic: str, tmp_path: Path
) -> None:
    http = getattr(broker, "http", "")
    if not http:
        pytest.skip("needs the HTTP address of the broker")
    fields = [{"name": "n", "type": "int"}, {"name": "k", "type": "string"}]
    schema = {"type": "record", "name": "Row", "fields": fields}
    request = Request(
        f"{http}/subjects/{topic}-value/versions",
        json.dumps({"schema": json.dumps(schema)}).encode(),
        {"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urlopen(request, timeout=30) as reply:
        schema_id: int = json.load(reply)["id"]

    def framed(n: int) -> bytes:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, schema, {"n": n, "k": f"k{n}"})
        return b"\0" + schema_id.to_bytes(4, "big") + written.getvalue()

    pipeline = Pipeline("queued")

    @pipeline.extract(Queue(topic), subject=f"{topic}-value", to=f"{topic}-out", key="k")
    def keep(rows: Any) -> Any:
        return rows.select("n", "k", "record")

    topics.create(topic, 1)
    good = [Record(0, -1, b"g", framed(n)) for n in range(20)]
    topics.fill(topic, [*good, Record(0, -1, b"bad", b"no schema at all")])
    environment = PipelineEnvironment(
        spark, topics.bootstrap, str(tmp_path / "checkpoints"), registry=http
    )
    (state,) = Runner(pipeline, environment, restarts=0).run(once=True)
    assert (state.rows_in, state.rows_out, state.bad_rows, state.lag) == (21, 20, 1, 0)
    rows = [json.loads(message.value or b"") for message in topics.read(f"{topic}-out")]
    assert sorted(row["n"] for row in rows) == list(range(20))
    (dead_letter,) = topics.read("queued.keep.dlq")
    assert dead_letter.key == b"bad"
    assert dict(dead_letter.headers)["penstock-dlq-topic"] == topic.encode()
