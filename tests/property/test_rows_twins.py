"""The compiled and the pure row encoder agree, and both agree with the record codec."""

from array import array
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.client.producer.partitioner import partition_for_key
from penstock.wire import _rows_py as pure
from penstock.wire.records import Codec, Column, Record, decode, encode
from penstock.wire.rows import encode_batch

compiled = pytest.importorskip("penstock.wire._rows", reason="no C compiler at install")

CELLS = st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=30)
TIMES = st.integers(-1, 2**41) | st.integers(-(2**63), 2**63 - 1)


def column(cells: list[bytes | None], skipped: int = 0) -> tuple[Any, Any, Any, int]:
    made = pa.array([b"?"] * skipped + cells, pa.binary()).slice(skipped)
    validity, offsets, data = made.buffers()
    return validity, offsets, data or b"", made.offset


def outcome(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except ValueError as error:
        return f"ValueError: {error}"


@given(CELLS, st.integers(0, 9), st.integers(1, 12))
def test_key_partitions_equal_those_of_kafka_clients(
    keys: list[bytes | None], skipped: int, count: int
) -> None:
    given_column = column(keys, skipped)
    found = compiled.key_partitions(given_column, len(keys), count)
    assert found == pure.key_partitions(given_column, len(keys), count)
    assert list(found) == [-1 if k is None else partition_for_key(k, count) for k in keys]


@given(st.lists(st.integers(-1, 5), max_size=30), st.integers(1, 5))
def test_groupings_agree(partitions: list[int], count: int) -> None:
    chosen = array("i", partitions)
    found = outcome(compiled.group_rows, chosen, count)
    assert found == outcome(pure.group_rows, chosen, count)
    if not isinstance(found, str):
        order, starts = found
        assert sorted(order) == list(range(len(partitions)))
        for partition in range(count):
            rows = order[starts[partition] : starts[partition + 1]]
            assert list(rows) == [r for r, p in enumerate(partitions) if p == partition]


@given(CELLS, st.data(), st.integers(60, 600), st.integers(0, 9))
@example([b"x"], None, 60, 0)
def test_encoders_agree(
    values: list[bytes | None], data: Any, bytes_max: int, skipped: int
) -> None:
    count = len(values)
    if data is None:
        rows, times, keys = array("i", [0]), None, None
    else:
        rows = array("i", data.draw(st.lists(st.integers(-1, count), min_size=1, max_size=count)))
        times = data.draw(st.none() | st.lists(TIMES, min_size=count, max_size=count))
        keys = data.draw(st.none() | st.lists(st.none() | st.binary(max_size=9), min_size=count))
    arguments = (
        rows,
        0,
        len(rows),
        None if keys is None else column(keys),
        column(values, skipped),
        None if times is None else array("q", times),
        5,
        61,
        bytes_max,
    )
    assert outcome(compiled.encode_rows, *arguments) == outcome(pure.encode_rows, *arguments)


@given(CELLS, st.sampled_from(list(Codec)))
def test_batch_of_rows_equals_that_of_the_record_codec(
    values: list[bytes | None], codec: Codec
) -> None:
    rows = array("i", range(len(values)))
    times = array("q", [1_000 + 7 * n for n in rows])
    batch, stopped = encode_batch(
        rows,
        0,
        len(rows),
        keys=column(values[::-1]),
        values=column(values),
        timestamps=times,
        timestamp=0,
        bytes_max=1 << 20,
        codec=codec,
        producer_id=7,
        producer_epoch=1,
        base_sequence=3,
        transactional=True,
    )
    assert stopped == len(rows)
    records = [Record(n, times[n], values[-1 - n], values[n]) for n in rows]
    identity: dict[str, Any] = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 3}
    assert batch == encode(records, codec=codec, transactional=True, **identity)
    assert list(decode(memoryview(batch))) == records


def collected(kind: Any, batches: list[tuple[list[Record], int, int]], columns: Column) -> Any:
    collector = kind()
    for records, low, high in batches:
        decoded = decode(memoryview(encode(records)), columns=columns)
        collector.add(
            decoded.payload,
            decoded.offsets,
            decoded.timestamps,
            decoded.key_starts,
            decoded.key_ends,
            decoded.value_starts,
            decoded.value_ends,
            low,
            high,
        )
    return collector.size_bytes, collector.finish()


RECORDS = st.lists(
    st.builds(
        Record,
        timestamp=st.integers(0, 2**40),
        key=st.none() | st.binary(max_size=9),
        value=st.none() | st.binary(max_size=40),
    ),
    min_size=1,
    max_size=20,
)


@given(
    st.lists(st.tuples(RECORDS, st.integers(-1, 20), st.integers(-1, 21)), max_size=5),
    st.integers(0, 15),
)
def test_collectors_agree(batches: list[tuple[list[Record], int, int]], columns: int) -> None:
    wanted = Column(columns)
    found = outcome(collected, compiled.Collector, batches, wanted)
    assert found == outcome(collected, pure.Collector, batches, wanted)
    if isinstance(found, str) or not batches:
        return
    _, (count, _, timestamps, _, (validity, ends, data)) = found
    kept = [record for records, low, high in batches for record in records[low:high]]
    if wanted & Column.TIMESTAMPS:
        assert list(array("q", bytes(timestamps))) == [record.timestamp for record in kept]
    if wanted & Column.VALUES:
        cells = pa.Array.from_buffers(
            pa.binary(),
            count,
            [validity and pa.py_buffer(validity), pa.py_buffer(ends), pa.py_buffer(data)],
        )
        assert cells.to_pylist() == [record.value for record in kept]
