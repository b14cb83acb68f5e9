"""The compiled and the pure record codec agree, on valid bytes and on any others."""

from array import array
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.wire import _records_py as pure
from penstock.wire.records import Record

compiled = pytest.importorskip("penstock.wire._records", reason="no C compiler at install")

ALL = 31
INT64 = st.integers(-(2**63), 2**63 - 1)
MAYBE_BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=8), MAYBE_BYTES), max_size=4).map(tuple)
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.integers(0, 2**31 - 1),
        timestamp=st.integers(-1, 2**41) | INT64,
        key=MAYBE_BYTES,
        value=MAYBE_BYTES,
        headers=HEADERS,
    ),
    max_size=20,
)


def outcome(call: Any, *arguments: Any) -> Any:
    """The result, or the error's own words."""
    try:
        return call(*arguments)
    except ValueError as error:
        return f"ValueError: {error}"


def increasing(records: list[Record]) -> list[Record]:
    """The records with distinct offsets in order."""
    ordered = sorted({record.offset: record for record in records}.items())
    return [record for _, record in ordered]


@given(RECORDS, INT64, st.booleans())
def test_encoders_agree(records: list[Record], base_timestamp: int, keep_offsets: bool) -> None:
    arguments = (records, 61, 0, base_timestamp, keep_offsets)
    assert outcome(compiled.encode, *arguments) == outcome(pure.encode, *arguments)


@given(RECORDS, st.integers(0, 2**40), st.integers(0, ALL))
def test_decoders_agree_on_encoded_records(
    records: list[Record], base_offset: int, columns: int
) -> None:
    records = [
        record._replace(offset=base_offset + record.offset, timestamp=record.timestamp >> 1)
        for record in increasing(records)
    ]
    payload = pure.encode(records, 0, base_offset, 0, True)
    arguments = (payload, len(records), base_offset, 2**31 - 1, 0, columns)
    ours = pure.decode(*arguments)
    assert compiled.decode(*arguments) == ours
    for index, column in enumerate(ours):
        wanted = (1, 2, 4, 4, 8, 8, 16, 16)[index]
        assert len(column) == (len(records) if columns & wanted else 0)
    if columns == ALL:
        assert list(ours[0]) == [record.offset for record in records]
        assert list(ours[1]) == [record.timestamp for record in records]
        assert pure.slices(payload, ours[2], ours[3]) == [record.key for record in records]
        assert pure.slices(payload, ours[4], ours[5]) == [record.value for record in records]
        for twin in (pure, compiled):
            assert [
                twin.decode_headers(memoryview(payload), start, count)
                for start, count in zip(ours[6], ours[7], strict=True)
            ] == [record.headers for record in records]


def test_truncated_headers_are_refused_by_both() -> None:
    payload = pure.encode([Record(headers=(("name", b"value"), ("n", None)))], 0, 0, 0, True)
    *_, starts, counts = pure.decode(payload, 1, 0, 2**31 - 1, 0, ALL)
    for end in range(starts[0], len(payload)):
        cut = memoryview(payload)[:end]
        for twin in (pure, compiled):
            assert isinstance(outcome(twin.decode_headers, cut, starts[0], counts[0]), str)
    assert outcome(compiled.decode_headers, memoryview(payload), -1, 1).startswith("ValueError")


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["set", "insert", "delete"]), st.integers(0, 10_000), st.integers(0, 255)
    ),
    min_size=1,
    max_size=4,
)


def edited(payload: bytearray, edits: list[tuple[str, int, int]]) -> bytes:
    content = bytearray(payload)
    for kind, place, byte in edits:
        if not content:
            break
        at = place % len(content)
        if kind == "set":
            content[at] = byte
        elif kind == "insert":
            content.insert(at, byte)
        else:
            del content[at]
    return bytes(content)


@given(RECORDS, EDITS, st.integers(-1, 22), st.integers(-1, 30), INT64)
def test_decoders_agree_on_damaged_records(
    records: list[Record],
    edits: list[tuple[str, int, int]],
    count: int,
    last_delta: int,
    base_timestamp: int,
) -> None:
    small = [record._replace(timestamp=index) for index, record in enumerate(records)]
    damaged = edited(pure.encode(small, 0, 0, 0, False), edits)
    for tried in {count, len(records)}:
        for moment in {0, base_timestamp}:
            arguments = (damaged, tried, 0, max(last_delta, len(records)), moment, ALL)
            assert outcome(compiled.decode, *arguments) == outcome(pure.decode, *arguments)


