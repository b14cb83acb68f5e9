"""The port: who is let in, who is closed and when, and how it stops."""

import asyncio
import dataclasses
import itertools

import pytest

from penstock.broker.server import listener
from penstock.broker.server.connection import KafkaConnection
from penstock.broker.server.listener import (
    HANDSHAKE_SECONDS,
    QUIET_SECONDS,
    STALL_SECONDS,
    SWEEP_SECONDS,
    Listener,
)
from tests.run_with import run_with
from tests.unit.broker.server.world import (
    LIMITS,
    World,
    correlation_of,
    fetch_frame,
    in_world,
    produce_frame,
    produced,
    versions_frame,
)

KIB, MIB = 1 << 10, 1 << 20


# -- limits -----------------------------------------------------------------------------------


@run_with(in_world, limits=dataclasses.replace(LIMITS, connections_per_ip_max=2))
async def test_connection_beyond_the_limit_of_its_address_is_closed(world: World) -> None:
    first, second = await world.connect("a"), await world.connect("a")
    third = await world.connect("a")
    await third.lost()
    other = await world.connect("b")
    for peer in (first, second, other):
        peer.send(versions_frame(1))
        await peer.replies(1)
    assert world.node.ctx.metrics.connections_refused.value == 1
    first.transport.close()
    await asyncio.sleep(0.1)
    again = await world.connect("a")
    again.send(versions_frame(1))
    await again.replies(1)


@run_with(
    in_world, limits=dataclasses.replace(LIMITS, connections_per_ip_max=1, overrides={"a": 3})
)
async def test_address_may_have_its_own_limit(world: World) -> None:
    for _ in range(3):
        await world.connect("a")
    kept = await world.connect("b")
    await (await world.connect("b")).lost()
    assert (world.listener.connections, kept.is_lost) == (4, False)


@run_with(in_world)
async def test_new_limits_apply_to_new_connections_only(world: World) -> None:
    peers = [await world.connect("a") for _ in range(3)]
    world.listener.limit(dataclasses.replace(LIMITS, connections_per_ip_max=2))
    await (await world.connect("a")).lost()
    assert not any(peer.is_lost for peer in peers)
    world.listener.limit(LIMITS)
    assert not (await world.connect("a")).is_lost


@run_with(in_world, limits=dataclasses.replace(LIMITS, connections_max=3))
async def test_connection_beyond_the_total_limit_is_closed(world: World) -> None:
    peers = [await world.connect(host) for host in "abc"]
    await (await world.connect("d")).lost()
    assert world.listener.connections == 3
    assert not any(peer.is_lost for peer in peers)


def test_many_refusals_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def check(world: World) -> None:
        await world.connect()
        for _ in range(50):
            await (await world.connect()).lost()
        assert world.node.ctx.metrics.connections_refused.value == 50

    in_world(check, limits=dataclasses.replace(LIMITS, connections_max=1))
    assert len([r for r in caplog.records if "refused a connection" in r.message]) == 1


@run_with(in_world, limits=dataclasses.replace(LIMITS, connections_per_ip_max=2, connections_max=4))
async def test_unfinished_handshakes_count_against_the_limits(world: World) -> None:
    await world.connect("a")
    admits = world.listener._admits
    assert admits("a", 0, 0)
    assert not admits("a", 1, 1), "one is open, one on its way, two are allowed"
    assert admits("b", 2, 1)
    assert not admits("b", 3, 1), "of all there may be four"
    assert world.node.ctx.metrics.connections_refused.value == 2


@run_with(in_world, limits=dataclasses.replace(LIMITS, connection_rate_max=2))
async def test_connections_above_the_total_rate_wait(world: World) -> None:
    peers = [await world.connect(host) for host in "abcdef"]
    for peer in peers:
        peer.send(versions_frame(1))
    began = world.loop.time()
    await peers[0].replies(1)
    await peers[1].replies(1)
    assert world.loop.time() - began < 0.3
    await peers[5].replies(1)
    assert 1.5 < world.loop.time() - began < 2.5, "four more at two a second"
    assert not any(peer.is_lost for peer in peers)


# -- sweeps -----------------------------------------------------------------------------------


