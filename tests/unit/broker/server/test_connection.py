"""One connection on the simulated network: frames, order, flow control, and its ends."""

import asyncio
import dataclasses
import logging

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api import routes
from penstock.broker.api.call import Call
from penstock.broker.api.context import Context
from penstock.broker.server import connection as connections
from penstock.broker.server.connection import BUFFER_BYTES_MIN, WHOLE_FRAME_BYTES
from penstock.cluster.replication.partition import Partition
from tests.run_with import run_with
from tests.unit.broker.server.world import (
    LIMITS,
    World,
    correlation_of,
    fetch_frame,
    fetched,
    in_world,
    metadata_frame,
    produce_frame,
    produced,
    spoken,
    versions_frame,
)

KIB, MIB = 1 << 10, 1 << 20


def partition_of(world: World, topic: str = "t", index: int = 0) -> Partition:
    partition = world.node.ctx.partitions.get(topic, index)
    assert partition is not None
    return partition


def stored(world: World) -> list[bytes]:
    """The log of `t` as its file has it."""
    segment = partition_of(world).log.segments.active
    return [segment.file.read(0, segment.size)]


# -- frames -----------------------------------------------------------------------------------


@run_with(in_world)
async def test_frames_split_at_every_byte_are_reassembled(world: World) -> None:
    peer = await world.connect()
    whole = versions_frame(1) + produce_frame(2) + metadata_frame(3)
    for at in range(len(whole)):
        peer.send(whole[at : at + 1])
        if at % 7 == 0:
            await asyncio.sleep(0.002)
    replies = await peer.replies(3)
    assert [correlation_of(reply) for reply in replies] == [1, 2, 3]
    assert spoken(replies[0]) > 40
    assert produced(replies[1]) == (0, 0)


@pytest.mark.parametrize("cut", range(1, 60, 3))
@run_with(in_world)
async def test_two_frames_split_anywhere_are_reassembled(world: World, *, cut: int) -> None:
    peer = await world.connect()
    whole = versions_frame(1) + versions_frame(2)
    peer.send(whole[:cut])
    await asyncio.sleep(0.1)
    peer.send(whole[cut:])
    assert [correlation_of(reply) for reply in await peer.replies(2)] == [1, 2]


@pytest.mark.parametrize("seed", range(5))
@run_with(in_world, fixtures=["seed"])
async def test_many_frames_in_one_segment_are_all_answered(world: World) -> None:
    peer = await world.connect()
    peer.send(*(produce_frame(n, value=b"%d" % n) for n in range(300)))
    replies = await peer.replies(300)
    assert [correlation_of(reply) for reply in replies] == list(range(300))
    assert [produced(reply) for reply in replies] == [(0, n) for n in range(300)]


@pytest.mark.parametrize(
    "size", [BUFFER_BYTES_MIN, WHOLE_FRAME_BYTES - 100, WHOLE_FRAME_BYTES, 300 * KIB, 900 * KIB]
)
@run_with(in_world)
async def test_frames_of_every_size_arrive_complete(world: World, *, size: int) -> None:
    peer = await world.connect()
    values = [bytes([n]) * (size + n) for n in range(3)]
    frames = [produce_frame(n, value=value) for n, value in enumerate(values)]
    peer.send(*frames, versions_frame(9))
    replies = await peer.replies(4)
    assert [produced(reply) for reply in replies[:3]] == [(0, 0), (0, 1), (0, 2)]
    (content,) = stored(world)
    assert all(value in content for value in values)


@pytest.mark.parametrize("length", [-1, -(2**31), LIMITS.frame_bytes_max + 1, 2**31 - 1])
@run_with(in_world)
async def test_invalid_length_closes_the_connection(world: World, *, length: int) -> None:
    peer = await world.connect()
    other = await world.connect()
    peer.send(length.to_bytes(4, "big", signed=True))
    await peer.lost()
    assert world.node.ctx.metrics.peer_errors.value == 1
    other.send(versions_frame(1))
    assert len(await other.replies(1)) == 1


@run_with(in_world)
async def test_buffer_grows_with_received_bytes_not_the_declared_length(
    world: World,
) -> None:
    peer = await world.connect()
    peer.send((9 * MIB).to_bytes(4, "big"), bytes(100 * KIB))
    await asyncio.sleep(1)
    held = len(world.only_connection()._view)
    assert 100 * KIB < held <= 256 * KIB


