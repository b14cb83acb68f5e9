"""Schemas of a registry in Spark: bad rows become dead letters once, and come back once."""

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
        pytest.skip("the registry is Penstock's")
    return broker.http


def avro(schema_id: int, schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return b"\0" + schema_id.to_bytes(4, "big") + stream.getvalue()


def test_one_percent_of_bad_rows_go_to_the_dead_letters_once_and_come_back_once(
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

    letters = topics.letters(dlq)
    assert sorted(int(letter.key or b"") for letter in letters) == list(range(5, ROWS, 100))
    assert {letter.error_class for letter in letters} == {"UnknownSchema", "Unframed"}
    assert {letter.group for letter in letters} == {"loader"}
    assert all(letter.source and letter.source.topic == topic for letter in letters)
    assert all(letter.own_headers == (("trace", b"t"),) for letter in letters)

    # The fix: the values as they should have been. Sent back, and loaded once.
    fixed = {b"%d" % n: avro(new, SECOND, {"id": n, "note": "y"}) for n in range(5, ROWS, 100)}
    assert topics.redrive(dlq, lambda letter: fixed[letter.key or b""]) == BAD
    run_stream(routed, brokers=topics.bootstrap)
    assert topics.values(out) == list(range(ROWS))
    assert topics.letters(dlq) == []


@pytest.mark.parametrize(
    ("kind", "text"), [("AVRO", json.dumps(SECOND)), ("JSON", JSON_TEXT), ("PROTOBUF", PROTO_TEXT)]
)
def test_what_is_encoded_is_decoded(
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


def test_what_cannot_be_decoded_at_all_is_told_before_anything_runs(
    spark: Any, topic: str, registry: str
) -> None:
    frame = spark.range(1).selectExpr("cast('x' as binary) value", "id")
    with pytest.raises(OptionError, match=r"Subject 'nothing' not found"):
        decode(frame, subject="nothing", registry=registry)
    Registry(registry).register(f"{topic}-value", json.dumps(FIRST))
    with pytest.raises(OptionError, match="did you mean 'value'"):
        decode(frame, subject=f"{topic}-value", registry=registry, column="valu")
    with pytest.raises(OptionError, match="is bigint, not binary"):
        decode(frame, subject=f"{topic}-value", registry=registry, column="id")
    with pytest.raises(ConnectionError, match="cannot be asked"):
        decode(frame, subject="x", registry="http://127.0.0.1:1")