@run_with(in_world)
async def test_idle_sweep_yields_to_other_connections(
    world: World, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "SWEPT_AT_ONCE", 10)
    judge = Listener._close_if_stalled
    judged, seen = 0, [0]

    def look() -> None:
        seen.append(judged)

    def count(self: Listener, connection: KafkaConnection, now: float) -> None:
        nonlocal judged
        if judged == seen[-1]:
            asyncio.get_running_loop().call_soon(look)
        judged += 1
        judge(self, connection, now)

    monkeypatch.setattr(Listener, "_close_if_stalled", count)

    for number in range(50):
        await world.connect(f"host-{number}")
    await asyncio.sleep(2 * SWEEP_SECONDS)
    assert judged >= 50
    assert max(after - before for before, after in itertools.pairwise(seen)) == 10


# -- deadlines --------------------------------------------------------------------------------


@run_with(in_world)
async def test_silent_connection_is_closed(world: World) -> None:
    peer = await world.connect()
    await peer.lost()
    assert HANDSHAKE_SECONDS < world.loop.time() < HANDSHAKE_SECONDS + 2 * SWEEP_SECONDS


@run_with(in_world)
async def test_incomplete_first_request_does_not_keep_the_connection(world: World) -> None:
    peer = await world.connect()
    for byte in (0, 0, 0, 90, 0, 18, 0, 0):
        peer.send(bytes([byte]))
        await asyncio.sleep(3)
    assert peer.is_lost
    assert world.listener.connections == 0


@run_with(in_world)
async def test_connection_stalled_within_a_frame_is_closed(world: World) -> None:
    peer = await world.connect()
    peer.send(versions_frame(1), produce_frame(2)[:20])
    await peer.lost()
    assert STALL_SECONDS < world.loop.time() < STALL_SECONDS + 2 * SWEEP_SECONDS


@run_with(in_world)
async def test_connection_that_does_not_read_is_closed(world: World) -> None:
    peer = await world.connect()
    peer.send(*(produce_frame(n, value=bytes(900 * KIB)) for n in range(2)))
    await peer.replies(2)
    start = world.loop.time()
    peer.transport.pause_reading()
    peer.send(fetch_frame(3))
    while world.listener.connections:
        await asyncio.sleep(1)
    assert STALL_SECONDS < world.loop.time() - start < STALL_SECONDS + 3 * SWEEP_SECONDS


@run_with(in_world)
async def test_slow_but_steady_reader_stays_connected(world: World) -> None:
    peer = await world.connect()
    peer.send(*(produce_frame(n, value=bytes(900 * KIB)) for n in range(8)))
    await peer.replies(8)
    peer.send(fetch_frame(9))
    for _ in range(200):
        peer.transport.resume_reading()
        await asyncio.sleep(0.002)
        peer.transport.pause_reading()
        await asyncio.sleep(10)
        if len(peer.frames) == 9:
            break
    assert not peer.is_lost
    assert correlation_of(peer.frames[8]) == 9
    assert world.loop.time() > 2 * STALL_SECONDS


@run_with(in_world, limits=dataclasses.replace(LIMITS, idle_ms_max=5000))
async def test_idle_connection_is_closed_after_the_configured_time(world: World) -> None:
    peer = await world.connect()
    peer.send(versions_frame(1))
    await peer.lost()
    assert 5.0 < world.loop.time() < 5.0 + 2 * SWEEP_SECONDS


@run_with(in_world, limits=dataclasses.replace(LIMITS, idle_ms_max=-1))
async def test_negative_idle_time_disables_the_limit(world: World) -> None:
    peer = await world.connect()
    peer.send(versions_frame(1))
    await asyncio.sleep(5000)
    peer.send(versions_frame(2))
    assert len(await peer.replies(2)) == 2


@run_with(in_world, limits=dataclasses.replace(LIMITS, idle_ms_max=60000))
async def test_parked_fetch_is_not_idle(world: World) -> None:
    peer = await world.connect()
    peer.send(fetch_frame(1, wait_ms=200_000))
    await peer.replies(1)
    assert world.loop.time() > 200


@run_with(in_world)
async def test_idle_connection_releases_its_buffer(world: World) -> None:
    peer = await world.connect()
    peer.send(produce_frame(1, value=bytes(500 * KIB)))
    await peer.replies(1)
    assert world.listener.budget.used > 500 * KIB
    await asyncio.sleep(QUIET_SECONDS + 2 * SWEEP_SECONDS)
    assert world.listener.budget.used == 0
    assert len(world.only_connection()._view) == 0
    peer.send(produce_frame(2, value=bytes(500 * KIB)))
    assert produced((await peer.replies(2))[1]) == (0, 1)


