"""Reply to a fetch: reads the located data and builds the response.

Small data is read on the event loop from the page cache. Large data is sent as file slices without
reading it. Cold data, and data that this process has not checked yet, is read by a worker first. A
failed read takes its partition offline and is an error in its row.
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.base.deferred import Deferred
from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.base.ids import NO_TOPIC_ID
from penstock.base.metrics import Counter
from penstock.base.ports import Buffer, Slice
from penstock.broker.api.call import Call
from penstock.broker.api.context import FetchContext
from penstock.broker.api.data.fetch_sessions import Followed, TopicKey
from penstock.broker.api.metrics import Traffic
from penstock.broker.api.response_rows import leader_elsewhere, storage_failure
from penstock.log.read_span import ReadSpan
from penstock.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
)
from penstock.wire.records import BATCH_OVERHEAD, age_seconds

if TYPE_CHECKING:
    from penstock.cluster.replication.partition import Partition

BUFFERS = (bytes, bytearray, memoryview)
READ_COMMITTED = 1
LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""Errors with which the reply names the current leader (KIP-951)."""
READS_AT_ONCE = 4
AGES_NOTED_MS = 10
SLICE_BYTES_MIN = 32 * 1024
"""Size from which sendfile of a file slice is cheaper than reading it."""


class ReplySession(Protocol):
    """Fetch session, as far as a reply needs it."""

    id: int

    def served(self, followed: Followed) -> None: ...


class FetchedPartition:
    """Data or error of one partition for this fetch."""

    __slots__ = (
        "code",
        "diverging",
        "followed",
        "name",
        "partition",
        "preferred",
        "span",
        "stable",
    )

    def __init__(self, followed: Followed) -> None:
        self.followed = followed
        self.name = ""
        self.partition: Partition | None = None
        self.span: ReadSpan | None = None
        self.code = ErrorCode.NONE
        self.diverging: tuple[int, int] | None = None
        self.preferred = -1
        """Node that the consumer should read from instead; -1: this one."""
        self.stable = -1


