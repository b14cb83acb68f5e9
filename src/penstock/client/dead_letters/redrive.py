"""Redrives or purges dead-lettered messages: each exactly once, in order, across crashes.

Messages of one partition are settled in batches, one transaction each. The transaction writes the
copies, an audit entry (`AUDIT`), and a committed offset of the redriver's own group whose metadata
names the settled messages. All of that is committed or none. Afterwards the messages are finished
in the share group `DEAD_LETTERS`. A redriver that starts and finds such metadata first finishes
the messages it names. So each message is sent once, however often the redrive is interrupted, and
the next run resumes where the last one stopped.

Two redrives of a topic cannot run at a time: both use one transactional id, and the later one
fences the other. Messages that arrive after the start are left alone, also those that are
dead-lettered again. Order is that of the partition of the dead-letter topic, and a message goes
back to its source partition, so messages of one key keep their order. Copies lack the headers that
would expire, delay or deduplicate them; two added headers name the origin.

A message that its target refuses as too large, even compressed, stays open and is reported; all
others are sent. A record that had exactly the largest size is too large with the two added
headers.

Bounds: `MESSAGES_MAX` messages and about `BYTES_MAX` in a transaction, `TOO_LARGE_MAX` messages
that stay open for their size. Metadata that no redriver acts on expires with the group's offsets,
after `offsets.retention.minutes`.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.ports import WallClock
from penstock.base.retry import Backoff
from penstock.client.admin.admin import TOPIC, Admin
from penstock.client.admin.queues import finish
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import Committed, committed_offsets
from penstock.client.dead_letters.filters import DeadLetterFilter
from penstock.client.dead_letters.message import REDRIVES, DeadLetterMessage
from penstock.client.dead_letters.open_messages import (
    DEAD_LETTERS,
    cursor_group,
    decode_settled_offsets,
    encode_settled_offsets,
    end_offsets,
    open_dead_letters,
    open_offsets,
)
from penstock.client.list_offsets import partitions_of
from penstock.client.metadata import TopicPartition
from penstock.client.pacing import Pace
from penstock.client.producer.partitioner import partition_for_key
from penstock.client.producer.transaction import FENCED
from penstock.client.producer.transactional import TransactionalWriter, is_retriable
from penstock.state.queues import delivery_headers
from penstock.state.queues.intervals import IntervalSet
from penstock.wire.records import BATCH_OVERHEAD, Codec, Record, encode

AUDIT = "__dead_letter_audit"
"""Topic with an entry for every transaction of a redrive or purge; retained for a year."""
AUDIT_CONFIGS = {"retention.ms": str(365 * 86_400_000), "cleanup.policy": "delete"}
REDRIVEN_FROM = "penstock-redrive-from"
"""Header with topic, partition and offset of the dead-lettered message that was redriven."""
MESSAGES_MAX = 400
BATCH_LIMIT_CONFIG = "max.message.bytes"
OFFSET_GAP_MAX = 1 << 24
"""Limits the distance of consecutive offsets in a transaction, so that all fit in its metadata."""
BYTES_MAX = 512 * 1024
TRIES_MAX = 10
TOO_LARGE_MAX = 10_000
RECORD_OVERHEAD_MAX = 64
"""Upper bound of the bytes a record takes besides its key, value and headers."""
DROPPED_HEADERS = frozenset(
    {
        delivery_headers.DELAY_MS,
        delivery_headers.DELIVER_AT,
        delivery_headers.EXPIRES_AT,
        delivery_headers.TTL_MS,
        delivery_headers.DEDUP_ID,
        REDRIVES,
        REDRIVEN_FROM,
    }
)
"""Headers that applied to the first delivery only; copies do not get them."""
ALL_MESSAGES = DeadLetterFilter()


@dataclass(frozen=True, slots=True)
class RedriveRequest:
    """Messages to redrive, edit or purge, their target, and the principal that asked."""

    topic: str
    """Dead-letter topic."""
    run: str
    """Unique name of this run in the audit entries."""
    who: str
    chosen: DeadLetterFilter = ALL_MESSAGES
    purges: bool = False
    """True if messages are settled without sending copies."""
    to: str | None = None
    """Topic for the copies; None: the source topic of each message."""
    keeps_timestamp: bool = False
    """True if copies keep the timestamp of the original record instead of the current time."""
    rate_per_s: float | None = None
    limit: int | None = None
    """Maximum number of messages to settle; None: all."""
    revise: Callable[[DeadLetterMessage], DeadLetterMessage] | None = None
    """Edits each message before it is sent."""
    check_target: Callable[[str], None] | None = None
    """Raises Refused for topics that the principal must not write to."""
    charge: Callable[[int], Awaitable[None]] | None = None
    """Charges quotas: awaited before each transaction, with its size in bytes."""

    @property
    def action(self) -> str:
        if self.purges:
            return "purge"
        return "redrive" if self.revise is None else "edit"


@dataclass(slots=True)
class RedriveReport:
    settled: int = 0
    """Number of messages that were redriven or purged."""
    skipped: int = 0
    """Number of messages without content: the log lost the record before it was copied."""
    targets: dict[TopicPartition, int] = field(default_factory=dict)
    too_large: dict[str, str] = field(default_factory=dict)
    """Messages that stay open because their target refuses their size: id, and the reason."""


class RedrivenRecord(NamedTuple):
    """Redriven message, and the partition and offset of its copy."""

    message: DeadLetterMessage
    target: TopicPartition
    offset: int


class Redriver:
    """Carries out one redrive or purge."""

    def __init__(
        self,
        cluster: Cluster,
        clock: WallClock,
        request: RedriveRequest,
        on_progress: Callable[[int], None] = lambda count: None,
        *,
        on_copied: Callable[[list[RedrivenRecord]], None] = lambda copies: None,
        messages_max: int = MESSAGES_MAX,
    ) -> None:
        """After each transaction, `on_progress` gets the number of messages and `on_copied` their
        copies; `on_copied` is not called if the outcome was unknown at first."""
        assert 0 < messages_max <= MESSAGES_MAX
        self.request = request
        self.report = RedriveReport()
        self._cluster = cluster
        self._clock = clock
        self._on_progress = on_progress
        self._on_copied = on_copied
        self._messages_max = messages_max
        self._group = cursor_group(request.topic)
        self._writer = TransactionalWriter(cluster, self._group)
        self._backoff = Backoff(cluster.random, cap_s=2.0)
        self._pace = Pace(request.rate_per_s)
        self._ends: dict[TopicPartition, int] = {}
        self._limits: dict[str, int | None] = {}
        self._committed: dict[TopicPartition, int] = {}
        """Committed offsets of the group whose metadata was acted on."""
        self._has_begun = False
        self._in_doubt: (
            tuple[TopicPartition, list[DeadLetterMessage], dict[TopicPartition, int]] | None
        ) = None

    async def run(self) -> RedriveReport:
        """Settles all selected messages that exist at the start."""
        await ensure_audit(self._cluster)
        self._ends = await end_offsets(
            self._cluster, await partitions_of(self._cluster, self.request.topic)
        )
        await self._with_retries(self._settle_all)
        await self.end()
        return self.report

    async def settle(self, messages: Iterable[DeadLetterMessage]) -> set[str]:
        """Settles the given messages; returns the ids of those that are settled.

        A message that was settled before, by this run or another, is not sent again. The caller
        must call `end` after the last of these calls.
        """
        given = sorted(messages, key=lambda message: (message.partition, message.offset))
        settled: set[str] = set()

        async def work() -> None:
            rest = await self._not_settled(given, settled)
            async with aclosing(self._transactions(_each(rest))) as transactions:
                async for batch in transactions:
                    await self._settle(batch)
                    settled.update(one.id for one in batch if one.id not in self.report.too_large)

        await ensure_audit(self._cluster)
        await self._with_retries(work)
        return settled

    async def end(self) -> None:
        """Ends the run: clears the metadata of the committed offsets."""
        if self._has_begun:
            await self._with_retries(self._clear_progress)

    async def _with_retries(self, work: Callable[[], Awaitable[None]]) -> None:
        """Runs `work`, and retries it with backoff after temporary failures."""
        tries = 0
        while True:
            before = self.report.settled
            try:
                if not self._has_begun:
                    await self._begin()
                    self._has_begun = True
                await work()
                return
            except (OSError, PeerError, Refused) as error:
                self._has_begun = False
                tries = 0 if self.report.settled > before else tries + 1
                if not is_retriable(error) or tries >= TRIES_MAX:
                    raise _explain_fenced(error, self.request.topic) from error
                await self._backoff.wait(tries)

    # -- start and end ----------------------------------------------------------------------

    async def _begin(self) -> None:
        """Fences an earlier redriver and finishes the messages that it settled."""
        await self._writer.begin()
        topic_id = (await self._cluster.topic(self.request.topic)).topic_id
        kept = await committed_offsets(self._cluster, self._group, is_stable=True)
        for where, committed in kept.items():
            runs = (
                decode_settled_offsets(committed, topic_id)
                if where.topic == self.request.topic
                else []
            )
            if runs:
                await finish(self._cluster, DEAD_LETTERS, {where: runs})
                self._committed[where] = committed.offset
                self._resolve_doubt(where, runs)
        self._in_doubt = None

    def _resolve_doubt(self, where: TopicPartition, runs: list[tuple[int, int]]) -> None:
        """Counts the transaction in doubt if its metadata is found: it was committed."""
        if self._in_doubt is None or self._in_doubt[0] != where:
            return
        _, messages, targets = self._in_doubt
        if runs == list(_runs_of(messages)):
            self._count(messages, targets)

    async def _clear_progress(self) -> None:
        """Commits the offsets again without metadata, since all of it was acted on.

        In a transaction: a later redriver fences it, so that its metadata is not overwritten.
        """
        if self._committed:
            positions = {where: Committed(offset) for where, offset in self._committed.items()}
            await self._writer.write({}, self._group, positions)

    # -- settling ---------------------------------------------------------------------------

    async def _settle_all(self) -> None:
        request = self.request
        self.report.skipped = 0
        found = open_dead_letters(self._cluster, request.topic, request.chosen, ends=self._ends)
        async with (
            aclosing(found) as messages,
            aclosing(self._transactions(messages)) as transactions,
        ):
            async for batch in transactions:
                await self._settle(batch)

    async def _transactions(
        self, messages: AsyncIterator[DeadLetterMessage]
    ) -> AsyncGenerator[list[DeadLetterMessage], None]:
        """Yields the messages of the next transaction; the caller settles each before the next."""
        request = self.request
        gathered: list[DeadLetterMessage] = []
        size = 0
        async for message in messages:
            if message.id in self.report.too_large:
                continue
            if not request.purges and is_record_lost(message) and request.revise is None:
                self.report.skipped += 1
                continue
            is_other = gathered and gathered[0].partition != message.partition
            is_large = size + message.size_bytes > BYTES_MAX
            if is_other or is_large or not self._fits(gathered, message):
                if gathered:
                    yield gathered
                gathered, size = [], 0
            if self._is_enough(len(gathered)):
                break
            gathered.append(message)
            size += message.size_bytes
        if gathered:
            yield gathered

    async def _not_settled(
        self, messages: Sequence[DeadLetterMessage], settled: set[str]
    ) -> list[DeadLetterMessage]:
        """Returns the open messages; adds those that were settled before to `settled`.

        A message that read_committed readers cannot see yet is neither.
        """
        if not messages:
            return []
        ids = frozenset((message.partition, message.offset) for message in messages)
        places = {TopicPartition(self.request.topic, partition) for partition, _ in ids}
        ends = await end_offsets(self._cluster, places)
        found: dict[int, IntervalSet] = {}
        chosen = DeadLetterFilter(ids=ids)
        async with aclosing(
            open_offsets(self._cluster, self.request.topic, chosen, ends=ends)
        ) as still_open:
            async for where, offsets in still_open:
                found[where.partition] = offsets
        rest = [message for message in messages if message.offset in found[message.partition]]
        for message in messages:
            is_open = message.offset in found[message.partition]
            where = TopicPartition(self.request.topic, message.partition)
            if not is_open and message.offset < ends[where]:
                settled.add(message.id)
        return rest

    def _is_enough(self, more: int) -> bool:
        limit = self.request.limit
        return limit is not None and self.report.settled + more >= limit

    def _fits(self, gathered: list[DeadLetterMessage], message: DeadLetterMessage) -> bool:
        """True if one more message fits in the transaction, and in its metadata."""
        if not gathered:
            return True
        is_near = message.offset - gathered[-1].offset < OFFSET_GAP_MAX
        return is_near and len(gathered) < min(self._messages_max, self._pace.portion)

    async def _settle(self, messages: list[DeadLetterMessage]) -> None:
        if self.request.charge is not None:
            await self.request.charge(sum(message.size_bytes for message in messages))
        await self._pace.wait(len(messages))
        await self._send(messages)

    async def _send(self, messages: list[DeadLetterMessage]) -> None:
        """Splits a batch that is too large; a single message that is too large is reported."""
        try:
            await self._write(messages)
        except Refused as refused:
            if refused.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            too_large = self.report.too_large
            if len(messages) == 1 and len(too_large) >= TOO_LARGE_MAX:
                raise
            if not self._writer.is_usable:
                await self._begin()
            if len(messages) == 1:
                too_large[messages[0].id] = refused.message or refused.code.name
                return
            middle = len(messages) // 2
            await self._send(messages[:middle])
            await self._send(messages[middle:])

    async def _write(self, messages: list[DeadLetterMessage]) -> None:
        """Commits one transaction, then finishes its messages."""
        request = self.request
        where = TopicPartition(request.topic, messages[0].partition)
        topic_id = (await self._cluster.topic(request.topic)).topic_id
        offsets = [message.offset for message in messages]
        metadata = encode_settled_offsets(topic_id, offsets)
        assert metadata is not None, "too many messages for one transaction"
        batches: dict[TopicPartition, list[Record]] = {}
        sent: list[tuple[DeadLetterMessage, TopicPartition, int]] = []
        for message in () if request.purges else messages:
            target = await target_partition(self._cluster, message, request.to)
            if request.check_target is not None:
                request.check_target(target.topic)
            batch = batches.setdefault(target, [])
            sent.append((message, target, len(batch)))
            batch.append(self._copy_of(message))
        targets = {target: len(records) for target, records in batches.items()}
        codecs = {}
        for target, records in batches.items():
            codecs[target] = await self._codec_for(target.topic, records)
        batches[TopicPartition(AUDIT, 0)] = [self._entry(where, messages)]
        position = Committed(offsets[-1] + 1, metadata=metadata)
        self._in_doubt = where, messages, targets
        positions = {where: position}
        placed = await self._writer.write(batches, self._group, positions, codecs=codecs)
        self._committed[where] = position.offset
        self._in_doubt = None
        self._count(messages, targets)
        self._on_copied(
            [RedrivenRecord(message, at, placed[at] + index) for message, at, index in sent]
        )
        await finish(self._cluster, DEAD_LETTERS, {where: list(_runs_of(messages))})

    async def _codec_for(self, topic: str, records: list[Record]) -> Codec:
        """Chooses a codec with which the batch fits; raises Refused if none does."""
        limit = await self._limit_of(topic)
        if limit is None or sum(map(_bytes_max, records)) <= limit - BATCH_OVERHEAD:
            return Codec.NONE
        for codec in (Codec.NONE, Codec.ZSTD):
            size = len(encode(records, codec=codec))
            if size <= limit:
                return codec
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes is too large for {topic}, which accepts {limit}: raise its "
            "max.message.bytes, or redrive to another topic",
        )

    async def _limit_of(self, topic: str) -> int | None:
        """Returns the largest batch a topic accepts, in bytes; None: no permission to read it."""
        if topic not in self._limits:
            limit = None
            try:
                for entry in await Admin(self._cluster).describe_configs(
                    TOPIC, topic, [BATCH_LIMIT_CONFIG]
                ):
                    limit = int(entry.value or 0) or None
            except Refused as refused:
                if is_retriable(refused):
                    raise
            self._limits[topic] = limit
        return self._limits[topic]

    def _count(self, messages: list[DeadLetterMessage], targets: dict[TopicPartition, int]) -> None:
        self.report.settled += len(messages)
        for target, count in targets.items():
            self.report.targets[target] = self.report.targets.get(target, 0) + count
        self._on_progress(len(messages))

    # -- records ----------------------------------------------------------------------------

    def _copy_of(self, message: DeadLetterMessage) -> Record:
        revised = message if self.request.revise is None else self.request.revise(message)
        now_ms = self._clock.now_ms()
        is_kept = self.request.keeps_timestamp and message.source_timestamp_ms >= 0
        return redriven_record(revised, message.source_timestamp_ms if is_kept else now_ms)

    def _entry(self, where: TopicPartition, messages: list[DeadLetterMessage]) -> Record:
        request = self.request
        entry = {
            "run": request.run,
            "action": request.action,
            "who": request.who,
            "at_ms": self._clock.now_ms(),
            "topic": request.topic,
            "partition": where.partition,
            "letters": [list(run) for run in _runs_of(messages)],
            "count": len(messages),
            "filter": request.chosen.described(),
            "to": request.to,
        }
        value = json.dumps(entry, ensure_ascii=False).encode()
        return Record(0, self._clock.now_ms(), request.topic.encode(), value)


def redriven_record(message: DeadLetterMessage, timestamp_ms: int) -> Record:
    """Builds the copy to send: the original record without `DROPPED_HEADERS`."""
    own = tuple(pair for pair in message.own_headers if pair[0] not in DROPPED_HEADERS)
    come_from = f"{message.topic}/{message.partition}/{message.offset}"
    added = (
        (REDRIVES, str(message.redrives + 1).encode()),
        (REDRIVEN_FROM, come_from.encode()),
    )
    return Record(0, timestamp_ms, message.key, message.payload, own + added)


def is_record_lost(message: DeadLetterMessage) -> bool:
    """True if the log lost the record before it was dead-lettered: only its headers are known."""
    has_origin = message.source is not None and message.source_timestamp_ms < 0
    return has_origin and message.key is None and message.payload is None


async def target_partition(
    cluster: Cluster, message: DeadLetterMessage, to: str | None
) -> TopicPartition:
    """Returns the source partition of a message, or in another topic the one of its key."""
    source = message.source
    if to is None and source is None:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"message {message.id} does not name its source topic: name a target topic",
        )
    name = to if to is not None else source.topic if source is not None else ""
    count = len((await cluster.topic(name)).partitions)
    if source is not None and source.topic == name and source.partition < count:
        return TopicPartition(name, source.partition)
    if message.key is not None:
        return TopicPartition(name, partition_for_key(message.key, count))
    return TopicPartition(name, (message.partition if source is None else source.partition) % count)


async def ensure_audit(cluster: Cluster) -> None:
    try:
        await cluster.topic(AUDIT)
    except Refused as refused:
        if refused.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        try:
            await Admin(cluster).create_topic(AUDIT, 1, -1, AUDIT_CONFIGS)
        except Refused as taken:
            if taken.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            await cluster.topic(AUDIT)


async def _each(messages: Iterable[DeadLetterMessage]) -> AsyncGenerator[DeadLetterMessage, None]:
    for message in messages:
        yield message


def _bytes_max(record: Record) -> int:
    """Upper bound of the bytes a record takes in a batch."""
    size = RECORD_OVERHEAD_MAX + len(record.key or b"") + len(record.value or b"")
    return size + sum(4 * len(name) + len(value or b"") + 10 for name, value in record.headers)


def _runs_of(messages: list[DeadLetterMessage]) -> IntervalSet:
    runs = IntervalSet()
    for message in messages:
        runs.add(message.offset, message.offset)
    return runs


def _explain_fenced(error: Exception, topic: str) -> Exception:
    if isinstance(error, Refused) and error.code in FENCED:
        return Refused(
            error.code,
            f"another redrive or purge of {topic} has replaced this one: settled messages stay "
            "settled, and the other one settles the rest",
        )
    return error
