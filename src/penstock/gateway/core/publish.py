"""Publishes messages to a topic: chooses partitions, builds batches, sends them to the leaders.

A message with a key goes to the partition that Kafka clients choose for that key (murmur2). All
messages of a call without a key go to one partition, those of the next call to the next one. A call
builds one batch per partition, or several if `max.message.bytes` demands it, and returns when all
are committed. Batches for partitions that this node leads take the path of every Produce request
(`broker.api.data.produce`); other leaders get Produce requests.

A batch is retried only if its leader certainly did not write it (it is not the leader any more, or
not yet), for as long as an election takes. Other failed batches may have been written; a dedup id
makes it safe for clients to retry them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.broker.api.context import Context
from penstock.broker.api.route_row import Operation
from penstock.client.errors import Unreachable, code_of
from penstock.client.producer.partitioner import partition_for_key
from penstock.cluster.configs.effective_configs import resolve_topic
from penstock.cluster.metadata.image import TopicImage
from penstock.coordinator.runtime.internal_producer import InternalProducer, request_of
from penstock.gateway.core.in_process_calls import InProcessCalls
from penstock.gateway.core.messages import (
    ID_BYTES,
    OutgoingMessage,
    Placed,
    message_id_of,
    record_of,
)
from penstock.gateway.core.permissions import Principal, require_topic
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from penstock.wire.records import BATCH_OVERHEAD, Record, encode

MESSAGES_MAX = 10_000
TIMEOUT_MS = 30_000
CREATION_SECONDS = 5.0
ELECTION_SECONDS = 5.0
POLL_SECONDS = 0.02
CHANNEL = "doors"
RECORD_OVERHEAD = 40
"""Maximum bytes of a record besides its key, value and headers."""
HEADER_OVERHEAD = 10


@dataclass(slots=True)
class _PendingBatch:
    """Batch being built for a partition. `places`: indexes of its messages in the call."""

    partition: int
    places: list[int]
    records: list[Record]
    stamped: list[int]
    """Indexes of records whose timestamps are from this node's clock."""
    size: int = BATCH_OVERHEAD


