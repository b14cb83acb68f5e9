"""Rooms are used again, and never while somebody holds one."""

from penstock.base.buffer_pool import ROOM_BYTES, ROOMS_MAX, BufferPool


def test_a_room_is_used_again_once_its_last_view_is_gone() -> None:
    rooms = BufferPool()
    first = rooms.take(100)
    memory = id(first.obj)
    part = first[10:20]
    del first
    assert id(rooms.take(100).obj) != memory, "a part of it is still held"
    del part
    assert id(rooms.take(5).obj) == memory


def test_rooms_that_are_held_are_never_given_out_again() -> None:
    rooms = BufferPool()
    held = [rooms.take(ROOM_BYTES) for _ in range(ROOMS_MAX + 5)]
    assert len({id(room.obj) for room in held}) == len(held)
    for number, room in enumerate(held):
        room[:] = bytes([number]) * ROOM_BYTES
    assert all(set(room) == {number} for number, room in enumerate(held))


def test_at_most_so_many_are_kept_and_none_that_is_larger() -> None:
    rooms = BufferPool()
    held = [rooms.take(10) for _ in range(3 * ROOMS_MAX)]
    large = rooms.take(ROOM_BYTES + 1)
    assert len(large) == ROOM_BYTES + 1
    del held, large
    again = {id(room.obj) for room in [rooms.take(10) for _ in range(ROOMS_MAX)]}
    assert len(again) == ROOMS_MAX
    assert len(rooms._rooms) == ROOMS_MAX
