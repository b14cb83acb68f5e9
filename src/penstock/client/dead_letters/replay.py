"""Replays records: to one group again, or as a copy in another topic.

In a share group, finished records become available again. Leased records, records that were not
delivered yet, and the members are unaffected. A consumer group's offsets are reset, which requires
a group without members. Neither affects other groups.

A copy is written in transactions that also commit its progress, as offsets of its own group. Each
record is copied exactly once, and an interrupted copy resumes with the end it was first given.
Key, headers and timestamp are unchanged. The partition is, too, if both topics have the same
number; otherwise the key selects it.

Bounds: `RECORDS_MAX` records and about `BYTES_MAX` in a transaction.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.retry import Backoff
from penstock.client.admin.groups import delete_group
from penstock.client.admin.queues import inspect, make_available, unfinished
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import Committed, committed_offsets
from penstock.client.consumer.fetched import FetchedRecord
from penstock.client.consumer.record_reader import read_at
from penstock.client.list_offsets import OffsetSpan
from penstock.client.metadata import TopicPartition
from penstock.client.pacing import Pace
from penstock.client.producer.batch import record_bytes
from penstock.client.producer.partitioner import partition_for_key
from penstock.client.producer.transaction import FENCED
from penstock.client.producer.transactional import TransactionalWriter, is_retriable
from penstock.state.queues.intervals import IntervalSet
from penstock.wire.records import Record

CURSOR_PREFIX = "penstock-replay."
RECORDS_MAX = 5_000
BYTES_MAX = 512 * 1024
TRIES_MAX = 10
_METADATA_VERSION = "v1"

ReplayRanges = Mapping[TopicPartition, OffsetSpan]


async def replay_share_group(
    cluster: Cluster, group: str, spans: ReplayRanges
) -> dict[TopicPartition, int]:
    """Makes finished records of these ranges available again; returns their numbers."""
    reports = await inspect(cluster, group, list(spans))
    offered: dict[TopicPartition, int] = {}
    for where, span in sorted(spans.items()):
        report = reports[where]
        first = max(span.start, report.log_start_offset)
        end = report.high_watermark if span.end is None else min(span.end, report.high_watermark)
        offered[where] = 0
        if first < end and report.start_offset >= 0:
            offered[where] = await make_available(cluster, group, {where: [(first, end - 1)]})
    return offered


async def finished_offsets(
    cluster: Cluster, group: str, where: TopicPartition, span: OffsetSpan
) -> IntervalSet:
    """Offsets of a range that a share group has finished, including control records."""
    finished = offsets_of(span)
    assert span.end is not None
    async with aclosing(unfinished(cluster, group, where, span.start)) as runs:
        async for run in runs:
            if run.first >= span.end:
                break
            finished.remove(run.first, min(run.last, span.end - 1))
    return finished


def offsets_of(span: OffsetSpan) -> IntervalSet:
    """Returns every offset of a range that has an end."""
    assert span.end is not None
    offsets = IntervalSet()
    if span.start < span.end:
        offsets.add(span.start, span.end - 1)
    return offsets


# -- copying ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Name, source ranges and target topic of a copy."""

    name: str
    """Identifies the copy: an interrupted copy resumes under the same name."""
    to: str
    spans: ReplayRanges
    """Ranges to copy; each has an end."""
    rate_per_s: float | None = None
    charge: Callable[[int], Awaitable[None]] | None = None
    """Charges quotas: awaited before each transaction, with its size in bytes."""


@dataclass(slots=True)
class CopyReport:
    copied: int = 0
    is_resumed: bool = False
    targets: dict[TopicPartition, int] = field(default_factory=dict)


def cursor_group(name: str) -> str:
    return CURSOR_PREFIX + name


async def unfinished_copy(cluster: Cluster, name: str) -> dict[TopicPartition, OffsetSpan]:
    """Returns the remaining ranges of an interrupted copy; empty if there is none."""
    kept = await committed_offsets(cluster, cursor_group(name), is_stable=True)
    left = {}
    for where, committed in kept.items():
        words = (committed.metadata or "").split()
        if len(words) == 2 and words[0] == _METADATA_VERSION and words[1].isdecimal():
            left[where] = OffsetSpan(committed.offset, max(committed.offset, int(words[1])))
    return left


