"""Share groups over several nodes: partitions, states of queues and dead letters on each.

Members fetch and answer over the wire while nodes die and come back. Whatever happens: no delivery
reaches two members, no record is lost, none is both accepted and dead-lettered, and every record
that is rejected has exactly one letter.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pytest

from penstock.base.errors import PeerError, Refused
from penstock.base.ids import TopicId
from penstock.client.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.connection import Connection, ConnectionConfig
from penstock.client.errors import check
from penstock.client.metadata import TopicPartition
from penstock.client.producer import Producer
from penstock.sim.clock import SimClock
from penstock.sim.cluster import SimCluster
from penstock.sim.loop import SimLoop, run
from penstock.sim.random import SimRandom
from penstock.wire.messages.share import (
    AcknowledgePartition,
    AcknowledgeTopic,
    AcquiredRecords,
    ShareAcknowledgementBatch,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from penstock.wire.records import batches, decode

OVERRIDES = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "5",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "5000",
    "group.share.delivery.count.limit": "10",
}
PARTITIONS = 4
RECORDS = 25
GROUP = "workers"
GROUP_KIND = 32
ACCEPT, RELEASE, REJECT = 1, 2, 3
TROUBLE = (Refused, OSError, PeerError)
PATIENCE_S = 300.0

Place = tuple[int, int]
"""Partition and offset."""


@dataclass
class Ledger:
    """What all members saw and did."""

    delivered: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    values: dict[Place, bytes] = field(default_factory=dict)
    accepted: set[Place] = field(default_factory=set)
    rejected: set[Place] = field(default_factory=set)


class Member:
    """Fetches from every leader in turn, and answers at once."""

    def __init__(self, name: str, topic_id: TopicId, cluster: Cluster, ledger: Ledger) -> None:
        self.name = name
        self._topic_id = topic_id
        self._cluster = cluster
        self._ledger = ledger
        self._rng = random.Random(name)
        self._sessions: dict[int, tuple[Connection, int]] = {}

    async def run(self) -> None:
        while True:
            by_leader: dict[int, list[int]] = {}
            try:
                for index in range(PARTITIONS):
                    leader = await self._cluster.leader(TopicPartition("t", index))
                    by_leader.setdefault(leader, []).append(index)
                for node_id, indexes in by_leader.items():
                    await self._visit(node_id, indexes)
            except TROUBLE:
                await asyncio.sleep(0.1)
                await self._refresh()
            await asyncio.sleep(0.01)

    async def _refresh(self) -> None:
        try:
            await self._cluster.refresh(("t",))
        except TROUBLE:
            await asyncio.sleep(0.2)

    async def _visit(self, node_id: int, indexes: list[int]) -> None:
        connection = await self._cluster.connection(node_id)
        known, epoch = self._sessions.get(node_id, (None, 0))
        if known is not connection:
            epoch = 0
        self._sessions.pop(node_id, None)
        request = ShareFetchRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=epoch,
            max_wait_ms=200,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=7,
            batch_size=7,
            topics=[self._topic(indexes)],
            forgotten_topics_data=[],
        )
        answer = await connection.call(request, ShareFetchResponse)
        check(answer.error_code)
        self._sessions[node_id] = connection, epoch + 1
        has_moved = False
        for topic in answer.responses:
            for row in topic.partitions:
                has_moved = has_moved or bool(row.error_code)
                found = self._note(row.partition_index, row.records, row.acquired_records)
                if found:
                    await self._answer(node_id, row.partition_index, found)
        if has_moved:
            await self._refresh()

    def _topic(self, indexes: list[int]) -> ShareFetchTopic:
        rows = [ShareFetchPartition(partition_index=i, acknowledgement_batches=[]) for i in indexes]
        return ShareFetchTopic(topic_id=self._topic_id, partitions=rows)

    def _note(self, index: int, data: object, acquired: Sequence[AcquiredRecords]) -> list[int]:
        counts = {
            offset: row.delivery_count
            for row in acquired
            for offset in range(row.first_offset, row.last_offset + 1)
        }
        assert isinstance(data, memoryview | bytes)
        view = memoryview(bytes(data))
        found = []
        for position, _ in batches(view):
            for record in decode(view[position:]):
                if record.offset in counts:
                    found.append(record.offset)
                    self._ledger.values[index, record.offset] = record.value or b""
        assert sorted(counts) == found, "acquired what was not sent"
        for offset in found:
            self._ledger.delivered[index, offset, counts[offset]] += 1
            assert self._ledger.delivered[index, offset, counts[offset]] == 1, "delivered twice"
        return found

    async def _answer(self, node_id: int, index: int, offsets: list[int]) -> None:
        connection, epoch = self._sessions[node_id]
        verdicts = {offset: self._verdict(index, offset) for offset in offsets}
        rows = [
            ShareAcknowledgementBatch(first_offset=o, last_offset=o, acknowledge_types=[kind])
            for o, kind in verdicts.items()
        ]
        request = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=epoch,
            topics=[
                AcknowledgeTopic(
                    topic_id=self._topic_id,
                    partitions=[
                        AcknowledgePartition(partition_index=index, acknowledgement_batches=rows)
                    ],
                )
            ],
        )
        self._sessions.pop(node_id)
        answer = await connection.call(request, ShareAcknowledgeResponse)
        check(answer.error_code)
        self._sessions[node_id] = connection, epoch + 1
        (topic,) = answer.responses
        (row,) = topic.partitions
        if row.error_code:
            return
        for offset, kind in verdicts.items():
            place = (index, offset)
            assert place not in self._ledger.accepted | self._ledger.rejected, "answered twice"
            if kind == ACCEPT:
                self._ledger.accepted.add(place)
            elif kind == REJECT:
                self._ledger.rejected.add(place)

    def _verdict(self, index: int, offset: int) -> int:
        if self._ledger.values[index, offset].startswith(b"bad"):
            return REJECT
        return RELEASE if self._rng.random() < 0.1 else ACCEPT


@dataclass
class Scene:
    loop: SimLoop
    nodes: SimCluster
    client: Cluster
    ledger: Ledger
    seed: int

    async def produce(self) -> None:
        clock = SimClock(self.loop)
        async with Producer(clock, SimRandom(self.seed), self.client) as producer:
            for number in range(PARTITIONS * RECORDS):
                value = b"%s %d" % (b"bad" if number % 7 == 0 else b"good", number)
                delivery = await producer.send("t", value, partition=number % PARTITIONS)
                await delivery

    def letters(self) -> list[bytes]:
        """What the leaders of the dead letters have."""
        values: list[bytes] = []
        for node in self.nodes.nodes():
            for partition in node.partitions.led():
                if partition.topic != "t.dlq":
                    continue
                for segment in partition.log.segments:
                    for position, header in segment.headers(0, segment.base_offset):
                        data = segment.file.read(position, header.size_bytes)
                        values += [record.value or b"" for record in decode(memoryview(data))]
        return values

    async def until_done(self) -> None:
        """Waits until everything is accepted or buried."""
        deadline_s = self.loop.time() + PATIENCE_S
        wanted = {b"bad %d" % n for n in range(0, PARTITIONS * RECORDS, 7)}
        goods = PARTITIONS * RECORDS - len(wanted)
        while True:
            letters = self.letters()
            done = {place for place in self.ledger.values if self._is_good(place)}
            if wanted <= set(letters) and len(done) == goods and self._is_finished():
                break
            assert self.loop.time() < deadline_s, (
                f"{len(done)} of {goods} seen, {len(letters)} letters of {len(wanted)}"
            )
            await asyncio.sleep(0.5)
        assert sorted(letters) == sorted(wanted)
        for place in self.ledger.accepted:
            assert self._is_good(place), "accepted and dead-lettered"

    def _is_good(self, place: Place) -> bool:
        return not self.ledger.values[place].startswith(b"bad")

    def _is_finished(self) -> bool:
        """Every queue, wherever it is open, has finished all of its records."""
        starts = {}
        for node in self.nodes.nodes():
            for queue in node.queues.queues():
                starts[queue.partition.index] = queue.machine.kept.start
        return starts == dict.fromkeys(range(PARTITIONS), RECORDS)


def play(scene: Callable[[Scene], Awaitable[None]], seed: int = 0) -> None:
    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, seed, (1, 2, 3), OVERRIDES)
        await cluster.start()
        config = ConnectionConfig(connect_timeout_ms=1000, request_timeout_ms=6000)
        async with Cluster(SimRandom(seed), cluster.addresses, config) as client:
            admin = Admin(client)
            await admin.create_topic("t", PARTITIONS, 3)
            await admin.alter_configs(GROUP_KIND, GROUP, {"share.auto.offset.reset": "earliest"})
            topic = await client.topic("t")
            ledger = Ledger()
            members = [Member(f"member-{n}", topic.topic_id, client, ledger) for n in range(3)]
            tasks = [asyncio.ensure_future(member.run()) for member in members]
            await scene(Scene(loop, cluster, client, ledger, seed))
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(result, asyncio.CancelledError), result
        await cluster.stop()
        cluster.close()

    run(main, seed=seed, time_max=2000.0)


def test_a_queue_over_all_nodes_delivers_everything_once() -> None:
    async def scene(world: Scene) -> None:
        await world.produce()
        await world.until_done()
        assert len(world.ledger.accepted) + len(world.ledger.rejected) == PARTITIONS * RECORDS

    play(scene)


@pytest.mark.parametrize("seed", range(6))
def test_a_queue_outlives_the_death_of_any_node(seed: int) -> None:
    async def scene(world: Scene) -> None:
        rng = random.Random(seed)
        await world.produce()
        for node_id in rng.sample((1, 2, 3), 3):
            await asyncio.sleep(rng.uniform(0.01, 1.5))
            victim = world.nodes.hosts[node_id]
            victim.kill()
            await asyncio.sleep(rng.uniform(1, 20))
            assert await victim.start()
            await asyncio.sleep(rng.uniform(5, 20))
        await world.until_done()

    play(scene, seed)
