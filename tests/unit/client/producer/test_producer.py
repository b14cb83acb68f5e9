"""The producer against a broker that is slow, forgetful, broken or gone: all of it, once, in order.

The scenarios run on virtual time with the model broker; the last one throws everything at the
producer at once, for many seeds.
"""

import asyncio
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.cluster import Cluster
from penstock.client.errors import DeliveryTimeout
from penstock.client.producer.partitioner import partition_for_key
from penstock.client.producer.producer import Producer, ProducerConfig
from penstock.wire.compression import Codec
from penstock.wire.messages.produce import ProduceRequest
from penstock.wire.messages.transactions import InitProducerIdRequest
from penstock.wire.records import decode
from simulation.clock import SimClock
from simulation.loop import SimLoop
from simulation.random import SimRandom
from tests.run_with import run_with
from tests.unit.client.model import CLOSE, HANG, ModelBroker, with_model


def make_producer(loop: SimLoop, cluster: Cluster, **config: Any) -> Producer:
    return Producer(SimClock(loop), SimRandom(3), cluster, ProducerConfig(**config))


def numbers(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


@pytest.mark.parametrize("codec", list(Codec))
@run_with(with_model)
async def test_records_arrive_complete(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster, *, codec: Codec
) -> None:
    (log,) = broker.create("t")
    async with make_producer(loop, cluster, codec=codec) as producer:
        first = await producer.send("t", b"v", b"k", headers=[("h", b"1"), ("n", None)])
        second = await producer.send("t", None, timestamp_ms=123)
        sent = [await first, await second]
    assert [(s.partition, s.offset) for s in sent] == [(0, 0), (0, 1)]
    (batch,) = log.batches
    one, two = decode(memoryview(batch))
    assert (one.key, one.value, one.headers) == (b"k", b"v", (("h", b"1"), ("n", None)))
    assert (two.key, two.value, two.timestamp) == (None, None, 123)
    assert one.timestamp == sent[0].timestamp
    assert producer.buffered_bytes == 0


@run_with(with_model)
async def test_lingering_combines_records_into_one_batch(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    (log,) = broker.create("t")
    async with make_producer(loop, cluster, linger_ms=50) as producer:
        for value in numbers(10):
            await producer.send("t", value)
            await asyncio.sleep(0.004)
    assert len(log.batches) == 1
    assert log.values() == numbers(10)


@run_with(with_model)
async def test_keys_choose_the_partition_unless_one_is_given(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    broker.create("t", 5)
    async with make_producer(loop, cluster) as producer:
        for n in range(20):
            key = b"key-%d" % n
            sent = await (await producer.send("t", b"", key))
            assert sent.partition == partition_for_key(key, 5)
        assert (await (await producer.send("t", b"", b"key-1", partition=4))).partition == 4
        with pytest.raises(Refused, match=r"has 5 partitions, 0-4: there is no partition 5"):
            await producer.send("t", b"", partition=5)


@run_with(with_model)
async def test_records_without_a_key_spread_over_partitions(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    logs = broker.create("t", 4)
    async with make_producer(loop, cluster, linger_ms=0) as producer:
        for value in numbers(40):
            await (await producer.send("t", value))
    assert all(log.end_offset > 2 for log in logs)
    assert sum(log.end_offset for log in logs) == 40


@run_with(with_model)
async def test_full_buffer_blocks_send_and_refuses_offer(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    (log,) = broker.create("t")
    most = 0
    async with make_producer(loop, cluster, buffer_bytes=2000, batch_bytes=500) as producer:
        await cluster.topic("t")
        for value in numbers(300):
            await producer.send("t", value)
            most = max(most, producer.buffered_bytes)
        while producer.offer("t", b"last") is not None:
            pass
        with pytest.raises(Refused, match="exceeds the producer's buffer"):
            producer.offer("t", b"x" * 3000)
    assert 1500 < most <= 2000
    assert log.values()[:300] == numbers(300)


@run_with(with_model)
async def test_lost_reply_is_retried_and_written_once(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    (log,) = broker.create("t")

    def lose_reply(request: ProduceRequest) -> Any:
        broker.produce(request)
        broker.answers[ProduceRequest] = broker.produce
        return CLOSE

    broker.answers[ProduceRequest] = lose_reply
    async with make_producer(loop, cluster) as producer:
        sent = await (await producer.send("t", b"once"))
    assert sent.offset == 0
    assert log.values() == [b"once"]
    assert broker.count(ProduceRequest) == 2


@run_with(with_model)
async def test_transient_refusal_is_retried_with_backoff(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    (log,) = broker.create("t")
    left = 6

    def busy(request: ProduceRequest) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            broker.answers[ProduceRequest] = broker.produce
        return broker.refuse_produce(request, ErrorCode.NOT_ENOUGH_REPLICAS)

    broker.answers[ProduceRequest] = busy
    started = loop.time()
    async with make_producer(loop, cluster) as producer:
        assert (await (await producer.send("t", b"x"))).offset == 0
    assert 1.5 < loop.time() - started < 6
    assert log.values() == [b"x"]


@run_with(with_model)
async def test_permanent_refusal_fails_only_its_record(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    (log,) = broker.create("t")

    def refuse(request: ProduceRequest) -> Any:
        broker.answers[ProduceRequest] = broker.produce
        return broker.refuse_produce(request, ErrorCode.INVALID_TIMESTAMP)

    broker.answers[ProduceRequest] = refuse
    async with make_producer(loop, cluster) as producer:
        bad = await producer.send("t", b"bad")
        with pytest.raises(Refused, match=r"t\[0\]: the record's timestamp is too far"):
            await bad
        assert (await (await producer.send("t", b"good"))).offset == 0
    assert log.values() == [b"good"]
    assert broker.count(InitProducerIdRequest) == 2


@run_with(with_model)
async def test_unavailable_broker_ends_in_a_delivery_timeout_with_the_reason(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    broker.create("t")
    async with make_producer(loop, cluster, delivery_timeout_ms=5000) as producer:
        await (await producer.send("t", b"ok"))
        broker.stop()
        loop.net.crash("broker")
        started = loop.time()
        delivery = await producer.send("t", b"lost")
        with pytest.raises(DeliveryTimeout, match="connection refused"):
            await delivery
        assert 4.9 < loop.time() - started < 7


@run_with(with_model)
async def test_returning_broker_gets_all_records(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    (log,) = broker.create("t")
    async with make_producer(loop, cluster) as producer:
        await (await producer.send("t", b"0"))
        broker.stop()
        loop.net.crash("broker")
        deliveries = [await producer.send("t", b"%d" % n) for n in range(1, 50)]
        await asyncio.sleep(10)
        await broker.start()
        for delivery in deliveries:
            await delivery
    assert log.values() == numbers(50)


@run_with(with_model)
async def test_oversized_batch_is_split_and_kept_in_order(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    (log,) = broker.create("t")
    broker.batch_bytes_max = 400
    async with make_producer(loop, cluster) as producer:
        deliveries = [await producer.send("t", value) for value in numbers(200)]
        offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(200))
    assert log.values() == numbers(200)


@run_with(with_model)
async def test_acks_0_waits_for_no_reply(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    (log,) = broker.create("t")
    async with make_producer(loop, cluster, acks=0) as producer:
        assert (await (await producer.send("t", b"x"))).offset == -1
    await asyncio.sleep(1)
    assert log.values() == [b"x"]
    assert broker.count(InitProducerIdRequest) == 0


@run_with(with_model, request_timeout_ms=3000)
async def test_silent_broker_costs_one_timeout_and_a_retry(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    (log,) = broker.create("t")

    def swallow(request: ProduceRequest) -> Any:
        broker.answers[ProduceRequest] = broker.produce
        broker.produce(request)
        return HANG

    broker.answers[ProduceRequest] = swallow
    async with make_producer(loop, cluster) as producer:
        assert (await (await producer.send("t", b"x"))).offset == 0
    assert log.values() == [b"x"]


@run_with(with_model)
async def test_close_without_drain_fails_pending_records(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    broker.create("t")
    producer = make_producer(loop, cluster, linger_ms=60_000)
    delivery = await producer.send("t", b"x")
    await producer.close(drain=False)
    with pytest.raises(ConnectionError, match="closed before the record was delivered"):
        await delivery
    with pytest.raises(ConnectionError):
        await producer.send("t", b"y")


@pytest.mark.parametrize("seed", range(20))
@run_with(with_model, request_timeout_ms=2000, fixtures=["seed"])
async def test_records_arrive_once_and_in_order_under_network_faults(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    logs = broker.create("t", 3)
    faults = 0

    def spiteful(request: ProduceRequest) -> Any:
        nonlocal faults
        luck = loop.rng.random()
        if luck < 0.75 or faults >= 150:
            return broker.produce(request)
        faults += 1
        if luck < 0.80:
            return CLOSE  # Not written.
        if luck < 0.85:
            broker.produce(request)
            return CLOSE  # Written, but not acknowledged.
        if luck < 0.88:
            broker.produce(request)
            return HANG
        if luck < 0.92:
            broker.produce(request)
            return broker.refuse_produce(request, ErrorCode.REQUEST_TIMED_OUT)
        return broker.refuse_produce(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    broker.answers[ProduceRequest] = spiteful
    broker.batch_bytes_max = 400
    count = 400
    async with make_producer(
        loop, cluster, linger_ms=3, batch_bytes=600, delivery_timeout_ms=10_000_000
    ) as producer:
        deliveries = []
        for n in range(count):
            deliveries.append(await producer.send("t", b"%d" % n, partition=n % 3))
            if loop.rng.random() < 0.3:
                await asyncio.sleep(loop.rng.random() * 0.02)
            if loop.rng.random() < 0.02:
                loop.net.reset("localhost", "broker")
        for n, delivery in enumerate(deliveries):
            sent = await delivery
            assert sent.partition == n % 3
            assert logs[n % 3].values()[sent.offset] == b"%d" % n
    for partition, log in enumerate(logs):
        expected = [b"%d" % n for n in range(count) if n % 3 == partition]
        assert log.values() == expected, "lost, written twice or out of order"
    assert faults > 0
