"""Members of a share group over the wire, and what all of them saw: for simulated clusters.

What the ledger refuses at once: a delivery that reaches two members, records that were acquired and
not sent, a record that is answered twice.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.base.errors import PeerError, Refused
from penstock.base.ids import TopicId
from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.errors import check
from penstock.client.metadata import TopicPartition
from penstock.wire.messages.share import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    AcquiredRecords,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from penstock.wire.records import batches, decode
from simulation.cluster import SimCluster

GROUP = "workers"
GROUP_KIND = 32
ACCEPT, RELEASE, REJECT = 1, 2, 3
TROUBLE = (Refused, OSError, PeerError)

Place = tuple[int, int]
"""Partition and offset."""


@dataclass
class Ledger:
    """Deliveries and settlements of all members."""

    delivered: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    values: dict[Place, bytes] = field(default_factory=dict)
    accepted: set[Place] = field(default_factory=set)
    rejected: set[Place] = field(default_factory=set)


class Member:
    """Fetches from every leader in turn, and answers at once."""

    def __init__(
        self, name: str, topic_id: TopicId, partitions: int, cluster: Cluster, ledger: Ledger
    ) -> None:
        self.name = name
        self._partitions = partitions
        self._topic_id = topic_id
        self._cluster = cluster
        self._ledger = ledger
        self._rng = random.Random(name)
        self._sessions: dict[int, tuple[Connection, int]] = {}

    async def run(self) -> None:
        while True:
            by_leader: dict[int, list[int]] = {}
            try:
                for index in range(self._partitions):
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
            AcknowledgementBatch(first_offset=o, last_offset=o, acknowledge_types=[kind])
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


def dead_letters(cluster: SimCluster, topic: str = "t.dlq") -> list[bytes]:
    """Values that the leaders of a dead-letter topic hold."""
    values: list[bytes] = []
    for node in cluster.nodes():
        for partition in node.partitions.led():
            if partition.topic != topic:
                continue
            for segment in partition.log.segments:
                for position, header in segment.headers(0, segment.base_offset):
                    data = segment.file.read(position, header.size_bytes)
                    values += [record.value or b"" for record in decode(memoryview(data))]
    return values
