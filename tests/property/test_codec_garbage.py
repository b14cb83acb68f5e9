"""Whatever a peer sends, a reader returns a message or raises PeerError, and allocates little."""

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import PeerError
from penstock.wire.codec import reader, writer
from penstock.wire.request_header import read_request_header
from tests.wire.instances import MESSAGES, make

messages = st.sampled_from(MESSAGES)
PREFIXES_MAX = 400
HOSTILE = [
    b"\xff\xff\xff\xff\x07" * 40,
    b"\x7f" * 200,
    b"\x7f\xff\xff\xff" * 50,
    b"\x80" * 200,
    b"\xff" * 200,
    b"\x01" * 200,
    bytes(200),
]


def encoded(declared: type[Any], version: int, seed: int) -> bytes:
    parts: list[Any] = []
    writer(declared, version)(make(random.Random(seed), declared, version), parts)
    return b"".join(parts)


def read_or_refuse(declared: type[Any], version: int, data: bytes) -> None:
    try:
        _, position = reader(declared, version)(memoryview(data), 0, len(data))
    except PeerError:
        return
    assert 0 <= position <= len(data)


@given(messages, st.binary(max_size=200))
@settings(max_examples=1500, deadline=None)
def test_garbage_is_refused_or_read_within_its_bytes(
    which: tuple[type[Any], int], data: bytes
) -> None:
    read_or_refuse(*which, data)


@given(messages, st.integers(0, 1000), st.data())
@settings(max_examples=1500, deadline=None)
def test_damaged_message_is_refused_or_read_within_its_bytes(
    which: tuple[type[Any], int], seed: int, data: st.DataObject
) -> None:
    damaged = bytearray(encoded(*which, seed))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(damaged)))
        change = data.draw(
            st.sampled_from([b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\x7f"])
        )
        if data.draw(st.booleans()):
            damaged[position:position] = change
        else:
            damaged[position : position + len(change)] = change
    read_or_refuse(*which, bytes(damaged))


@pytest.mark.parametrize("flexible", [False, True])
def test_truncated_message_is_refused(flexible: bool) -> None:
    for declared, version in MESSAGES:
        if declared.WIRE.is_flexible(version) is not flexible:
            continue
        rng = random.Random(version)
        data = encoded(declared, version, seed=version)
        read = reader(declared, version)
        cuts: Any = range(len(data))
        if len(data) > PREFIXES_MAX:
            cuts = sorted(rng.sample(cuts, PREFIXES_MAX))
        for cut in cuts:
            with pytest.raises(PeerError):
                read(memoryview(data[:cut]), 0, cut)
            with pytest.raises(PeerError):
                read(memoryview(data), 0, cut)


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda data: data[:4].hex())
def test_absurd_lengths_allocate_little(hostile: bytes) -> None:
    for declared, version in MESSAGES:
        reader(declared, version)
    tracemalloc.start()
    try:
        for declared, version in MESSAGES:
            for start in range(8):
                read_or_refuse(declared, version, hostile[start:])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 256 * 1024


@given(st.binary(max_size=40))
@settings(max_examples=500, deadline=None)
def test_garbage_header_is_refused_or_read_within_its_bytes(data: bytes) -> None:
    try:
        *_, position = read_request_header(memoryview(data), 0, len(data))
    except PeerError:
        return
    assert position <= len(data)
