"""A broker for the client's tests: small, in memory, and as spiteful as a test wants it.

It speaks the real protocol through our codecs, on whatever loop runs the test, and keeps Kafka's
rules for idempotent producers (the last five batches are remembered, gaps are refused). A test
changes what it answers by putting a function into `answers`; such a function may return a reply,
`NO_REPLY` (go on without one), `HANG` (this connection is never answered again) or `CLOSE`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId
from penstock.client.cluster import Cluster
from penstock.client.connection import Address, ConnectionConfig, FrameCutter
from penstock.wire.codec import reader, writer
from penstock.wire.framing import response_frame
from penstock.wire.messages import REQUESTS, RESPONSES
from penstock.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.fetch import (
    FetchableTopicResponse,
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
)
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.wire.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from penstock.wire.records import BatchHeader, check_batch, decode, stamp
from penstock.wire.request_header import read_request_header
from penstock.wire.schema import wire_of
from simulation.loop import SimLoop, run
from simulation.random import SimRandom

NO_REPLY = object()
HANG = object()
CLOSE = object()
HOST = "broker"
PORT = 9092

Answer = Callable[[Any], Any]


@dataclass
class ModelLog:
    """One partition: batches as they came, and what is known of each producer."""

    batches: list[bytearray] = field(default_factory=list)
    start_offset: int = 0
    end_offset: int = 0
    producers: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """Per producer id the last five batches: first sequence, last sequence, offset."""

    def append(self, batch: bytearray) -> tuple[ErrorCode, int]:
        header = check_batch(memoryview(batch))
        if header.producer_id >= 0:
            known = self.producers.setdefault(header.producer_id, [])
            last = header.base_sequence + header.count - 1
            for first_seen, last_seen, offset in known:
                if (first_seen, last_seen) == (header.base_sequence, last):
                    return ErrorCode.NONE, offset
            if known and header.base_sequence != known[-1][1] + 1:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            known.append((header.base_sequence, last, self.end_offset))
            del known[:-5]
        offset = self.end_offset
        stamp(batch, offset, 0)
        self.batches.append(batch)
        self.end_offset += header.count
        return ErrorCode.NONE, offset

    def values(self) -> list[bytes | None]:
        return [r.value for b in self.batches for r in decode(memoryview(b))]

    def headers(self) -> list[BatchHeader]:
        return [decode(memoryview(b)).header for b in self.batches]


class ModelBroker:
    """Node 1 of a cluster of one; topics appear when a test names them in `create`."""

    def __init__(self, node_id: int = 1, host: str = HOST, port: int = PORT) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.logs: dict[str, list[ModelLog]] = {}
        self.leaders: dict[int, tuple[str, int]] = {node_id: (host, port)}
        self.leader_of: dict[tuple[str, int], int] = {}
        self.seen: list[Any] = []
        self.connections = 0
        self.producer_ids = 0
        self.batch_bytes_max = 1 << 20
        self.versions: dict[int, tuple[int, int]] = {
            key: wire_of(cls).versions for key, cls in REQUESTS.items()
        }
        self.answers: dict[type[Any], Answer] = {
            ApiVersionsRequest: self.api_versions,
            MetadataRequest: self.metadata,
            InitProducerIdRequest: self.init_producer_id,
            ProduceRequest: self.produce,
            FetchRequest: self.fetch,
            ListOffsetsRequest: self.list_offsets,
        }
        self._server: asyncio.AbstractServer | None = None

    def create(self, topic: str, partitions: int = 1) -> list[ModelLog]:
        self.logs[topic] = [ModelLog() for _ in range(partitions)]
        return self.logs[topic]

    def count(self, request: type[Any]) -> int:
        return sum(isinstance(r, request) for r in self.seen)

    async def start(self) -> Address:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Peer(self), self.host, self.port)
        return Address(self.host, self.port)

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    # Default answers.

    def api_versions(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
        rows = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in sorted(self.versions.items())
        ]
        return ApiVersionsResponse(error_code=0, api_keys=rows)

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = sorted(self.logs) if request.topics is None else [t.name for t in request.topics]
        topics = []
        for name in names:
            assert name is not None
            logs = self.logs.get(name)
            if logs is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                topics.append(MetadataResponseTopic(error_code=code, name=name, partitions=[]))
                continue
            rows = [
                MetadataResponsePartition(
                    error_code=0,
                    partition_index=index,
                    leader_id=self.leader_of.get((name, index), self.node_id),
                    leader_epoch=0,
                    replica_nodes=[self.node_id],
                    isr_nodes=[self.node_id],
                )
                for index in range(len(logs))
            ]
            topics.append(
                MetadataResponseTopic(
                    error_code=0, name=name, topic_id=topic_id(name), partitions=rows
                )
            )
        brokers = [
            MetadataResponseBroker(node_id=n, host=h, port=p)
            for n, (h, p) in sorted(self.leaders.items())
        ]
        return MetadataResponse(
            brokers=brokers, cluster_id="model", controller_id=self.node_id, topics=topics
        )

    def init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        self.producer_ids += 1
        return InitProducerIdResponse(
            error_code=0, producer_id=1000 + self.producer_ids, producer_epoch=0
        )

    def produce(self, request: ProduceRequest) -> Any:
        rows = []
        for topic in request.topic_data:
            name = topic.name or self.name_of(bytes(topic.topic_id))
            partitions = []
            for row in topic.partition_data:
                assert row.records is not None
                code, offset = ErrorCode.MESSAGE_TOO_LARGE, -1
                if len(row.records) <= self.batch_bytes_max:
                    code, offset = self.logs[name][row.index].append(bytearray(row.records))
                partitions.append(PartitionProduceResponse(row.index, int(code), offset))
            rows.append(TopicProduceResponse(topic.name, topic.topic_id, partitions))
        return NO_REPLY if request.acks == 0 else ProduceResponse(rows)

    def refuse_produce(self, request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
        rows = [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [PartitionProduceResponse(p.index, int(code), -1) for p in topic.partition_data],
            )
            for topic in request.topic_data
        ]
        return ProduceResponse(rows)

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        loop = asyncio.get_running_loop()
        end = loop.time() + request.max_wait_ms / 1000
        while True:
            topics = []
            size = 0
            for topic in request.topics:
                name = topic.topic or self.name_of(bytes(topic.topic_id))
                rows = [self._read(name, p) for p in topic.partitions]
                size += sum(len(row.records or b"") + row.error_code for row in rows)
                topics.append(FetchableTopicResponse(topic.topic, topic.topic_id, rows))
            if size or loop.time() >= end:
                return FetchResponse(responses=topics)
            await asyncio.sleep(0.01)

    def _read(self, topic: str, asked: FetchPartition) -> FetchPartitionData:
        if topic not in self.logs:
            code = int(ErrorCode.UNKNOWN_TOPIC_ID)
            return FetchPartitionData(asked.partition, code, -1, -1, -1, None, -1, None)
        log = self.logs[topic][asked.partition]
        offset = asked.fetch_offset
        if not log.start_offset <= offset <= log.end_offset:
            code = int(ErrorCode.OFFSET_OUT_OF_RANGE)
            return FetchPartitionData(asked.partition, code, -1, -1, -1, None, -1, None)
        taken = bytearray()
        for batch in log.batches:
            if decode(memoryview(batch)).header.next_offset > offset:
                if taken and len(taken) + len(batch) > asked.partition_max_bytes:
                    taken += batch[: len(batch) // 2]  # Kafka cuts where the bytes end.
                    break
                taken += batch
        end = log.end_offset
        return FetchPartitionData(
            asked.partition, 0, end, end, log.start_offset, None, -1, memoryview(taken)
        )

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                log = self.logs[topic.name][asked.partition_index]
                timestamp = -1
                if asked.timestamp == -1:
                    offset = log.end_offset
                elif asked.timestamp == -2:
                    offset = log.start_offset
                else:
                    found = [
                        r
                        for b in log.batches
                        for r in decode(memoryview(b))
                        if r.timestamp >= asked.timestamp
                    ]
                    offset = found[0].offset if found else -1
                    timestamp = found[0].timestamp if found else -1
                rows.append(
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index,
                        error_code=0,
                        timestamp=timestamp,
                        offset=offset,
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return ListOffsetsResponse(topics=topics)

    def name_of(self, wanted: bytes) -> str:
        return next((name for name in self.logs if topic_id(name) == wanted), "")


def topic_id(name: str) -> TopicId:
    return TopicId(name.encode()[:16].ljust(16, b"\0"))


class _Peer(asyncio.BufferedProtocol):
    """One connection to the model: requests one after another, answers in order."""

    def __init__(self, broker: ModelBroker) -> None:
        self._broker = broker
        self._cutter = FrameCutter(64 << 20)
        self._queue: asyncio.Queue[memoryview] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._broker.connections += 1
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._cutter.space()

    def buffer_updated(self, nbytes: int) -> None:
        for frame in self._cutter.received(nbytes):
            self._queue.put_nowait(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        assert self._task is not None
        self._task.cancel()

    async def _serve(self) -> None:
        while True:
            frame = await self._queue.get()
            key, version, correlation_id, _, position = read_request_header(frame, 0, len(frame))
            low, high = self._broker.versions[key]
            if not low <= version <= high:
                assert key == 18, f"the client sent {key} in version {version}"
                reply = self._broker.api_versions(ApiVersionsRequest())
                reply.error_code = int(ErrorCode.UNSUPPORTED_VERSION)
                self._reply(correlation_id, reply, 0)
                continue
            request, _ = reader(REQUESTS[key], version)(frame, position, len(frame))
            self._broker.seen.append(request)
            reply = self._broker.answers[type(request)](request)
            if isinstance(reply, Awaitable):
                reply = await reply
            if reply is CLOSE:
                self._transport.abort()
                return
            if reply is HANG:
                await asyncio.Event().wait()
            if reply is not NO_REPLY:
                assert type(reply) is RESPONSES[key]
                self._reply(correlation_id, reply, version)

    def _reply(self, correlation_id: int, reply: Any, version: int) -> None:
        parts: list[Any] = []
        writer(type(reply), version)(reply, parts)
        frame = response_frame(correlation_id, type(reply), version, parts)
        self._transport.write(b"".join(frame))


def with_model(
    scenario: Callable[[SimLoop, ModelBroker, Cluster], Awaitable[None]],
    seed: int = 1,
    **config: Any,
) -> SimLoop:
    """Runs a scenario on virtual time with a model broker and a cluster connected to it."""

    async def main(loop: SimLoop) -> None:
        broker = ModelBroker()
        address = await broker.start()
        async with Cluster(SimRandom(seed), [address], ConnectionConfig(**config)) as cluster:
            await scenario(loop, broker, cluster)

    _, loop = run(main, seed, time_max=100_000.0)
    return loop
