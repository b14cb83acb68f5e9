"""Schema validation of produced records, and its cost for other topics."""

import asyncio
import uuid

from penstock.base.errors import ErrorCode
from penstock.broker.api.data.produce import produce
from penstock.state.registry.requests import DeleteSubject, Register
from penstock.wire.records import Codec, Record, encode
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.producing import VERSION, ask, batch, request, rows

ASKING = {"confluent.value.schema.validation": "true"}
SCHEMA = '{"type":"record","name":"shop.User","fields":[]}'
OTHER = '{"type":"record","name":"shop.Other","fields":[]}'


def marked(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + b"data"


async def code_of(node: Node, *values: bytes, topic: str = "t") -> int:
    return (await ask(node, batch(*values), topic)).error_code


async def register(node: Node, subject: str, schema: str = SCHEMA) -> None:
    await node.ctx.produce.registry.ask(Register(subject, schema, "AVRO"))


@run_with(on_node)
async def test_value_needs_a_schema_of_its_subject(node: Node) -> None:
    await node.create("t", 1, **ASKING)
    await register(node, "other-value")
    await register(node, "t-value", OTHER)
    assert await code_of(node, marked(2)) == 0
    for bad in (b"", b"text", b"\0\0\0", b"\1" + marked(2)[1:], marked(1), marked(9)):
        assert await code_of(node, bad) == ErrorCode.INVALID_RECORD
        assert await code_of(node, marked(2), bad) == ErrorCode.INVALID_RECORD
    refused = await ask(node, batch(marked(9)))
    assert refused.error_message == "schema 9 is not registered for the values of t"
    null = memoryview(encode([Record(key=b"k")]))
    assert (await ask(node, null)).error_code == 0


@run_with(on_node)
async def test_decompression_bomb_is_refused_before_validation(node: Node) -> None:
    await node.create("t", 1, **ASKING)
    bomb = memoryview(encode([Record(value=marked(9) + bytes(9 << 20))], codec=Codec.ZSTD))
    assert len(bomb) < 10_000
    assert (await ask(node, bomb)).error_code == ErrorCode.MESSAGE_TOO_LARGE


@run_with(on_node)
async def test_schema_is_valid_as_soon_as_it_is_registered(node: Node) -> None:
    await node.create("t", 1, **ASKING)
    assert await code_of(node, marked(1)) == ErrorCode.INVALID_RECORD
    await register(node, "t-value")
    assert await code_of(node, marked(1)) == 0


@run_with(on_node)
async def test_key_validation_is_configured_separately(node: Node) -> None:
    await node.create("t", 1, **{"confluent.key.schema.validation": "true"})
    await register(node, "t-key")
    with_key = batch(b"anything", key=marked(1))
    assert (await ask(node, with_key)).error_code == 0
    assert (await ask(node, batch(b"v", key=b"k"))).error_code == ErrorCode.INVALID_RECORD


@run_with(on_node)
async def test_subject_follows_the_topic_strategy(node: Node) -> None:
    package = "io.confluent.kafka.serializers.subject"
    strategies = {
        "by-record": f"{package}.RecordNameStrategy",
        "by-both": "TopicRecordNameStrategy",
    }
    for topic, strategy in strategies.items():
        named = {"confluent.value.subject.name.strategy": strategy}
        await node.create(topic, 1, **ASKING, **named)
    await register(node, "shop.User")
    await register(node, "by-both-shop.Other", OTHER)
    assert await code_of(node, marked(1), topic="by-record") == 0
    assert await code_of(node, marked(2), topic="by-record") == ErrorCode.INVALID_RECORD
    assert await code_of(node, marked(2), topic="by-both") == 0
    assert await code_of(node, marked(1), topic="by-both") == ErrorCode.INVALID_RECORD


@run_with(on_node)
async def test_schema_id_may_be_in_a_header(node: Node) -> None:
    await node.create("t", 1, **ASKING)
    await register(node, "t-value")
    shard = node.ctx.produce.registry.host.runtime(0).require()
    (guid,) = shard.state.contexts["."].by_guid

    async def code(header: bytes) -> int:
        headers = (("__value_schema_id", header),)
        records = memoryview(encode([Record(value=b"plain", headers=headers)]))
        return (await ask(node, records)).error_code

    assert await code(b"\1" + uuid.UUID(guid).bytes) == 0
    assert await code(b"\1" + bytes(16)) == ErrorCode.INVALID_RECORD
    assert await code(b"\0\0\0\0\1") == 0
    assert await code(b"nonsense") == ErrorCode.INVALID_RECORD


@run_with(on_node)
async def test_schema_lookup_is_cached_for_a_while(node: Node) -> None:
    await node.create("t", 1, **ASKING)
    await register(node, "t-value")
    assert await code_of(node, marked(1)) == 0
    await node.ctx.produce.registry.ask(DeleteSubject("t-value"))
    assert await code_of(node, marked(1)) == 0
    await asyncio.sleep(61.0)
    assert await code_of(node, marked(1)) == ErrorCode.INVALID_RECORD


@run_with(on_node)
async def test_topics_without_validation_are_appended_unchecked(node: Node) -> None:
    await node.create("plain", 1)
    assert not node.ctx.partitions.any_look_inside
    await node.create("t", 1, **ASKING)
    mixed = request(("plain", 0, batch(b"x")), ("t", 0, batch(b"x")))
    answered = rows(await node.ask(produce, VERSION, mixed))
    assert [row.error_code for row in answered] == [0, ErrorCode.INVALID_RECORD]