@run_with(in_world)
async def test_garbage_closes_the_connection(world: World) -> None:
    for body in (b"", b"\x00", b"\x7f" * 40):
        peer = await world.connect()
        peer.send(len(body).to_bytes(4, "big"), body)
        await peer.lost()
    assert world.node.ctx.metrics.peer_errors.value == 3
    assert world.node.ctx.metrics.internal_errors.value == 0


# -- order ------------------------------------------------------------------------------------


@run_with(in_world)
async def test_replies_are_sent_in_request_order(world: World) -> None:
    await world.node.create("fast", 1, flush_policy="page-cache")
    world.node.workers.delay_s = (0.5, 0.5)
    peer = await world.connect()
    order = ["t", "fast", "fast", "t", "fast"]
    peer.send(*(produce_frame(n, topic) for n, topic in enumerate(order)))
    await asyncio.sleep(0.3)
    # All are appended, the fast ones committed: yet the first one is not, so none leaves.
    assert partition_of(world, "fast").high_watermark == 3
    assert partition_of(world).log.end_offset == 2
    assert not peer.frames
    replies = await peer.replies(5)
    assert [correlation_of(reply) for reply in replies] == [0, 1, 2, 3, 4]
    assert [produced(reply)[1] for reply in replies] == [0, 0, 1, 1, 2]


@run_with(in_world)
async def test_ordered_request_delays_the_next_one(world: World) -> None:
    peer = await world.connect()
    peer.send(fetch_frame(1, wait_ms=5000), produce_frame(2), versions_frame(3))
    await asyncio.sleep(1)
    assert partition_of(world).log.end_offset == 0, "the produce must wait"
    assert not peer.frames
    replies = await peer.replies(3)
    assert [correlation_of(reply) for reply in replies] == [1, 2, 3]
    assert world.loop.time() > 5


@run_with(in_world)
async def test_complete_large_request_waits_for_its_turn(world: World) -> None:
    world.loop.net.whole_ratio = 1.0
    peer = await world.connect()
    peer.send(produce_frame(0, value=bytes(WHOLE_FRAME_BYTES)))
    await peer.replies(1)
    large = [produce_frame(n, value=bytes(WHOLE_FRAME_BYTES)) for n in (2, 3)]
    peer.send(fetch_frame(1, offset=1, wait_ms=1000), *large, versions_frame(4))
    replies = await peer.replies(5)
    assert [correlation_of(reply) for reply in replies] == [0, 1, 2, 3, 4]
    assert [produced(reply) for reply in replies[2:4]] == [(0, 1), (0, 2)]


@run_with(in_world)
async def test_parked_fetch_is_answered_when_another_connection_produces(world: World) -> None:
    consumer, producer = await world.connect(), await world.connect()
    consumer.send(fetch_frame(1, wait_ms=60_000))
    await asyncio.sleep(0.1)
    producer.send(produce_frame(1, value=b"news"))
    (reply,) = await consumer.replies(1)
    assert b"news" in fetched(reply)
    assert world.loop.time() < 5


@run_with(in_world)
async def test_acks_0_is_silent_and_the_next_request_is_answered(world: World) -> None:
    peer = await world.connect()
    peer.send(produce_frame(1, acks=0), produce_frame(2, acks=0), versions_frame(3))
    (reply,) = await peer.replies(1)
    assert correlation_of(reply) == 3
    await asyncio.sleep(1)
    assert len(peer.frames) == 1
    assert partition_of(world).log.end_offset == 2


@run_with(in_world)
async def test_acks_0_error_closes_the_connection_after_earlier_replies(world: World) -> None:
    peer = await world.connect()
    peer.send(versions_frame(1), produce_frame(2, topic="gone", acks=0), versions_frame(3))
    await peer.lost()
    assert [correlation_of(reply) for reply in peer.frames] == [1]
    assert world.node.ctx.metrics.internal_errors.value == 0
    assert world.listener.connections == 0


