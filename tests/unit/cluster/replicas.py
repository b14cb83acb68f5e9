"""Two halves of replication for tests: leaders that only serve fetches, and a node that follows.

`ModelLeader` serves real logs over the real protocol, with sessions, on the simulated network; a
test changes its answers through `ModelBroker.answers` or appends to its logs. `Node` is the
follower's half of a node: partitions on a simulated disk, group commit, peers and fetchers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import NodeId, TopicId
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata.image import EMPTY, Image
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.store_keys import BrokerRecord, PartitionRecord
from penstock.cluster.replication.fetchers import Fetchers
from penstock.cluster.replication.partition import Partition, ProduceRules, ReplicaContext
from penstock.cluster.replication.peer_connections import PeerConnections
from penstock.log.config import LogConfig
from penstock.log.flusher import Flusher
from penstock.log.log import Log
from penstock.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from penstock.wire.records import Record, encode, read_header
from simulation.clock import SimClock
from simulation.disk import SimDisk
from simulation.loop import SimLoop, run
from simulation.network import host_context
from simulation.random import SimRandom
from simulation.store import SimEtcd, SimStore
from simulation.workers import SimWorkers
from tests.unit.client.model import ModelBroker

RULES = ProduceRules(1 << 20, False, 1 << 60, 1 << 60, False, None)
NODE = 9
NOW_MS = 1_000
Key = tuple[TopicId, int]


def topic_id(name: str) -> TopicId:
    return TopicId(name.encode().ljust(16, b"\0"))


def key_of(name: str, index: int = 0) -> Key:
    return topic_id(name), index


@dataclass
class Led:
    """One partition as its leader has it."""

    log: Log
    epoch: int
    high_watermark: int = 0
    fetched: list[int] = field(default_factory=list)
    """The offsets that were asked for: durable ends of the follower."""
    asked: list[FetchPartition] = field(default_factory=list)

    def append(self, *values: bytes, epoch: int | None = None) -> None:
        records = [Record(0, NOW_MS, None, value, ()) for value in values]
        batch = memoryview(encode(records))
        epoch = self.epoch if epoch is None else epoch
        self.log.append(batch, read_header(batch), epoch, NOW_MS)


class ModelLeader(ModelBroker):
    """A node that leads."""

    def __init__(self, node_id: int) -> None:
        super().__init__(node_id, f"node-{node_id}")
        self.disk = SimDisk(node_id)
        self.disk.mkdir("leader")
        self.led: dict[Key, Led] = {}
        self.sessions: dict[int, dict[Key, FetchPartition]] = {}
        self.session_epochs: dict[int, int] = {}
        self.gives_sessions = True
        self.parked: dict[int, asyncio.Event] = {}
        self.appended = asyncio.Event()
        self.answers[FetchRequest] = self.serve
        self.answers[ListOffsetsRequest] = self.earliest
        self.answers[OffsetForLeaderEpochRequest] = self.end

    def lead(self, name: str, index: int = 0, epoch: int = 1, **config: Any) -> Led:
        path = f"leader/{name}-{index}"
        led = Led(Log.open(self.disk, path, LogConfig(**config), NOW_MS), epoch)
        self.led[topic_id(name), index] = led
        return led

    def append(self, name: str, *values: bytes, index: int = 0) -> None:
        """Appends, and answers fetches that wait for it."""
        self.led[topic_id(name), index].append(*values)
        self.stir()

    def stir(self) -> None:
        self.appended.set()
        self.appended = asyncio.Event()

    def end(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        (topic,) = request.topics
        (asked,) = topic.partitions
        led = self.led[topic_id(topic.topic), asked.partition]
        row = OffsetForLeaderEpochEndOffset(
            error_code=0,
            partition=asked.partition,
            leader_epoch=led.log.epochs.latest,
            end_offset=led.log.end_offset,
        )
        cell = OffsetForLeaderTopicResult(topic=topic.topic, partitions=[row])
        return OffsetForLeaderEpochResponse(topics=[cell])

    def earliest(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = request.topics
        (asked,) = topic.partitions
        led = self.led[topic_id(topic.name), asked.partition_index]
        assert asked.timestamp == -2
        assert asked.current_leader_epoch == led.epoch
        row = ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, error_code=0, offset=led.log.start_offset
        )
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=topic.name, partitions=[row])]
        )

    async def serve(self, request: FetchRequest) -> FetchResponse:
        assert request.replica_state is not None
        assert request.replica_state.replica_id == NODE
        try:
            session_id = self._session(request)
        except Refused as refused:
            return FetchResponse(error_code=refused.code, responses=[])
        wanted = self.sessions.get(session_id) or _wanted(request)
        for topic in request.topics:
            for cell in topic.partitions:
                led = self.led.get((TopicId(topic.topic_id), cell.partition))
                if led is not None:
                    led.asked.append(cell)
                    if cell.current_leader_epoch == led.epoch:
                        led.fetched.append(cell.fetch_offset)
        rows = await self._wait(request, wanted, session_id)
        topics: dict[TopicId, list[FetchPartitionData]] = {}
        for (topic_id, _), row in rows.items():
            topics.setdefault(topic_id, []).append(row)
        return FetchResponse(
            session_id=session_id,
            responses=[FetchableTopicResponse("", tid, cells) for tid, cells in topics.items()],
        )

    def _session(self, request: FetchRequest) -> int:
        if request.session_epoch == 0:
            if not self.gives_sessions:
                return 0
            session_id = len(self.sessions) + 1
            self.sessions[session_id] = _wanted(request)
            self.session_epochs[session_id] = 1
            return session_id
        session_id = request.session_id
        if session_id not in self.sessions:
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != self.session_epochs[session_id]:
            raise Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        self.session_epochs[session_id] += 1
        session = self.sessions[session_id]
        session.update(_wanted(request))
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.pop((TopicId(topic.topic_id), index), None)
        if session_id in self.parked:
            self.parked.pop(session_id).set()
        return session_id

    async def _wait(
        self, request: FetchRequest, wanted: dict[Key, FetchPartition], session_id: int
    ) -> dict[Key, FetchPartitionData]:
        """Looks until there is something to say, time is up, or the next request overtakes."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + request.max_wait_ms / 1000
        overtaken = self.parked[session_id] = asyncio.Event()
        while True:
            rows = {key: self._look(key, cell) for key, cell in list(wanted.items())}
            is_over = loop.time() >= end_s or overtaken.is_set()
            said = {
                key: row
                for key, row in rows.items()
                if row.records or row.error_code or row.diverging_epoch is not None
            }
            if said or is_over:
                return said if request.session_epoch else rows
            waits = [loop.create_task(event.wait()) for event in (self.appended, overtaken)]
            await asyncio.wait(
                waits, timeout=end_s - loop.time(), return_when=asyncio.FIRST_COMPLETED
            )
            for wait in waits:
                wait.cancel()

    def _look(self, key: Key, asked: FetchPartition) -> FetchPartitionData:
        led = self.led.get(key)
        code = ErrorCode.NONE
        if led is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif asked.current_leader_epoch < led.epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif asked.current_leader_epoch > led.epoch:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH
        if led is None or code:
            return FetchPartitionData(asked.partition, code, -1, -1, -1, None, -1, b"")
        log, content = led.log, b""
        row = FetchPartitionData(
            asked.partition, 0, led.high_watermark, -1, log.start_offset, None, -1, b""
        )
        last_epoch = asked.last_fetched_epoch
        if last_epoch >= 0:
            epoch, end = log.epoch_end(last_epoch)
            if epoch < 0:
                epoch, end = log.epochs.latest, log.end_offset
            if epoch < last_epoch or end < asked.fetch_offset:
                row.diverging_epoch = FetchEpochEndOffset(epoch=epoch, end_offset=end)
                return row
        try:
            span = log.locate(asked.fetch_offset, asked.partition_max_bytes, log.end_offset)
        except Refused as refused:
            row.error_code = refused.code
            return row
        if span is not None:
            content = bytes(span.read())
        row.records = content
        return row


