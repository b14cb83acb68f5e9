"""Writes records with the real producer, and reads logs to their end with the real consumer."""

import asyncio
from typing import TYPE_CHECKING

from penstock.base.errors import Refused
from penstock.client.consumer.consumer import Consumer, ConsumerConfig
from penstock.client.consumer.fetched import READ_COMMITTED, READ_UNCOMMITTED
from penstock.client.errors import DeliveryTimeout
from penstock.client.list_offsets import EARLIEST, LATEST, list_offsets
from penstock.client.metadata import TopicPartition
from penstock.client.producer.producer import Producer
from penstock.client.producer.sender import ProducerConfig
from simulation.checkers.records import Place, RecordsChecker
from simulation.client import NO_REPLY, SimClient
from simulation.clock import SimClock
from simulation.random import SimRandom

if TYPE_CHECKING:
    from simulation.world import World

DELIVERY_TIMEOUT_MS = 600_000
PAUSE_S = 0.5


class Appender:
    """Idempotent producer that sends `count` records at random intervals and ends."""

    def __init__(
        self,
        client: SimClient,
        checker: RecordsChecker,
        places: list[TopicPartition],
        count: int,
        pause_s: float,
    ) -> None:
        self.client = client
        self.world: World = client.world
        self.checker = checker
        self.places = places
        self.count = count
        self.pause_s = pause_s
        self.is_done = False
        self._waiting = 0

    async def run(self) -> None:
        rng = self.world.rng(f"appender/{self.client.name}")
        await self._bootstrap()
        producer = Producer(
            SimClock(self.world.loop),
            SimRandom(rng.getrandbits(64)),
            self.client.cluster,
            ProducerConfig(delivery_timeout_ms=DELIVERY_TIMEOUT_MS, auto_create=False),
        )
        async with asyncio.TaskGroup() as deliveries:
            for number in range(self.count):
                where = rng.choice(self.places)
                value = f"{self.client.name}-{number}".encode()
                self.checker.sends((where.topic, where.partition), value)
                deliveries.create_task(self._send(producer, where, value))
                if rng.random() < 0.7:
                    await asyncio.sleep(rng.uniform(0, 2 * self.pause_s))
        await producer.close()
        self.is_done = True

    async def _bootstrap(self) -> None:
        while True:
            try:
                await self.client.cluster.refresh({where.topic for where in self.places})
                return
            except NO_REPLY:
                await asyncio.sleep(PAUSE_S)

    async def _send(self, producer: Producer, where: TopicPartition, value: bytes) -> None:
        self.world.results.operations["send"] += 1
        delivery = await producer.send(where.topic, value, partition=where.partition)
        try:
            sent = await delivery
        except (DeliveryTimeout, Refused) as error:
            self.world.reached(f"send failed: {type(error).__name__}")
            return
        self.checker.acknowledge((sent.topic, sent.partition), sent.offset, value)


async def read_all(
    client: SimClient, places: list[TopicPartition], *, committed: bool
) -> dict[Place, list[tuple[int, bytes]]]:
    """All current records. The cluster must be healthy."""
    level = READ_COMMITTED if committed else READ_UNCOMMITTED
    cluster = client.cluster
    starts = await list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(places, LATEST), isolation_level=level)
    found: dict[Place, list[tuple[int, bytes]]] = {
        (where.topic, where.partition): [] for where in places
    }
    async with Consumer(cluster, ConsumerConfig(isolation_level=level)) as consumer:
        positions = {where: row.offset for where, row in starts.items()}
        consumer.assign(positions)
        while any(consumer.positions[where] < ends[where].offset for where in places):
            for message in await consumer.poll(1_000):
                assert message.value is not None
                row = (message.offset, message.value)
                found[message.topic, message.partition].append(row)
    return found
