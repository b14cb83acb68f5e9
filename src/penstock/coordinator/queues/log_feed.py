"""Feeds a queue's machine with the records of its partition, as they are committed.

Records are fed in chunks, from the page cache at once and from the disk through a worker, as long
as the machine has capacity; when it is full, `soon` must be called again once it has some. A batch
with a high compression ratio is decompressed by a worker, too.

Skipped are control batches, batches of aborted transactions where only committed records count,
deleted records, and invalid batches: batches are stored without being decoded, and an invalid one
must not block the queue.
"""

import asyncio
import logging
from collections.abc import Callable

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.base.ports import Workers
from penstock.cluster.replication.partition import Partition
from penstock.log.index_files import AbortedTxn
from penstock.log.read_span import ReadSpan
from penstock.state.queues.delivery import Arrival, Delivery
from penstock.state.queues.delivery_headers import ANY_TIME, Intake, WriteTimes
from penstock.state.queues.delivery_state import Op
from penstock.wire.records import (
    ALL,
    BatchHeader,
    Column,
    Columns,
    batches,
    decode,
    is_control,
    is_transactional,
)

log = logging.getLogger("penstock.queues")

SHOWN = ALL & ~Column.VALUES
HERE_BYTES_MAX = 1 << 20
HERE_RATIO_MAX = 16
"""Decompressed size, as a multiple of the batch's, up to which a batch is decompressed on the loop.
"""
CHUNK_BYTES = 1 << 20
CHUNK_BYTES_TIMED = 256 * 1024
CHUNK_BYTES_MIN = 64 * 1024
"""Chunk size for records that arrive one by one, or with a time each: they take longer on the loop.
"""


