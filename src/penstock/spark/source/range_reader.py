"""Fetches one range of a partition with prefetching, and reports data loss.

While a chunk is decoded, the next one is already requested; its reply waits in the socket. Of
several ranges, the next ones are prefetched meanwhile (`prefetch`), so that small ones share a
round trip. The size of a request is limited by an estimate of the rest of the range, so that
splitting a partition into many tasks does not read it many times.

Brokers may be unavailable for `retry_timeout_ms`; then the task fails. Offsets that the log no
longer has, or not yet has, are data loss: an error, or skipped with a warning.
"""

import asyncio
from collections.abc import Iterator

from penstock.base.errors import ErrorCode, Refused
from penstock.client.cluster import Cluster
from penstock.client.consumer.fetched import Fetched, next_offset_after
from penstock.client.errors import check, code_of, refusal
from penstock.client.list_offsets import EARLIEST, LATEST, list_offsets
from penstock.spark.connection import BlockingClient
from penstock.spark.data_loss import report_loss
from penstock.spark.range_planning import Range
from penstock.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

_WAIT_MS = 500
_REQUEST_BYTES_MIN = 64 << 10
_RECORD_BYTES_ESTIMATE = 1 << 10
"""Estimated size of a record before the first fetch."""


class RangeReader:
    def __init__(
        self,
        client: BlockingClient,
        span: Range,
        *,
        fetch_bytes: int,
        isolation_level: int,
        fails: bool,
    ) -> None:
        self._client = client
        self._span = span
        self._fetch_bytes = fetch_bytes
        self._isolation_level = isolation_level
        self._fails_on_loss = fails
        self._record_bytes = _RECORD_BYTES_ESTIMATE
        self._ahead: asyncio.Task[Fetched | None] | None = None

    def prefetch(self, position: int | None = None) -> None:
        """Requests the first records unless a request is pending. `chunks` awaits them."""
        at = self._span.start if position is None else position
        if self._ahead is None and at < self._span.end:
            self._ahead = self._client.start(self._fetch(at))

    def stop(self) -> None:
        """Cancels the pending request."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and not ahead.cancel() and not ahead.cancelled():
            ahead.exception()  # Marks it as retrieved, so that asyncio does not log it.

    def chunks(self) -> Iterator[Fetched]:
        """Fetched chunks in order; the last one may extend past the end of the range."""
        position = self._span.start
        try:
            while position < self._span.end:
                self.prefetch(position)
                assert self._ahead is not None
                fetched = self._client.finish(self._ahead)
                self._ahead = None
                if fetched is None:
                    return
                self._estimate_record_bytes(fetched)
                position = fetched.next_offset
                self.prefetch(position)
                yield fetched
        finally:
            self.stop()

    def _estimate_record_bytes(self, fetched: Fetched) -> None:
        count = fetched.next_offset - fetched.offset
        self._record_bytes = max(1, len(fetched.records) // max(1, count))

    async def _fetch(self, offset: int) -> Fetched | None:
        """Next records from an offset on; None if the rest of the range is lost."""
        cluster, where = self._client.cluster, self._span.where
        empty_since: float | None = None

        async def attempt() -> Fetched | None:
            node_id = await cluster.leader(where)
            data = await _ask(cluster, self._request(cluster, offset), node_id)
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return await self._skip_lost(offset)
            check(data.error_code, about=str(where))
            return _fetched(self._span, offset, data)

        while True:
            fetched = await cluster.retrying(
                attempt, timeout_ms=self._client.access.retry_timeout_ms, topics={where.topic}
            )
            if fetched is None or fetched.next_offset > offset:
                return fetched
            now = self._client.loop.time()
            if empty_since is None:
                empty_since = now
            if (now - empty_since) * 1000 > self._client.access.retry_timeout_ms:
                # The planner has seen the end of the range, but now the log is shorter.
                report_loss(
                    f"{self._span}: no records after offset {offset}", fails=self._fails_on_loss
                )
                return None

    def _request(self, cluster: Cluster, offset: int) -> FetchRequest:
        info = cluster.known_topic(self._span.topic)
        left = (self._span.end - offset) * self._record_bytes * 5 // 4
        wanted = min(self._fetch_bytes, max(_REQUEST_BYTES_MIN, left))
        row = FetchPartition(
            partition=self._span.partition,
            current_leader_epoch=info.partitions[self._span.partition].leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=wanted,
        )
        topic = FetchTopic(topic=info.name, topic_id=info.topic_id, partitions=[row])
        return FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=wanted,
            isolation_level=self._isolation_level,
            topics=[topic],
        )

    async def _skip_lost(self, offset: int) -> Fetched | None:
        where, cluster = self._span.where, self._client.cluster
        low = (await list_offsets(cluster, {where: EARLIEST}))[where].offset
        high = (await list_offsets(cluster, {where: LATEST}))[where].offset
        report_loss(
            f"{where} has offsets {low} to {high}; missing {offset} to {self._span.end}",
            fails=self._fails_on_loss,
        )
        if not offset < low < self._span.end:
            return None
        nothing = memoryview(b"")
        return Fetched(where, offset, low, high, high, low, nothing, ())


async def _ask(cluster: Cluster, request: FetchRequest, node_id: int) -> FetchPartitionData:
    timeout_ms = cluster.config.request_timeout_ms + _WAIT_MS
    reply = await cluster.call(request, FetchResponse, node_id=node_id, timeout_ms=timeout_ms)
    if reply.error_code:
        raise refusal(reply.error_code, about="fetch")
    for topic in reply.responses:
        for data in topic.partitions:
            return data
    raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "the fetch response lacks the partition")


def _fetched(span: Range, offset: int, data: FetchPartitionData) -> Fetched:
    assert code_of(data.error_code) is ErrorCode.NONE
    records = data.records
    assert records is None or isinstance(records, memoryview)
    view = records if records is not None else memoryview(b"")
    return Fetched(
        where=span.where,
        offset=offset,
        next_offset=next_offset_after(view, offset),
        high_watermark=data.high_watermark,
        last_stable_offset=data.last_stable_offset,
        log_start_offset=data.log_start_offset,
        records=view,
        aborted=data.aborted_transactions or (),
    )
