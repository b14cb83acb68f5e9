"""TLS and SASL with the options of Spark's Kafka source; no secret is printed."""

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
def secured_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    users = f"User:ANONYMOUS;User:{USER}"
    with secured(tmp_path_factory.mktemp("secured"), **{"super.users": users}) as found:
        yield found


@pytest.fixture
def their_topics(secured_broker: Secured) -> Iterator[Topics]:
    import asyncio

    loop = asyncio.new_event_loop()
    helper = Topics(loop, secured_broker.at("PLAINTEXT"))
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


def options(secured_broker: Secured, jaas: str = JAAS) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": secured_broker.at("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": jaas,
        "kafka.ssl.truststore.location": secured_broker.ca_file,
        "kafka.ssl.truststore.type": "PEM",
    }


def test_stream_is_exactly_once_over_sasl_ssl(
    spark: Any,
    secured_broker: Secured,
    their_topics: Topics,
    topic: str,
    run_stream: Callable[..., Any],
    capfd: pytest.CaptureFixture[str],
) -> None:
    out = f"{topic}-out"
    their_topics.create(out)
    their_topics.numbers(topic, 50)
    reader = spark.readStream.format("penstock").options(**options(secured_broker))
    frame = reader.options(subscribe=topic, startingOffsets="earliest").load()
    query = run_stream(frame.select("value"), topic=out, **options(secured_broker))
    assert their_topics.values(out) == list(range(50))
    query.explain(True)
    assert PASSWORD not in capfd.readouterr().out
    assert PASSWORD not in str(query.lastProgress)


def test_pipeline_runs_over_sasl_ssl(
    spark: Any,
    secured_broker: Secured,
    their_topics: Topics,
    topic: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Source, table, sink, batches, dead letters and status use one properties file."""
    file, properties = tmp_path / "pipeline.py", tmp_path / "client.properties"
    file.write_text(PIPELINE.format(topic=topic))
    named = options(secured_broker)
    named.pop("kafka.bootstrap.servers")
    lines = [f"{name.removeprefix('kafka.')}={value}" for name, value in named.items()]
    properties.write_text("\n".join(lines))
    their_topics.create(topic, 2)
    their_topics.create(f"{topic}-names")
    rows: list[dict[str, Any]] = [
        {"n": n, "k": f"k{n % 3}", "at": "2026-11-16T10:00:00Z"} for n in range(30)
    ]
    their_topics.fill(
        topic, [Record(0, -1, b"%d" % row["n"], json.dumps(row).encode()) for row in rows]
    )
    names = [{"k": f"k{n}", "name": f"name {n}"} for n in range(2)]
    their_topics.fill(
        f"{topic}-names",
        [Record(0, -1, row["k"].encode(), json.dumps(row).encode()) for row in names],
    )

    def run(*command: str) -> Any:
        capfd.readouterr()
        at = ["-b", secured_broker.at("SASL_SSL"), "--format", "json"]
        assert penstock(["--command-config", str(properties), "pipeline", *command, *at]) == 0
        captured = capfd.readouterr()
        assert PASSWORD not in captured.out + captured.err
        return json.loads(captured.out)

    waiting = {stage["stage"]: stage["waiting"] for stage in run("plan", str(file))["stages"]}
    assert waiting == {"name": 30, "count": 0}
    run("run", str(file), "--once", "--checkpoints", str(tmp_path / "checkpoints"))
    status = {line["stage"]: (line["state"], line["lag"]) for line in run("status", "guarded")}
    assert status == {"name": ("finished", 0), "count": ("finished", 0)}
    known = {row["n"] for row in rows if row["k"] != "k2"} - {7}
    assert {json.loads(m.value or b"")["n"] for m in their_topics.read(f"{topic}-named")} == known
    assert {int(m.key or b"") for m in their_topics.read("guarded.name.dlq")} == set(
        range(30)
    ) - known
    counts = {
        m.key: json.loads(m.value or b"")["rows"] for m in their_topics.read(f"{topic}-counts")
    }
    assert counts == {b"name 0": 10, b"name 1": 9}


def test_registry_receives_the_credentials(spark: Any, secured_broker: Secured, topic: str) -> None:
    frame = spark.range(1).selectExpr("cast('x' as binary) value")
    url = secured_broker.process.http.removeprefix("http://")
    with pytest.raises(OptionError, match="not found"):
        decode(frame, subject=topic, registry=f"http://{USER}:{quote(PASSWORD)}@{url}")
    with pytest.raises(OptionError, match=r"HTTP 401.*RegistryAddress") as caught:
        decode(frame, subject=topic, registry=f"http://{USER}:hunter2@{url}")
    assert "hunter2" not in str(caught.value)


def test_wrong_password_is_refused_without_printing_it(
    spark: Any, secured_broker: Secured, topic: str
) -> None:
    wrong = options(secured_broker, JAAS.replace(PASSWORD, "wrong horse"))
    reader = spark.read.format("penstock").options(subscribe=topic, **wrong)
    with pytest.raises(Exception, match="refused the credentials") as caught:
        reader.load().collect()
    assert "wrong horse" not in str(caught.value)


def test_untrusted_certificate_fails_immediately(
    spark: Any, secured_broker: Secured, topic: str, tmp_path: Any
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    wrong = {**options(secured_broker), "kafka.ssl.truststore.location": str(other)}
    reader = spark.read.format("penstock").options(subscribe=topic, **wrong)
    with pytest.raises(Exception, match="is not trusted"):
        reader.load().collect()
