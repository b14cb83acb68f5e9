"""Schemas of a registry in Spark: bad rows are dead-lettered once, and redriven once."""

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pytest

from penstock.app.schemas import Registry
from penstock.spark import decode, encode, read_stream, route
from penstock.spark.option_values import OptionError
from penstock.wire.records import Record
from tests.brokers import PenstockProcess
from tests.conftest import Broker
from tests.spark.topics import Topics

pytestmark = pytest.mark.spark

FIRST: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}],
}
SECOND: dict[str, Any] = {
    **FIRST,
    "fields": [*FIRST["fields"], {"name": "note", "type": "string", "default": "none"}],
}
JSON_TEXT = json.dumps(
    {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["id"],
    }
)
PROTO_TEXT = 'syntax = "proto3"; message Order { int64 id = 1; string note = 2; }'
ROWS = 1_000
BAD = 10


@pytest.fixture
def registry(broker: Broker) -> str:
    if not isinstance(broker, PenstockProcess):
        pytest.skip("needs Penstock's schema registry")
    return broker.http


def avro(schema_id: int, schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return b"\0" + schema_id.to_bytes(4, "big") + stream.getvalue()


def test_bad_rows_are_dead_lettered_once_and_redriven_once(
    spark: Any, topics: Topics, topic: str, registry: str, run_stream: Callable[..., Any]
) -> None:
    subject, out, dlq = f"{topic}-value", f"{topic}-out", f"{topic}.dlq"
    known = Registry(registry)
    old = known.register(subject, json.dumps(FIRST)).id
    new = known.register(subject, json.dumps(SECOND)).id
    missing = new + 1_000_000
    records = []
    for number in range(ROWS):
        if number % (ROWS // BAD) == 5:
            payload = avro(missing, SECOND, {"id": number, "note": "x"})
            payload = payload if number % 200 == 5 else b"broken %d" % number
        elif number % 2:
            payload = avro(old, FIRST, {"id": number})
        else:
            payload = avro(new, SECOND, {"id": number, "note": "x"})
        records.append(Record(0, -1, b"%d" % number, payload, (("trace", b"t"),)))
    for name in (topic, out, dlq):
        topics.create(name)
    topics.fill(topic, records)

    orders = decode(
        read_stream(
            spark,
            brokers=topics.bootstrap,
            subscribe=topic,
            startingOffsets="earliest",
            includeHeaders=True,
            maxOffsetsPerTrigger=600,
        ),
        subject=subject,
        registry=registry,
    )
    loaded = orders.withColumn("loaded", orders["data.id"].cast("string"))
    routed = route(loaded, topic=out, value="loaded", group="loader")
    query = run_stream(routed, brokers=topics.bootstrap)
    assert query.exception() is None
    good = [n for n in range(ROWS) if n % (ROWS // BAD) != 5]
    assert topics.values(out) == good

    dead_letters = topics.dead_letters(dlq)
    assert sorted(int(dead_letter.key or b"") for dead_letter in dead_letters) == list(
        range(5, ROWS, 100)
    )
    assert {dead_letter.error_class for dead_letter in dead_letters} == {
        "UnknownSchema",
        "Unframed",
    }
    assert {dead_letter.group for dead_letter in dead_letters} == {"loader"}
    assert all(
        dead_letter.source and dead_letter.source.topic == topic for dead_letter in dead_letters
    )
    assert all(dead_letter.own_headers == (("trace", b"t"),) for dead_letter in dead_letters)

    # Redrives the dead letters with corrected values, which are loaded once.
    fixed = {b"%d" % n: avro(new, SECOND, {"id": n, "note": "y"}) for n in range(5, ROWS, 100)}
    assert topics.redrive(dlq, lambda dead_letter: fixed[dead_letter.key or b""]) == BAD
    run_stream(routed, brokers=topics.bootstrap)
    assert topics.values(out) == list(range(ROWS))
    assert topics.dead_letters(dlq) == []


@pytest.mark.parametrize(
    ("kind", "text"), [("AVRO", json.dumps(SECOND)), ("JSON", JSON_TEXT), ("PROTOBUF", PROTO_TEXT)]
)
def test_encoded_rows_are_decoded(
    spark: Any, topic: str, registry: str, kind: str, text: str
) -> None:
    subject = f"{topic}-value"
    schema_id = Registry(registry).register(subject, text, kind).id
    rows = spark.range(5).selectExpr("struct(id, concat('n', id) as note) as data")
    written = encode(rows, subject=subject, registry=registry)
    read = decode(written.drop("data"), subject=subject, registry=registry).collect()
    assert [row.error for row in read] == [None] * 5
    assert sorted(row.data.id for row in read) == [0, 1, 2, 3, 4]
    assert {row.data.note for row in read} == {f"n{n}" for n in range(5)}
    assert {bytes(row.value[:5]) for row in read} == {b"\0" + schema_id.to_bytes(4, "big")}


def test_invalid_decode_is_refused_before_the_start(spark: Any, topic: str, registry: str) -> None:
    frame = spark.range(1).selectExpr("cast('x' as binary) value", "id")
    with pytest.raises(OptionError, match=r"Subject 'nothing' not found"):
        decode(frame, subject="nothing", registry=registry)
    Registry(registry).register(f"{topic}-value", json.dumps(FIRST))
    with pytest.raises(OptionError, match="did you mean 'value'"):
        decode(frame, subject=f"{topic}-value", registry=registry, column="valu")
    with pytest.raises(OptionError, match="must be binary, not bigint"):
        decode(frame, subject=f"{topic}-value", registry=registry, column="id")
    with pytest.raises(ConnectionError, match="is not reachable"):
        decode(frame, subject="x", registry="http://127.0.0.1:1")
