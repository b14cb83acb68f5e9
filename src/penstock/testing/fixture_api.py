"""Direct access of a test to the broker: topics, configs, messages in, messages out.

Runs on the broker's loop, as a client over a real connection, so a test reads here what any client
would get. Elsewhere: threads and durations (`broker`).
"""

from collections.abc import Mapping

from penstock.app.outgoing import Outgoing, encode_key, encode_payload
from penstock.base.ports import Random, WallClock
from penstock.client.admin.admin import TOPIC, Admin
from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import Consumer, ConsumerConfig
from penstock.client.consumer.fetched import READ_COMMITTED, FetchedRecord
from penstock.client.list_offsets import partitions_of, resolve
from penstock.client.metadata import TopicPartition
from penstock.client.offset_syntax import parse_offsets
from penstock.client.producer.producer import Producer, ProducerConfig, Sent

GROUP = 32
"""Kind of config resource of groups."""


class Hand:
    def __init__(self, cluster: Cluster, clock: WallClock, random: Random) -> None:
        self._cluster = cluster
        self._clock = clock
        self._admin = Admin(cluster)
        self._producer = Producer(clock, random, cluster, ProducerConfig(linger_ms=0))

    async def close(self) -> None:
        await self._producer.close(drain=False)
        await self._cluster.close()

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        await self._admin.create_topic(name, partitions, configs=configs)

    async def configure(
        self, topic: str | None, group: str | None, configs: Mapping[str, str]
    ) -> None:
        if topic is not None:
            await self._admin.alter_configs(TOPIC, topic, configs)
        if group is not None:
            await self._admin.alter_configs(GROUP, group, configs)

    async def publish(self, topic: str, message: Outgoing) -> Sent:
        delivery = await self._producer.send(
            topic,
            encode_payload(message.payload),
            encode_key(message.key),
            partition=message.partition,
            headers=message.record_headers(),
        )
        return await delivery

    async def messages(self, topic: str, *, committed: bool) -> list[FetchedRecord]:
        """Returns all messages of the topic, by partition and offset; none if it does not exist."""
        # All topics: a refresh of a missing one would retry.
        await self._cluster.refresh(None)
        if topic not in self._cluster.metadata.topics:
            return []
        places = await partitions_of(self._cluster, topic)
        level = READ_COMMITTED if committed else 0
        wanted = parse_offsets("start", self._clock.now_ms())
        spans = await resolve(self._cluster, places, wanted, isolation_level=level, must_end=True)
        ends = {where: span.end for where, span in spans.items() if span.end is not None}
        found: list[FetchedRecord] = []
        async with Consumer(self._cluster, ConsumerConfig(isolation_level=level)) as consumer:
            consumer.assign({where: span.start for where, span in spans.items()})
            _leave_finished(consumer, ends)
            while consumer.positions:
                for fetched in await consumer.fetch():
                    end = ends[fetched.where]
                    found += [m for m in fetched.messages() if m.offset < end]
                _leave_finished(consumer, ends)
        return sorted(found, key=lambda message: (message.partition, message.offset))


def _leave_finished(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> None:
    for where, position in list(consumer.positions.items()):
        if position >= ends[where]:
            consumer.unassign(where)