class LogFeed:
    """Feed of one partition into one machine. Everything but disk reads is on the loop."""

    def __init__(
        self,
        partition: Partition,
        machine: Delivery,
        intake: Intake,
        workers: Workers,
        *,
        committed_only: bool,
        read_from: int | None,
        now_ms: Callable[[], int],
        keep: Callable[[list[Op]], None],
        shown: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`keep` receives operations of the machine; `shown` is called after each chunk.

        `read_from` is before the queue's start if ids of earlier records must be known.
        """
        self._partition = partition
        self._machine = machine
        self._intake = intake
        self._workers = workers
        self._committed_only = committed_only
        self._position = machine.end if read_from is None else min(read_from, machine.end)
        self._now_ms = now_ms
        self._keep = keep
        self._shown = shown
        self._failed = failed
        self._chunk_bytes = CHUNK_BYTES_MIN
        self._is_due = False
        self._is_over = False
        self._reading: asyncio.Task[None] | None = None

    @property
    def limit(self) -> int:
        """Offset below which records may be fed."""
        partition = self._partition
        return partition.last_stable_offset if self._committed_only else partition.high_watermark

    @property
    def is_behind(self) -> bool:
        """True if there are records to feed, and capacity for them."""
        return self._position < self.limit and not self._is_over and not self._machine.is_full

    def soon(self) -> None:
        """Continues: there may be new records, or capacity for more."""
        if not self._is_due and not self._is_over:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._feed)

    def end(self) -> None:
        self._is_over = True
        if self._reading is not None:
            self._reading.cancel()

    # -- reading ----------------------------------------------------------------------------

    def _feed(self) -> None:
        if self._is_over:
            return
        try:
            span = self._next_span()
            if span is None:
                self._is_due = False
                return
            data = span.read_cached()
            if data is None:
                loop = asyncio.get_running_loop()
                self._reading = loop.create_task(self._read_and_show(span))
            else:
                self._show(data)
        except (Corrupt, OSError, Refused) as error:
            self._failed(error)

    async def _read_and_show(self, span: ReadSpan) -> None:
        try:
            data = await self._workers.run(span.read)
            self._reading = None
            if not self._is_over:
                self._show(data)
        except (Corrupt, OSError, Refused) as error:
            self._reading = None
            self._failed(error)

    def _next_span(self) -> ReadSpan | None:
        machine, files = self._machine, self._partition.log
        if machine.kept.start < files.start_offset:
            self._keep(machine.move_start(files.start_offset))
        self._position = max(self._position, files.start_offset)
        if self._position >= self.limit:
            return None
        if machine.is_full:
            return None
        return files.locate(self._position, self._chunk_bytes, self.limit)

    # -- feeding ----------------------------------------------------------------------------

    def _show(self, data: bytes | bytearray) -> None:
        limit, before = self.limit, self._position
        aborted = self._partition.log.aborted(before, limit) if self._committed_only else []
        view = memoryview(data)
        for position, header in batches(view):
            if header.next_offset > self._position and header.base_offset < limit:
                batch = view[position : position + header.size_bytes]
                if is_control(header.attributes) or _is_aborted(header, aborted):
                    self._pass_over(header.last_offset)
                elif not self._show_batch(batch, header):
                    loop = asyncio.get_running_loop()
                    self._reading = loop.create_task(self._unpack_and_show(bytes(batch), header))
                    return
                self._position = header.next_offset
        self._go_on(before)

    def _go_on(self, before: int) -> None:
        self._is_due = False
        if self._position > before:
            self.soon()
        self._shown()

    def _show_batch(self, batch: memoryview, header: BatchHeader) -> bool:
        """Feeds a batch; False if that would take too long on the loop."""
        bytes_max = max(HERE_BYTES_MAX, HERE_RATIO_MAX * len(batch))
        try:
            columns = decode(batch, bytes_max=bytes_max, columns=SHOWN)
        except Refused as refused:
            if refused.code is ErrorCode.MESSAGE_TOO_LARGE:
                return False
            self._pass_nonsense_over(header, refused)
        else:
            self._arrive(columns, header.last_offset)
        return True

    async def _unpack_and_show(self, batch: bytes, header: BatchHeader) -> None:
        before = self._position
        found: Columns | Refused
        try:
            found = await self._workers.run(_columns, batch)
        except Refused as refused:
            found = refused
        self._reading = None
        if self._is_over:
            return
        if isinstance(found, Columns):
            self._arrive(found, header.last_offset)
        elif found.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            self._failed(found)  # All workers are busy, which is not the batch's fault.
            return
        else:
            self._pass_nonsense_over(header, found)
        self._position = header.next_offset
        self._go_on(before)

    def _pass_nonsense_over(self, header: BatchHeader, why: Refused) -> None:
        """Skips an invalid batch. Its bytes are as sent: the read verified the CRC."""
        where = f"{self._partition.topic}-{self._partition.index}"
        log.warning("%s has no records at %d: %s", where, header.base_offset, why)
        self._pass_over(header.last_offset)

    def _arrive(self, columns: Columns, last: int) -> None:
        machine, intake, header = self._machine, self._intake, columns.header
        if last < machine.end:
            intake.remember(columns)
            return
        if intake.is_plain(columns):
            self._chunk_bytes = CHUNK_BYTES
            self._pass_over(header.base_offset - 1)
            machine.arrive_run(machine.end, last)
            return
        written = self._write_times(header.base_offset)
        due_ms = intake.due_times(columns, written)
        if due_ms is not None:
            self._chunk_bytes = CHUNK_BYTES_TIMED
            self._pass_over(header.base_offset - 1)
            machine.arrive_timed(machine.end, due_ms[machine.end - header.base_offset :])
            self._note_append(header.base_offset, written)
            return
        self._chunk_bytes = CHUNK_BYTES_MIN
        run: list[Arrival] = []
        end = machine.end
        for arrival in intake.arrivals(columns, written):
            offset = arrival if isinstance(arrival, int) else arrival.offset
            if offset < end:
                continue
            if offset > end or isinstance(arrival, int):
                machine.arrive(run)
                run = []
                self._pass_over(offset if isinstance(arrival, int) else offset - 1)
            if not isinstance(arrival, int):
                run.append(arrival)
            end = offset + 1
        machine.arrive(run)
        self._pass_over(last)
        if intake.has_ids and not machine.kept.has_ids:
            self._keep(machine.note_ids())
        self._note_append(header.base_offset, written)

    def _write_times(self, base_offset: int) -> WriteTimes:
        """Returns earliest and latest append time of a batch, as seen here or recorded by another
        leader."""
        now_ms, since_ms = self._now_ms(), ANY_TIME.since_ms
        noted_ms = self._machine.kept.append_times.since(base_offset)
        if noted_ms is not None:
            since_ms = noted_ms
        age_ms_min, age_ms_max = self._partition.age_bounds_ms(base_offset)
        if age_ms_max is not None:
            since_ms = max(since_ms, now_ms - age_ms_max)
        return WriteTimes(since_ms, now_ms - age_ms_min)

    def _note_append(self, base_offset: int, written: WriteTimes) -> None:
        if written.has_corrected:
            self._keep(
                self._machine.note_append(base_offset, min(written.since_ms, self._now_ms()))
            )

    def _pass_over(self, last: int) -> None:
        """Skips all offsets up to `last` that have not arrived."""
        if self._machine.end <= last:
            self._keep(self._machine.pass_over(last))


def _columns(batch: bytes) -> Columns:
    """Decodes a batch. Blocks; runs on a worker."""
    return decode(memoryview(batch), columns=SHOWN)


def _is_aborted(header: BatchHeader, aborted: list[AbortedTxn]) -> bool:
    return is_transactional(header.attributes) and any(
        txn.producer_id == header.producer_id
        and txn.first_offset <= header.base_offset <= txn.last_offset
        for txn in aborted
    )
