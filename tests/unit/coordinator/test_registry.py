"""The registry's coordinator on one node: its topic, its order, and what it does when pressed."""

import asyncio

import msgspec
import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator import registry as coordinator
from penstock.coordinator.registry import SCHEMAS
from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.requests import (
    CheckProposal,
    GetById,
    GetVersion,
    ListSubjects,
    Register,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node


def text(number: int) -> str:
    return f'{{"type":"record","name":"R{number}","fields":[]}}'


async def register(node: Node, subject: str, schema: str) -> int:
    answer = await node.ctx.produce.registry.ask(Register(subject, schema, "AVRO"))
    registered: int = msgspec.json.decode(answer)["id"]
    return registered


@run_with(on_node)
async def test_schemas_topic_is_created_when_first_needed(node: Node) -> None:
    assert SCHEMAS.name not in node.ctx.image.topics
    assert await node.ctx.produce.registry.ask(ListSubjects()) == b"[]"
    topic = node.ctx.image.topics[SCHEMAS.name]
    assert len(topic.partitions) == 1
    assert topic.is_internal
    assert topic.configs["cleanup.policy"] == "compact"


@run_with(on_node)
async def test_concurrent_registrations_get_unique_ids(node: Node) -> None:
    texts = [text(number % 20) for number in range(60)]
    ids = await asyncio.gather(
        *(register(node, f"s{at}", schema) for at, schema in enumerate(texts))
    )
    assert sorted(set(ids)) == list(range(1, 21))
    assert len({(schema, number) for schema, number in zip(texts, ids, strict=True)}) == 20


@run_with(on_node)
async def test_answered_registration_is_committed(node: Node) -> None:
    await register(node, "s", text(1))
    partition = node.ctx.partitions.get(SCHEMAS.name, 0)
    assert partition is not None
    assert partition.high_watermark == partition.log.end_offset == 1


@run_with(on_node)
async def test_refusals_keep_their_error_codes_and_change_nothing(node: Node) -> None:
    await register(node, "s", text(1))
    for call, number in (
        (GetById(7), RegistryErrorCode.SCHEMA_NOT_FOUND),
        (Register("s", "{", "AVRO"), RegistryErrorCode.INVALID_SCHEMA),
        (Register("s", '"int"', "AVRO"), RegistryErrorCode.INCOMPATIBLE_SCHEMA),
        (CheckProposal("s", "{", "AVRO"), RegistryErrorCode.INVALID_SCHEMA),
    ):
        with pytest.raises(Rejected) as caught:
            await node.ctx.produce.registry.ask(call)
        assert caught.value.number is number
    shard = node.ctx.produce.registry.host.runtime(0).require()
    assert shard.state.count == 1


@run_with(on_node)
async def test_schema_is_returned_in_the_requested_format(node: Node) -> None:
    proto = 'syntax = "proto3"; message M { string a = 1; }'
    await node.ctx.produce.registry.ask(Register("s", proto, "PROTOBUF"))
    answer = await node.ctx.produce.registry.ask(GetVersion("s", 1, form="serialized"))
    assert (
        msgspec.json.decode(answer)["schema"]
        == "Cg1kZWZhdWx0LnByb3RvIg4KAU0SCQoBYRgBIAEoCWIGcHJvdG8z"
    )


@run_with(on_node)
async def test_waiting_calls_are_limited(node: Node) -> None:
    registry = node.ctx.produce.registry
    waiting = [
        asyncio.ensure_future(registry.ask(GetById(1))) for _ in range(coordinator.CALLS_MAX)
    ]
    await asyncio.sleep(0)
    with pytest.raises(Refused) as caught:
        await registry.ask(GetById(1))
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, Rejected)
    with pytest.raises(Rejected):
        await registry.ask(GetById(1))
