"""Handlers called in process: replies at once, later, at the deadline, or after cancellation."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinator.runtime.internal_producer import request_of
from penstock.gateway.core.in_process_calls import InProcessCalls
from penstock.gateway.core.permissions import Principal
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.produce import ProduceResponse
from penstock.wire.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.wire.records import Record, encode
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, on_node

WHO = Principal("User:ann")


def batch() -> memoryview:
    return memoryview(encode([Record(0, 1, None, b"v")]))


@run_with(on_node, configs=CONFIGS)
async def test_immediate_and_deferred_replies_are_returned(node: Node) -> None:
    handlers = InProcessCalls(node.ctx)
    versions = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    assert (await handlers.ask(WHO, versions, ApiVersionsResponse)).api_keys
    gone = await handlers.ask(
        WHO, DeleteTopicsRequest(topics=[], timeout_ms=1), DeleteTopicsResponse
    )
    assert list(gone.responses) == []
    await node.create("t", 1)
    request = request_of(node.ctx.image.topics["t"], [(0, batch())])
    response = await handlers.ask(WHO, request, ProduceResponse)
    (row,) = response.responses[0].partition_responses
    assert (row.error_code, row.base_offset) == (0, 0)


@run_with(on_node, configs=CONFIGS)
async def test_missing_reply_times_out(node: Node) -> None:
    await node.create("t", 1)
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    partition.log.on_durable = None  # Commits stop.
    request = request_of(node.ctx.image.topics["t"], [(0, batch())], timeout_ms=3_000)
    started = asyncio.get_running_loop().time()
    response = await InProcessCalls(node.ctx).ask(WHO, request, ProduceResponse)
    (row,) = response.responses[0].partition_responses
    assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert 3 <= asyncio.get_running_loop().time() - started < 3.5


@run_with(on_node, configs=CONFIGS)
async def test_cancelled_call_is_abandoned_like_a_disconnected_client(node: Node) -> None:
    await node.create("t", 1)
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    on_durable, partition.log.on_durable = partition.log.on_durable, None
    request = request_of(node.ctx.image.topics["t"], [(0, batch())])
    asking = asyncio.ensure_future(InProcessCalls(node.ctx).ask(WHO, request, ProduceResponse))
    await asyncio.sleep(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    # The commit completes later, without a caller.
    assert on_durable is not None
    on_durable()
    assert partition.high_watermark == 1