@example(b"\x16\x00\x00\x80\x80\x80\x80\x80\x00\x01\x01\x00", 1)  # six bytes of a small number
@example(b"\x1e\x00" + b"\x80" * 10 + b"\x00\x00\x01\x01\x00", 1)  # eleven
@example(b"\x14\x00\x00\x80\x80\x80\x80\x10\x01\x01\x00", 1)  # 33 bits
@example(b"\x10\x00\x00\x00\x01\x01\x04\x00\x00", 1)  # two headers in two bytes
@example(b"\x0c\x00\x00\x00\x01\x01\x00" * 2, 2)  # the same offset twice
@given(st.binary(max_size=300), st.integers(-5, 60))
def test_decoders_agree_on_garbage(payload: bytes, count: int) -> None:
    arguments = (payload, count, 0, 100, 0, ALL)
    assert outcome(compiled.decode, *arguments) == outcome(pure.decode, *arguments)


# Bytes near the edges of what a varint may hold, which random bytes rarely are.
VARINTISH = st.lists(
    st.sampled_from([0x00, 0x01, 0x02, 0x0C, 0x0E, 0x0F, 0x10, 0x7F, 0x80, 0x81, 0xFE, 0xFF]),
    max_size=40,
).map(bytes)


@given(VARINTISH, VARINTISH)
def test_decoders_agree_on_boundary_numbers(body: bytes, rest: bytes) -> None:
    framed = bytearray()
    pure._write_varint(framed, len(body))
    for payload in (bytes(framed) + body + rest, bytes(framed) + body):
        for last_delta in (0, 2**31 - 1):
            for moment in (0, 2**63 - 1, -(2**63)):
                arguments = (payload, 1, 0, last_delta, moment, ALL)
                assert outcome(compiled.decode, *arguments) == outcome(pure.decode, *arguments)


SPANS = st.lists(st.tuples(st.integers(-2, 40), st.integers(-2, 40)), max_size=20)


@given(st.binary(max_size=30), SPANS, st.booleans())
def test_slicing_agrees(payload: bytes, spans: list[tuple[int, int]], lengths_differ: bool) -> None:
    starts = array("q", [start for start, _ in spans])
    ends = array("q", [end for _, end in spans] + [0] * lengths_differ)
    assert outcome(compiled.slices, payload, starts, ends) == outcome(
        pure.slices, payload, starts, ends
    )


NAMES = (b"p-at", b"p-in")
TOLD = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(["p-at", "p-in", "p-at", "p-in", "other", "p-", "p-att"]),
            st.sampled_from([b"0", b"12", b"9" * 16, b"007", None, b"", b"9" * 17, b"1x", b"-1"])
            | st.integers(0, 10**16).map(lambda number: str(number).encode()),
        ),
        max_size=3,
    ).map(tuple),
    max_size=6,
)


@given(TOLD, EDITS, st.booleans(), st.integers(-1, 3))
def test_numbers_in_headers_agree(
    rows: list[tuple[tuple[str, bytes | None], ...]],
    edits: list[tuple[str, int, int]],
    is_damaged: bool,
    more: int,
) -> None:
    payload = bytes(pure.encode([Record(0, 1, None, b"", row) for row in rows], 0, 0, 0, False))
    *_, starts, counts = pure.decode(payload, len(rows), 0, 2**31 - 1, 0, ALL)
    if is_damaged:
        payload = edited(bytearray(payload), edits)
        counts.extend([more] * (more > 2))
        starts = array("q", [start + more for start in starts])
    arguments = (memoryview(payload), starts, counts, b"p-", NAMES)
    ours = outcome(pure.header_numbers, *arguments)
    assert outcome(compiled.header_numbers, *arguments) == ours
    if not is_damaged and isinstance(ours, tuple):
        for index, row in enumerate(rows):
            told = {name.encode(): value for name, value in row if name.startswith("p-")}
            for name, column in zip(NAMES, ours, strict=True):
                assert column[index] == int(told.get(name) or b"-1")


def test_header_before_the_payload_is_refused_by_both() -> None:
    for twin in (pure, compiled):
        found = outcome(
            twin.header_numbers, memoryview(b"abc"), array("q", [-1]), array("q", [1]), b"p", NAMES
        )
        assert found == f"ValueError: {pure.TRUNCATED}"
