"""TLS and SASL, with the names that users of Spark's Kafka source know, and no secret told."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trustme

from penstock.cli.main import run as penstock
from penstock.spark import decode
from penstock.spark.option_values import OptionError
from penstock.wire.records import Record
from tests.clients.secured import PASSWORD, USER, Secured, secured
from tests.spark.topics import Topics

pytestmark = pytest.mark.spark

JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    f'username="{USER}" password="{PASSWORD}";'
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    users = f"User:ANONYMOUS;User:{USER}"
    with secured(tmp_path_factory.mktemp("secured"), **{"super.users": users}) as found:
        yield found


@pytest.fixture
def theirs(guarded: Secured) -> Iterator[Topics]:
    import asyncio

    loop = asyncio.new_event_loop()
    helper = Topics(loop, guarded.at("PLAINTEXT"))
    yield helper
    helper.close()
    loop.close()


PIPELINE = """
from penstock.pipelines import Latest, Pipeline, Topic, aggregate, lookup, reject

pipeline = Pipeline("guarded")


@pipeline.enrich(
    "{topic}",
    schema="n int not null, k string, at timestamp",
    tables={{"names": Latest("{topic}-names", "k string, name string")}},
    to="{topic}-named",
)
def name(rows, names):
    return lookup(reject(rows, "n = 7", "it is seven"), names, ["k"])


@pipeline.transform(to=Topic("{topic}-counts", compact=True), key="name", mode="update")
def count(rows):
    return aggregate(rows, ["name"], window="1 day", event_time="at", late="1 day", rows="count(*)")
"""


def options(guarded: Secured, jaas: str = JAAS) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": guarded.at("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": jaas,
        "kafka.ssl.truststore.location": guarded.ca_file,
        "kafka.ssl.truststore.type": "PEM",
    }


def test_a_stream_reads_and_writes_exactly_once_over_sasl_ssl(
    spark: Any,
    guarded: Secured,
    theirs: Topics,
    topic: str,
    run_stream: Callable[..., Any],
    capfd: pytest.CaptureFixture[str],
) -> None:
    out = f"{topic}-out"
    theirs.create(out)
    theirs.numbers(topic, 50)
    reader = spark.readStream.format("penstock").options(**options(guarded))
    frame = reader.options(subscribe=topic, startingOffsets="earliest").load()
    query = run_stream(frame.select("value"), topic=out, **options(guarded))
    assert theirs.values(out) == list(range(50))
    query.explain(True)
    assert PASSWORD not in capfd.readouterr().out
    assert PASSWORD not in str(query.lastProgress)


def test_a_pipeline_goes_over_sasl_ssl_from_end_to_end(
    spark: Any,
    guarded: Secured,
    theirs: Topics,
    topic: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Source, table, sink, batches one by one, dead letters, board: all of it by one file."""
    file, properties = tmp_path / "pipeline.py", tmp_path / "client.properties"
    file.write_text(PIPELINE.format(topic=topic))
    named = options(guarded)
    named.pop("kafka.bootstrap.servers")
    lines = [f"{name.removeprefix('kafka.')}={value}" for name, value in named.items()]
    properties.write_text("\n".join(lines))
    theirs.create(topic, 2)
    theirs.create(f"{topic}-names")
    rows: list[dict[str, Any]] = [
        {"n": n, "k": f"k{n % 3}", "at": "2026-11-16T10:00:00Z"} for n in range(30)
    ]
    theirs.fill(topic, [Record(0, -1, b"%d" % row["n"], json.dumps(row).encode()) for row in rows])
    names = [{"k": f"k{n}", "name": f"name {n}"} for n in range(2)]
    theirs.fill(
        f"{topic}-names",
        [Record(0, -1, row["k"].encode(), json.dumps(row).encode()) for row in names],
    )

    def run(*command: str) -> Any:
        capfd.readouterr()
        at = ["-b", guarded.at("SASL_SSL"), "--format", "json"]
        assert penstock(["--command-config", str(properties), "pipeline", *command, *at]) == 0
        captured = capfd.readouterr()
        assert PASSWORD not in captured.out + captured.err
        return json.loads(captured.out)

    waiting = {stage["stage"]: stage["waiting"] for stage in run("plan", str(file))["stages"]}
    assert waiting == {"name": 30, "count": 0}
    run("run", str(file), "--once", "--checkpoints", str(tmp_path / "checkpoints"))
    told = {line["stage"]: (line["state"], line["lag"]) for line in run("status", "guarded")}
    assert told == {"name": ("finished", 0), "count": ("finished", 0)}
    known = {row["n"] for row in rows if row["k"] != "k2"} - {7}
    assert {json.loads(m.value or b"")["n"] for m in theirs.read(f"{topic}-named")} == known
    assert {int(m.key or b"") for m in theirs.read("guarded.name.dlq")} == set(range(30)) - known
    counts = {m.key: json.loads(m.value or b"")["rows"] for m in theirs.read(f"{topic}-counts")}
    assert counts == {b"name 0": 10, b"name 1": 9}


def test_a_registry_is_told_who_asks(spark: Any, guarded: Secured, topic: str) -> None:
    frame = spark.range(1).selectExpr("cast('x' as binary) value")
    url = guarded.process.http.removeprefix("http://")
    with pytest.raises(OptionError, match="not found"):
        decode(frame, subject=topic, registry=f"http://{USER}:{quote(PASSWORD)}@{url}")
    with pytest.raises(OptionError, match=r"HTTP 401.*say who asks") as caught:
        decode(frame, subject=topic, registry=f"http://{USER}:hunter2@{url}")
    assert "hunter2" not in str(caught.value)


def test_a_wrong_password_is_told_and_not_shown(spark: Any, guarded: Secured, topic: str) -> None:
    wrong = options(guarded, JAAS.replace(PASSWORD, "wrong horse"))
    reader = spark.read.format("penstock").options(subscribe=topic, **wrong)
    with pytest.raises(Exception, match="refused the credentials") as caught:
        reader.load().collect()
    assert "wrong horse" not in str(caught.value)


def test_a_certificate_that_is_not_trusted_is_told_at_once(
    spark: Any, guarded: Secured, topic: str, tmp_path: Any
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    wrong = {**options(guarded), "kafka.ssl.truststore.location": str(other)}
    reader = spark.read.format("penstock").options(subscribe=topic, **wrong)
    with pytest.raises(Exception, match="is not trusted"):
        reader.load().collect()
