"""Buffers are reused, and never while a view exists."""

from penstock.base.buffer_pool import BUFFER_BYTES, BUFFERS_MAX, BufferPool


def test_buffer_is_reused_once_its_last_view_is_gone() -> None:
    pool = BufferPool()
    first = pool.take(100)
    memory = id(first.obj)
    part = first[10:20]
    del first
    assert id(pool.take(100).obj) != memory, "a part of it is still held"
    del part
    assert id(pool.take(5).obj) == memory


def test_held_buffers_are_never_given_out_again() -> None:
    pool = BufferPool()
    held = [pool.take(BUFFER_BYTES) for _ in range(BUFFERS_MAX + 5)]
    assert len({id(buffer.obj) for buffer in held}) == len(held)
    for number, buffer in enumerate(held):
        buffer[:] = bytes([number]) * BUFFER_BYTES
    assert all(set(buffer) == {number} for number, buffer in enumerate(held))


def test_pool_keeps_a_limited_number_of_regular_buffers() -> None:
    pool = BufferPool()
    held = [pool.take(10) for _ in range(3 * BUFFERS_MAX)]
    large = pool.take(BUFFER_BYTES + 1)
    assert len(large) == BUFFER_BYTES + 1
    del held, large
    again = {id(buffer.obj) for buffer in [pool.take(10) for _ in range(BUFFERS_MAX)]}
    assert len(again) == BUFFERS_MAX
    assert len(pool._buffers) == BUFFERS_MAX
