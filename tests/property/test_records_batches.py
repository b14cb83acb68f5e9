"""Whole batches: what goes in comes out, and nothing from outside does worse than be refused."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import Refused
from penstock.wire.compression import compress, decompress
from penstock.wire.records import (
    BATCH_OVERHEAD,
    Codec,
    Record,
    batches,
    check_batch,
    check_stored,
    decode,
    encode,
)

MAYBE_BYTES = st.none() | st.binary(max_size=300)
RECORDS = st.lists(
    st.builds(
        Record,
        timestamp=st.integers(-1, 2**45),
        key=MAYBE_BYTES,
        value=MAYBE_BYTES,
        headers=st.lists(st.tuples(st.text(max_size=8), MAYBE_BYTES), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)
CODECS = st.sampled_from(list(Codec))


@given(RECORDS, CODECS, st.integers(0, 2**50))
def test_batch_round_trips(records: list[Record], codec: Codec, base_offset: int) -> None:
    view = memoryview(encode(records, codec=codec, base_offset=base_offset))
    header = check_batch(view)
    assert header == check_stored(view)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert list(decode(view)) == [
        record._replace(offset=base_offset + index) for index, record in enumerate(records)
    ]


@given(RECORDS, CODECS, st.data())
def test_damaged_batch_is_refused_or_decoded(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    """Without the checksum's help: `decode` must hold against anything."""
    content = encode(records, codec=codec)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Refused):
        columns = decode(memoryview(content), bytes_max=1 << 20)
        assert len(list(columns)) == len(columns)
        assert len(columns.payload) <= 1 << 20


@given(st.binary(max_size=400))
def test_garbage_is_refused(content: bytes) -> None:
    view = memoryview(content)
    for check in (check_batch, check_stored, decode, lambda view: list(batches(view))):
        try:
            check(view)
        except Refused:
            continue
        assert check not in (check_batch, check_stored)


@given(st.lists(st.tuples(RECORDS, CODECS), max_size=4), st.integers(0, 2_000))
def test_truncated_buffer_still_yields_its_whole_batches(
    parts: list[tuple[list[Record], Codec]], cut: int
) -> None:
    encoded = [bytes(encode(records, codec=codec)) for records, codec in parts]
    whole = memoryview(b"".join(encoded))
    kept = whole[: max(0, len(whole) - cut)]
    expected, position = [], 0
    for content in encoded:
        if position + len(content) <= len(kept):
            expected.append(position)
        position += len(content)
    assert [at for at, _ in batches(kept)] == expected
    for at, header in batches(kept):
        check_batch(kept[at : at + header.size_bytes])


@given(st.binary(max_size=5_000), CODECS, st.integers(0, 10_000))
def test_decompression_returns_everything_or_refuses(
    content: bytes, codec: Codec, bytes_max: int
) -> None:
    try:
        assert decompress(codec, compress(codec, content), bytes_max) == content
        assert len(content) <= bytes_max
    except Refused:
        assert len(content) > bytes_max


@given(st.binary(max_size=500), st.sampled_from(list(Codec)))
def test_garbage_never_decompresses_past_its_limit(content: bytes, codec: Codec) -> None:
    with contextlib.suppress(Refused):
        assert len(decompress(codec, content, 1_000)) <= 1_000


def test_overhead_is_the_header() -> None:
    assert len(encode([], last_offset=0)) == BATCH_OVERHEAD
