"""Consumer of assigned partitions: long-polling fetches, raw batches or decoded records.

Owns the positions and the fetches in flight, at most one per broker. The next fetch is sent when
its reply is taken, so memory is bounded by `max_bytes` plus one batch per broker. Group membership
and commits are in `group_member`. Positions advance when `fetch` or `poll` returns.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.client.cluster import Cluster
from penstock.client.consumer.fetched import (
    READ_UNCOMMITTED,
    Fetched,
    FetchedRecord,
    next_offset_after,
)
from penstock.client.errors import (
    RETRIABLE,
    STALE_METADATA,
    ConnectionLost,
    RequestTimeout,
    Unreachable,
    code_of,
    refusal,
)
from penstock.client.list_offsets import EARLIEST, LATEST, list_offsets
from penstock.client.metadata import TopicPartition
from penstock.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

_NETWORK = (Unreachable, ConnectionLost, RequestTimeout)


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Settings of a consumer."""

    min_bytes: int = 1
    max_wait_ms: int = 500
    max_bytes: int = 16 << 20
    """Limits the reply of one broker; the first batch is returned whatever its size."""
    partition_bytes: int = 1 << 20
    isolation_level: int = READ_UNCOMMITTED
    reset: int | None = None
    """Position to reset to when it is out of range: EARLIEST or LATEST; None raises Refused."""
    retry_timeout_ms: int = 60_000
    """Time for which fetches may fail in a row before the error is raised."""
    rack: str = ""


