"""Sends dead letters back, or away: each exactly once, in order, whatever crashes.

Letters of one partition go together, some at a time, in one transaction: the copies, an entry for
the record of such errands (`AUDIT`), and in the position of a group of its own which letters these
were. If the transaction counts, all of that does. Only then are the letters finished in the share
group `DEAD_LETTERS`; a redriver that finds such a note first finishes what it names. So a letter is
sent once however often this is interrupted, and the next run goes on where the last one stopped.

Two at a time cannot be: both write under one transactional id, and the later one fences the other.
Letters that arrive after the start are left alone, among them those that die again. Order is that
of the dead letters' partition, and a letter goes back to the partition it came from, so letters of
one key keep theirs. Headers that would have a record expired, delayed or taken for a duplicate are
left out of the copy; two are added that say where it has been.

A dead-lettered message that its target does not take because it is too large, compressed or not,
stays where it is and is reported; all others go. For a record that was as large as it may be, its
headers are too much: the two that say where it has been.

Bounds: `LETTERS_MAX` messages and about `BYTES_MAX` in a transaction, `TOO_LARGE_MAX` that are
left for their size. A note that nobody has acted
on is forgotten with the group's offsets, after `offsets.retention.minutes`.
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
from penstock.client.dead_letters.letter import REDRIVES, DeadLetterFilter, DeadLetterMessage
from penstock.client.dead_letters.open import (
    DEAD_LETTERS,
    cursor_group,
    ends_of,
    note_of,
    noted_in,
    open_letters,
    open_runs,
)
from penstock.client.list_offsets import places_of
from penstock.client.metadata import TopicPartition
from penstock.client.pacing import Pace
from penstock.client.producer.partitioner import partition_for_key
from penstock.client.producer.transaction import FENCED
from penstock.client.producer.transactional import TransactionalWriter, is_passing
from penstock.state.queues import delivery_headers
from penstock.state.queues.intervals import IntervalSet
from penstock.wire.records import BATCH_OVERHEAD, Codec, Record, encode

AUDIT = "__dead_letter_audit"
"""The topic that every errand leaves entries in; kept for a year."""
AUDIT_CONFIGS = {"retention.ms": str(365 * 86_400_000), "cleanup.policy": "delete"}
REDRIVEN_FROM = "penstock-redrive-from"
"""A header: topic, partition and offset of the letter that a record was."""
LETTERS_MAX = 400
LIMIT = "max.message.bytes"
APART_MAX = 1 << 24
"""Letters of one transaction are this close to each other, so that all fit in its note."""
BYTES_MAX = 512 * 1024
TRIES_MAX = 10
TOO_LARGE_MAX = 10_000
RECORD_BYTES = 64
"""More than a record takes beside its key, its value and its headers."""
UNHEEDED = frozenset(
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
"""Headers that were meant for the first time."""
ALL_LETTERS = DeadLetterFilter()


@dataclass(frozen=True, slots=True)
class RedriveRequest:
    """What is to be done with which letters, and on whose behalf."""

    topic: str
    """Of the dead letters."""
    run: str
    """A name of its own for this run, in the record."""
    who: str
    chosen: DeadLetterFilter = ALL_LETTERS
    purges: bool = False
    """Only finishes them: no copies."""
    to: str | None = None
    """Where copies go; None: where each letter came from."""
    keeps_timestamp: bool = False
    """Copies have the time of the record that died, not of now."""
    rate_per_s: float | None = None
    limit: int | None = None
    """At most so many letters."""
    revise: Callable[[DeadLetterMessage], DeadLetterMessage] | None = None
    """Changes letters on their way."""
    check_target: Callable[[str], None] | None = None
    """Refuses topics that this must not write to."""
    charge: Callable[[int], Awaitable[None]] | None = None
    """Called with the bytes of each transaction before it; goes on when it returns."""

    @property
    def action(self) -> str:
        if self.purges:
            return "purge"
        return "redrive" if self.revise is None else "edit"


@dataclass(slots=True)
class RedriveReport:
    settled: int = 0
    """Letters that were redriven, or purged."""
    skipped: int = 0
    """Letters that the log had lost before they were copied: there is nothing to send back."""
    targets: dict[TopicPartition, int] = field(default_factory=dict)
    too_large: dict[str, str] = field(default_factory=dict)
    """Messages that are left because their target does not take them, by id, and why."""


class RedrivenRecord(NamedTuple):
    """A letter that was sent back, and where its copy is."""

    letter: DeadLetterMessage
    target: TopicPartition
    offset: int


class Redriver:
    """One errand."""

    def __init__(
        self,
        cluster: Cluster,
        clock: WallClock,
        errand: RedriveRequest,
        told: Callable[[int], None] = lambda count: None,
        *,
        copied: Callable[[list[RedrivenRecord]], None] = lambda copies: None,
        letters_max: int = LETTERS_MAX,
    ) -> None:
        """After each transaction, `told` is called with the number of letters and `copied` with
        their copies; not for one of which nobody said in time whether it counts."""
        assert 0 < letters_max <= LETTERS_MAX
        self.errand = errand
        self.report = RedriveReport()
        self._cluster = cluster
        self._clock = clock
        self._told = told
        self._copied = copied
        self._letters_max = letters_max
        self._group = cursor_group(errand.topic)
        self._writer = TransactionalWriter(cluster, self._group)
        self._backoff = Backoff(cluster.random, cap_s=2.0)
        self._pace = Pace(errand.rate_per_s)
        self._ends: dict[TopicPartition, int] = {}
        self._limits: dict[str, int | None] = {}
        self._noted: dict[TopicPartition, int] = {}
        """Where the group has a position with a note that was acted on."""
        self._has_begun = False
        self._in_doubt: (
            tuple[TopicPartition, list[DeadLetterMessage], dict[TopicPartition, int]] | None
        ) = None

    async def run(self) -> RedriveReport:
        """Until all letters that were there at the start, and are meant, are settled."""
        await ensure_audit(self._cluster)
        self._ends = await ends_of(self._cluster, await places_of(self._cluster, self.errand.topic))
        await self._persist(self._settle_all)
        await self.end()
        return self.report

    async def settle(self, letters: Iterable[DeadLetterMessage]) -> set[str]:
        """Settles letters that the caller has found; answers the ids of those that are settled.

        A letter that was settled before, by this errand or another, is not sent again. `end` is
        called after the last of these.
        """
        given = sorted(letters, key=lambda letter: (letter.partition, letter.offset))
        settled: set[str] = set()

        async def work() -> None:
            rest = await self._not_settled(given, settled)
            async with aclosing(self._portions(_each(rest))) as portions:
                async for portion in portions:
                    await self._settle(portion)
                    settled.update(one.id for one in portion if one.id not in self.report.too_large)

        await ensure_audit(self._cluster)
        await self._persist(work)
        return settled

    async def end(self) -> None:
        """Nothing more is settled under this errand."""
        if self._has_begun:
            await self._persist(self._forget_notes)

    async def _persist(self, work: Callable[[], Awaitable[None]]) -> None:
        """Does the work, again and again while what it fails of may pass."""
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
                if not is_passing(error) or tries >= TRIES_MAX:
                    raise _explained(error, self.errand.topic) from error
                await self._backoff.wait(tries)

    # -- beginning --------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Takes the place of whoever was at it, and finishes what was decided and not done."""
        await self._writer.begin()
        topic_id = (await self._cluster.topic(self.errand.topic)).topic_id
        kept = await committed_offsets(self._cluster, self._group, is_stable=True)
        for where, committed in kept.items():
            runs = noted_in(committed, topic_id) if where.topic == self.errand.topic else []
            if runs:
                await finish(self._cluster, DEAD_LETTERS, {where: runs})
                self._noted[where] = committed.offset
                self._resolve_doubt(where, runs)
        self._in_doubt = None

    def _resolve_doubt(self, where: TopicPartition, runs: list[tuple[int, int]]) -> None:
        """The last transaction may have counted although nobody said so."""
        if self._in_doubt is None or self._in_doubt[0] != where:
            return
        _, letters, targets = self._in_doubt
        if runs == list(_set_of(letters)):
            self._count(letters, targets)

    async def _forget_notes(self) -> None:
        """What was noted is done: the positions stay, and say nothing any more.

        In a transaction, for somebody may have begun after us: his notes must not be lost.
        """
        if self._noted:
            positions = {where: Committed(offset) for where, offset in self._noted.items()}
            await self._writer.write({}, self._group, positions)

    # -- going through ----------------------------------------------------------------------

    async def _settle_all(self) -> None:
        errand = self.errand
        self.report.skipped = 0
        found = open_letters(self._cluster, errand.topic, errand.chosen, ends=self._ends)
        async with aclosing(found) as letters, aclosing(self._portions(letters)) as portions:
            async for portion in portions:
                await self._settle(portion)

    async def _portions(
        self, letters: AsyncIterator[DeadLetterMessage]
    ) -> AsyncGenerator[list[DeadLetterMessage], None]:
        """Letters that go together, each portion once the one before it is settled."""
        errand = self.errand
        gathered: list[DeadLetterMessage] = []
        size = 0
        async for letter in letters:
            if letter.id in self.report.too_large:
                continue
            if not errand.purges and is_hollow(letter) and errand.revise is None:
                self.report.skipped += 1
                continue
            is_other = gathered and gathered[0].partition != letter.partition
            is_large = size + letter.size_bytes > BYTES_MAX
            if is_other or is_large or not self._fits(gathered, letter):
                if gathered:
                    yield gathered
                gathered, size = [], 0
            if self._is_enough(len(gathered)):
                break
            gathered.append(letter)
            size += letter.size_bytes
        if gathered:
            yield gathered

    async def _not_settled(
        self, letters: Sequence[DeadLetterMessage], settled: set[str]
    ) -> list[DeadLetterMessage]:
        """Those that are open; what was settled before is added to `settled`.

        One that no reader of committed records sees yet is neither.
        """
        if not letters:
            return []
        ids = frozenset((letter.partition, letter.offset) for letter in letters)
        places = {TopicPartition(self.errand.topic, partition) for partition, _ in ids}
        ends = await ends_of(self._cluster, places)
        found: dict[int, IntervalSet] = {}
        chosen = DeadLetterFilter(ids=ids)
        async with aclosing(
            open_runs(self._cluster, self.errand.topic, chosen, ends=ends)
        ) as still_open:
            async for where, offsets in still_open:
                found[where.partition] = offsets
        rest = [letter for letter in letters if letter.offset in found[letter.partition]]
        for letter in letters:
            is_open = letter.offset in found[letter.partition]
            where = TopicPartition(self.errand.topic, letter.partition)
            if not is_open and letter.offset < ends[where]:
                settled.add(letter.id)
        return rest

    def _is_enough(self, more: int) -> bool:
        limit = self.errand.limit
        return limit is not None and self.report.settled + more >= limit

    def _fits(self, gathered: list[DeadLetterMessage], letter: DeadLetterMessage) -> bool:
        """Whether one more goes into the transaction, and into its note."""
        if not gathered:
            return True
        is_near = letter.offset - gathered[-1].offset < APART_MAX
        return is_near and len(gathered) < min(self._letters_max, self._pace.portion)

    async def _settle(self, letters: list[DeadLetterMessage]) -> None:
        if self.errand.charge is not None:
            await self.errand.charge(sum(letter.size_bytes for letter in letters))
        await self._pace.wait(len(letters))
        await self._send(letters)

    async def _send(self, letters: list[DeadLetterMessage]) -> None:
        """Sends in parts what is too large together; does not send what is too large alone."""
        try:
            await self._write(letters)
        except Refused as refused:
            if refused.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            too_large = self.report.too_large
            if len(letters) == 1 and len(too_large) >= TOO_LARGE_MAX:
                raise
            if not self._writer.is_usable:
                await self._begin()
            if len(letters) == 1:
                too_large[letters[0].id] = refused.message or refused.code.name
                return
            middle = len(letters) // 2
            await self._send(letters[:middle])
            await self._send(letters[middle:])

    async def _write(self, letters: list[DeadLetterMessage]) -> None:
        """One transaction, and what follows from it."""
        errand = self.errand
        where = TopicPartition(errand.topic, letters[0].partition)
        topic_id = (await self._cluster.topic(errand.topic)).topic_id
        offsets = [letter.offset for letter in letters]
        note = note_of(topic_id, offsets)
        assert note is not None, "fewer letters go together"
        batches: dict[TopicPartition, list[Record]] = {}
        sent: list[tuple[DeadLetterMessage, TopicPartition, int]] = []
        for letter in () if errand.purges else letters:
            target = await target_of(self._cluster, letter, errand.to)
            if errand.check_target is not None:
                errand.check_target(target.topic)
            batch = batches.setdefault(target, [])
            sent.append((letter, target, len(batch)))
            batch.append(self._copy_of(letter))
        targets = {target: len(records) for target, records in batches.items()}
        codecs = {}
        for target, records in batches.items():
            codecs[target] = await self._codec_for(target.topic, records)
        batches[TopicPartition(AUDIT, 0)] = [self._entry(where, letters)]
        position = Committed(offsets[-1] + 1, metadata=note)
        self._in_doubt = where, letters, targets
        positions = {where: position}
        placed = await self._writer.write(batches, self._group, positions, codecs=codecs)
        self._noted[where] = position.offset
        self._in_doubt = None
        self._count(letters, targets)
        self._copied([RedrivenRecord(letter, at, placed[at] + index) for letter, at, index in sent])
        await finish(self._cluster, DEAD_LETTERS, {where: list(_set_of(letters))})

    async def _codec_for(self, topic: str, records: list[Record]) -> Codec:
        """Compression that fits a batch to its topic; refuses if none does, before any write."""
        limit = await self._limit_of(topic)
        if limit is None or sum(map(_bytes_max, records)) <= limit - BATCH_OVERHEAD:
            return Codec.NONE
        for codec in (Codec.NONE, Codec.ZSTD):
            size = len(encode(records, codec=codec))
            if size <= limit:
                return codec
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{topic} takes batches of {limit} bytes (max.message.bytes), this has {size}: raise "
            "it, or name another topic",
        )

    async def _limit_of(self, topic: str) -> int | None:
        """The largest batch that a topic takes; None: we may not know."""
        if topic not in self._limits:
            limit = None
            try:
                for entry in await Admin(self._cluster).describe_configs(TOPIC, topic, [LIMIT]):
                    limit = int(entry.value or 0) or None
            except Refused as refused:
                if is_passing(refused):
                    raise
            self._limits[topic] = limit
        return self._limits[topic]

    def _count(self, letters: list[DeadLetterMessage], targets: dict[TopicPartition, int]) -> None:
        self.report.settled += len(letters)
        for target, count in targets.items():
            self.report.targets[target] = self.report.targets.get(target, 0) + count
        self._told(len(letters))

    # -- what is written --------------------------------------------------------------------

    def _copy_of(self, letter: DeadLetterMessage) -> Record:
        revised = letter if self.errand.revise is None else self.errand.revise(letter)
        now_ms = self._clock.now_ms()
        is_kept = self.errand.keeps_timestamp and letter.source_timestamp_ms >= 0
        return copy_of(revised, letter.source_timestamp_ms if is_kept else now_ms)

    def _entry(self, where: TopicPartition, letters: list[DeadLetterMessage]) -> Record:
        errand = self.errand
        entry = {
            "run": errand.run,
            "action": errand.action,
            "who": errand.who,
            "at_ms": self._clock.now_ms(),
            "topic": errand.topic,
            "partition": where.partition,
            "letters": [list(run) for run in _set_of(letters)],
            "count": len(letters),
            "filter": errand.chosen.described(),
            "to": errand.to,
        }
        value = json.dumps(entry, ensure_ascii=False).encode()
        return Record(0, self._clock.now_ms(), errand.topic.encode(), value)