class Publisher:
    """Publishes for all gateway protocols of this node."""

    def __init__(self, ctx: Context, handlers: InProcessCalls) -> None:
        self._ctx = ctx
        self._handlers = handlers
        self._producer = InternalProducer(ctx.queue.queues.around, CHANNEL)
        self._turn = 0

    async def publish(
        self,
        principal: Principal,
        name: str,
        messages: Sequence[OutgoingMessage],
        all_or_none: bool = False,
    ) -> list[Placed | Refused]:
        """Returns the place of each message, or why it was refused; raises Refused if all are."""
        ctx = self._ctx
        if len(messages) > MESSAGES_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"too many messages: {len(messages)}; send at most {MESSAGES_MAX} at a time",
            )
        require_topic(ctx, principal, Operation.WRITE, name)
        topic = ctx.image.topics.get(name) or await self.create_if_allowed(principal, name)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ELECTION_SECONDS
        placed: list[Placed | Refused] = [_LOST] * len(messages)
        places: Sequence[int] = range(len(messages))
        while True:
            by_leader = await self._assign_patiently(topic, messages, placed, places, deadline)
            if all_or_none:
                _raise_first(placed)
            sends = [self._send(principal, topic, *pair, placed) for pair in by_leader.items()]
            if len(sends) == 1:
                await sends[0]
            else:
                await asyncio.gather(*sends)
            places = [at for at in places if isinstance(placed[at], _NotTaken)]
            if not places or loop.time() >= deadline:
                return placed
            all_or_none = False
            await asyncio.sleep(POLL_SECONDS)
            known = ctx.image.topics.get(name)
            if known is None:
                return placed
            topic = known

    async def create_if_allowed(self, principal: Principal, name: str) -> TopicImage:
        """Creates a topic if `auto.create.topics.enable` is set; refuses otherwise.

        Another request may create it at the same time, here or on another node. This one then waits
        until this node's image has the topic, too.
        """
        ctx, loop = self._ctx, asyncio.get_running_loop()
        deadline = loop.time() + CREATION_SECONDS
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
        )
        while True:
            response = await self._handlers.ask(principal, request, MetadataResponse)
            topic = ctx.image.topics.get(name)
            if topic is not None:
                await ctx.reached(topic.revision)
                return topic
            code = code_of(response.topics[0].error_code)
            if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise Refused(code)
            if not ctx.configs.flag("auto.create.topics.enable") or loop.time() >= deadline:
                raise Refused(code, f"topic {name} does not exist: create it first")
            await asyncio.sleep(POLL_SECONDS)

    # -- partitioning -----------------------------------------------------------------------

    async def _assign_patiently(
        self,
        topic: TopicImage,
        messages: Sequence[OutgoingMessage],
        placed: list[Placed | Refused],
        places: Sequence[int],
        deadline: float,
    ) -> dict[int, list[_PendingBatch]]:
        """Builds batches by leader; until `deadline` waits for partitions without a leader."""
        loop = asyncio.get_running_loop()
        while True:
            for at in places:
                placed[at] = _LOST
            by_leader = self._assign(topic, messages, placed, places)
            is_waited_for = any(isinstance(placed[at], _NotTaken) for at in places)
            if not is_waited_for or loop.time() >= deadline:
                return by_leader
            await asyncio.sleep(POLL_SECONDS)
            topic = self._ctx.image.topics.get(topic.name, topic)

    def _assign(
        self,
        topic: TopicImage,
        messages: Sequence[OutgoingMessage],
        placed: list[Placed | Refused],
        places: Sequence[int],
    ) -> dict[int, list[_PendingBatch]]:
        """Builds batches by leader, in order; refuses invalid messages in their place."""
        ctx = self._ctx
        now_ms = ctx.clock.now_ms()
        random_bytes = b""
        if any(message.has_envelope for message in messages):
            random_bytes = ctx.random.random_bytes(2 * ID_BYTES * len(messages))
        bytes_max = self._bytes_max(topic)
        common = self._next_partition(topic)
        pending_batches: dict[int, _PendingBatch] = {}
        by_leader: dict[int, list[_PendingBatch]] = {}
        for at in places:
            message = messages[at]
            try:
                fresh = random_bytes[2 * ID_BYTES * at : 2 * ID_BYTES * (at + 1)]
                self._check_delay(topic, message, now_ms)
                record = record_of(message, now_ms, fresh)
                index = self._partition_of(topic, message, common)
                leader = self._leader(topic, index)
            except Refused as refused:
                placed[at] = refused
                continue
            size = _size_of(record)
            pending = pending_batches.get(index)
            if pending is None or pending.size + size > bytes_max:
                pending = pending_batches[index] = _PendingBatch(index, [], [], [])
                by_leader.setdefault(leader, []).append(pending)
            if message.timestamp_ms is None:
                pending.stamped.append(len(pending.records))
            pending.places.append(at)
            pending.records.append(record)
            pending.size += size
        return by_leader

    def _check_delay(self, topic: TopicImage, message: OutgoingMessage, now_ms: int) -> None:
        """Refuses a delay longer than the topic's retention."""
        if message.delay_ms is None and message.deliver_at_ms is None:
            return
        wait_ms = max(message.delay_ms or 0, (message.deliver_at_ms or 0) - now_ms)
        log = resolve_topic(topic.configs, self._ctx.configs).log
        if log.cleanup_delete and 0 <= log.retention_ms < wait_ms:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"delay of {wait_ms} ms exceeds the retention of topic {topic.name} "
                f"({log.retention_ms} ms): raise retention.ms, or publish the message later",
            )

    def _bytes_max(self, topic: TopicImage) -> int:
        partition = self._ctx.partitions.get(topic.name, 0)
        if partition is not None:
            return partition.rules.message_bytes_max
        return resolve_topic(topic.configs, self._ctx.configs).log.message_bytes_max

    def _next_partition(self, topic: TopicImage) -> int:
        """Chooses the partition of messages without a key: round robin over those with a leader."""
        self._turn += 1
        count, brokers = len(topic.partitions), self._ctx.image.brokers
        for step in range(count):
            index = (self._turn + step) % count
            if topic.partitions[index].leader in brokers:
                return index
        return self._turn % count

    def _partition_of(self, topic: TopicImage, message: OutgoingMessage, common: int) -> int:
        count = len(topic.partitions)
        if message.partition is not None:
            if not 0 <= message.partition < count:
                raise Refused(
                    ErrorCode.INVALID_REQUEST,
                    f"invalid partition {message.partition}: {topic.name} has partitions 0 to "
                    f"{count - 1}",
                )
            return message.partition
        return common if message.key is None else partition_for_key(message.key, count)

    def _leader(self, topic: TopicImage, index: int) -> int:
        leader = topic.partitions[index].leader
        if leader not in self._ctx.image.brokers:
            raise _NotTaken(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"{topic.name}-{index} has no leader at the moment: retry later",
            )
        return leader

    # -- sending ----------------------------------------------------------------------------

    async def _send(
        self,
        principal: Principal,
        topic: TopicImage,
        leader: int,
        pending_batches: list[_PendingBatch],
        placed: list[Placed | Refused],
    ) -> None:
        """Sends batches to a leader. A request takes one batch per partition, so several batches of
        a partition go one after the other."""
        while pending_batches:
            batch_of = {}
            later: list[_PendingBatch] = []
            for pending in pending_batches:
                if pending.partition in batch_of:
                    later.append(pending)
                else:
                    batch_of[pending.partition] = pending
            await self._send_round(principal, topic, leader, batch_of, placed)
            pending_batches = later

    async def _send_round(
        self,
        principal: Principal,
        topic: TopicImage,
        leader: int,
        pending_batches: dict[int, _PendingBatch],
        placed: list[Placed | Refused],
    ) -> None:
        batches = [
            (pending.partition, memoryview(encode(pending.records)))
            for pending in pending_batches.values()
        ]
        try:
            if leader == self._ctx.node_id:
                request = request_of(topic, batches, TIMEOUT_MS)
                response = await self._handlers.ask(principal, request, ProduceResponse)
                rows = list(response.responses[0].partition_responses)
            else:
                rows = await self._producer.send(leader, topic, batches, TIMEOUT_MS)
        except (OSError, PeerError, Refused) as error:
            refused = _refusal_of(error, leader)
            for pending in pending_batches.values():
                for at in pending.places:
                    placed[at] = refused
            return
        again: dict[int, _PendingBatch] = {}
        for row in rows:
            found = pending_batches.get(row.index)
            if found is None:
                continue
            if _stamp_again(row, found):
                again[row.index] = found
            else:
                _note(row, found, placed)
        if again:
            await self._send_round(principal, topic, leader, again, placed)


