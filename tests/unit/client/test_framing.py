"""Frames come out whole, however the stream is cut, and lengths are checked before believed."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import PeerError
from penstock.client.framing import FrameCutter


def feed(cutter: FrameCutter, data: bytes) -> list[bytes]:
    frames = []
    while data:
        space = cutter.space()
        assert len(space) > 0
        count = min(len(space), len(data))
        space[:count] = data[:count]
        frames += [bytes(frame) for frame in cutter.received(count)]
        data = data[count:]
    return frames


def frame(size: int, fill: int) -> bytes:
    return struct.pack(">i", size) + bytes([fill % 256]) * size


@given(
    st.lists(st.integers(1, 200_000), min_size=1, max_size=6),
    st.lists(st.integers(1, 70_000), min_size=1, max_size=8),
)
def test_frames_survive_any_cut(sizes: list[int], cuts: list[int]) -> None:
    stream = b"".join(frame(size, number) for number, size in enumerate(sizes))
    cutter = FrameCutter(1 << 20)
    frames = []
    turn = 0
    while stream:
        cut = cuts[turn % len(cuts)]
        turn += 1
        frames += feed(cutter, stream[:cut])
        stream = stream[cut:]
    assert frames == [bytes([number]) * size for number, size in enumerate(sizes)]


@pytest.mark.parametrize("size", [0, -1, -(2**31), 101, 2**31 - 1])
def test_a_length_no_frame_may_have_is_refused(size: int) -> None:
    with pytest.raises(PeerError):
        feed(FrameCutter(100), struct.pack(">i", size))


def test_a_large_frame_is_not_copied_again() -> None:
    cutter = FrameCutter(1 << 20)
    data = frame(500_000, 7)
    assert feed(cutter, data[:10_000]) == []
    own = cutter.space()
    assert len(own) == 500_004 - 10_000
    own[:] = data[10_000:]
    (got,) = cutter.received(len(own))
    assert got.obj is own.obj


def large(cutter: FrameCutter, size: int, fill: int) -> memoryview:
    """One large frame, as a view that the caller holds."""
    data = frame(size, fill)
    found: list[memoryview] = []
    while data:
        space = cutter.space()
        count = min(len(space), len(data))
        space[:count] = data[:count]
        del space
        found += cutter.received(count)
        data = data[count:]
    (view,) = found
    return view


def test_memory_is_used_again_when_nobody_looks_at_it_any_more() -> None:
    cutter = FrameCutter(1 << 22, reused_bytes_max=1 << 20)
    view = large(cutter, 900_000, 1)
    first = id(view.obj)
    del view
    view = large(cutter, 500_000, 2)
    assert id(view.obj) == first
    assert bytes(view) == b"\2" * 500_000
    held = view[10:20]
    del view
    other = large(cutter, 500_000, 3)
    assert id(other.obj) != first, "somebody still looks at it"
    assert bytes(held) == b"\2" * 10
    assert bytes(other) == b"\3" * 500_000


def test_memory_is_not_kept_beyond_the_limit() -> None:
    for limit in (0, 800_000):
        cutter = FrameCutter(1 << 22, reused_bytes_max=limit)
        body = large(cutter, 900_000, 1).obj
        view = large(cutter, 900_000, 2)
        assert view.obj is not body
