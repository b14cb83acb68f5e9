"""Waiting for full sockets: each wait ends once, and nothing is heard of those who do not wait."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

from penstock.server.room import Room
from tests.unit.server.loops import on_both_loops, run

A_MOMENT = 0.02


@contextlib.contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        far.setblocking(False)
        yield near, far


def fill(near: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            near.send(bytes(65536))


def drain(far: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while far.recv(1 << 20):
            pass


@on_both_loops
def test_each_wait_is_answered_once_when_there_is_room(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def check() -> None:
        room, told = Room(), []
        with pair() as (near, far):
            for turn in range(1, 4):
                fill(near)
                room.wait(near.fileno(), lambda: told.append("room"))
                await asyncio.sleep(A_MOMENT)
                assert len(told) == turn - 1, "it is full"
                drain(far)
                await asyncio.sleep(A_MOMENT)
                assert len(told) == turn
                # Full and empty again while nobody waits.
                fill(near)
                drain(far)
                await asyncio.sleep(A_MOMENT)
                assert len(told) == turn
            room.close()

    run(new_loop, check())


@on_both_loops
def test_room_made_before_the_wait_is_not_missed(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def check() -> None:
        room, told = Room(), []
        with pair() as (near, far):
            for turn in (1, 2):
                fill(near)
                drain(far)
                room.wait(near.fileno(), lambda: told.append("room"))
                await asyncio.sleep(A_MOMENT)
                assert len(told) == turn
            room.close()

    run(new_loop, check())


@on_both_loops
def test_a_broken_socket_ends_the_wait(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def check() -> None:
        room, told = Room(), []
        with pair() as (near, far):
            fill(near)
            room.wait(near.fileno(), lambda: told.append("room"))
            far.close()
            await asyncio.sleep(A_MOMENT)
            assert told == ["room"]
            room.close()

    run(new_loop, check())


@on_both_loops
def test_only_those_with_room_are_told_and_none_that_was_forgotten(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def check() -> None:
        room, told = Room(), []
        with pair() as (first, its_far), pair() as (second, other_far), pair() as (third, _):
            for near, name in ((first, "first"), (second, "second"), (third, "third")):
                fill(near)
                room.wait(near.fileno(), lambda name=name: told.append(name))  # type: ignore[misc]
            room.forget(second.fileno())
            room.forget(second.fileno())
            drain(its_far)
            drain(other_far)
            await asyncio.sleep(A_MOMENT)
            assert told == ["first"]
            room.close()
            room.close()

    run(new_loop, check())


@on_both_loops
def test_a_number_that_is_used_again_belongs_to_the_newcomer(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def check() -> None:
        room, told = Room(), []
        with pair() as (near, _):
            number = near.fileno()
            fill(near)
            room.wait(number, lambda: told.append("old"))
            room.forget(number)
        with pair() as (near, far):
            assert near.fileno() == number
            fill(near)
            room.wait(number, lambda: told.append("new"))
            drain(far)
            await asyncio.sleep(A_MOMENT)
            assert told == ["new"]
            room.close()

    run(new_loop, check())
