"""Clients above their quota: answered at once, and not read for the throttle time."""

import asyncio
from typing import Any

from penstock.broker.server.connection import ReadPause
from penstock.cluster.access import quotas
from penstock.security.quotas import DEFAULT, Entity, QuotaKind
from penstock.wire.messages.fetch import FetchResponse
from penstock.wire.messages.produce import ProduceResponse
from simulation.loop import SimLoop, run
from tests.run_with import run_with
from tests.unit.broker.server.world import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    World,
    decoded,
    fetch_frame,
    fetched,
    in_world,
    metadata_frame,
    produce_frame,
    produced,
    versions_frame,
)

KIB = 1 << 10
CLIENT = Entity(None, "tester")


async def limit(world: World, entity: Entity = CLIENT, **values: float | None) -> None:
    ctx = world.node.ctx
    await ctx.reached(await quotas.alter(ctx.admin.store, ctx.image, entity, values))


def throttle_ms(frame: bytes) -> int:
    response: Any = decoded(frame, ProduceResponse, PRODUCE_VERSION)
    return int(response.throttle_time_ms)


@run_with(run, 0)
async def test_pause_ends_once_after_its_last_extension(loop: SimLoop) -> None:
    ends: list[float] = []
    muting = ReadPause(lambda: ends.append(loop.time()))
    muting.extend(1.0)
    await asyncio.sleep(0.5)
    muting.extend(2.0)
    muting.extend(0.1)
    assert muting.is_on
    await asyncio.sleep(5)
    assert not muting.is_on
    assert ends == [2.5]
    muting.extend(1.0)
    muting.close()
    muting.extend(1.0)
    await asyncio.sleep(5)
    assert ends == [2.5]


@run_with(in_world)
async def test_producer_above_its_quota_is_answered_and_then_paused(
    world: World,
) -> None:
    await limit(world, producer_byte_rate=10 * KIB)
    peer = await world.connect()
    began = world.loop.time()
    peer.send(produce_frame(1, value=bytes(40 * KIB)), produce_frame(2), versions_frame(3))
    (first,) = await peer.replies(1)
    assert produced(first)[0] == 0
    assert 3000 <= throttle_ms(first) < 3300, "forty KiB of which ten are in the bucket"
    assert world.loop.time() - began < 0.5, "the answer is not held back"
    assert len(peer.frames) == 1
    await peer.replies(2)
    assert 3.0 <= world.loop.time() - began < 3.5
    await peer.replies(3)
    metrics = world.node.ctx.metrics.catalogue.families["penstock_throttles_total"]
    assert metrics.counter(QuotaKind.PRODUCE).value >= 1


@run_with(in_world)
async def test_produce_quota_holds_within_ten_percent(world: World) -> None:
    await limit(world, producer_byte_rate=100 * KIB)
    peers = [await world.connect() for _ in range(3)]
    sent = 0
    began = world.loop.time()

    async def produce(peer: Any) -> None:
        nonlocal sent
        count = 0
        while world.loop.time() - began < 30:
            count += 1
            frame = produce_frame(count, value=bytes(7 * KIB))
            peer.send(frame)
            await peer.replies(count)
            sent += len(frame)

    await asyncio.gather(*(produce(peer) for peer in peers))
    rate = sent / (world.loop.time() - began)
    assert 0.9 * 100 * KIB < rate < 1.1 * 100 * KIB


@run_with(in_world)
async def test_fetch_quota_holds_within_ten_percent(world: World) -> None:
    peer = await world.connect()
    for number in range(64):
        peer.send(produce_frame(number, value=bytes(64 * KIB)))
    await peer.replies(64)
    await limit(world, consumer_byte_rate=100 * KIB)
    consumer = await world.connect()
    began, received, count = world.loop.time(), 0, 0
    while world.loop.time() - began < 30:
        count += 1
        consumer.send(fetch_frame(count, offset=count % 60))
        frame = (await consumer.replies(count))[-1]
        received += len(fetched(frame))
        assert len(fetched(frame)) <= 2 * 64 * KIB, "about one window's worth at once"
    rate = received / (world.loop.time() - began)
    assert 0.9 * 100 * KIB < rate < 1.1 * 100 * KIB
    response: Any = decoded(consumer.frames[-1], FetchResponse, FETCH_VERSION)
    assert response.throttle_time_ms > 0


@run_with(in_world)
async def test_acks_0_is_charged_without_an_answer(world: World) -> None:
    await limit(world, producer_byte_rate=10 * KIB)
    peer = await world.connect()
    began = world.loop.time()
    peer.send(produce_frame(1, value=bytes(30 * KIB), acks=0), versions_frame(2))
    await peer.replies(1)
    assert world.loop.time() - began >= 2.0


@run_with(in_world)
async def test_client_without_a_quota_is_not_delayed(world: World) -> None:
    await limit(world, Entity(None, "another-client"), producer_byte_rate=1, request_percentage=1)
    peer = await world.connect()
    began = world.loop.time()
    peer.send(*(produce_frame(number, value=bytes(40 * KIB)) for number in range(5)))
    replies = await peer.replies(5)
    assert [throttle_ms(reply) for reply in replies] == [0] * 5
    assert world.loop.time() - began < 1.0


@run_with(in_world)
async def test_removed_quota_no_longer_applies(world: World) -> None:
    await limit(world, producer_byte_rate=1)
    await limit(world, producer_byte_rate=None)
    peer = await world.connect()
    peer.send(produce_frame(1, value=bytes(40 * KIB)))
    assert throttle_ms((await peer.replies(1))[0]) == 0


@run_with(in_world)
async def test_request_time_is_charged(world: World) -> None:
    ticks = iter(number * 0.25 for number in range(10_000))
    world.node.ctx.meter.processor_s = lambda: next(ticks)
    await limit(world, request_percentage=10)
    peer = await world.connect()
    began = world.loop.time()
    peer.send(versions_frame(1), versions_frame(2), metadata_frame(3), metadata_frame(4))
    await peer.replies(3)
    assert world.loop.time() - began < 0.5, "before authentication nothing is charged"
    await peer.replies(4)
    assert world.loop.time() - began >= 1.0, "0.25 s at a tenth of the processor"


@run_with(in_world)
async def test_throttled_connection_is_not_taken_for_stalled(world: World) -> None:
    await limit(world, producer_byte_rate=KIB)
    peer = await world.connect()
    peer.send(produce_frame(1, value=bytes(200 * KIB)), produce_frame(2))
    await peer.replies(1)
    await asyncio.sleep(150)
    assert not peer.is_lost
    await peer.replies(2)


@run_with(in_world)
async def test_throttled_connection_may_be_lost(world: World) -> None:
    await limit(world, producer_byte_rate=KIB)
    peer = await world.connect()
    peer.send(produce_frame(1, value=bytes(20 * KIB)))
    await peer.replies(1)
    peer.transport.abort()
    await asyncio.sleep(60)
    assert world.listener.connections == 0


@run_with(in_world)
async def test_address_above_its_connection_rate_is_closed_later(
    world: World,
) -> None:
    await limit(world, Entity(ip=DEFAULT), connection_creation_rate=2)
    kept = [await world.connect("a") for _ in range(2)]
    began = world.loop.time()
    above = await world.connect("a")
    above.send(versions_frame(1))
    other = await world.connect("b")
    other.send(versions_frame(1))
    await other.replies(1)
    await above.lost()
    assert 0.3 < world.loop.time() - began < 1.5, "not at once: it would only try again"
    assert not above.frames
    assert not any(peer.is_lost for peer in kept)
    assert world.node.ctx.metrics.connections_refused.value == 1
