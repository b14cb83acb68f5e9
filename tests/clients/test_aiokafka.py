"""aiokafka, an independent implementation in asyncio, talks to the broker as it talks to Kafka."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError

from tests.clients.tools import CODECS
from tests.conftest import Broker
from tests.run_with import in_new_loop, run_with

pytestmark = pytest.mark.clients
TIMEOUT_S = 20


@asynccontextmanager
async def started(client: Any) -> AsyncIterator[Any]:
    await client.start()
    try:
        yield client
    finally:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


def admin_of(broker: Broker) -> Any:
    return started(AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap))


def producer_of(broker: Broker, **settings: Any) -> Any:
    settings = {"enable_idempotence": True, **settings}
    return started(AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings))


def consumer_of(broker: Broker) -> Any:
    return started(AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None))


async def until(question: Callable[[], Awaitable[bool]], what: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await question():
            await asyncio.sleep(0.05)
    assert await question(), what


async def create(broker: Broker, topic: str, partitions: int = 1, **config: str) -> None:
    configs = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, partitions, 1, topic_configs=configs)
    async with admin_of(broker) as admin:
        answer = await admin.create_topics([new])
        assert [error[1] for error in answer.topic_errors] == [0], answer

        async def visible() -> bool:
            described = await admin.describe_topics([topic])
            return len(described[0]["partitions"]) == partitions

        await until(visible, "the topic is there")


async def read(broker: Broker, topic: str, count: int) -> list[ConsumerRecord]:
    partition = TopicPartition(topic, 0)
    async with consumer_of(broker) as consumer, asyncio.timeout(TIMEOUT_S):
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        return [await consumer.getone() for _ in range(count)]


@run_with(in_new_loop)
async def test_topics_are_created_listed_extended_and_deleted(
    *, broker: Broker, topic: str
) -> None:
    await create(broker, topic, partitions=2)
    async with admin_of(broker) as admin:
        assert topic in await admin.list_topics()
        answer = await admin.create_topics([NewTopic(topic, 1, 1)])
        assert answer.topic_errors[0][1] == 36
        await admin.create_partitions({topic: NewPartitions(total_count=5)})

        async def grown() -> bool:
            return len((await admin.describe_topics([topic]))[0]["partitions"]) == 5

        await until(grown, "five partitions")
        await admin.delete_topics([topic])

        async def gone() -> bool:
            return topic not in await admin.list_topics()

        await until(gone, "the topic is gone")


@run_with(in_new_loop)
async def test_configs_are_described_and_altered(*, broker: Broker, topic: str) -> None:
    await create(broker, topic, retention_ms="60000")
    async with admin_of(broker) as admin:

        async def described() -> dict[str, str]:
            asked = ConfigResource(ConfigResourceType.TOPIC, topic)
            answer = (await admin.describe_configs([asked]))[0]
            return {row[0]: row[1] for row in answer.resources[0][4]}

        assert (await described())["retention.ms"] == "60000"
        changes = {"retention.ms": "70000"}
        change = ConfigResource(ConfigResourceType.TOPIC, topic, configs=changes)
        await admin.alter_configs([change])

        async def altered() -> bool:
            return (await described())["retention.ms"] == "70000"

        await until(altered, "the new retention is described")


@pytest.mark.parametrize("codec", CODECS)
def test_records_round_trip_with_every_codec(broker: Broker, topic: str, codec: str) -> None:
    sent = [(b"key-%d" % i, b"value-%d " % i * 20) for i in range(200)]

    async def run() -> list[ConsumerRecord]:
        await create(broker, topic)
        compression = None if codec == "none" else codec
        async with producer_of(broker, compression_type=compression, linger_ms=20) as producer:
            waiting = [await producer.send(topic, value, key) for key, value in sent]
            done = await asyncio.gather(*waiting)
        assert [metadata.offset for metadata in done] == list(range(200))
        return await read(broker, topic, 200)

    assert [(r.key, r.value) for r in asyncio.run(run())] == sent


def test_headers_null_keys_and_null_values_survive(broker: Broker, topic: str) -> None:
    async def run() -> list[ConsumerRecord]:
        await create(broker, topic)
        async with producer_of(broker) as producer:
            await producer.send_and_wait(topic, b"no key", headers=[("a", b"1"), ("a", b"")])
            await producer.send_and_wait(topic, None, b"tombstone")
        return await read(broker, topic, 2)

    first, second = asyncio.run(run())
    assert (first.key, first.value, first.headers) == (None, b"no key", (("a", b"1"), ("a", b"")))
    assert (second.key, second.value, second.headers) == (b"tombstone", None, ())


@run_with(in_new_loop)
async def test_oversized_message_is_refused(*, broker: Broker, topic: str) -> None:
    await create(broker, topic, max_message_bytes="100000")
    async with producer_of(broker, max_request_size=5_000_000) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, b"x" * 100_001)
        await producer.send_and_wait(topic, b"x" * 90_000)


def test_append_time_is_set_by_the_broker(broker: Broker, topic: str) -> None:
    async def run() -> ConsumerRecord:
        await create(broker, topic, message_timestamp_type="LogAppendTime")
        async with producer_of(broker) as producer:
            done = await producer.send_and_wait(topic, b"x", timestamp_ms=1_000)
        record = (await read(broker, topic, 1))[0]
        assert done.timestamp == record.timestamp
        return record

    record = asyncio.run(run())
    assert record.timestamp_type == 1
    assert record.timestamp > 1_600_000_000_000


@run_with(in_new_loop)
async def test_offsets_are_found_by_time_and_at_both_ends(*, broker: Broker, topic: str) -> None:
    await create(broker, topic, retention_ms="-1")
    async with producer_of(broker) as producer:
        for i in range(10):
            await producer.send_and_wait(topic, b"x", timestamp_ms=10_000 + 100 * i)
    partition = TopicPartition(topic, 0)
    async with admin_of(broker) as admin:
        low = await admin.delete_records({partition: RecordsToDelete(before_offset=3)})
        assert low == {partition: 3}
    async with consumer_of(broker) as consumer:
        assert await consumer.beginning_offsets([partition]) == {partition: 3}
        assert await consumer.end_offsets([partition]) == {partition: 10}
        found = await consumer.offsets_for_times({partition: 10_450})
        assert (found[partition].offset, found[partition].timestamp) == (5, 10_500)
        assert await consumer.offsets_for_times({partition: 99_000}) == {partition: None}
