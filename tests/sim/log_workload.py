"""A random life of one log on a simulated disk, with the power cut at every operation.

The real `Log` and `Flusher` run on `SimLoop` and `SimDisk`. The seed decides what is asked of
the log: appends of several idempotent producers and of one that is not, retries, waiting for the
acknowledgement or not, rolls, DeleteRecords, retention, new leader epochs, cuts, clean restarts.

At each operation of the disk the power is cut on a copy: the log is opened there and checked
against the history, sometimes after a second cut in the middle of that recovery, sometimes once
more after it. At the end of a life the power is really cut, or only the process killed, which
leaves unsynced bytes in the page cache; the next life goes on from there.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.log.cleanup import retention
from penstock.log.config import LogConfig
from penstock.log.flusher import Flusher
from penstock.log.log import CleanState, Log
from penstock.security.keyring import Keyring
from penstock.wire.records import Record, check_batch, encode, stamp
from simulation.clock import EPOCH_MS, SimClock
from simulation.disk import Fault, PowerCut, SimDisk
from simulation.loop import SimLoop
from simulation.workers import SimWorkers
from tests.sim.log_history import History, Violation, Written, read_all

PATH = "data/topic-0"
LIVES = 3
STEPS = 45
CONFIG = LogConfig(
    segment_bytes=6_000,
    index_interval_bytes=500,
    retention_bytes=30_000,
    retention_ms=-1,
    file_delete_delay_ms=50,
)


@dataclass(slots=True)
class Producer:
    producer_id: int
    sequence: int = 0
    last: bytes = b""


@dataclass(slots=True)
class Options:
    """Options that vary between tests, and parts that a planted bug replaces."""

    cut_every_operation: bool = True
    faults: Callable[[random.Random], list[Fault]] | None = None
    make_disk: Callable[[int], SimDisk] = lambda seed: SimDisk(seed, journaled=bool(seed % 2))
    make_flusher: Callable[..., Flusher] = Flusher
    config: LogConfig = field(default_factory=lambda: CONFIG)
    keyring: Keyring | None = None


@dataclass(slots=True)
class Tally:
    cuts: int = 0
    operations: int = 0
    batches: int = 0
    acknowledged: int = 0
    faults: int = 0
    trace: str = ""

    def add(self, other: "Tally") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Life:
    """One process: from opening the log to the end of its power."""

    def __init__(self, seed: int, number: int, disk: SimDisk, history: History, options: Options):
        self.seed = seed
        self.number = number
        self.disk = disk
        self.history = history
        self.options = options
        self.rng = random.Random(f"{seed}/{number}")
        self.results = Tally()
        self.log: Log | None = None
        self.violation: Violation | None = None
        self.now_ms = EPOCH_MS + number * 3_600_000
        self._epoch = number * 10
        self._removals: list[retention.Removal] = []
        self._producers = [Producer(-1)]
        self._failed: list[OSError] = []

    async def live(self) -> None:
        self.clock = SimClock(asyncio.get_running_loop(), epoch_ms=self.now_ms)
        self.workers = SimWorkers(self.seed, delay_s=(0.0001, 0.01))
        operations = self.disk.operations
        self.disk.on_operation = self.cut if self.options.cut_every_operation else None
        if self.options.faults is not None:
            for fault in self.options.faults(self.rng):
                self.disk.inject(fault)
        try:
            await self._open()
            for _ in range(STEPS):
                await self._step()
                if self.violation is not None:
                    break
                if self._failed or (self.log is not None and self.log.offline is not None):
                    self._expect_refusals()
                    break
        except OSError:
            if self.options.faults is None:
                raise
            self.results.faults += 1
        finally:
            self.disk.on_operation = None
            self.disk.heal()
            self.results.operations = self.disk.operations - operations
            self.results.acknowledged = self.history.acknowledged
            if self.violation is not None:
                raise self.violation

    # Steps.

    async def _open(self) -> None:
        self.disk.mkdir("data")
        self.disk.sync_dir("")
        log = self.log = self._open_log(self.disk)
        self._start(log)
        found = self.history.check(log, self.history.start_max)
        self.history.written = found
        self.history.acknowledged = log.end_offset
        self.history.cut_from = None
        fresh = self.number * 100
        self._producers += [Producer(fresh + 1), Producer(fresh + 2), Producer(fresh + 3)]

    def _open_log(self, disk: SimDisk, clean: CleanState | None = None) -> Log:
        config, keyring = self.options.config, self.options.keyring
        return Log.open(disk, PATH, config, self.clock.now_ms(), clean, keyring)

    def _start(self, log: Log) -> None:
        self.flusher = self.options.make_flusher(self.disk, self.workers, self._failed.append)
        log.on_durable = self._on_durable

    def _on_durable(self) -> None:
        assert self.log is not None
        self.history.acknowledged = self.log.durable_offset

    async def _step(self) -> None:
        assert self.log is not None
        choice = self.rng.random()
        if choice < 0.62:
            self._append(self.log)
        elif choice < 0.70:
            self._retry(self.log)
        elif choice < 0.80:
            await self._settle(self.log)
        elif choice < 0.86:
            await asyncio.sleep(self.rng.uniform(0, 0.01))
        elif choice < 0.89:
            self._delete(self.log)
        elif choice < 0.93:
            await self._retain(self.log)
        elif choice < 0.95:
            self._epoch += 1
        elif choice < 0.97:
            await self._truncate(self.log)
        else:
            await self._restart(self.log)

    def _append(self, log: Log) -> None:
        rng = self.rng
        producer = rng.choice(self._producers)
        now_ms = self.clock.now_ms()
        size = rng.choice((10, 100, 400, 1500, 3000))
        records = [
            Record(0, now_ms, b"key", rng.randbytes(rng.randint(1, size)), ())
            for _ in range(rng.randint(1, 4))
        ]
        idempotent = producer.producer_id >= 0
        request = bytes(
            encode(
                records,
                producer_id=producer.producer_id,
                producer_epoch=0 if idempotent else -1,
                base_sequence=producer.sequence if idempotent else -1,
            )
        )
        if self._send(log, producer.producer_id, request, now_ms):
            producer.sequence += len(records)
            producer.last = request

    def _send(self, log: Log, producer_id: int, request: bytes, now_ms: int) -> bool:
        view = memoryview(bytearray(request))
        header = check_batch(view)
        stamped = bytearray(request)
        stamp(stamped, log.end_offset, self._epoch)
        batch = Written(
            log.end_offset,
            log.end_offset + header.last_offset_delta,
            bytes(stamped),
            request,
            producer_id,
            self._epoch,
        )
        self.history.written.append(batch)
        try:
            appended = log.append(view, header, self._epoch, now_ms)
        except OSError:
            if self.options.faults is None:
                raise
            self.results.faults += 1
            self.history.written.pop()
            self._expect_intact(log)
            return False
        assert (appended.base_offset, appended.last_offset) == (
            batch.base_offset,
            batch.last_offset,
        ), (appended, batch)
        self.results.batches += 1
        self.flusher.mark(log)
        return True

    def _retry(self, log: Log) -> None:
        producer = self.rng.choice(self._producers)
        if producer.producer_id < 0 or not producer.last:
            return
        view = memoryview(bytearray(producer.last))
        appended = log.append(view, check_batch(view), self._epoch, self.clock.now_ms())
        if not appended.duplicate:
            raise Violation(f"forgetful: a retry gave {appended}")

    async def _settle(self, log: Log) -> None:
        start_offset = log.start_offset
        self.flusher.mark(log)
        await self.flusher.drain()
        if log.offline is None and not self._failed and not log.is_dirty:
            self.history.start_acknowledged = start_offset

    def _delete(self, log: Log) -> None:
        offset = self.rng.randint(log.start_offset, log.durable_offset)
        self.history.start_max = max(self.history.start_max, offset)
        log.delete_before(offset)

    async def _retain(self, log: Log) -> None:
        now_ms = self.clock.now_ms()
        self._removals += log.retain(now_ms, log.durable_offset)
        self.flusher.mark(log)
        self._removals = await self.workers.run(retention.purge, self.disk, self._removals, now_ms)

    async def _truncate(self, log: Log) -> None:
        """As a follower does. What was acknowledged above the cut was not committed."""
        await self._settle(log)
        tail = self.history.written[-3:]
        if log.offline is not None or not tail or tail[0].base_offset < log.start_offset:
            return
        offset = self.rng.choice(tail).base_offset
        self.history.cut_from = offset
        log.truncate_to(offset, self.clock.now_ms())
        kept = [batch for batch in self.history.written if batch.last_offset < offset]
        self.history.written = kept
        self.history.acknowledged = log.durable_offset
        self.history.cut_from = None
        # Their sequences went with the cut: these producers are not heard of again.
        self._producers = [Producer(-1)] + [
            Producer(producer.producer_id + 10) for producer in self._producers[1:]
        ]

    async def _restart(self, log: Log) -> None:
        await self._settle(log)
        if log.offline is not None:
            return
        clean = log.close()
        if self.rng.random() < 0.3:
            clean = None
        self.log = log = self._open_log(self.disk, clean)
        self._start(log)
        self.history.check(log, log.start_offset)
        self._removals = []

    def _expect_intact(self, log: Log) -> None:
        """After a failed append everything before it is served, unless the log gave up."""
        if log.offline is None and self.history.written:
            last = self.history.written[-1]
            if read_all(log)[-1:] != [(last.base_offset, last.data)]:
                raise Violation(f"lost: {last.base_offset}, after a failed append")

    def _expect_refusals(self) -> None:
        """After a failed sync nothing may be written or acknowledged."""
        self.results.faults += 1
        assert self.log is not None
        acknowledged = self.history.acknowledged
        view = memoryview(encode([Record(0, 0, None, b"late", ())]))
        try:
            self.log.append(view, check_batch(view), self._epoch, self.clock.now_ms())
        except Refused as refusal:
            code = refusal.code
        else:
            raise Violation("invented: an append after a failed sync")
        assert code is ErrorCode.KAFKA_STORAGE_ERROR
        assert self.log.durable_offset <= acknowledged

    # Power cuts.

    def cut(self) -> None:
        """Called at each operation: what would be left if it were the last?"""
        if self.violation is not None:
            return
        point = self.disk.operations
        try:
            self._check_cut(random.Random(f"{self.seed}/{self.number}/{point}"))
        except Violation as violation:
            # Not raised here: the log's own code is on the stack, and might handle it.
            self.violation = Violation(f"{violation} [life {self.number}, cut at {point}]")

    def _check_cut(self, rng: random.Random) -> None:
        self.results.cuts += 1
        state = rng.getstate()
        after = self.disk.crashed(rng)
        log, found = self._reopen(after)
        more = rng.random()
        if more < 0.25:
            again, found_again = self._reopen(after.crashed(rng))
            if (again.start_offset, found_again) < (log.start_offset, found):
                raise Violation(f"lost: what recovery served up to {log.end_offset}")
            self.results.cuts += 1
        elif more < 0.5:
            rng.setstate(state)
            twice = self.disk.crashed(rng)
            twice.crash_after(rng.randint(1, max(after.operations, 1)))
            try:
                self._reopen(twice)
            except PowerCut:
                twice.crash(rng)
                self._reopen(twice)
            self.results.cuts += 1
        elif more < 0.75:
            self.history.check_retries(log, found, self.clock.now_ms())
        else:
            # It goes on: what it seals now must not be sealed as anything before was.
            view = memoryview(encode([Record(0, 0, None, b"after the cut", ())]))
            log.append(view, check_batch(view), self._epoch, self.clock.now_ms())

    def _reopen(self, disk: SimDisk) -> tuple[Log, list[Written]]:
        start_max = self.log.start_offset if self.log is not None else self.history.start_max
        log = self._open_log(disk)
        try:
            return log, self.history.check(log, start_max)
        except (Corrupt, Refused) as damage:
            raise Violation(f"damaged: {damage}") from damage


def run_seed(seed: int, options: Options | None = None) -> Tally:
    """Several lives of one log; raises Violation."""
    options = options or Options()
    disk, history, results = options.make_disk(seed), History(), Tally()
    for number in range(LIVES):
        life = Life(seed, number, disk, history, options)
        loop = SimLoop(seed * LIVES + number)
        loop.run(life.live())
        life.results.trace = loop.trace
        results.add(life.results)
        if life.log is not None:
            history.start_max = max(history.start_max, life.log.start_offset)
        end = random.Random(f"{seed}/{number}/end")
        # Else only the process died, and the page cache is still there: after a failed sync it
        # shows bytes that will never reach the disk unless they are written again.
        if end.random() < 0.6:
            disk.crash(end)
    return results
