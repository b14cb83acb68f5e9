"""Transactions over several nodes: coordinator, partitions and group each led by another one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.connection import ConnectionConfig
from penstock.client.coordinators import GROUP, TRANSACTION, find_coordinator
from penstock.client.errors import RETRIABLE, check
from penstock.client.metadata import TopicPartition
from penstock.cluster.replication.partition import Partition
from penstock.wire.messages.offset_commit import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from penstock.wire.records import Record, decode, encode
from simulation.cluster import SimCluster
from simulation.loop import SimLoop, run
from simulation.random import SimRandom
from tests.run_with import run_with

OVERRIDES = {
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}
PARTITIONS = 6
PATIENCE_S = 60.0


class Producer:
    """A transactional producer that tries again what may be tried again."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.id = self.epoch = -1
        self._cluster = cluster
        self._sequences: dict[int, int] = {}
        self.tries = 0

    async def _try(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + PATIENCE_S
        while True:
            self.tries += 1
            try:
                return await attempt()
            except Refused as refused:
                if refused.code not in RETRIABLE:
                    raise
            except (OSError, PeerError):
                pass
            assert loop.time() < deadline_s, "it did not work in time"
            await asyncio.sleep(0.05)
            await self._cluster.refresh(("t",))

    async def _ask(
        self, kind: int, key: str, request: object, answer: type[Any], **how: Any
    ) -> Any:
        node_id = await find_coordinator(self._cluster, kind, key)
        connection = await self._cluster.connection(node_id)
        return await connection.call(request, answer, **how)

    async def init(self) -> None:
        async def attempt() -> None:
            request = InitProducerIdRequest(
                transactional_id=self.name, transaction_timeout_ms=60_000
            )
            answer = await self._ask(TRANSACTION, self.name, request, InitProducerIdResponse)
            check(answer.error_code)
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()

        await self._try(attempt)

    async def write(self, index: int, value: bytes, version: int) -> None:
        sequence = self._sequences.get(index, 0)
        batch = encode(
            [Record(0, 1, None, value, ())],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )

        async def attempt() -> None:
            info = await self._cluster.topic("t")
            node_id = await self._cluster.leader(TopicPartition("t", index))
            connection = await self._cluster.connection(node_id)
            cell = PartitionProduceData(index=index, records=memoryview(batch))
            topic = TopicProduceData(name="t", topic_id=info.topic_id, partition_data=[cell])
            request = ProduceRequest(
                transactional_id=self.name, acks=-1, timeout_ms=5_000, topic_data=[topic]
            )
            answer = await connection.call(request, ProduceResponse, version=version)
            check(answer.responses[0].partition_responses[0].error_code)

        await self._try(attempt)
        self._sequences[index] = sequence + 1

    async def add(self, indexes: Sequence[int]) -> None:
        """Adds partitions as producers before KIP-890 do."""

        async def attempt() -> None:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=indexes)],
            )
            answer = await self._ask(
                TRANSACTION, self.name, request, AddPartitionsToTxnResponse, version=3
            )
            for topic in answer.results_by_topic_v3_and_below:
                for cell in topic.results_by_partition:
                    check(cell.partition_error_code)

        await self._try(attempt)

    async def commit_offset(self, group: str, offset: int) -> None:
        async def attempt() -> None:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=self.id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            answer = await self._ask(TRANSACTION, self.name, request, AddOffsetsToTxnResponse)
            check(answer.error_code)

        async def commit() -> None:
            cell = TxnOffsetCommitRequestPartition(
                partition_index=0, committed_offset=offset, committed_metadata=None
            )
            request = TxnOffsetCommitRequest(
                transactional_id=self.name,
                group_id=group,
                producer_id=self.id,
                producer_epoch=self.epoch,
                topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[cell])],
            )
            answer = await self._ask(GROUP, group, request, TxnOffsetCommitResponse)
            check(answer.topics[0].partitions[0].error_code)

        await self._try(attempt)
        await self._try(commit)

    async def end(self, committed: bool, version: int = 5) -> None:
        async def attempt() -> None:
            request = EndTxnRequest(
                transactional_id=self.name,
                producer_id=self.id,
                producer_epoch=self.epoch,
                committed=committed,
            )
            answer = await self._ask(
                TRANSACTION, self.name, request, EndTxnResponse, version=version
            )
            check(answer.error_code)
            if version >= 5:
                self.id, self.epoch = answer.producer_id, answer.producer_epoch
                self._sequences.clear()

        await self._try(attempt)


