"""Schedules: messages at the times of a cron expression or of an interval, each time exactly once.

Every worker with a schedule watches it; one transaction for each slot publishes the slot's message
and records the slot as a committed offset of the schedule's own group. A worker first begins
transactions under the schedule's transactional id, which fences every other worker and ends its
open transaction, then reads the recorded slot, and publishes only later slots. So no slot is
published twice, whatever crashes; and none is forgotten while any worker runs, except as the
policy `missed` says (ADR 41).

The worker that published the last slot is first at the next one; others look a moment later. Slots
are those of the worker's wall clock. Bounds: at most `MISSED_MAX` missed slots are published after
an outage.
"""

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol, TypeAlias
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from penstock.app.durations import Duration, ms_of
from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random, WallClock
from penstock.base.retry import Retry
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import Committed, committed_offsets
from penstock.client.metadata import TopicPartition
from penstock.client.producer.partitioner import partition_for_key
from penstock.client.producer.transactional import TransactionalWriter
from penstock.wire.records import Record

Missed: TypeAlias = Literal["latest", "all", "skip"]
MISSED = ("latest", "all", "skip")
MISSED_MAX = 1_000
"""Limits the slots that are published after an outage; earlier ones are dropped."""
LATE_MS = 60_000
"""A slot that is later than this was missed, for `missed="skip"`."""
SCHEDULED_AT = "penstock-scheduled-at"
GROUP_PREFIX = "penstock-schedule."
POLL_S = 30.0
"""Longest sleep: the wall clock may be set meanwhile."""
REFRESH_MS = 86_400_000
"""The record is written again after this time: brokers drop offsets of idle groups after days."""
_STEP_BACK_S = (0.5, 2.5)
_PAUSE_S = (0.2, 5.0)
_EVERY_MS_MIN = 1_000
_MINUTE_MS = 60_000
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_METADATA_VERSION = "v1"

log = logging.getLogger("penstock.worker")


class Slots(Protocol):
    """Times of a schedule, in milliseconds since 1970."""

    def after(self, at_ms: int) -> int:
        """Returns the first slot after a time."""
        ...

    def until(self, at_ms: int) -> int:
        """Returns the last slot at or before a time."""
        ...


