"""Encodes Spark's rows as record batches of their partitions.

Columns are those of Spark's Kafka sink: value, and optionally key, headers, topic, partition, and
with includeTimestamp timestamp. Keys are partitioned as in every Kafka client; rows without key are
distributed round-robin in runs. Rows without headers are encoded without an object per row.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.client.metadata import TopicPartition
from penstock.client.producer.identity import ProducerIdentity
from penstock.spark.option_values import OptionError
from penstock.spark.settings import HEADERS, WriteSettings
from penstock.wire.records import Record, encode
from penstock.wire.rows import Column, encode_batch, group_rows, key_partitions

_RECORD_OVERHEAD = 32


@dataclass(slots=True)
class PartitionBatch:
    """Encoded record batch of one partition."""

    where: TopicPartition
    sequence: int
    count: int
    data: bytearray
    ordinal: int
    """Number of this batch among all batches of the task, in order."""


class RowBatches:
    """Splits Arrow batches into partition batches; owns sequence numbers and round-robin state."""

    def __init__(
        self,
        settings: WriteSettings,
        identity: ProducerIdentity,
        *,
        is_transactional: bool,
        partition_count: Callable[[str], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._is_transactional = is_transactional
        self._partition_count = partition_count
        self._now_ms = now_ms
        self._sequences: dict[TopicPartition, int] = {}
        self._ordinal = 0
        self._round_robin: dict[str, int] = {}

    def partition_batches(self, batch: Any) -> Iterator[PartitionBatch]:
        """Record batches of all partitions of the rows in this Arrow batch."""
        if self._settings.topic is not None:
            yield from self._batches_of_topic(self._settings.topic, batch)
            return
        import pyarrow.compute as pc

        topics = batch.column("topic")
        if topics.null_count:
            raise OptionError("a row has no topic: fill the column 'topic' or set option 'topic'")
        for topic in pc.unique(topics).sort().to_pylist():
            yield from self._batches_of_topic(topic, batch.filter(pc.equal(topics, topic)))

    def _batches_of_topic(self, topic: str, batch: Any) -> Iterator[PartitionBatch]:
        count = self._partition_count(topic)
        columns = {name: batch.column(name) for name in batch.schema.names}
        keys = None if "key" not in columns else _binary(columns["key"])
        chosen = self._choose_partitions(
            topic, count, batch.num_rows, keys, columns.get("partition")
        )
        order, starts = group_rows(chosen, count)
        headers = columns.get(HEADERS)
        has_headers = headers is not None and headers.null_count < len(headers)
        make = self._with_headers if has_headers else self._plain
        for index in range(count):
            if starts[index] < starts[index + 1]:
                rows = order[starts[index] : starts[index + 1]]
                yield from make(TopicPartition(topic, index), rows, keys, columns)

    def _choose_partitions(
        self, topic: str, count: int, row_count: int, keys: Column | None, given: Any
    ) -> "array[int]":
        """Partition of every row: by its column, else by its key, else round-robin."""
        if keys is None:
            chosen = array("i", [-1]) * row_count
        else:
            chosen = key_partitions(keys, row_count, count)
        if given is not None and given.null_count < row_count:
            for row, partition in enumerate(given.to_pylist()):
                if partition is None:
                    continue
                if not 0 <= partition < count:
                    raise OptionError(
                        f"invalid partition {partition} of a row: topic {topic!r} has {count} "
                        f"partitions, 0-{count - 1}"
                    )
                chosen[row] = partition
        loose = chosen.count(-1)
        if loose:
            turn = self._round_robin.get(topic, 0)
            self._round_robin[topic] = turn + 1
            # Runs of rows, so that each partition gets one batch.
            run = -(-loose // count)
            if loose == row_count:
                runs = [array("i", [(turn + n) % count]) * run for n in range(count)]
                chosen = array("i")
                for piece in runs:
                    chosen.extend(piece[: row_count - len(chosen)])
            else:
                seen = 0
                for row, partition in enumerate(chosen):
                    if partition < 0:
                        chosen[row] = (turn + seen // run) % count
                        seen += 1
        return chosen

    def _plain(
        self,
        where: TopicPartition,
        rows: "array[int]",
        keys: Column | None,
        columns: Mapping[str, Any],
    ) -> Iterator[PartitionBatch]:
        values = _binary(columns["value"])
        times = self._times(columns)
        now_ms = self._now_ms()
        first = 0
        while first < len(rows):
            sequence = self._sequences.get(where, 0)
            batch, stopped = encode_batch(
                rows,
                first,
                len(rows),
                keys=keys,
                values=values,
                timestamps=times,
                timestamp=now_ms,
                bytes_max=self._settings.batch_bytes,
                codec=self._settings.codec,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.producer_epoch,
                base_sequence=sequence,
                transactional=self._is_transactional,
            )
            yield self._finish_batch(where, sequence, stopped - first, batch)
            first = stopped

    def _with_headers(
        self,
        where: TopicPartition,
        rows: "array[int]",
        keys: Column | None,
        columns: Mapping[str, Any],
    ) -> Iterator[PartitionBatch]:
        del keys
        taken = pa.array(rows, pa.int32())
        found_keys = columns["key"].take(taken).to_pylist() if "key" in columns else None
        values = columns["value"].take(taken).to_pylist()
        headers = columns[HEADERS].take(taken).to_pylist()
        times = self._times(columns)
        now_ms = self._now_ms()
        records: list[Record] = []
        size = 0
        for index, row in enumerate(rows):
            record = Record(
                0,
                now_ms if times is None else times[row],
                _bytes(found_keys[index]) if found_keys is not None else None,
                _bytes(values[index]),
                tuple((pair["key"], pair["value"]) for pair in headers[index] or ()),
            )
            records.append(record)
            size += _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
            size += sum(len(name) * 4 + len(content or b"") for name, content in record.headers)
            if size >= self._settings.batch_bytes:
                yield self._encoded(where, records)
                records, size = [], 0
        if records:
            yield self._encoded(where, records)

    def _encoded(self, where: TopicPartition, records: list[Record]) -> PartitionBatch:
        sequence = self._sequences.get(where, 0)
        batch = encode(
            records,
            codec=self._settings.codec,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=sequence,
            transactional=self._is_transactional,
        )
        return self._finish_batch(where, sequence, len(records), batch)

    def _finish_batch(
        self, where: TopicPartition, sequence: int, count: int, batch: bytearray
    ) -> PartitionBatch:
        self._sequences[where] = (sequence + count) & 0x7FFFFFFF
        self._ordinal += 1
        return PartitionBatch(where, sequence, count, batch, self._ordinal)

    def _times(self, columns: Mapping[str, Any]) -> "array[int] | None":
        if not self._settings.keeps_timestamp:
            return None
        moments = columns["timestamp"].cast(pa.timestamp("ms", tz="UTC"), safe=False)
        now = pa.scalar(self._now_ms(), pa.int64())
        numbers = moments.cast(pa.int64()).fill_null(now)
        return array("q", numbers.to_pylist())


def _binary(column: Any) -> Column:
    """Buffers of a column; text as UTF-8."""
    if not pa.types.is_binary(column.type) and not pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    validity, offsets, data = column.buffers()
    if offsets is None:
        offsets = b"\0\0\0\0"
    return validity if column.null_count else None, offsets, data or b"", column.offset


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