class Consumer:
    """Reads assigned partitions."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig | None = None) -> None:
        self.config = config or ConsumerConfig()
        self._cluster = cluster
        self._positions: dict[TopicPartition, int] = {}
        self._fetches: dict[int, asyncio.Task[list[Fetched]]] = {}
        self._ready: list[Fetched] = []
        self._failing_since: float | None = None
        self._failures = 0

    async def __aenter__(self) -> "Consumer":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Assigns exactly these partitions, to be read from these offsets on."""
        self._positions = dict(positions)
        self._ready = []

    def unassign(self, where: TopicPartition) -> None:
        self._positions.pop(where, None)

    def seek(self, where: TopicPartition, offset: int) -> None:
        assert where in self._positions, f"{where} is not assigned"
        self._positions[where] = offset

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """Next offset to return of each assigned partition."""
        return self._positions

    async def fetch(self, timeout_ms: int | None = None) -> list[Fetched]:
        """Returns the next raw batches of any partition; an empty list after the timeout."""
        loop = asyncio.get_running_loop()
        timeout_s = (self.config.max_wait_ms if timeout_ms is None else timeout_ms) / 1000
        end = loop.time() + timeout_s
        while not self._ready:
            await self._start_fetches()
            left_s = end - loop.time()
            if left_s <= 0 or not self._fetches:
                return []
            done, _ = await asyncio.wait(
                self._fetches.values(), timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )
            await self._collect(done)
        ready, self._ready = self._ready, []
        for fetched in ready:
            self._positions[fetched.where] = fetched.next_offset
        await self._start_fetches()
        return ready

    async def poll(self, timeout_ms: int | None = None) -> list[FetchedRecord]:
        """Returns the next records of any partition; an empty list after the timeout."""
        fetched = await self.fetch(timeout_ms)
        return [message for part in fetched for message in part.messages()]

    async def close(self) -> None:
        tasks = list(self._fetches.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fetches.clear()

    # Internals.

    async def _start_fetches(self) -> None:
        """Sends a fetch to each leader that has none in flight."""
        metadata = self._cluster.metadata
        by_node: dict[int, list[TopicPartition]] = {}
        for where in self._positions:
            by_node.setdefault(metadata.leader_of(where), []).append(where)
        if -1 in by_node:
            await self._failed(self._no_leader(by_node.pop(-1)[0]))
        loop = asyncio.get_running_loop()
        for node_id, places in by_node.items():
            if node_id not in self._fetches:
                # Copied now: the task runs later, and a partition may be revoked before that.
                asked = {where: self._positions[where] for where in places}
                self._fetches[node_id] = loop.create_task(self._fetch_from(node_id, asked))
                # Fairness: a broker fills its reply in this order.
                for where in places[:1]:
                    self._positions[where] = self._positions.pop(where)

    def _no_leader(self, where: TopicPartition) -> Refused:
        try:
            info = self._cluster.known_topic(where.topic)
        except Refused as refused:
            return refused
        if where.partition in info.partitions:
            return Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"{where} has no leader at the moment")
        return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} does not exist")

    async def _fetch_from(self, node_id: int, asked: Mapping[TopicPartition, int]) -> list[Fetched]:
        rows: dict[str, list[FetchPartition]] = {}
        names: dict[TopicId, str] = {}
        for where, offset in asked.items():
            info = self._cluster.known_topic(where.topic)
            names[info.topic_id] = where.topic
            row = FetchPartition(
                partition=where.partition,
                current_leader_epoch=info.partitions[where.partition].leader_epoch,
                fetch_offset=offset,
                partition_max_bytes=self.config.partition_bytes,
            )
            rows.setdefault(where.topic, []).append(row)
        request = FetchRequest(
            max_wait_ms=self.config.max_wait_ms,
            min_bytes=self.config.min_bytes,
            max_bytes=self.config.max_bytes,
            isolation_level=self.config.isolation_level,
            topics=[
                FetchTopic(
                    topic=name,
                    topic_id=self._cluster.known_topic(name).topic_id,
                    partitions=partitions,
                )
                for name, partitions in rows.items()
            ],
            rack_id=self.config.rack,
        )
        timeout_ms = self._cluster.config.request_timeout_ms + self.config.max_wait_ms
        reply = await self._cluster.call(
            request, FetchResponse, node_id=node_id, timeout_ms=timeout_ms
        )
        if reply.error_code:
            raise refusal(reply.error_code, about="fetch")
        fetched = []
        for topic in reply.responses:
            name = topic.topic or names.get(TopicId(bytes(topic.topic_id)), "")
            for data in topic.partitions:
                where = TopicPartition(name, data.partition_index)
                if where in asked:
                    fetched.append(await self._read(where, asked[where], data))
        return [part for part in fetched if part.next_offset != part.offset]

    async def _read(self, where: TopicPartition, offset: int, data: FetchPartitionData) -> Fetched:
        code = code_of(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            offset = await self._reset(where, offset)
        elif code is not ErrorCode.NONE:
            raise refusal(data.error_code, about=str(where))
        records = data.records
        assert records is None or isinstance(records, memoryview)
        view = records if records is not None else memoryview(b"")
        return Fetched(
            where=where,
            offset=offset,
            next_offset=next_offset_after(view, offset),
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
            log_start_offset=data.log_start_offset,
            records=view,
            aborted=data.aborted_transactions or (),
        )

    async def _reset(self, where: TopicPartition, offset: int) -> int:
        low = (await list_offsets(self._cluster, {where: EARLIEST}))[where].offset
        high = (await list_offsets(self._cluster, {where: LATEST}))[where].offset
        if self.config.reset is None:
            raise Refused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {where} is not within {low}..{high}: seek to one that is",
            )
        start = low if self.config.reset == EARLIEST else high
        if self._positions.get(where) == offset:
            self._positions[where] = start
        return start

    async def _collect(self, done: "set[asyncio.Task[list[Fetched]]]") -> None:
        for node_id in sorted(n for n, task in self._fetches.items() if task in done):
            task = self._fetches.pop(node_id)
            try:
                parts = task.result()
            except (*_NETWORK, Refused) as error:
                await self._failed(error)
                continue
            self._failing_since, self._failures = None, 0
            for part in parts:
                # Dropped: replies to fetches from before a seek or a new assignment, and the
                # second of two replies from the leaders before and after an election.
                is_first = all(one.where != part.where for one in self._ready)
                if is_first and self._positions.get(part.where) == part.offset:
                    self._ready.append(part)

    async def _failed(self, error: Exception) -> None:
        """Backs off and refreshes the metadata, or raises a permanent error."""
        loop = asyncio.get_running_loop()
        if isinstance(error, Refused) and error.code not in RETRIABLE:
            raise error
        if self._failing_since is None:
            self._failing_since = loop.time()
        if (loop.time() - self._failing_since) * 1000 > self.config.retry_timeout_ms:
            raise error
        unknown = isinstance(error, Refused) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if unknown and self._failures >= 4:
            raise error
        await self._cluster.backoff.wait(self._failures)
        self._failures += 1
        if not isinstance(error, Refused) or error.code in STALE_METADATA:
            await self._cluster.refresh_quietly({where.topic for where in self._positions})