@dataclass(frozen=True, slots=True)
class EverySlots:
    """Multiples of an interval since 1970, so that all workers have the same slots."""

    every_ms: int

    def after(self, at_ms: int) -> int:
        return (at_ms // self.every_ms + 1) * self.every_ms

    def until(self, at_ms: int) -> int:
        return at_ms // self.every_ms * self.every_ms


@dataclass(frozen=True, slots=True)
class CronSlots:
    """Slots of a cron expression in a time zone.

    As in Debian's cron, a slot that a change to summer time skips comes right after the change,
    and one in a repeated hour comes once.
    """

    expression: str
    zone: ZoneInfo

    def after(self, at_ms: int) -> int:
        return _ms(next(CronSim(self.expression, self._at(at_ms))))

    def until(self, at_ms: int) -> int:
        # A later minute: the search is for slots before it.
        # The search is for slots before a time, and slots are whole minutes.
        later = self._at(at_ms // _MINUTE_MS * _MINUTE_MS + _MINUTE_MS)
        return _ms(next(CronSim(self.expression, later, reverse=True)))

    def _at(self, at_ms: int) -> datetime:
        return datetime.fromtimestamp(at_ms / 1000, self.zone)


def slots_of(expression: str | None, every: Duration | None, timezone: str) -> Slots:
    """Slots of a cron expression or an interval. Raises ValueError for invalid ones."""
    if (expression is None) == (every is None):
        raise ValueError("pass a cron expression or every=, not both and not neither")
    if every is not None:
        every_ms = ms_of(every)
        if every_ms < _EVERY_MS_MIN:
            raise ValueError(f"every={every!r}: pass one second or more")
        return EverySlots(every_ms)
    assert expression is not None
    try:
        if len(expression.split()) != 5:
            raise CronSimError("it has not five fields")
        slots = CronSlots(expression, ZoneInfo(timezone))
        slots.after(0)
    except CronSimError as error:
        raise ValueError(
            f"{expression!r} is not a cron expression ({error}): write minute, hour, day, month "
            "and weekday, as in '*/5 * * * *'"
        ) from None
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"timezone={timezone!r}: {error}") from None
    except StopIteration:
        raise ValueError(f"{expression!r} never comes: there is no such day") from None
    return slots


def due(slots: Slots, recorded_ms: int, now_ms: int, missed: Missed) -> list[int]:
    """Slots to publish now, in order: those after the recorded one that the policy keeps."""
    last_ms = slots.until(now_ms)
    if last_ms <= recorded_ms:
        return []
    if missed == "latest":
        return [last_ms]
    if missed == "skip":
        return [last_ms] if now_ms - last_ms <= LATE_MS else []
    found: list[int] = []
    at_ms = last_ms
    while at_ms > recorded_ms and len(found) < MISSED_MAX:
        found.append(at_ms)
        at_ms = slots.until(at_ms - 1)
    return found[::-1]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Declaration made by `@worker.cron(...)`."""

    name: str
    topic: str
    slots: Slots
    missed: Missed

    @property
    def group(self) -> str:
        """Group whose committed offset records the last slot; also the transactional id."""
        return GROUP_PREFIX + self.name


class ScheduleRunner:
    """Publishes the slots of one schedule, together with the runners of other workers."""

    def __init__(
        self, cluster: Cluster, clock: WallClock, random: Random, schedule: Schedule
    ) -> None:
        self._schedule = schedule
        self._cluster = cluster
        self._clock = clock
        self._random = random
        self._writer = self._new_writer()
        self._where = TopicPartition(schedule.topic, 0)
        self._retry = Retry(random, *_PAUSE_S)
        self._recorded_ms = -1
        self._written_ms = 0
        self._stopping = asyncio.Event()

    def _new_writer(self) -> TransactionalWriter:
        return TransactionalWriter(self._cluster, self._schedule.group)

    def stop(self) -> None:
        """Ends `run` after the transaction that is under way."""
        self._stopping.set()

    async def run(self) -> None:
        """Publishes until `stop`; waits while brokers are unavailable."""
        while not self._stopping.is_set():
            try:
                await self._publish_due()
                self._retry.succeeded()
                await self._sleep()
            except (Refused, OSError) as error:
                # A writer that was fenced cannot begin again; a new one can.
                self._writer = self._new_writer()
                if isinstance(error, Refused) and error.code in _FENCED:
                    log.info("schedule %s is published by another worker", self._schedule.name)
                    await self._wait(self._random.uniform(*_STEP_BACK_S))
                    continue
                level = logging.WARNING if self._retry.failures >= 3 else logging.INFO
                log.log(level, "schedule %s: retrying: %s", self._schedule.name, error)
                await self._wait(self._retry.next_s())

    async def _sleep(self) -> None:
        now_ms = self._clock.now_ms()
        next_ms = self._schedule.slots.after(max(now_ms, self._recorded_ms))
        pause_s = (next_ms - now_ms) / 1000
        if not self._writer.is_usable:
            pause_s += self._random.uniform(
                *_STEP_BACK_S
            )  # Another worker may be about to publish.
        await self._wait(min(pause_s, POLL_S))

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _publish_due(self) -> None:
        if not self._writer.is_usable:
            await self._read()
            if self._recorded_ms >= 0 and not self._due():
                return
            # From here on every other worker is fenced, and what it wrote is decided.
            await self._writer.begin()
            await self._read()
        if self._recorded_ms < 0:
            # The first worker ever: the schedule begins now.
            await self._write(None, self._clock.now_ms())
        for slot_ms in self._due():
            await self._write(slot_ms, slot_ms)
            if self._stopping.is_set():
                return
        if self._clock.now_ms() - self._written_ms > REFRESH_MS:
            await self._write(None, self._recorded_ms)

    def _due(self) -> list[int]:
        schedule = self._schedule
        return due(schedule.slots, self._recorded_ms, self._clock.now_ms(), schedule.missed)

    async def _read(self) -> None:
        """Reads the recorded slot; waits for a transaction that may change it."""
        found = await committed_offsets(self._cluster, self._schedule.group, is_stable=True)
        recorded_ms = _recorded(found.get(self._where))
        # Without a record, this worker still knows the slots that it saw.
        self._recorded_ms = max(self._recorded_ms, recorded_ms)

    async def _write(self, slot_ms: int | None, recorded_ms: int) -> None:
        """Publishes a slot's message, if there is one, and records it: both or neither."""
        batches = {} if slot_ms is None else {await self._target(): [self._record(slot_ms)]}
        kept = Committed(recorded_ms // 1000, metadata=f"{_METADATA_VERSION} {recorded_ms}")
        await self._writer.write(batches, self._schedule.group, {self._where: kept})
        self._recorded_ms = recorded_ms
        self._written_ms = self._clock.now_ms()

    async def _target(self) -> TopicPartition:
        info = await self._cluster.topic(self._schedule.topic)
        key = self._schedule.name.encode()
        return TopicPartition(self._schedule.topic, partition_for_key(key, len(info.partitions)))

    def _record(self, slot_ms: int) -> Record:
        payload = msgspec.json.encode(datetime.fromtimestamp(slot_ms / 1000, UTC))
        headers = ((SCHEDULED_AT, b"%d" % slot_ms),)
        return Record(0, self._clock.now_ms(), self._schedule.name.encode(), payload, headers)


def _recorded(committed: Committed | None) -> int:
    words = (committed.metadata or "").split() if committed is not None else []
    is_ours = len(words) == 2 and words[0] == _METADATA_VERSION and words[1].isdecimal()
    return int(words[1]) if is_ours else -1


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
