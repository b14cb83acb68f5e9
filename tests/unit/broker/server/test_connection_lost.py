"""A connection that drops before its answer begins: nothing is left of that, not even a warning."""

import asyncio
import dataclasses
import gc
import warnings

import pytest

from penstock.broker.api import routes
from penstock.broker.api.call import Call
from penstock.broker.api.context import ApiFamily
from penstock.cluster.replication.partition import Partition
from penstock.wire.records import Record, encode, read_header
from tests.unit.broker.server.world import (
    World,
    fetch_frame,
    in_world,
    metadata_frame,
    produce_frame,
)


def _partition(world: World) -> Partition:
    partition = world.node.ctx.partitions.get("t", 0)
    assert partition is not None
    return partition


@pytest.mark.parametrize("frame", ["fetch", "waiting fetch", "later"])
def test_response_of_a_lost_connection_leaves_no_warning(frame: str) -> None:
    async def answer_later(ctx: ApiFamily, call: Call, request: object) -> None:
        raise AssertionError("the connection is lost")

    async def check(world: World) -> None:
        peer = await world.connect()
        peer.send(produce_frame(1))
        await peer.replies(1)
        world.node.disk.cold_ratio = 1.0
        (connection,) = world.listener._connections
        sent = metadata_frame(2)
        if frame == "later":
            dispatcher = world.listener._dispatcher
            route = next(route for route in routes.ROUTES if route.name == "Metadata")
            dispatcher._prepared.clear()
            dispatcher._routes[route.key] = dataclasses.replace(route, handler=answer_later)
        else:
            sent = fetch_frame(2, wait_ms=1_000, offset=1 if frame == "waiting fetch" else 0)
        connection.get_buffer(len(sent))[: len(sent)] = sent
        connection.buffer_updated(len(sent))
        if frame == "waiting fetch":
            # It is lost in the turn in which the fetch that waits finds something.
            partition, loop = _partition(world), asyncio.get_running_loop()

            def lose() -> None:
                loop.call_soon(connection.connection_lost, None)

            partition.watch(lose)
            batch = memoryview(encode([Record(value=b"v")]))
            partition.append(batch, read_header(batch), 0)
            await asyncio.sleep(10)
            assert partition.high_watermark == 2
        else:
            connection.connection_lost(None)
        await asyncio.sleep(10)
        assert world.node.ctx.metrics.internal_errors.value == 0

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        in_world(check)
        gc.collect()
    assert [str(one.message) for one in caught if one.category is RuntimeWarning] == []
