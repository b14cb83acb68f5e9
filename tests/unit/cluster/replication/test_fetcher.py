"""The conversation with a leader: cycles, overtaking, sessions, loss and return."""

import asyncio
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.cluster.replication.partition import Partition
from penstock.wire.messages.fetch import FetchRequest, FetchResponse
from simulation.network import host_context
from tests.run_with import run_with
from tests.unit.client.model import HANG
from tests.unit.cluster.replicas import ModelLeader, Node, content, key_of, replicate, until


def fetches(leader: ModelLeader) -> list[FetchRequest]:
    return [request for request in leader.seen if isinstance(request, FetchRequest)]


def named(request: FetchRequest) -> int:
    return sum(len(topic.partitions) for topic in request.topics)


async def copied(copy: Partition, end_offset: int, seconds: float = 10.0) -> None:
    await until(lambda: copy.log.durable_offset == end_offset, seconds)


@run_with(replicate)
async def test_records_are_copied_byte_for_byte(node: Node, leader: ModelLeader) -> None:
    led = leader.lead("t")
    led.append(b"a", b"b")
    led.append(b"c")
    copy = node.open("t", 1)
    node.follow()
    await copied(copy, 3)
    leader.append("t", b"d")
    await copied(copy, 4)
    assert content(copy.log) == content(led.log)
    assert copy.log.epochs.encode() == led.log.epochs.encode()


@run_with(replicate, sync_s=0.05)
async def test_fetch_offset_advances_only_to_synced_records(
    node: Node, leader: ModelLeader
) -> None:
    led = leader.lead("t")
    copy = node.open("t", 1)
    node.follow()
    for number in range(20):
        leader.append("t", b"%d" % number)
        await asyncio.sleep(0.01)
        assert max(led.fetched) <= copy.log.durable_offset
    await until(lambda: led.fetched[-1] == 20)
    assert led.fetched == sorted(led.fetched)


@run_with(replicate)
async def test_partitions_copied_together_are_fetched_together(
    node: Node, leader: ModelLeader
) -> None:
    copies = [node.open("t", 1, index) for index in range(50)]
    for index in range(50):
        leader.lead("t", index)
    node.follow()
    await until(lambda: len(fetches(leader)) == 2)
    before = len(fetches(leader))
    for _ in range(10):
        for index in range(50):
            leader.led[key_of("t", index)].append(b"x")
        leader.stir()
        await asyncio.sleep(0.1)
    assert all(copy.log.durable_offset == 10 for copy in copies)
    asked = fetches(leader)[before:]
    assert len(asked) <= 12
    assert [named(request) for request in asked[:3]] == [50, 50, 50]


@run_with(replicate)
async def test_session_names_only_what_changed(node: Node, leader: ModelLeader) -> None:
    for index in range(200):
        leader.lead("t", index)
        node.open("t", 1, index)
    node.follow()
    copy = node.held[key_of("t", 7)]
    for number in range(5):
        leader.append("t", b"%d" % number, index=7)
        await copied(copy, number + 1)
    asked = fetches(leader)
    assert named(asked[0]) == 200
    assert asked[0].session_epoch == 0
    assert all(named(request) <= 1 for request in asked[1:])
    assert {request.session_id for request in asked[1:]} == {1}


@run_with(replicate)
async def test_idle_partitions_are_named_again_under_a_new_registration(
    node: Node, leader: ModelLeader
) -> None:
    """State sent under the previous registration no longer lets this replica join."""

    for index in range(3):
        leader.lead("t", index)
        node.open("t", 1, index)
    node.follow()
    await asyncio.sleep(2)
    assert named(fetches(leader)[-1]) == 0
    before = len(fetches(leader))
    node.epoch += 1
    await asyncio.sleep(2)
    after = fetches(leader)[before:]
    assert [named(request) for request in after if named(request)] == [3]
    assert {request.session_id for request in after} == {1}
    assert after[-1].replica_state is not None
    assert after[-1].replica_state.replica_epoch == node.epoch


