"""Topics of a test, filled and read by Penstock's client."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from penstock.client.admin.admin import TOPIC, Admin
from penstock.client.cluster import Cluster, parse_brokers
from penstock.client.committed_offsets import committed_offsets
from penstock.client.consumer.consumer import Consumer, ConsumerConfig
from penstock.client.consumer.fetched import READ_COMMITTED, FetchedRecord
from penstock.client.dead_letters.message import DeadLetterMessage
from penstock.client.dead_letters.open_messages import open_dead_letters
from penstock.client.dead_letters.redrive import Redriver, RedriveRequest
from penstock.client.list_offsets import EARLIEST, LATEST, FoundOffset, list_offsets
from penstock.client.metadata import TopicPartition
from penstock.client.producer.producer import Producer
from penstock.client.producer.sender import ProducerConfig
from penstock.runtime.clock import SystemClock
from penstock.runtime.random import SystemRandom
from penstock.wire.compression import Codec
from penstock.wire.records import Record

SETTLED_S = 20.0
"""Maximum wait for the markers of ended transactions."""


class Topics:
    def __init__(self, loop: asyncio.AbstractEventLoop, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._loop = loop
        self._cluster = Cluster(SystemRandom(), parse_brokers(bootstrap))

    def close(self) -> None:
        self._loop.run_until_complete(self._cluster.close())

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        renamed = {key.replace("_", "."): value for key, value in configs.items()}
        self._loop.run_until_complete(
            Admin(self._cluster).create_topic(name, partitions, configs=renamed)
        )

    def grow(self, name: str, partitions: int) -> None:
        """Increases the number of partitions, and waits until clients see the new ones."""

        async def add() -> None:
            await Admin(self._cluster).create_partitions(name, partitions)
            while len((await self._cluster.topic(name)).partitions) < partitions:
                await asyncio.sleep(0.02)
                await self._cluster.refresh([name])

        self._loop.run_until_complete(add())

    def config(self, name: str, key: str) -> str | None:
        """Value of a topic's config."""
        found = self._loop.run_until_complete(
            Admin(self._cluster).describe_configs(TOPIC, name, [key])
        )
        return found[0].value

    def ends(self, name: str) -> dict[tuple[str, int], int]:
        """Last stable offset of each partition."""

        async def look() -> dict[TopicPartition, FoundOffset]:
            info = await self._cluster.topic(name)
            return await self._settled([TopicPartition(name, i) for i in info.partitions], 20.0)

        found = self._loop.run_until_complete(look())
        return {(where.topic, where.partition): one.offset for where, one in found.items()}

    def delete(self, name: str) -> None:
        self._loop.run_until_complete(Admin(self._cluster).delete_topic(name))

    def recreate(self, name: str, partitions: int = 1) -> None:
        """Deletes a topic and creates one of the same name."""
        self.delete(name)
        self.create(name, partitions)

    def trim(self, name: str, partition: int, offset: int) -> None:
        """Deletes the records before an offset."""
        where = TopicPartition(name, partition)
        self._loop.run_until_complete(Admin(self._cluster).delete_records({where: offset}))

    def fill(
        self,
        name: str,
        records: Sequence[Record],
        partition: int | None = None,
        codec: Codec = Codec.NONE,
    ) -> None:
        async def send() -> None:
            config = ProducerConfig(codec=codec)
            async with Producer(SystemClock(), SystemRandom(), self._cluster, config) as producer:
                for record in records:
                    await producer.send(
                        name,
                        record.value,
                        record.key,
                        partition=partition,
                        headers=record.headers,
                        timestamp_ms=None if record.timestamp < 0 else record.timestamp,
                    )
                await producer.flush()

        self._loop.run_until_complete(send())

    def numbers(self, name: str, count: int, start: int = 0, partitions: int = 1) -> None:
        """Writes records whose value is their number, distributed over the partitions."""
        for partition in range(partitions):
            mine = range(start + partition, start + count, partitions)
            self.fill(name, [Record(0, -1, None, b"%d" % n) for n in mine], partition)

    def read(self, name: str, *, settled_s: float = SETTLED_S) -> list[FetchedRecord]:
        """All committed records, by partition; waits for transactions that are ending."""

        async def consume() -> list[FetchedRecord]:
            info = await self._cluster.topic(name)
            places = [TopicPartition(name, index) for index in info.partitions]
            level = READ_COMMITTED
            starts = await list_offsets(self._cluster, dict.fromkeys(places, EARLIEST))
            ends = await self._settled(places, settled_s)
            found: list[FetchedRecord] = []
            config = ConsumerConfig(isolation_level=level)
            async with Consumer(self._cluster, config) as consumer:
                consumer.assign(
                    {w: starts[w].offset for w in places if starts[w].offset < ends[w].offset}
                )
                while consumer.positions:
                    found += await consumer.poll()
                    for where, position in dict(consumer.positions).items():
                        if position >= ends[where].offset:
                            consumer.unassign(where)
            return sorted(found, key=lambda message: (message.partition, message.offset))

        return self._loop.run_until_complete(consume())

    async def _settled(
        self, places: list[TopicPartition], settled_s: float
    ) -> dict[TopicPartition, FoundOffset]:
        """Last stable offsets after the markers of ended transactions are written.

        A broker answers EndTxn before it writes the markers.
        """
        asked = dict.fromkeys(places, LATEST)
        deadline = self._loop.time() + settled_s
        while True:
            everything = await list_offsets(self._cluster, asked)
            ends = await list_offsets(self._cluster, asked, isolation_level=READ_COMMITTED)
            if ends == everything or self._loop.time() > deadline:
                return ends
            await asyncio.sleep(0.05)

    def written(self, name: str) -> int:
        """Number of used offsets, including markers, aborted and open transactions."""

        async def look() -> int:
            info = await self._cluster.topic(name)
            places = dict.fromkeys((TopicPartition(name, i) for i in info.partitions), LATEST)
            return sum(f.offset for f in (await list_offsets(self._cluster, places)).values())

        return self._loop.run_until_complete(look())

    def values(self, name: str, *, settled_s: float = SETTLED_S) -> list[int]:
        """Numbers in a topic, sorted."""
        found = self.read(name, settled_s=settled_s)
        return sorted(int(message.value or b"") for message in found)

    def dead_letters(self, name: str) -> list[DeadLetterMessage]:
        """Open dead letters of a dead-letter queue."""

        async def look() -> list[DeadLetterMessage]:
            return [dead_letter async for dead_letter in open_dead_letters(self._cluster, name)]

        return self._loop.run_until_complete(look())

    def redrive(self, name: str, payload: Callable[[DeadLetterMessage], bytes]) -> int:
        """Redrives all dead letters with another payload; returns their number."""

        async def send() -> int:
            request = RedriveRequest(
                name, "test", "tests", revise=lambda one: replace(one, payload=payload(one))
            )
            report = await Redriver(self._cluster, SystemClock(), request).run()
            return report.settled

        return self._loop.run_until_complete(send())

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        found = self._loop.run_until_complete(committed_offsets(self._cluster, group))
        return {(where.topic, where.partition): kept.offset for where, kept in found.items()}


@contextmanager
def topics_of(bootstrap: str) -> Iterator[Topics]:
    """Topics of a broker other than the shared one."""
    loop = asyncio.new_event_loop()
    helper = Topics(loop, bootstrap)
    yield helper
    helper.close()
    loop.close()
