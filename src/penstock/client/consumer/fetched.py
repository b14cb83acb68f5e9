"""Result of a fetch for one partition, and decoding of its records.

The bytes are the broker's: whole batches and perhaps part of one more. Decoding skips records
before the requested offset (a batch is served whole), control batches, and with read_committed the
batches of aborted transactions (KIP-98). The CRC of every batch is checked before it is decoded.

A client process decodes on its own event loop. A broker that acts as a client must not block its
loop: there, `process_fetched` decodes in workers, except small and uncompressed records.

Isolation levels of Fetch and ListOffsets (KIP-98).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, ParamSpec, TypeVar

from penstock.base.errors import Refused
from penstock.base.ports import Workers
from penstock.client.metadata import TopicPartition
from penstock.wire.control_batches import decode_marker
from penstock.wire.messages.fetch import AbortedTransaction
from penstock.wire.records import (
    Columns,
    batches,
    check_stored,
    decode,
    is_append_time,
    is_compressed,
    is_control,
    is_transactional,
    read_header,
)

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
"""Hides records of open and aborted transactions."""


P = ParamSpec("P")
T = TypeVar("T")

INLINE_BYTES_MAX = 16 * 1024
"""Limits uncompressed bytes that are decoded on a shared event loop: one or two milliseconds."""


class FetchedRecord(NamedTuple):
    """Record with its topic, partition and offset."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    is_append_time: bool = False


class Fetched(NamedTuple):
    """Undecoded part of a fetch reply for one partition."""

    where: TopicPartition
    offset: int
    """Requested offset; the first batch may begin before it."""
    next_offset: int
    """Offset after the last whole batch, or `offset` if there is none."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: memoryview
    aborted: Sequence[AbortedTransaction]

    def columns(self) -> Iterator[Columns]:
        """Yields the decoded columns of each batch to deliver.

        The first one may contain records before `offset`.
        """
        for view, _ in self.data_batches():
            yield decode(view)

    def data_batches(self) -> Iterator[tuple[memoryview, bool]]:
        """Yields each batch to deliver, with True if its timestamps are append times."""
        pending = sorted(self.aborted, key=lambda txn: txn.first_offset, reverse=True)
        skipping: set[int] = set()
        for position, header in batches(self.records):
            if header.next_offset <= self.offset:
                continue
            view = self.records[position : position + header.size_bytes]
            check_stored(view)
            while pending and pending[-1].first_offset <= header.last_offset:
                skipping.add(pending.pop().producer_id)
            if is_control(header.attributes):
                marker = decode_marker(view)
                if marker is not None and not marker.committed:
                    skipping.discard(header.producer_id)
            elif not (is_transactional(header.attributes) and header.producer_id in skipping):
                yield view, is_append_time(header.attributes)

    def messages(self) -> Iterator[FetchedRecord]:
        topic, partition = self.where
        for view, append_time in self.data_batches():
            try:
                columns = decode(view)
            except Refused as refused:
                header = read_header(view)
                raise Refused(
                    refused.code,
                    f"{self.where}: offsets {header.base_offset} to {header.last_offset} cannot be "
                    f"decoded ({refused}); read on at offset {header.next_offset}",
                ) from refused
            offsets = columns.offsets
            for index in range(len(columns)):
                if offsets[index] < self.offset:
                    continue
                record = columns.record(index)
                yield FetchedRecord(topic, partition, *record, is_append_time=append_time)


def next_offset_after(records: memoryview, offset: int) -> int:
    """Returns the offset after the last whole batch, or `offset` if none is whole."""
    for _, header in batches(records):
        offset = max(offset, header.next_offset)
    return offset


async def process_fetched(
    workers: Workers | None,
    fetched: Fetched,
    work: Callable[P, T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Runs `work` on `fetched`, in a worker if there are workers and it may take long."""
    records = fetched.records
    if workers is None or (len(records) <= INLINE_BYTES_MAX and not is_compressed(records)):
        return work(*args, **kwargs)
    return await workers.run(work, *args, **kwargs)