@run_with(replicate)
async def test_partition_added_during_a_parked_fetch_is_fetched_at_once(
    node: Node, leader: ModelLeader
) -> None:
    leader.lead("old")
    old = node.open("old", 1)
    node.follow()
    await asyncio.sleep(2)
    leader.lead("new").append(b"x")
    new = node.open("new", 1)
    node.follow()
    await copied(new, 1, seconds=0.05)
    # Both go on, over whichever connection is free.
    for number in range(1, 6):
        leader.append("old", b"x")
        leader.append("new", b"x")
        await copied(old, number, seconds=0.05)
        await copied(new, number + 1, seconds=0.05)
    assert leader.connections == 2


@pytest.mark.parametrize("seed", range(5))
@run_with(replicate, fixtures=["seed"])
async def test_overtaken_request_costs_a_session_and_no_delay(
    node: Node, leader: ModelLeader
) -> None:
    leader.lead("old")
    old = node.open("old", 1)
    node.follow()
    for number in range(1, 30):
        leader.append("old", b"x")
        await copied(old, number, seconds=0.05)
        # The next request of the session has just been sent, and this one follows at once.
        leader.lead("new", number).append(b"x")
        new = node.open("new", 1, number)
        node.follow()
        await copied(new, 1, seconds=0.05)
    assert len(leader.sessions) > 1, "it has happened"


@run_with(replicate)
async def test_slow_partition_does_not_delay_the_rest(node: Node, leader: ModelLeader) -> None:
    leader.lead("slow")
    leader.lead("fast")
    slow, fast = node.open("slow", 1), node.open("fast", 1)
    node.follow()
    leader.append("slow", b"x")
    leader.append("fast", b"x")
    await until(lambda: 1 in leader.led[key_of("slow")].fetched)
    async with node.flusher.hold(slow.log):
        leader.append("slow", b"x")
        for number in range(2, 21):
            leader.append("fast", b"x")
            # Once, the one that is held is waited for.
            await copied(fast, number, seconds=0.1 if number <= 3 else 0.01)
        assert slow.log.end_offset == 2
        assert slow.log.durable_offset == 1
        assert leader.led[key_of("slow")].fetched[-1] == 1
    await until(lambda: 2 in leader.led[key_of("slow")].fetched, seconds=0.05)


@run_with(replicate)
async def test_session_evicted_by_the_leader_is_opened_again(
    node: Node, leader: ModelLeader
) -> None:
    leader.lead("t")
    copy = node.open("t", 1)
    node.follow()
    leader.append("t", b"a")
    await copied(copy, 1)
    await until(lambda: bool(leader.parked))
    leader.sessions.clear()
    leader.append("t", b"b")
    await copied(copy, 2)
    leader.session_epochs[1] += 5
    leader.append("t", b"c")
    await until(lambda: 3 in leader.led[key_of("t")].fetched)
    assert [request.session_epoch for request in fetches(leader)].count(0) == 3


@run_with(replicate)
async def test_every_partition_is_requested_each_time_without_sessions(
    node: Node, leader: ModelLeader
) -> None:
    leader.gives_sessions = False
    leader.lead("t")
    leader.lead("u")
    copy = node.open("t", 1)
    node.open("u", 1)
    node.follow()
    leader.append("t", b"x")
    await copied(copy, 1)
    await asyncio.sleep(1)
    before = len(fetches(leader))
    for number in range(1, 6):
        leader.append("t", b"x")
        await copied(copy, number + 1)
    assert all(named(request) == 2 for request in fetches(leader)[before:])
    # Nothing is parked for long, because it could not be called back.
    assert max(request.max_wait_ms for request in fetches(leader)) <= 50


