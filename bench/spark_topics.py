"""Topics of the Spark measurements, filled fast: a few batches encoded once, sent many times.

Records have a key of 8 bytes and a value of the given size, half of it random, so that codecs
have realistic work and compression ratios.
"""

import asyncio
import random
from dataclasses import dataclass

from bench.sides import wait_led
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster, parse_brokers
from penstock.client.errors import check
from penstock.runtime.clock import SystemClock
from penstock.runtime.random import SystemRandom
from penstock.wire.compression import Codec
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.records import Record, encode

PARTITIONS = 6
BATCH_BYTES = 256 * 1024
DIFFERENT_BATCHES = 4
KEPT = {"retention.ms": "-1"}


@dataclass(frozen=True)
class TopicShape:
    size_bytes: int
    records: int
    codec: str

    @property
    def name(self) -> str:
        return f"spark-{self.size_bytes}-{self.codec}-{self.records}"

    @property
    def label(self) -> str:
        codec = "" if self.codec == "none" else f" {self.codec}"
        return f"{self.size_bytes} B{codec}"


async def fill(bootstrap: str, shape: TopicShape) -> None:
    per_batch = BATCH_BYTES // (shape.size_bytes + 20)
    draw = random.Random(7)
    batches = [
        bytes(encode(_records(draw, per_batch, shape.size_bytes), codec=Codec[shape.codec.upper()]))
        for _ in range(DIFFERENT_BATCHES)
    ]
    async with Cluster(SystemRandom(), parse_brokers(bootstrap)) as cluster:
        await cluster.refresh((shape.name,))
        if shape.name in cluster.metadata.topics:
            return  # Left by an earlier run against the same broker.
        await _create(cluster, bootstrap, shape.name)
        gate = asyncio.Semaphore(5)

        async def send(number: int) -> None:
            data = PartitionProduceData(
                index=number % PARTITIONS, records=memoryview(batches[number % len(batches)])
            )
            request = ProduceRequest(
                acks=-1,
                timeout_ms=30_000,
                topic_data=[TopicProduceData(name=shape.name, partition_data=[data])],
            )
            async with gate:
                node_id = next(iter(cluster.metadata.brokers))
                reply = await cluster.call(
                    request, ProduceResponse, node_id=node_id, version_max=12
                )
            for topic in reply.responses:
                for row in topic.partition_responses:
                    check(row.error_code, about=shape.name)

        count = -(-shape.records // per_batch)
        for start in range(0, count, 100):
            await asyncio.gather(*(send(n) for n in range(start, min(start + 100, count))))


async def empty(bootstrap: str, name: str) -> None:
    """Creates the topic, or recreates it without records."""
    async with Cluster(SystemRandom(), parse_brokers(bootstrap)) as cluster:
        await cluster.refresh((name,))
        if name in cluster.metadata.topics:
            await Admin(cluster).delete_topic(name)
        await _create(cluster, bootstrap, name)


async def _create(cluster: Cluster, bootstrap: str, name: str) -> None:
    """Waits until every partition has a leader: Kafka replies before that."""
    await Admin(cluster).create_topic(name, PARTITIONS, configs=KEPT)
    await asyncio.to_thread(wait_led, bootstrap, name, PARTITIONS)


def _records(draw: random.Random, count: int, size_bytes: int) -> list[Record]:
    now_ms = SystemClock().now_ms()
    return [
        Record(
            0,
            now_ms + n,
            b"%08d" % draw.randrange(10**8),
            draw.randbytes(size_bytes // 2) + b"x" * (size_bytes - size_bytes // 2),
        )
        for n in range(count)
    ]