@run_with(in_world)
async def test_inspected_batches_are_appended_in_order(
    world: World,
) -> None:
    await world.node.create("keyed", 1, cleanup_policy="compact")
    peer = await world.connect()
    peer.send(*(produce_frame(n, ("keyed", "t")[n % 2], b"v%d" % n) for n in range(40)))
    replies = await peer.replies(40)
    assert [correlation_of(reply) for reply in replies] == list(range(40))
    assert [produced(reply) for reply in replies] == [(0, n // 2) for n in range(40)]
    (content,) = stored(world)
    assert all(b"v%d" % n in content for n in range(1, 40, 2))


# -- flow control -----------------------------------------------------------------------------


@run_with(in_world)
async def test_slow_reader_is_paused_and_costs_no_memory(world: World) -> None:
    writer, peer = await world.connect(), await world.connect()
    writer.send(*(produce_frame(n, value=bytes([n]) * (900 * KIB)) for n in range(8)))
    await writer.replies(8)
    peer.transport.pause_reading()
    peer.send(*(fetch_frame(n) for n in range(6)))
    await asyncio.sleep(5)
    slow = list(world.listener._connections)[1]
    assert slow.is_stalled_by_peer
    assert slow.requests == 1, "the second fetch waits until the first has left"
    assert slow.transport is not None
    assert slow.transport.get_write_buffer_size() < 2 * MIB
    peer.transport.resume_reading()
    replies = await peer.replies(6)
    (content,) = stored(world)
    assert {fetched(reply) for reply in replies} == {content[: 8 * MIB]}


@run_with(in_world)
async def test_small_replies_beyond_the_high_mark_pause_requests(world: World) -> None:
    peer = await world.connect()
    peer.transport.pause_reading()
    count = 3000
    for start in range(0, count, 100):
        peer.send(*(versions_frame(n) for n in range(start, start + 100)))
        await asyncio.sleep(0.1)
    connection = world.only_connection()
    assert connection.requests < count
    assert connection.transport is not None
    assert connection.transport.get_write_buffer_size() < 512 * KIB
    assert len(connection._view) <= WHOLE_FRAME_BYTES * 2
    peer.transport.resume_reading()
    replies = await peer.replies(count)
    assert [correlation_of(reply) for reply in replies] == list(range(count))


@run_with(in_world)
async def test_large_and_small_replies_keep_their_order(world: World) -> None:
    writer, peer = await world.connect(), await world.connect()
    writer.send(produce_frame(0, value=b"x" * (900 * KIB)))
    await writer.replies(1)
    (content,) = stored(world)
    peer.send(
        *(frame for n in range(10) for frame in (fetch_frame(2 * n), versions_frame(2 * n + 1)))
    )
    replies = await peer.replies(20)
    assert [correlation_of(reply) for reply in replies] == list(range(20))
    assert all(fetched(reply) == content for reply in replies[::2])


@run_with(in_world)
async def test_too_many_pending_replies_pause_reading(
    world: World, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PENDING_REPLIES_MAX", 5)

    world.node.workers.delay_s = (1.0, 1.0)
    peer = await world.connect()
    peer.send(*(produce_frame(n) for n in range(12)))
    await asyncio.sleep(0.5)
    assert partition_of(world).log.end_offset == 5
    replies = await peer.replies(12)
    assert [produced(reply)[1] for reply in replies] == list(range(12))


# -- the memory budget ------------------------------------------------------------------------


@run_with(in_world, limits=dataclasses.replace(LIMITS, buffered_bytes_max=MIB))
async def test_connections_over_the_memory_budget_are_served_eventually(world: World) -> None:
    peers = [await world.connect() for _ in range(6)]
    frames = [produce_frame(n, value=bytes([n]) * (900 * KIB)) for n in range(6)]
    halves = [(frame[: 500 * KIB], frame[500 * KIB :]) for frame in frames]
    for peer, (first, _) in zip(peers, halves, strict=True):
        peer.send(first)
    await asyncio.sleep(3)
    budget = world.listener.budget
    assert budget.is_contended
    assert budget.used <= budget.bytes_max + 2 * MIB
    for peer, (_, second) in zip(peers, halves, strict=True):
        peer.send(second)
    for peer in peers:
        assert produced((await peer.replies(1))[0])[0] == 0
    assert world.loop.time() < 30, "no connection had to be closed for it"
    assert not budget.is_contended


@run_with(in_world, limits=dataclasses.replace(LIMITS, buffered_bytes_max=700 * KIB))
async def test_memory_of_a_lost_connection_is_released(world: World) -> None:
    peer, waiting = await world.connect(), await world.connect()
    frame = produce_frame(1, value=bytes(900 * KIB))
    peer.send(frame[: 600 * KIB])
    await asyncio.sleep(1)
    assert world.listener.budget.used > 0
    waiting.send(frame)
    await asyncio.sleep(1)
    assert world.listener.budget.is_contended
    assert not waiting.frames
    peer.transport.abort()
    await waiting.replies(1)
    waiting.transport.abort()
    await asyncio.sleep(1)
    assert world.listener.budget.used == 0
    assert not world.listener.budget.is_contended


@run_with(in_world, limits=dataclasses.replace(LIMITS, buffered_bytes_max=MIB))
async def test_idle_buffer_is_released_for_waiting_connections(world: World) -> None:
    idle, waiting = await world.connect(), await world.connect()
    idle.send(produce_frame(1, value=bytes(900 * KIB)))
    await idle.replies(1)
    assert world.listener.budget.used > 900 * KIB
    waiting.send(produce_frame(1, value=bytes(900 * KIB)))
    await waiting.replies(1)
    assert world.loop.time() < 5


@run_with(in_world, limits=dataclasses.replace(LIMITS, buffered_bytes_max=-1))
async def test_connections_never_wait_without_a_memory_limit(world: World) -> None:
    peers = [await world.connect() for _ in range(3)]
    for peer in peers:
        peer.send(produce_frame(1, value=bytes(900 * KIB))[: 800 * KIB])
    await asyncio.sleep(1)
    assert not world.listener.budget.is_contended
    assert world.listener.budget.used >= 3 * 800 * KIB


# -- ends -------------------------------------------------------------------------------------


@run_with(in_world)
async def test_lost_connection_removes_its_parked_fetch(world: World) -> None:
    peer = await world.connect()
    peer.send(fetch_frame(1, wait_ms=250_000))
    await asyncio.sleep(0.5)
    assert len(partition_of(world)._watchers) == 1
    peer.transport.close()
    await asyncio.sleep(0.5)
    assert len(partition_of(world)._watchers) == 0
    assert world.listener.connections == 0


@run_with(in_world)
async def test_lost_connection_does_not_affect_a_pending_produce(world: World) -> None:
    world.node.workers.delay_s = (2.0, 2.0)
    peer = await world.connect()
    peer.send(produce_frame(1), produce_frame(2))
    await asyncio.sleep(0.5)
    peer.transport.abort()
    await asyncio.sleep(10)
    partition = partition_of(world)
    assert partition.high_watermark == 2
    assert not partition._acks
    assert world.node.ctx.metrics.internal_errors.value == 0


def test_bug_in_a_handler_closes_only_that_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(ctx: Context, call: Call, request: object) -> None:
        raise ZeroDivisionError("a bug")

    async def broken_later(ctx: Context, call: Call, request: object) -> None:
        await asyncio.sleep(0.01)
        raise ZeroDivisionError("a bug")

    async def check(world: World) -> None:
        dispatcher = world.listener._dispatcher
        good = await world.connect()
        for handler in (broken, broken_later):
            route = next(route for route in routes.ROUTES if route.name == "Metadata")
            dispatcher._prepared.clear()
            dispatcher._routes[route.key] = dataclasses.replace(route, handler=handler)
            bad = await world.connect()
            bad.send(metadata_frame(1))
            await bad.lost()
        good.send(versions_frame(1))
        assert len(await good.replies(1)) == 1
        assert world.node.ctx.metrics.internal_errors.value == 2

    with caplog.at_level(logging.CRITICAL, logger="penstock.server"):
        in_world(check)


@run_with(in_world)
async def test_close_sends_the_current_reply_first(world: World) -> None:
    peer = await world.connect()
    peer.send(*(produce_frame(n, value=bytes(900 * KIB)) for n in range(3)))
    await peer.replies(3)
    peer.transport.pause_reading()
    peer.send(fetch_frame(3), versions_frame(4))
    await asyncio.sleep(1)
    world.only_connection().close()
    await asyncio.sleep(1)
    peer.transport.resume_reading()
    await peer.lost()
    assert [correlation_of(reply) for reply in peer.frames] == [0, 1, 2, 3]
    assert len(fetched(peer.frames[3])) > 2 * MIB
    assert world.loop.time() < 10


@run_with(in_world)
async def test_connection_closed_by_its_peer_is_removed(world: World) -> None:
    peer = await world.connect()
    peer.send(versions_frame(1))
    await peer.replies(1)
    peer.transport.write_eof()
    await peer.lost()
    assert world.listener.connections == 0


@run_with(in_world)
async def test_slow_disk_ends_as_request_timed_out(
    world: World,
) -> None:
    world.node.workers.delay_s = (100.0, 100.0)
    peer = await world.connect()
    peer.send(produce_frame(1), produce_frame(2))
    replies = await peer.replies(2)
    assert 30 < world.loop.time() < 35
    assert [produced(reply)[0] for reply in replies] == [ErrorCode.REQUEST_TIMED_OUT] * 2
