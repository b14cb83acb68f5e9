"""Calls to other nodes: batched, spread over channels, bounded."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.errors import ConnectionLost
from penstock.cluster.replication.peer_connections import PeerConnections
from penstock.coordinator.runtime.batched_rpc import (
    CHANNELS,
    ITEMS_MAX,
    QUEUED_MAX,
    Answered,
    BatchedRpc,
    ask_for_each,
    scatter,
)
from simulation.loop import SimLoop, run
from tests.run_with import run_with


class Network:
    """Notes what is delivered; a delivery takes a second of virtual time."""

    def __init__(self) -> None:
        self.deliveries: list[tuple[float, int, str, list[int]]] = []
        self.rpc: BatchedRpc[int] = BatchedRpc("network", self.deliver)

    async def deliver(self, node_id: int, channel: str, items: list[int]) -> None:
        began_s = asyncio.get_running_loop().time()
        self.deliveries.append((began_s, node_id, channel, items))
        await asyncio.sleep(1)


def on_network(test: Callable[[Network], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        await test(Network())

    run(main)


@run_with(on_network)
async def test_items_of_one_turn_are_sent_together(network: Network) -> None:
    for number in range(5):
        assert network.rpc.send(1, number)
        assert network.rpc.send(2, 10 * number)
    await asyncio.sleep(0.5)
    assert [(node, items) for _, node, _, items in network.deliveries] == [
        (1, [0, 1, 2, 3, 4]),
        (2, [0, 10, 20, 30, 40]),
    ]


@run_with(on_network)
async def test_slow_request_delays_no_other_until_all_channels_are_busy(
    network: Network,
) -> None:
    for number in range(CHANNELS + 5):
        network.rpc.send(1, number)
        await asyncio.sleep(0.01)
    assert len(network.deliveries) == CHANNELS
    assert len({channel for _, _, channel, _ in network.deliveries}) == CHANNELS
    assert network.rpc.queued == 5
    await asyncio.sleep(1)
    assert len(network.deliveries) == CHANNELS + 1, "what waited goes together"
    assert network.deliveries[-1][3] == list(range(CHANNELS, CHANNELS + 5))
    assert network.rpc.queued == 0


@run_with(on_network)
async def test_items_per_request_are_limited(network: Network) -> None:
    for number in range(ITEMS_MAX + 1):
        network.rpc.send(1, number)
    await asyncio.sleep(0.1)
    assert sorted(len(items) for _, _, _, items in network.deliveries) == [1, ITEMS_MAX]


@run_with(on_network)
async def test_full_queue_refuses_items(network: Network) -> None:
    taken = [network.rpc.send(1, number) for number in range(QUEUED_MAX + 2)]
    assert taken == [True] * QUEUED_MAX + [False] * 2
    assert network.rpc.send(2, 0), "another node's is not"


@run_with(run)
async def test_bug_in_a_delivery_ends_the_sender(loop: SimLoop) -> None:
    async def deliver(node_id: int, channel: str, items: list[int]) -> None:
        raise ValueError("a bug")

    rpc: BatchedRpc[int] = BatchedRpc("network", deliver)
    running = asyncio.ensure_future(rpc.run())
    rpc.send(1, 1)
    with pytest.raises(ValueError, match="a bug"):
        await asyncio.wait_for(running, 1)


@run_with(on_network)
async def test_cancelled_sender_cancels_its_deliveries(network: Network) -> None:
    running = asyncio.ensure_future(network.rpc.run())
    network.rpc.send(1, 1)
    await asyncio.sleep(0.5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not [task for task in asyncio.all_tasks() if "_carry" in repr(task)]


@run_with(run)
async def test_single_channel_keeps_order_and_request_size(loop: SimLoop) -> None:
    sent: list[list[int]] = []

    async def deliver(node_id: int, channel: str, items: list[int]) -> None:
        sent.append(items)
        await asyncio.sleep(loop.rng.uniform(0, 0.1))

    rpc = BatchedRpc("network", deliver, channels=1, size_of=lambda item: item, bytes_max=10)
    for item in (6, 3, 2, 50, 1, 1):
        rpc.send(1, item)
    await asyncio.sleep(1)
    assert sent == [[6, 3, 2], [50], [1, 1]]


@run_with(run)
async def test_withdrawn_items_are_not_sent(loop: SimLoop) -> None:
    lost: list[int] = []
    sent: list[int] = []

    async def deliver(node_id: int, channel: str, items: list[int]) -> None:
        await asyncio.sleep(0.1)
        if not lost:
            lost.extend([*items, *rpc.withdraw(node_id)])
        else:
            sent.extend(items)

    rpc: BatchedRpc[int] = BatchedRpc("network", deliver, channels=1)
    rpc.send(1, 1)
    await asyncio.sleep(0.05)
    rpc.send(1, 2)
    rpc.send(2, 20)
    await asyncio.sleep(0.5)
    assert lost == [1, 2], "the second must not overtake the first"
    assert sent == [20]
    rpc.send(1, 3)
    await asyncio.sleep(0.5)
    assert sent == [20, 3]
    assert rpc.withdraw(9) == []


@run_with(run)
async def test_items_are_sent_to_their_leaders_concurrently_and_answered_in_order(
    loop: SimLoop,
) -> None:
    asked: list[tuple[int, list[int]]] = []

    def leader(item: int) -> int:
        if item == 0:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE)
        return item % 2

    async def ask(node_id: int, items: list[int]) -> list[str]:
        asked.append((node_id, items))
        await asyncio.sleep(1)
        return [f"{node_id}:{item}" for item in items]

    answers = await scatter([3, 2, 0, 5, 4], leader, ask)
    assert [str(one) for one in (*answers[:2], *answers[3:])] == ["1:3", "0:2", "1:5", "0:4"]
    assert isinstance(answers[2], Refused)
    assert (asked, loop.time()) == ([(1, [3, 5]), (0, [2, 4])], 1.0)
    assert await scatter([], leader, ask) == []


class Peer:
    """Another node that echoes the characters of each request, except for those it cannot."""

    def __init__(self, *wrong: str) -> None:
        self.wrong = wrong
        self.asked: list[str] = []

    async def ask(self, node_id: int, request: str, response: type, **how: Any) -> Any:
        assert how == {"channel": "network", "version": 0, "timeout_ms": 5}
        self.asked.append(request)
        if "away" in self.wrong and "c" in request:
            raise ConnectionLost("gone")
        few = request[1:] if "few" in self.wrong and "c" in request else request
        return SimpleNamespace(answers=list(few))


@pytest.mark.parametrize("wrong", ["away", "few"])
@run_with(run)
async def test_each_item_is_answered_or_refused_with_its_request(
    loop: SimLoop, *, wrong: str
) -> None:
    peer = Peer(wrong)
    answers = await ask_for_each(
        cast("PeerConnections", peer),
        7,
        list("abcde"),
        "".join,
        cast("type[Answered]", SimpleNamespace),
        str.upper,
        at_once=2,
        channel="network",
        version=0,
        timeout_ms=5,
        unreached=ErrorCode.LEADER_NOT_AVAILABLE,
    )
    assert peer.asked == ["ab", "cd", "e"]
    assert [answers[0], answers[1], answers[4]] == ["A", "B", "E"]
    for refused in answers[2:4]:
        assert isinstance(refused, Refused)
        assert refused.code is ErrorCode.LEADER_NOT_AVAILABLE
        assert "node 7 does not answer" in str(refused)
