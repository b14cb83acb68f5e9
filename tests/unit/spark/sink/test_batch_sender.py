"""Batch sender: every batch once and in order, despite failures of the broker."""

import asyncio
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.cluster import Cluster
from penstock.client.metadata import TopicPartition
from penstock.spark.sink.batch_sender import REQUESTS_MAX, BatchSender
from penstock.spark.sink.row_batches import PartitionBatch
from penstock.wire.messages.produce import ProduceRequest
from penstock.wire.records import Record, encode
from simulation.loop import SimLoop
from tests.run_with import run_with
from tests.unit.client.model import CLOSE, HANG, ModelBroker, with_model


def batches(count: int, partitions: int = 2, size: int = 10) -> list[PartitionBatch]:
    made = []
    for number in range(count):
        where = TopicPartition("t", number % partitions)
        sequence = number // partitions
        batch = encode(
            [Record(0, 0, None, b"%d" % number + b"." * size)],
            producer_id=9,
            producer_epoch=0,
            base_sequence=sequence,
        )
        made.append(PartitionBatch(where, sequence, 1, batch, number))
    return made


def expected(count: int, partition: int, partitions: int = 2, size: int = 10) -> list[bytes]:
    return [b"%d" % n + b"." * size for n in range(count) if n % partitions == partition]


async def send_all(cluster: Cluster, made: list[PartitionBatch]) -> None:
    await cluster.topic("t")
    sender = BatchSender(cluster, None, 60_000)
    for at in range(0, len(made), 4):
        await sender.send(made[at : at + 4])
    await sender.finish()


def check(broker: ModelBroker, count: int, size: int = 10) -> None:
    for partition, log in enumerate(broker.logs["t"]):
        assert log.values() == expected(count, partition, size=size)


@run_with(with_model)
async def test_batches_arrive_once_and_in_order(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    broker.create("t", 2)
    await send_all(cluster, batches(40))
    check(broker, 40)


@run_with(with_model)
async def test_requests_in_flight_are_limited(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    broker.create("t", 2)
    await send_all(cluster, batches(2))
    broker.answers[ProduceRequest] = lambda request: HANG
    sender = BatchSender(cluster, None, 60_000)
    sender._confirmed = {TopicPartition("t", 0), TopicPartition("t", 1)}

    async def send_forever() -> None:
        for batch in batches(40)[2:]:
            await sender.send([batch])

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(send_forever(), 5)
    connection = await cluster.connection(1)
    assert len(connection._in_flight) == REQUESTS_MAX


@pytest.mark.parametrize("is_written", [True, False])
@run_with(with_model)
async def test_lost_reply_is_resent_without_duplicates(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster, *, is_written: bool
) -> None:
    broker.create("t", 2)
    calls = 0

    def losing(request: ProduceRequest) -> Any:
        nonlocal calls
        calls += 1
        if calls in (3, 7, 8):
            if is_written:
                broker.produce(request)
            return CLOSE
        return broker.produce(request)

    broker.answers[ProduceRequest] = losing
    await send_all(cluster, batches(40))
    check(broker, 40)


@run_with(with_model)
async def test_retriable_error_is_resent_in_order(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    broker.create("t", 2)
    calls = 0

    def refusing(request: ProduceRequest) -> Any:
        nonlocal calls
        calls += 1
        if calls % 4 == 3:
            return broker.refuse_produce(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return broker.produce(request)

    broker.answers[ProduceRequest] = refusing
    await send_all(cluster, batches(40))
    check(broker, 40)


@run_with(with_model)
async def test_fatal_error_is_raised(loop: SimLoop, broker: ModelBroker, cluster: Cluster) -> None:
    broker.create("t", 2)
    broker.answers[ProduceRequest] = lambda request: broker.refuse_produce(
        request, ErrorCode.PRODUCER_FENCED
    )
    with pytest.raises(Refused) as caught:
        await send_all(cluster, batches(4))
    assert caught.value.code is ErrorCode.PRODUCER_FENCED


@run_with(with_model)
async def test_throttle_time_is_respected(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    broker.create("t", 2)

    def throttling(request: ProduceRequest) -> Any:
        reply = broker.produce(request)
        reply.throttle_time_ms = 2_000
        return reply

    broker.answers[ProduceRequest] = throttling
    started = loop.time()
    await send_all(cluster, batches(12))
    assert loop.time() - started >= 3 * 2.0