@run_with(in_world, limits=dataclasses.replace(LIMITS, buffered_bytes_max=800 * KIB))
async def test_trickling_connection_does_not_keep_contended_memory(world: World) -> None:
    slow, waiting = await world.connect(), await world.connect()
    slow.send(versions_frame(0))
    frame = produce_frame(1, value=bytes(900 * KIB))
    slow.send(frame[: 700 * KIB])
    await asyncio.sleep(1)
    waiting.send(frame)
    for at in range(700 * KIB, 700 * KIB + 100):
        slow.send(frame[at : at + 1])
        await asyncio.sleep(1)
        if waiting.frames:
            break
    await waiting.replies(1)
    assert slow.is_lost
    assert not waiting.is_lost
    assert world.loop.time() < STALL_SECONDS + 10


# -- stopping ---------------------------------------------------------------------------------


@run_with(in_world)
async def test_stop_sends_acknowledgements_and_accepts_no_requests(world: World) -> None:
    world.node.workers.delay_s = (1.0, 1.0)
    peer = await world.connect()
    peer.send(produce_frame(1), produce_frame(2))
    await asyncio.sleep(0.5)
    stopping = asyncio.ensure_future(world.listener.stop(30.0))
    await asyncio.sleep(0)
    peer.send(produce_frame(3))
    await stopping
    await peer.lost()
    assert [correlation_of(frame) for frame in peer.frames] == [1, 2]
    assert [produced(frame) for frame in peer.frames] == [(0, 0), (0, 1)]
    partition = world.node.ctx.partitions.get("t", 0)
    assert partition is not None
    assert partition.log.end_offset == 2
    assert world.loop.time() < 5


@run_with(in_world)
async def test_stop_completes_a_reply_being_sent(world: World) -> None:
    peer = await world.connect()
    peer.send(*(produce_frame(n, value=bytes(900 * KIB)) for n in range(6)))
    await peer.replies(6)
    peer.transport.pause_reading()
    peer.send(fetch_frame(9))
    await asyncio.sleep(1)
    stopping = asyncio.ensure_future(world.listener.stop(30.0))
    await asyncio.sleep(1)
    assert not stopping.done()
    peer.transport.resume_reading()
    await stopping
    await peer.lost()
    assert correlation_of(peer.frames[6]) == 9


@run_with(in_world)
async def test_stop_does_not_wait_for_parked_fetches(world: World) -> None:
    peers = [await world.connect() for _ in range(3)]
    for peer in peers:
        peer.send(fetch_frame(1, wait_ms=60_000))
    idle = await world.connect()
    await asyncio.sleep(0.5)
    start = world.loop.time()
    await world.listener.stop(30.0)
    assert world.loop.time() - start < 1
    for peer in (*peers, idle):
        await peer.lost()
    partition = world.node.ctx.partitions.get("t", 0)
    assert partition is not None
    assert not partition._watchers


@run_with(in_world)
async def test_stop_cuts_off_an_unresponsive_peer_after_the_grace(
    world: World,
) -> None:
    world.node.workers.delay_s = (100.0, 100.0)
    peer = await world.connect()
    peer.send(produce_frame(1))
    await asyncio.sleep(0.5)
    start = world.loop.time()
    await world.listener.stop(3.0)
    assert 3.0 <= world.loop.time() - start < 4
    assert world.listener.connections == 0


@run_with(in_world)
async def test_stopped_listener_refuses_connections(world: World) -> None:
    await world.listener.stop(1.0)
    with pytest.raises(ConnectionRefusedError):
        await world.connect()


@run_with(in_world)
async def test_progress_within_a_file_counts_as_activity(
    world: World,
) -> None:
    await world.connect()
    await asyncio.sleep(5)
    (one,) = world.listener._connections
    now = world.loop.time()
    assert one.quiet_for(now) >= 5
    one._send_queue.has_moved = True
    assert one.quiet_for(now) == 0
    assert one.quiet_for(now + 7) == 7, "it counts once"
