"""aiokafka consumers in groups, and aiokafka producers with transactions."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import ProducerFenced

from tests.conftest import Broker
from tests.run_with import in_new_loop, run_with

pytestmark = pytest.mark.clients
TIMEOUT_S = 30


@asynccontextmanager
async def member(
    broker: Broker, group: str | None, topic: str, **settings: Any
) -> AsyncIterator[Any]:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=3_000,
        heartbeat_interval_ms=300,
        **settings,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def create(broker: Broker, topic: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    answer = await admin.create_topics([NewTopic(topic, partitions, 1)])
    assert [error[1] for error in answer.topic_errors] == [0], answer
    await admin.close()


async def fill(broker: Broker, topic: str, partitions: int, each: int) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    for number in range(each):
        for index in range(partitions):
            await producer.send(topic, b"%d" % number, partition=index)
    await producer.stop()


async def until(question: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not question():
            await asyncio.sleep(0.02)


async def read(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(found) < count:
            batches = await consumer.getmany(timeout_ms=200)
            found += [record for records in batches.values() for record in records]
    return found


@run_with(in_new_loop)
async def test_members_share_partitions_and_take_over(*, broker: Broker, topic: str) -> None:
    await create(broker, topic, 4)
    group = f"group-of-{topic}"
    async with member(broker, group, topic) as first:
        await until(lambda: len(first.assignment()) == 4)
        async with member(broker, group, topic) as second:
            await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
            await fill(broker, topic, 4, 10)
            found = await asyncio.gather(read(first, 20), read(second, 20))
            assert len({(r.partition, r.offset) for rows in found for r in rows}) == 40
        await until(lambda: len(first.assignment()) == 4)


@run_with(in_new_loop)
async def test_group_continues_at_its_committed_offset(*, broker: Broker, topic: str) -> None:
    await create(broker, topic, 1)
    await fill(broker, topic, 1, 10)
    place = TopicPartition(topic, 0)
    group = f"group-of-{topic}"
    async with member(broker, group, topic) as first:
        await read(first, 10)
        await first.commit({place: (4, "halfway")})
    async with member(broker, group, topic) as second:
        assert [r.offset for r in await read(second, 6)] == [4, 5, 6, 7, 8, 9]
        assert await second.committed(place) == 4
        second.seek(place, 8)
        assert [r.offset for r in await read(second, 2)] == [8, 9]
        second.pause(place)
        second.seek(place, 0)
        assert await second.getmany(timeout_ms=300) == {}
        second.resume(place)
        assert len(await read(second, 10)) == 10


@run_with(in_new_loop)
async def test_static_member_gets_its_partitions_back(*, broker: Broker, topic: str) -> None:
    await create(broker, topic, 4)
    group = f"group-of-{topic}"
    async with member(broker, group, topic, group_instance_id="one") as one:
        async with member(broker, group, topic, group_instance_id="two") as two:
            await until(lambda: len(one.assignment()) == len(two.assignment()) == 2)
            held = set(two.assignment())
        async with member(broker, group, topic, group_instance_id="two") as back:
            await until(lambda: set(back.assignment()) == held)


@asynccontextmanager
async def transactional(broker: Broker, name: str) -> AsyncIterator[Any]:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@run_with(in_new_loop)
async def test_transactions_commit_and_abort(*, broker: Broker, topic: str) -> None:
    await create(broker, topic, 2)
    async with transactional(broker, topic) as producer:
        for number in range(12):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"%d" % number, partition=number % 2)
            if number % 4 == 3:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
    settings = {"isolation_level": "read_committed"}
    async with member(broker, f"group-of-{topic}", topic, **settings) as consumer:
        found = await read(consumer, 9)
        assert sorted(int(r.value) for r in found) == [0, 1, 2, 4, 5, 6, 8, 9, 10]


@run_with(in_new_loop)
async def test_second_producer_fences_the_first(*, broker: Broker, topic: str) -> None:
    await create(broker, topic, 1)
    async with transactional(broker, topic) as old:
        await old.begin_transaction()
        await old.send_and_wait(topic, b"old")
        async with transactional(broker, topic) as new:
            with pytest.raises(ProducerFenced):
                await old.send_and_wait(topic, b"late")
            async with new.transaction():
                await new.send(topic, b"new")
    async with member(broker, None, topic, isolation_level="read_committed") as consumer:
        assert [r.value for r in await read(consumer, 1)] == [b"new"]


@run_with(in_new_loop)
async def test_consume_transform_produce_is_exactly_once(*, broker: Broker, topic: str) -> None:
    source, target, group = f"{topic}-in", f"{topic}-out", f"group-of-{topic}"
    await create(broker, source, 2)
    await create(broker, target, 1)
    await fill(broker, source, 2, 20)
    async with transactional(broker, topic) as producer, member(broker, group, source) as c:
        copied = 0
        while copied < 40:
            batches = await c.getmany(timeout_ms=200, max_records=7)
            if not batches:
                continue
            async with producer.transaction():
                ends = {}
                for place, records in batches.items():
                    for record in records:
                        await producer.send(target, b"%d/" % place.partition + record.value)
                        copied += 1
                    ends[place] = records[-1].offset + 1
                await producer.send_offsets_to_transaction(ends, group)
        async with asyncio.timeout(TIMEOUT_S):
            while [await c.committed(TopicPartition(source, n)) for n in (0, 1)] != [20, 20]:
                await asyncio.sleep(0.05)
    async with member(broker, None, target, isolation_level="read_committed") as consumer:
        found = [record.value for record in await read(consumer, 40)]
        assert len(set(found)) == 40