class Scene:
    def __init__(self, loop: SimLoop, nodes: SimCluster, client: Cluster) -> None:
        self.loop = loop
        self.nodes = nodes
        self.client = client

    def replicas(self) -> list[Partition]:
        return [
            partition
            for node in self.nodes.nodes()
            for partition in node.partitions.replicas()
            if partition.topic == "t"
        ]

    async def settled(self) -> None:
        """Waits until no replica has a transaction open, and all have everything."""
        deadline_s = self.loop.time() + PATIENCE_S
        while any(
            one.log.producers.first_open_offset >= 0
            or one.log.durable_offset != one.log.end_offset
            or one.high_watermark != one.log.end_offset
            for one in self.replicas()
        ):
            assert self.loop.time() < deadline_s, "a transaction stays open"
            await asyncio.sleep(0.05)

    def values(self, index: int) -> list[list[bytes | None]]:
        """Committed records of one partition, as read from each replica."""
        found = []
        for partition in self.replicas():
            if partition.index == index:
                found.append(committed_values(partition))
        return found

    async def committed_offset(self, group: str) -> int:
        topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=[topic])], require_stable=True
        )
        deadline_s = self.loop.time() + PATIENCE_S
        while self.loop.time() < deadline_s:
            node_id = await find_coordinator(self.client, GROUP, group)
            connection = await self.client.connection(node_id)
            answer = await connection.call(request, OffsetFetchResponse, version=8)
            row = answer.groups[0]
            if not row.error_code and not row.topics[0].partitions[0].error_code:
                return int(row.topics[0].partitions[0].committed_offset)
            await asyncio.sleep(0.1)
        raise AssertionError("the offset stays unknown")


def committed_values(partition: Partition) -> list[bytes | None]:
    log = partition.log
    aborted = log.aborted(0, log.end_offset)
    values: list[bytes | None] = []
    for segment in log.segments:
        for position, header in segment.headers(0, segment.base_offset):
            if header.attributes & 0x20:
                continue
            dropped = any(
                txn.producer_id == header.producer_id
                and txn.first_offset <= header.base_offset <= txn.last_offset
                for txn in aborted
            )
            if not dropped:
                data = segment.file.read(position, header.size_bytes)
                values += [record.value for record in decode(memoryview(data))]
    return values


def play(scene: Callable[[Scene], Awaitable[None]], seed: int = 0) -> None:
    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, seed, (1, 2, 3), OVERRIDES)
        await cluster.start()
        config = ConnectionConfig(connect_timeout_ms=1000, request_timeout_ms=6000)
        async with Cluster(SimRandom(seed), cluster.addresses, config) as client:
            await Admin(client).create_topic("t", PARTITIONS, 3)
            await scene(Scene(loop, cluster, client))
        await cluster.stop()
        cluster.close()

    run(main, seed=seed, time_max=1000.0)


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("committed", [True, False])
@run_with(play)
async def test_transaction_over_all_nodes_ends_everywhere(
    world: Scene, *, version: int, committed: bool
) -> None:
    for number in range(4):
        producer = Producer(world.client, f"tx-{number}")
        await producer.init()
        if version < 12:
            await producer.add(list(range(PARTITIONS)))
        for index in range(PARTITIONS):
            await producer.write(index, b"%d" % number, version)
        await producer.commit_offset("g", 100 + number)
        await producer.end(committed, version=5 if version >= 12 else 4)
    await world.settled()
    wanted = [b"%d" % number for number in range(4)] if committed else []
    for index in range(PARTITIONS):
        assert world.values(index) == [wanted] * 3
    assert await world.committed_offset("g") == (103 if committed else -1)
    leaders = {one.record.leader for one in world.replicas()}
    assert len(leaders) == 3, "the partitions are led by all nodes"


@run_with(play)
async def test_write_outside_its_transaction_is_refused_by_a_remote_leader(
    world: Scene,
) -> None:
    for number in range(5):  # One of them has its coordinator on another node than the leader.
        producer = Producer(world.client, f"tx-{number}")
        await producer.init()
        await producer.add([1])
        with pytest.raises(Refused) as refused:
            await producer.write(0, b"outside", 10)
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
        await producer.write(1, b"inside", 10)
        await producer.end(committed=True, version=4)
    await world.settled()
    assert world.values(0) == [[]] * 3
    assert world.values(1) == [[b"inside"] * 5] * 3


@pytest.mark.parametrize("seed", range(6))
@run_with(play, fixtures=["seed"])
async def test_transaction_survives_the_death_of_any_node(world: Scene, *, seed: int) -> None:
    """The coordinator, a partition's leader or the group's: the transaction ends everywhere."""
    producer = Producer(world.client, "tx")
    await producer.init()
    victim = world.nodes.hosts[seed % 3 + 1]
    for index in range(PARTITIONS):
        await producer.write(index, b"a", 12)
    await producer.commit_offset("g", 7)
    ending = asyncio.ensure_future(producer.end(committed=True))
    await asyncio.sleep(0.0015 * (seed + 1))
    victim.kill()
    await ending
    await asyncio.sleep(20)
    assert await victim.start()
    await asyncio.sleep(20)
    await world.settled()
    for index in range(PARTITIONS):
        assert world.values(index) == [[b"a"]] * 3
    assert await world.committed_offset("g") == 7


@run_with(play)
async def test_unreachable_coordinator_is_a_retriable_error(world: Scene) -> None:
    producer = Producer(world.client, "tx")
    await producer.init()
    coordinator = await find_coordinator(world.client, TRANSACTION, "tx")
    others = [node for node in (1, 2, 3) if node != coordinator]
    led = {one.index: one.record.leader for one in world.replicas()}
    index = next(index for index, leader in sorted(led.items()) if leader == others[0])
    for other in others:
        world.loop.net.cut(f"node-{coordinator}", f"node-{other}")
    writing = asyncio.ensure_future(producer.write(index, b"a", 12))
    await asyncio.sleep(3)
    assert not writing.done()
    world.loop.net.heal()
    await writing
    await producer.end(committed=True)
    await world.settled()
    assert world.values(index) == [[b"a"]] * 3
