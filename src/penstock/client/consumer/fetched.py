"""What a fetch brought for one partition, and the records in it.

The bytes are the broker's, whole batches and perhaps part of one more. Reading them skips what
lies before the position asked for (a batch is served whole), control batches, and, for readers of
committed records, the batches of aborted transactions (KIP-98). The CRC of every batch is checked
before its content is believed.

A program of its own opens them where it is. A broker that acts as a client shares its loop with
others: there, `opened` has workers do it, but for what is small and not compressed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, ParamSpec, TypeVar

from penstock.base.errors import Refused
from penstock.base.ports import Workers
from penstock.client.consumer.isolation import READ_COMMITTED as READ_COMMITTED
from penstock.client.consumer.isolation import READ_UNCOMMITTED as READ_UNCOMMITTED
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

P = ParamSpec("P")
T = TypeVar("T")

HERE_BYTES_MAX = 16 * 1024
"""What is opened on a loop that others share, if it is not compressed: a millisecond or two."""


class FetchedRecord(NamedTuple):
    """A record with its place."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    is_append_time: bool = False


class Fetched(NamedTuple):
    """One partition's part of a fetch reply, as it came."""

    where: TopicPartition
    offset: int
    """What was asked for; the first batch may begin before it."""
    next_offset: int
    """Where to go on: after the last whole batch, or `offset` if there is none."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: memoryview
    aborted: Sequence[AbortedTransaction]

    def columns(self) -> Iterator[Columns]:
        """The batches decoded column by column, those not to be delivered left out.

        The first may hold records before `offset`.
        """
        for view, _ in self.data_batches():
            yield decode(view)

    def data_batches(self) -> Iterator[tuple[memoryview, bool]]:
        """Each intact batch of data with whether its time is the append time."""
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
                    f"{self.where}: offsets {header.base_offset} to {header.last_offset} are no "
                    f"records ({refused}); read on at offset {header.next_offset}",
                ) from refused
            offsets = columns.offsets
            for index in range(len(columns)):
                if offsets[index] < self.offset:
                    continue
                record = columns.record(index)
                yield FetchedRecord(topic, partition, *record, is_append_time=append_time)


def end_of(records: memoryview, offset: int) -> int:
    """The offset after the last whole batch, or `offset` if none is whole."""
    for _, header in batches(records):
        offset = max(offset, header.next_offset)
    return offset


async def opened(
    workers: Workers | None,
    fetched: Fetched,
    work: Callable[P, T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """What `work` finds in `fetched`: by a worker where there are some and it may take long."""
    records = fetched.records
    if workers is None or (len(records) <= HERE_BYTES_MAX and not is_compressed(records)):
        return work(*args, **kwargs)
    return await workers.run(work, *args, **kwargs)