class Reply:
    """Builds the response to one fetch request."""

    __slots__ = (
        "_ctx",
        "_endpoints",
        "_incremental",
        "_listener",
        "_request",
        "_sent",
        "_session",
        "_traffic",
    )

    def __init__(
        self,
        ctx: FetchContext,
        request: FetchRequest,
        session: ReplySession | None,
        incremental: bool,
        sent: Counter,
        listener: str,
        traffic: Traffic | None = None,
    ) -> None:
        """`sent` counts the sent bytes; for a consumer, `traffic` does, too."""
        self._ctx = ctx
        self._listener = listener
        self._sent = sent
        self._traffic = traffic
        self._request = request
        self._session = session
        self._incremental = incremental
        self._endpoints: dict[int, NodeEndpoint] = {}

    def answer(self, founds: list[FetchedPartition]) -> FetchResponse | Awaitable[FetchResponse]:
        """Reads the located data from the page cache, or by workers if it is cold."""
        contents: list[Buffer | Slice] = []
        missing: list[int] = []
        for found in founds:
            content = b"" if found.span is None else self._content(found.span)
            if content is None:
                missing.append(len(contents))
                content = b""
            contents.append(content)
        if missing:
            return Deferred(self._answer_cold, founds, contents, missing)
        return self._response(founds, contents)

    def _content(self, span: ReadSpan) -> Buffer | Slice | None:
        """Returns the data if it needs no wait; None: a worker must read it."""
        try:
            size = span.size
            if size < SLICE_BYTES_MIN:
                return span.read_cached()
            segment = span.segment
            if segment.is_encrypted:
                return self._sealed_content(span)
            part = span.slice()
            if part is None or not segment.file.is_at_hand(span.position, size):
                return None
            return part
        except OSError:
            return None  # The worker gets the same error and handles it.

    def _sealed_content(self, span: ReadSpan) -> Buffer | Slice | None:
        ahead = self._ctx.read_ahead
        opened = ahead.take(span) if span.is_sealed else None
        if opened is not None:
            ahead.follow(span, opened.end)
            return opened.content
        part = span.sealed_slice()
        if part is not None:
            ahead.follow(span, part.end)
        return part

    async def _answer_cold(
        self, founds: list[FetchedPartition], contents: list[Buffer | Slice], missing: list[int]
    ) -> FetchResponse:
        """Reads missing data by workers."""
        spans = [founds[at].span for at in missing]
        if not all(span is None or span.segment.is_encrypted for span in spans):
            self._ctx.metrics.cold_reads.value += 1
        for first in range(0, len(missing), READS_AT_ONCE):
            # Few at a time, since decryption needs CPU time.
            some = missing[first : first + READS_AT_ONCE]
            read = await asyncio.gather(*(self._read(founds[at]) for at in some))
            for at, content in zip(some, read, strict=True):
                contents[at] = content
        return self._response(founds, contents)

    async def _read(self, found: FetchedPartition) -> Buffer | Slice:
        """Reads and checks data by a worker; large data is sent from its file afterwards."""
        span = found.span
        if span is None:
            return b""
        try:
            data = await self._ctx.workers.run(span.read)
        except Refused:
            found.span = None
            return b""  # Too many reads wait for the disk: no data this time.
        except (Corrupt, OSError) as error:
            self.fail(found, error)
            return b""
        if len(data) < SLICE_BYTES_MIN:
            return data
        checked = span.segment.unverified_start
        if span.position < checked < span.end:
            span.end = checked  # Without the partial batch that could not be checked.
            if span.size < SLICE_BYTES_MIN:
                return data[: span.size]
        return span.slice() or data

    def fail(self, found: FetchedPartition, error: Corrupt | OSError) -> None:
        assert found.partition is not None
        found.code = storage_failure(self._ctx, found.partition, error)
        found.span = None

    def _response(
        self, founds: list[FetchedPartition], contents: list[Buffer | Slice]
    ) -> FetchResponse:
        topics: dict[TopicKey, list[FetchPartitionData]] = {}
        session, traffic = self._session, self._traffic
        sent, records = 0, 0.0
        for found, content in zip(founds, contents, strict=True):
            followed = found.followed
            size = len(content)
            row = self._row(found, content, size)
            if row.error_code:
                size = 0
                self._ctx.metrics.count_error("Fetch", row.error_code)
            if session is not None:
                news = (
                    size
                    or row.error_code
                    or found.diverging is not None
                    or found.preferred >= 0
                    or row.high_watermark != followed.high_watermark_sent
                    or row.log_start_offset != followed.start_offset_sent
                )
                followed.high_watermark_sent = row.high_watermark
                followed.start_offset_sent = row.log_start_offset
                if size:
                    session.served(followed)
                if self._incremental and not news:
                    continue
            if size:
                sent += size
                if traffic is not None:
                    assert found.partition is not None
                    if not records:
                        self._note_age(found, content)
                    out, count = traffic[found.partition.topic], _records(found, size)
                    out.bytes_out += size
                    out.records_out += count
                    records += count
            rows = topics.get(followed.topic)
            if rows is None:
                rows = topics[followed.topic] = []
            rows.append(row)
        self._sent.value += sent
        if records:
            self._ctx.metrics.records_out.value += records
        return FetchResponse(
            node_endpoints=tuple(self._endpoints.values()),
            session_id=session.id if session is not None else 0,
            responses=[
                FetchableTopicResponse(key, NO_TOPIC_ID, rows)
                if isinstance(key, str)
                else FetchableTopicResponse("", key, rows)
                for key, rows in topics.items()
            ],
        )

    def _note_age(self, found: FetchedPartition, content: Buffer | Slice) -> None:
        """Observes the age of the sent data, from the header of its first batch.

        A file slice must be read for that, so it is done at most every `AGES_NOTED_MS`: a consumer
        that catches up fetches a thousand times per second.
        """
        metrics, now_ms = self._ctx.metrics, self._ctx.clock.now_ms()
        head: Buffer | None
        if isinstance(content, BUFFERS):
            head = content
        elif 0 <= now_ms - metrics.age_noted_ms < AGES_NOTED_MS:
            return
        else:
            assert found.span is not None
            metrics.age_noted_ms = now_ms
            head = found.span.segment.file.read_cached(found.span.position, BATCH_OVERHEAD)
        if head is not None and len(head) >= BATCH_OVERHEAD:
            metrics.age_at_fetch.observe(age_seconds(head, now_ms))

    def _row(
        self, found: FetchedPartition, content: Buffer | Slice, size: int
    ) -> FetchPartitionData:
        followed = found.followed
        partition = found.partition
        is_committed = self._request.isolation_level == READ_COMMITTED
        aborted = self._aborted(found) if size and is_committed else None
        if found.code is not ErrorCode.NONE or partition is None:
            row = FetchPartitionData(followed.index, found.code, -1, -1, -1, None, -1, b"")
            if found.code in LEADER_ERRORS:
                self._show_leader(found, row)
            return row
        row = FetchPartitionData(
            followed.index,
            0,
            partition.high_watermark,
            found.stable,
            partition.log.start_offset,
            aborted,
            found.preferred,
            content,
        )
        if found.diverging is not None:
            row.diverging_epoch = FetchEpochEndOffset(
                epoch=found.diverging[0], end_offset=found.diverging[1]
            )
        return row

    def _show_leader(self, found: FetchedPartition, row: FetchPartitionData) -> None:
        """Names the leader of another node's partition, which saves a Metadata request."""
        row.current_leader = leader_elsewhere(
            self._ctx, found.name, found.followed.index, self._listener, self._endpoints
        )

    def _aborted(self, found: FetchedPartition) -> list[AbortedTransaction] | None:
        """Returns the aborted transactions that a read_committed consumer must skip in the data."""
        assert found.partition is not None
        assert found.span is not None
        log, segment = found.partition.log, found.span.segment
        if segment.aborted == [] and segment is log.segments.active:
            return []
        end_offset = log.segments.end_of(segment, log.end_offset)
        try:
            return [
                AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
                for txn in log.aborted(found.followed.offset, min(found.stable, end_offset))
            ]
        except Refused as refused:
            found.code = refused.code
        except (Corrupt, OSError) as error:
            self.fail(found, error)
        return None


def _records(found: FetchedPartition, size: int) -> float:
    """Number of records sent: exact up to the end of a segment, otherwise by share of bytes."""
    span, partition = found.span, found.partition
    assert span is not None
    assert partition is not None
    segment, log = span.segment, partition.log
    segments = log.segments
    is_last = segment is segments.active
    end_offset = log.end_offset if is_last else segments.end_of(segment, log.end_offset)
    if span.end >= segment.size:
        return max(0, end_offset - found.followed.offset)
    return size * (end_offset - segment.base_offset) / segment.size


def reply_with(call: Call, answer: FetchResponse | Awaitable[FetchResponse]) -> None:
    """Replies now or when the answer is ready; an abandoned call cancels the answer."""
    if isinstance(answer, FetchResponse):
        call.reply(answer)
        return

    async def reply_later(later: Awaitable[FetchResponse]) -> None:
        response = await later
        if not call.is_done:
            call.reply(response)

    task = asyncio.get_running_loop().create_task(reply_later(answer))
    call.when_abandoned(lambda: _cancel(task))


def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