def copy_of(letter: DeadLetterMessage, timestamp_ms: int) -> Record:
    """The record that goes back: as it was, without what was meant for its first time."""
    own = tuple(pair for pair in letter.own_headers if pair[0] not in UNHEEDED)
    come_from = f"{letter.topic}/{letter.partition}/{letter.offset}"
    added = (
        (REDRIVES, str(letter.redrives + 1).encode()),
        (REDRIVEN_FROM, come_from.encode()),
    )
    return Record(0, timestamp_ms, letter.key, letter.payload, own + added)


def is_hollow(letter: DeadLetterMessage) -> bool:
    """The log had lost the record before it could be copied: only its headers are known."""
    has_origin = letter.source is not None and letter.source_timestamp_ms < 0
    return has_origin and letter.key is None and letter.payload is None


async def target_of(cluster: Cluster, letter: DeadLetterMessage, to: str | None) -> TopicPartition:
    """Where a letter goes: back to its own partition, or by its key into another topic."""
    source = letter.source
    if to is None and source is None:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"letter {letter.id} does not say where it came from: name a topic for it",
        )
    name = to if to is not None else source.topic if source is not None else ""
    count = len((await cluster.topic(name)).partitions)
    if source is not None and source.topic == name and source.partition < count:
        return TopicPartition(name, source.partition)
    if letter.key is not None:
        return TopicPartition(name, partition_for_key(letter.key, count))
    return TopicPartition(name, (letter.partition if source is None else source.partition) % count)


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


async def _each(letters: Iterable[DeadLetterMessage]) -> AsyncGenerator[DeadLetterMessage, None]:
    for letter in letters:
        yield letter


def _bytes_max(record: Record) -> int:
    """No less than a record takes in a batch."""
    size = RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    return size + sum(4 * len(name) + len(value or b"") + 10 for name, value in record.headers)


def _set_of(letters: list[DeadLetterMessage]) -> IntervalSet:
    runs = IntervalSet()
    for letter in letters:
        runs.add(letter.offset, letter.offset)
    return runs


def _explained(error: Exception, topic: str) -> Exception:
    if isinstance(error, Refused) and error.code in FENCED:
        return Refused(
            error.code,
            f"somebody else began to redrive or purge {topic} and takes over from here: what was "
            "settled is settled, the rest is theirs",
        )
    return error