class _NotTaken(Refused):
    """Refused without anything written, or for lack of a leader: may be retried."""


MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors of a node that is not the leader any more, or does not know the partition yet."""

_LOST = Refused(
    ErrorCode.UNKNOWN_SERVER_ERROR,
    "the leader did not answer for this message, which may have been written: retry, with a "
    "dedup_id if it must not be delivered twice",
)


def _raise_first(placed: Sequence[Placed | Refused]) -> None:
    for at, one in enumerate(placed):
        if isinstance(one, Refused) and one is not _LOST:
            where = f"messages[{at}]: " if len(placed) > 1 else ""
            raise Refused(one.code, where + (one.message or one.code.name))


def _stamp_again(row: PartitionProduceResponse, pending: _PendingBatch) -> bool:
    """Gives records the leader's time, once, if this node's clock is too far from it."""
    is_refused = code_of(row.error_code) is ErrorCode.INVALID_TIMESTAMP
    if not is_refused or row.log_append_time_ms < 0 or not pending.stamped:
        return False
    for at in pending.stamped:
        pending.records[at] = pending.records[at]._replace(timestamp=row.log_append_time_ms)
    pending.stamped.clear()
    return True


def _note(
    row: PartitionProduceResponse, pending: _PendingBatch, placed: list[Placed | Refused]
) -> None:
    if row.error_code:
        code = code_of(row.error_code)
        # A batch that was written but not committed has a log start offset in its response.
        was_taken = row.log_start_offset >= 0
        kind = _NotTaken if code in MOVED and not was_taken else Refused
        refused = kind(code, row.error_message)
        for at in pending.places:
            placed[at] = refused
        return
    base, append_ms = row.base_offset, row.log_append_time_ms
    for step, (at, record) in enumerate(zip(pending.places, pending.records, strict=True)):
        placed[at] = Placed(
            row.index,
            base + step,
            append_ms if append_ms >= 0 else record.timestamp,
            message_id_of(record.headers),
        )


def _size_of(record: Record) -> int:
    size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += HEADER_OVERHEAD + len(name) + len(value or b"")
    return size


def _refusal_of(error: Exception, leader: int) -> Refused:
    if isinstance(error, Refused):
        return error
    if isinstance(error, Unreachable):
        return _NotTaken(
            ErrorCode.LEADER_NOT_AVAILABLE,
            f"node {leader}, the partition's leader, cannot be reached: retry later",
        )
    return Refused(
        ErrorCode.REQUEST_TIMED_OUT,
        f"node {leader} did not confirm the message, which may have been written ({error}): retry, "
        "with a dedup_id if it must not be delivered twice",
    )