@run_with(replicate)
async def test_unavailable_leader_is_retried_with_backoff(node: Node, leader: ModelLeader) -> None:
    leader.lead("t")
    copy = node.open("t", 1)
    node.follow()
    leader.append("t", b"a")
    await copied(copy, 1)
    net = node.loop.net
    net.crash(leader.host)
    tries = 0
    connect = net.connect

    async def count(*args: Any, **options: Any) -> Any:
        nonlocal tries
        tries += 1
        return await connect(*args, **options)

    net.connect = count  # type: ignore[method-assign]
    await asyncio.sleep(10)
    assert 9 <= tries <= 40
    await node.loop.create_task(leader.start(), context=host_context(leader.host))
    leader.append("t", b"b")
    await copied(copy, 2, seconds=1.5)


@run_with(replicate)
async def test_leader_that_registers_again_is_retried_at_once(
    node: Node, leader: ModelLeader
) -> None:
    leader.lead("t")
    copy = node.open("t", 1)
    node.follow()
    await until(lambda: bool(leader.parked))
    node.loop.net.crash(leader.host)
    await asyncio.sleep(20)
    await node.loop.create_task(leader.start(), context=host_context(leader.host))
    leader.append("t", b"a")
    node.meet(leader, epoch=2)
    await copied(copy, 1, seconds=0.05)


@run_with(replicate, configs={"replica.socket.timeout.ms": "2000"})
async def test_hanging_connection_is_closed(node: Node, leader: ModelLeader) -> None:
    leader.lead("t")
    copy = node.open("t", 1)
    node.follow()
    await until(lambda: len(fetches(leader)) == 2)
    leader.answers[FetchRequest] = lambda request: HANG
    leader.append("t", b"a")
    await copied(copy, 1)
    await asyncio.sleep(1.5)
    leader.answers[FetchRequest] = leader.serve
    leader.append("t", b"b")
    await asyncio.sleep(0.3)
    assert copy.log.end_offset == 1
    await copied(copy, 2, seconds=0.4)


@run_with(replicate, configs={"replica.socket.timeout.ms": "2000"})
async def test_follower_catches_up_after_a_network_cut(node: Node, leader: ModelLeader) -> None:
    leader.lead("t")
    copy = node.open("t", 1)
    node.follow()
    await until(lambda: bool(leader.parked))
    node.loop.net.cut("node-9", leader.host)
    leader.append("t", b"a")
    await asyncio.sleep(60)
    node.loop.net.heal()
    await copied(copy, 1, seconds=10)


@run_with(replicate)
async def test_error_of_a_whole_fetch_is_retried_with_backoff(
    node: Node, leader: ModelLeader
) -> None:
    def refuse(request: FetchRequest) -> FetchResponse:
        return FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, responses=[])

    leader.answers[FetchRequest] = refuse
    leader.lead("t").append(b"a")
    copy = node.open("t", 1)
    node.follow()
    await asyncio.sleep(5)
    assert 4 <= len(fetches(leader)) <= 15
    leader.answers[FetchRequest] = leader.serve
    await copied(copy, 1, seconds=1.5)


@run_with(replicate)
async def test_fetcher_waits_until_its_node_is_registered(node: Node, leader: ModelLeader) -> None:
    node.epoch = -1
    leader.lead("t").append(b"a")
    copy = node.open("t", 1)
    node.follow()
    await asyncio.sleep(2)
    assert not fetches(leader)
    node.epoch = 78
    node.follow()
    await copied(copy, 1, seconds=0.05)
    state = fetches(leader)[0].replica_state
    assert state is not None
    assert (state.replica_id, state.replica_epoch) == (9, 78)


@run_with(
    replicate,
    configs={
        "replica.fetch.wait.max.ms": "123",
        "replica.fetch.min.bytes": "2",
        "replica.fetch.response.max.bytes": "4000000",
        "replica.fetch.max.bytes": "300000",
    },
)
async def test_fetch_limits_follow_the_configs(node: Node, leader: ModelLeader) -> None:
    leader.lead("t")
    node.open("t", 1)
    node.follow()
    await until(lambda: len(fetches(leader)) == 2)
    first, second = fetches(leader)
    assert (first.max_wait_ms, second.max_wait_ms) == (0, 123)
    assert (second.min_bytes, second.max_bytes) == (2, 4_000_000)
    assert first.topics[0].partitions[0].partition_max_bytes == 300_000
