"""Replies that have not left: behind an earlier one, and for those who read none."""

import asyncio

import pytest

from penstock.broker.server import reply_limits
from penstock.broker.server.reply_limits import LARGE_BYTES, ReplyLimits
from penstock.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.run_with import run_with
from tests.unit.broker.server.world import World, correlation_of, framed, in_world, produce_frame

KIB = 1024


def configs_frame(correlation_id: int, count: int = 60) -> bytes:
    """Its answer is large: about 10 kB for each time that a resource is named."""
    rows = [
        DescribeConfigsResource(resource_type=32, resource_name=f"g{at}", configuration_keys=None)
        for at in range(count)
    ]
    request = DescribeConfigsRequest(
        resources=rows, include_synonyms=True, include_documentation=True
    )
    return framed(request, 4, correlation_id)


class Holder:
    """A connection."""

    def __init__(self, peer: str, principal: str = "User:ANONYMOUS", *, reads: bool = True) -> None:
        self.peer, self.principal, self.reads = peer, principal, reads
        self.is_ended = False

    def is_unread(self, now: float, seconds: float) -> bool:
        return not self.reads

    def abort(self) -> None:
        self.is_ended = True


def pool(monkeypatch: pytest.MonkeyPatch) -> ReplyLimits:
    monkeypatch.setattr(reply_limits, "UNREAD_BYTES_MAX", 16 * LARGE_BYTES)
    monkeypatch.setattr(reply_limits, "HOLDER_BYTES_MAX", 4 * LARGE_BYTES)
    return ReplyLimits()


def test_one_holder_leaves_capacity_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = pool(monkeypatch)
    many = [Holder("10.0.0.1") for _ in range(5)]
    assert [kept.keep(one, LARGE_BYTES, 0.0) for one in many] == [True] * 4 + [False]
    assert kept.keep(Holder("10.0.0.2"), 4 * LARGE_BYTES, 0.0)
    assert kept.keep(Holder("10.0.0.1", "User:ann"), 4 * LARGE_BYTES, 0.0), "not the same"
    assert not kept.keep(Holder("10.0.0.9", "User:ann"), LARGE_BYTES, 0.0)
    kept.release(many[0])
    assert kept.keep(many[4], LARGE_BYTES, 0.0)


def test_connections_that_do_not_read_are_ended_first(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = pool(monkeypatch)
    lazy, busy = Holder("10.0.0.1", reads=False), Holder("10.0.0.1")
    other = Holder("10.0.0.2", reads=False)
    for one, size in ((lazy, 2), (busy, 2), (other, 1)):
        assert kept.keep(one, size * LARGE_BYTES, 0.0)
    assert kept.keep(Holder("10.0.0.1"), LARGE_BYTES, 0.0)
    assert (lazy.is_ended, busy.is_ended, other.is_ended) == (True, False, False)
    assert kept.shares.taken == 4 * LARGE_BYTES


def test_small_replies_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = pool(monkeypatch)
    one = Holder("10.0.0.1")
    assert all(kept.keep(one, LARGE_BYTES - 1, 0.0) for _ in range(100))
    assert kept.shares.taken == 0


@run_with(in_world)
async def test_few_large_replies_wait_behind_a_pending_one(world: World) -> None:
    world.node.workers.delay_s = (50.0, 50.0)
    peer = await world.connect()
    peer.send(produce_frame(0), *(configs_frame(n) for n in range(1, 30)))
    await asyncio.sleep(20.0)
    connection = world.only_connection()
    kept = connection._parked_bytes
    assert reply_limits.PARKED_BYTES_MAX <= kept < 2 * reply_limits.PARKED_BYTES_MAX
    assert connection.requests < 15
    assert world.listener.budget.replies.shares.taken == kept
    replies = await peer.replies(30)
    assert [correlation_of(reply) for reply in replies] == list(range(30))
    await asyncio.sleep(1.0)
    assert connection._parked_bytes == 0
    assert world.listener.budget.replies.shares.taken == 0


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_limits, "UNREAD_BYTES_MAX", 4_000 * KIB)
    monkeypatch.setattr(reply_limits, "HOLDER_BYTES_MAX", 2_000 * KIB)


@pytest.mark.usefixtures("small_limits")
@run_with(in_world)
async def test_unread_large_replies_are_limited(world: World) -> None:
    lazy = [await world.connect("lazy") for _ in range(12)]
    for peer in lazy:
        peer.transport.pause_reading()
        peer.send(configs_frame(1, 120))
        await asyncio.sleep(1.0)
    held = world.listener.budget.replies
    assert 0 < held.shares.taken <= 2_000 * KIB
    reader = await world.connect("reader")
    reader.send(configs_frame(1, 120))
    await reader.replies(1)
    await asyncio.sleep(6.0)
    ended = len(lazy) + 1 - len(world.listener._connections)
    assert ended >= 8
    again = await world.connect("lazy")
    again.send(configs_frame(1, 120))
    await again.replies(1)
    await asyncio.sleep(200.0)
    assert held.shares.taken == 0, "who reads nothing for long is gone"
