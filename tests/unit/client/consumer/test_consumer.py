"""Reading by assignment: every record once, in order, through resets, seeks and retention."""

import asyncio
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import Consumer, ConsumerConfig
from penstock.client.list_offsets import EARLIEST, LATEST
from penstock.client.metadata import TopicPartition
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.records import Record, encode
from simulation.loop import SimLoop
from tests.run_with import run_with
from tests.unit.client.model import CLOSE, ModelBroker, ModelLog, with_model

ZERO = TopicPartition("t", 0)


def fill(log: ModelLog, count: int, per_batch: int = 3) -> None:
    start = log.end_offset
    for first in range(start, start + count, per_batch):
        last = min(first + per_batch, start + count)
        log.append(encode([Record(0, n, None, b"%d" % n) for n in range(first, last)]))


async def read_until(consumer: Consumer, count: int) -> list[int]:
    seen: list[int] = []
    while len(seen) < count:
        seen += [int(message.value or b"") for message in await consumer.poll(60_000)]
    return seen


@run_with(with_model)
async def test_every_record_is_returned_once_and_in_order(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    (log,) = broker.create("t")
    fill(log, 50)
    await cluster.topic("t")
    async with Consumer(cluster, ConsumerConfig(partition_bytes=300)) as consumer:
        consumer.assign({ZERO: 0})
        assert await read_until(consumer, 50) == list(range(50))
        assert consumer.positions == {ZERO: 50}
        loop.call_later(0.2, fill, log, 7)
        assert await read_until(consumer, 7) == list(range(50, 57))


@run_with(with_model)
async def test_position_inside_a_batch_skips_earlier_records(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    (log,) = broker.create("t")
    fill(log, 9)
    await cluster.topic("t")
    async with Consumer(cluster) as consumer:
        consumer.assign({ZERO: 4})
        assert await read_until(consumer, 5) == [4, 5, 6, 7, 8]


@run_with(with_model)
async def test_poll_without_records_ends_in_time(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    broker.create("t")
    await cluster.topic("t")
    async with Consumer(cluster) as consumer:
        consumer.assign({ZERO: 0})
        started = loop.time()
        assert await consumer.poll(2000) == []
        assert 1.9 < loop.time() - started < 2.2


@run_with(with_model)
async def test_long_poll_takes_few_requests(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    broker.create("t")
    await cluster.topic("t")
    async with Consumer(cluster, ConsumerConfig(max_wait_ms=500)) as consumer:
        consumer.assign({ZERO: 0})
        await consumer.poll(5000)
        assert broker.count(FetchRequest) <= 12


@run_with(with_model)
async def test_lost_connections_cause_no_loss_and_no_repetition(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    logs = broker.create("t", 2)
    for log in logs:
        fill(log, 60)
    calls = 0

    def shaky(request: FetchRequest) -> Any:
        nonlocal calls
        calls += 1
        return CLOSE if calls % 3 == 0 else broker.fetch(request)

    broker.answers[FetchRequest] = shaky
    await cluster.topic("t")
    async with Consumer(cluster, ConsumerConfig(partition_bytes=200)) as consumer:
        consumer.assign({ZERO: 0, TopicPartition("t", 1): 0})
        seen: dict[int, list[int]] = {0: [], 1: []}
        while sum(map(len, seen.values())) < 120:
            for message in await consumer.poll(60_000):
                seen[message.partition].append(message.offset)
        assert seen == {0: list(range(60)), 1: list(range(60))}
    assert calls > 10


@run_with(with_model)
async def test_records_fetched_before_a_seek_are_not_returned_after_it(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    (log,) = broker.create("t")
    fill(log, 30)
    await cluster.topic("t")
    async with Consumer(cluster, ConsumerConfig(partition_bytes=100)) as consumer:
        consumer.assign({ZERO: 0})
        await consumer.poll()
        consumer.seek(ZERO, 20)
        assert (await read_until(consumer, 1))[0] == 20
        consumer.assign({ZERO: 5})
        assert (await read_until(consumer, 1))[0] == 5


@pytest.mark.parametrize(("reset", "first"), [(EARLIEST, 6), (LATEST, 12)])
@run_with(with_model)
async def test_out_of_range_position_is_reset_as_configured(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster, *, reset: int, first: int
) -> None:
    (log,) = broker.create("t")
    fill(log, 12)
    log.batches = log.batches[2:]
    log.start_offset = 6
    await cluster.topic("t")
    async with Consumer(cluster, ConsumerConfig(reset=reset)) as consumer:
        consumer.assign({ZERO: 1})
        loop.call_later(0.5, fill, log, 3)
        assert (await read_until(consumer, 1))[0] == first


@run_with(with_model)
async def test_out_of_range_position_without_a_reset_names_the_range(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    (log,) = broker.create("t")
    fill(log, 3)
    await cluster.topic("t")
    async with Consumer(cluster) as consumer:
        consumer.assign({ZERO: 99})
        with pytest.raises(Refused, match=r"offset 99 of t\[0\] is not within 0..3") as caught:
            await consumer.poll()
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@run_with(with_model)
async def test_topic_deleted_during_reads_is_an_error(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    broker.create("t")
    await cluster.topic("t")
    async with Consumer(cluster) as consumer:
        consumer.assign({ZERO: 0})
        await consumer.poll()
        del broker.logs["t"]
        await cluster.refresh(("t",))
        with pytest.raises(Refused, match="'t' does not exist"):
            await read_until(consumer, 1)


@run_with(with_model)
async def test_temporarily_unavailable_broker_is_waited_for(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    (log,) = broker.create("t")
    fill(log, 3)
    await cluster.topic("t")
    async with Consumer(cluster) as consumer:
        consumer.assign({ZERO: 0})
        assert await read_until(consumer, 3) == [0, 1, 2]
        broker.stop()
        loop.net.crash("broker")
        fill(log, 3)
        reading = loop.create_task(read_until(consumer, 3))
        await asyncio.sleep(20)
        await broker.start()
        assert await reading == [3, 4, 5]


@run_with(with_model)
async def test_unavailable_broker_ends_in_an_error(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    broker.create("t")
    await cluster.topic("t")
    async with Consumer(cluster, ConsumerConfig(retry_timeout_ms=10_000)) as consumer:
        consumer.assign({ZERO: 0})
        await consumer.poll()
        broker.stop()
        loop.net.crash("broker")
        started = loop.time()
        with pytest.raises(ConnectionError):
            await read_until(consumer, 1)
        assert 9 < loop.time() - started < 15


@run_with(with_model)
async def test_partition_may_be_revoked_during_a_fetch(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    one = TopicPartition("t", 1)
    for log in broker.create("t", 2):
        fill(log, 3)
    await cluster.topic("t")
    async with Consumer(cluster, ConsumerConfig(partition_bytes=300)) as consumer:
        consumer.assign({ZERO: 0, one: 0})
        assert len(await consumer.fetch()) == 2
        consumer.unassign(one)
        fill(broker.logs["t"][0], 3)
        assert await read_until(consumer, 3) == [3, 4, 5]
        assert consumer.positions == {ZERO: 6}


@run_with(with_model)
async def test_records_fetched_from_two_leaders_are_returned_once(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    """An election lies between the two questions, and both were answered in the same moment."""

    (log,) = broker.create("t")
    fill(log, 6)
    await cluster.topic("t")
    async with Consumer(cluster, ConsumerConfig()) as consumer:
        consumer.assign({ZERO: 0})
        for node_id in (7, 8):
            asked = consumer._fetch_from(broker.node_id, {ZERO: 0})
            consumer._fetches[node_id] = loop.create_task(asked)
        await asyncio.wait(consumer._fetches.values())
        assert [int(m.value or b"") for m in await consumer.poll(1_000)] == list(range(6))