def _wanted(request: FetchRequest) -> dict[Key, FetchPartition]:
    return {
        (TopicId(topic.topic_id), cell.partition): cell
        for topic in request.topics
        for cell in topic.partitions
    }


class Node:
    """The follower's half of node 9."""

    def __init__(
        self, loop: SimLoop, *, sync_s: float = 0.003, configs: dict[str, str] | None = None
    ) -> None:
        self.loop = loop
        self.disk = SimDisk(NODE)
        self.disk.mkdir("data")
        self.failures: list[OSError] = []
        self.sync_workers = SimWorkers(1, delay_s=(sync_s, sync_s))
        self.flusher = Flusher(self.disk, self.sync_workers, self.failures.append)
        self.home = ReplicaContext(NodeId(NODE), self.flusher)
        self.watcher = MetadataWatcher(SimStore(SimEtcd(1)))
        self.peers = PeerConnections(NODE, self.watcher)
        self.held: dict[Key, Partition] = {}
        self.epoch = 77
        self.fetchers = Fetchers(
            NODE,
            lambda: self.epoch,
            self,
            self.peers,
            self.watcher,
            BrokerConfigs(configs or {}),
            SimWorkers(2),
            SimClock(loop),
            SimRandom(3),
        )
        self.task = loop.create_task(self.fetchers.run(), context=host_context("node-9"))

    def replicas(self) -> Iterable[Partition]:
        return self.held.values()

    def meet(self, *leaders: ModelLeader, epoch: int = 1) -> None:
        """Makes the image show exactly these brokers."""
        self._show(
            replace(
                self.watcher.image if self.watcher.image is not EMPTY else EMPTY,
                brokers={
                    one.node_id: BrokerRecord(one.node_id, one.host, one.port, epoch=epoch)
                    for one in leaders
                },
            )
        )

    def _show(self, image: Image) -> None:
        before = self.watcher.image
        self.watcher.image = image
        self.peers.follow(before, image)
        self.follow()

    def follow(self) -> None:
        host_context("node-9").run(self.fetchers.follow)

    def open(
        self,
        name: str,
        leader: int,
        index: int = 0,
        epoch: int = 1,
        *,
        in_sync: bool = True,
        **config: Any,
    ) -> Partition:
        """A replica of this node; it follows once `follow` is called."""
        path = f"data/{name}-{index}"
        log = Log.open(self.disk, path, LogConfig(**config), NOW_MS)
        isr = (leader, NODE) if in_sync else (leader,)
        record = PartitionRecord((leader, NODE), leader, isr, leader_epoch=epoch)
        partition = Partition(name, topic_id(name), index, log, record, RULES, self.home)
        self.held[topic_id(name), index] = partition
        return partition

    def elect(self, partition: Partition, leader: int, epoch: int) -> None:
        """The image says that another node leads now."""
        record = PartitionRecord((leader, NODE), leader, (leader, NODE), leader_epoch=epoch)
        if leader == NODE:
            partition.lead(record, 1, self.loop.time())
        else:
            partition.follow(record)
        self.follow()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.peers.close()


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        assert loop.time() < deadline, "it did not happen in time"
        await asyncio.sleep(0.001)


def content(log: Log) -> bytes:
    return b"".join(segment.file.read(0, segment.size) for segment in log.segments)


def replicate(
    scenario: Callable[[Node, ModelLeader], Awaitable[None]],
    seed: int = 1,
    *,
    sync_s: float = 0.003,
    configs: dict[str, str] | None = None,
) -> SimLoop:
    """Runs a scenario with node 9 that follows and node 1 that leads."""

    async def main(loop: SimLoop) -> None:
        leader = ModelLeader(1)
        await loop.create_task(leader.start(), context=host_context(leader.host))
        node = Node(loop, sync_s=sync_s, configs=configs)
        node.meet(leader)
        try:
            await scenario(node, leader)
            assert not node.task.done(), node.task
        finally:
            await node.stop()
        assert not node.failures

    _, loop = run(main, seed, time_max=10_000.0)
    return loop
