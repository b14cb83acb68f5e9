"""Routing and retries: the right node, a fresh map when the old one failed, an end to trying."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.cluster import Cluster, parse_brokers
from penstock.client.connection import Address, ConnectionConfig
from penstock.client.errors import ConnectionLost, Unreachable
from penstock.client.metadata import TopicPartition
from penstock.wire.messages.metadata import MetadataRequest
from simulation.loop import SimLoop, run
from simulation.random import SimRandom
from tests.run_with import run_with
from tests.unit.client.model import CLOSE, HANG, ModelBroker, with_model


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9093", [Address("localhost", 9093)]),
        ("kafka", [Address("kafka", 9092)]),
        ("a:1, b:2,", [Address("a", 1), Address("b", 2)]),
        ("[::1]:9093,[::1]", [Address("::1", 9093), Address("::1", 9092)]),
    ],
)
def test_broker_addresses_are_parsed(text: str, expected: list[Address]) -> None:
    assert parse_brokers(text) == expected


@pytest.mark.parametrize("text", ["", ",", ":9092", "host:port", "host:70000", "host:-1"])
def test_invalid_broker_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_brokers(text)


def test_ipv6_address_is_shown_in_brackets() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"


@run_with(run)
async def test_bootstrap_tries_every_address(loop: SimLoop) -> None:
    broker = ModelBroker()
    address = await broker.start()
    async with Cluster(SimRandom(1), [Address("gone", 1), address]) as cluster:
        assert cluster.metadata.cluster_id == "model"


@run_with(run)
async def test_bootstrap_without_any_broker_fails_at_once(loop: SimLoop) -> None:
    with pytest.raises(Unreachable, match="cannot reach gone:1"):
        await Cluster(SimRandom(1), [Address("gone", 1), Address("gone", 2)]).bootstrap()
    assert loop.time() < 1


@run_with(with_model)
async def test_requests_go_to_the_partition_leader(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    broker.create("t", 3)
    broker.leaders[2] = ("other", 9092)
    broker.leader_of["t", 1] = 2
    broker.leader_of["t", 2] = -1
    assert await cluster.leader(TopicPartition("t", 0)) == 1
    assert await cluster.leader(TopicPartition("t", 1)) == 2
    with pytest.raises(Refused, match=r"t\[2\] has no leader"):
        await cluster.leader(TopicPartition("t", 2))
    with pytest.raises(Refused, match="there is no partition 3"):
        await cluster.leader(TopicPartition("t", 3))
    places = [TopicPartition("t", 1), TopicPartition("t", 0)]
    assert await cluster.by_leader(places) == {1: [places[1]], 2: [places[0]]}


@run_with(with_model)
async def test_callers_share_one_connection_and_one_refresh(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    import asyncio

    connections = await asyncio.gather(*(cluster.connection(1) for _ in range(5)))
    assert len({id(connection) for connection in connections}) == 1
    before = broker.count(MetadataRequest)
    await asyncio.gather(*(cluster.refresh(("t",)) for _ in range(5)))
    assert broker.count(MetadataRequest) == before + 1


@run_with(with_model)
async def test_closed_connection_is_opened_again(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    first = await cluster.connection(1)
    first.close()
    await first.wait_closed()
    second = await cluster.connection(1)
    assert second is not first
    assert not second.is_closed


@run_with(with_model)
async def test_unknown_topic_is_requested_a_few_times_only(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    with pytest.raises(Refused, match="topic 'nope' does not exist"):
        await cluster.topic("nope")
    assert loop.time() < 2


@run_with(with_model)
async def test_topic_that_appears_shortly_after_is_found(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    loop.call_later(0.1, broker.create, "late", 2)
    assert len((await cluster.topic("late")).partitions) == 2


@run_with(with_model)
async def test_repeatable_calls_are_retried_and_others_are_not(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    tries = 0

    async def attempt() -> int:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise ConnectionLost("gone")
        return tries

    with pytest.raises(ConnectionLost):
        await cluster.retrying(attempt, is_repeatable=False)
    assert tries == 1
    assert await cluster.retrying(attempt) == 3


@run_with(with_model)
async def test_retries_end_at_the_timeout(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    async def attempt() -> None:
        raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")

    started = loop.time()
    with pytest.raises(Refused, match="too few"):
        await cluster.retrying(attempt, timeout_ms=5000)
    assert 3 < loop.time() - started <= 5.1


@run_with(with_model)
async def test_permanent_refusal_is_not_retried(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    tries = 0

    async def attempt() -> None:
        nonlocal tries
        tries += 1
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    with pytest.raises(Refused):
        await cluster.retrying(attempt)
    assert tries == 1


@pytest.mark.parametrize("fault", [HANG, CLOSE])
@run_with(with_model, request_timeout_ms=1000)
async def test_failed_refresh_does_not_break_the_next_one(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster, *, fault: Any
) -> None:
    broker.create("t")
    broker.answers[MetadataRequest] = lambda request: fault
    await cluster.refresh_quietly(("t",))
    assert not cluster.metadata.topics
    broker.answers[MetadataRequest] = broker.metadata
    await cluster.refresh(("t",))
    assert "t" in cluster.metadata.topics


@run_with(run)
async def test_brokers_that_redirect_clients_are_asked_last(
    loop: SimLoop,
) -> None:
    brokers = [ModelBroker(node_id, f"b{node_id}") for node_id in (1, 2, 3)]
    addresses = [await broker.start() for broker in brokers]
    async with Cluster(SimRandom(1), addresses) as cluster:
        assert brokers[0].count(MetadataRequest) == 1
        for broker in brokers[:2]:
            broker.answers[MetadataRequest] = lambda request: CLOSE
        brokers[2].create("t")
        await cluster.refresh(("t",))
        assert "t" in cluster.metadata.topics
        before = [broker.count(MetadataRequest) for broker in brokers]
        await cluster.refresh(("t",))
        after = [broker.count(MetadataRequest) for broker in brokers]
        assert after == [before[0], before[1], before[2] + 1]
        brokers[2].answers[MetadataRequest] = lambda request: CLOSE
        with pytest.raises(ConnectionLost):
            await cluster.refresh(("t",))


@run_with(run)
async def test_config_reaches_the_connection(loop: SimLoop) -> None:
    broker = ModelBroker()
    config = ConnectionConfig(client_id="me")
    async with Cluster(SimRandom(1), [await broker.start()], config) as cluster:
        assert (await cluster.connection(1)).config.client_id == "me"