class Copier:
    """Carries out one copy."""

    def __init__(
        self,
        cluster: Cluster,
        copy: CopyPlan,
        on_progress: Callable[[int], None] = lambda count: None,
        *,
        records_max: int = RECORDS_MAX,
    ) -> None:
        """`on_progress` gets the number of copied records after each transaction."""
        self.copy = copy
        self.report = CopyReport()
        self._cluster = cluster
        self._on_progress = on_progress
        self._records_max = records_max
        self._group = cursor_group(copy.name)
        self._writer = TransactionalWriter(cluster, self._group)
        self._backoff = Backoff(cluster.random, cap_s=2.0)
        self._pace = Pace(copy.rate_per_s)
        self._in_doubt: tuple[TopicPartition, int, dict[TopicPartition, int]] | None = None

    async def run(self) -> CopyReport:
        tries = 0
        while True:
            before = self.report.copied
            try:
                await self._copy_all()
                return self.report
            except (OSError, PeerError, Refused) as error:
                tries = 0 if self.report.copied > before else tries + 1
                if not is_retriable(error) or tries >= TRIES_MAX:
                    raise self._explain_fenced(error) from error
                await self._backoff.wait(tries)

    async def _copy_all(self) -> None:
        await self._writer.begin()
        left = await unfinished_copy(self._cluster, self.copy.name)
        if left:
            self.report.is_resumed = self.report.is_resumed or not self.report.copied
            self._resolve_doubt(left)
        else:
            left = dict(self.copy.spans)
            # Before anything is copied, so that a resumed copy knows the end of every range.
            await self._writer.write({}, self._group, {w: _cursor(s) for w, s in left.items()})
        for where, span in sorted(left.items()):
            await self._copy_one(where, span)
        await delete_group(self._cluster, self._group)

    def _resolve_doubt(self, left: ReplayRanges) -> None:
        """Counts the transaction in doubt if its offset is committed."""
        doubt, self._in_doubt = self._in_doubt, None
        if doubt is not None and doubt[0] in left and left[doubt[0]].start >= doubt[1]:
            self._count(doubt[2])

    async def _copy_one(self, where: TopicPartition, span: OffsetSpan) -> None:
        assert span.end is not None
        if span.start >= span.end:
            return
        wanted = IntervalSet()
        wanted.add(span.start, span.end - 1)
        gathered: list[FetchedRecord] = []
        size = 0
        async with aclosing(read_at(self._cluster, where, wanted)) as messages:
            async for message in messages:
                weight = record_bytes(_record_of(message))
                is_full = len(gathered) >= min(self._records_max, self._pace.portion)
                if gathered and (is_full or size + weight > BYTES_MAX):
                    await self._write(where, gathered, span.end, size)
                    gathered, size = [], 0
                gathered.append(message)
                size += weight
        await self._write(where, gathered, span.end, size)

    async def _write(
        self, where: TopicPartition, messages: list[FetchedRecord], end: int, size: int
    ) -> None:
        if not messages:
            return
        if self.copy.charge is not None:
            await self.copy.charge(size)
        await self._pace.wait(len(messages))
        batches: dict[TopicPartition, list[Record]] = {}
        for message in messages:
            target = await self._target_of(where, message)
            batches.setdefault(target, []).append(_record_of(message))
        targets = {target: len(records) for target, records in batches.items()}
        position = messages[-1].offset + 1
        self._in_doubt = where, position, targets
        await self._writer.write(batches, self._group, {where: _cursor(OffsetSpan(position, end))})
        self._in_doubt = None
        self._count(targets)

    def _count(self, targets: dict[TopicPartition, int]) -> None:
        for target, count in targets.items():
            self.report.targets[target] = self.report.targets.get(target, 0) + count
        copied = sum(targets.values())
        self.report.copied += copied
        self._on_progress(copied)

    async def _target_of(self, where: TopicPartition, message: FetchedRecord) -> TopicPartition:
        here = len((await self._cluster.topic(where.topic)).partitions)
        there = len((await self._cluster.topic(self.copy.to)).partitions)
        if here == there or message.key is None:
            return TopicPartition(self.copy.to, where.partition % there)
        return TopicPartition(self.copy.to, partition_for_key(message.key, there))

    def _explain_fenced(self, error: Exception) -> Exception:
        if isinstance(error, Refused) and error.code in FENCED:
            return Refused(
                ErrorCode.PRODUCER_FENCED,
                f"another process resumed the copy {self.copy.name!r}: give this copy another "
                "name, or let the other process finish it",
            )
        return error


def _record_of(message: FetchedRecord) -> Record:
    return Record(0, message.timestamp, message.key, message.value, message.headers)


def _cursor(span: OffsetSpan) -> Committed:
    return Committed(span.start, metadata=f"{_METADATA_VERSION} {span.end}")
