"""Waits for full sockets: a wait ends when its socket is writable, continues while the socket is
filled again, and callbacks run only for sockets with a wait.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

import pytest

from penstock.broker.server.writable_poller import WritablePoller
from tests.run_with import run_with
from tests.unit.broker.server.loops import in_loop, on_both_loops

A_MOMENT = 0.02


@contextlib.contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        far.setblocking(False)
        yield near, far


class Told(list[str]):
    """Records the sockets that were notified."""

    def __init__(self, *, is_full_again: bool = False) -> None:
        super().__init__()
        self.is_full_again = is_full_again

    def by(self, name: str) -> Callable[[], bool]:
        def act() -> bool:
            self.append(name)
            return self.is_full_again

        return act


def fill(near: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            near.send(bytes(65536))


def drain(far: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while far.recv(1 << 20):
            pass


@on_both_loops
@run_with(in_loop, fixtures=["new_loop"])
async def test_each_wait_is_answered_once_the_socket_is_writable() -> None:
    poller, told = WritablePoller(), Told()
    with pair() as (near, far):
        for turn in range(1, 4):
            fill(near)
            poller.wait(near.fileno(), told.by("poller"))
            await asyncio.sleep(A_MOMENT)
            assert len(told) == turn - 1, "it is full"
            drain(far)
            await asyncio.sleep(A_MOMENT)
            assert len(told) == turn
            # Full and empty again without a wait.
            fill(near)
            drain(far)
            await asyncio.sleep(A_MOMENT)
            assert len(told) == turn
        poller.close()


@on_both_loops
@run_with(in_loop, fixtures=["new_loop"])
async def test_socket_writable_before_the_wait_is_noticed() -> None:
    poller, told = WritablePoller(), Told()
    with pair() as (near, far):
        for turn in (1, 2):
            fill(near)
            drain(far)
            poller.wait(near.fileno(), told.by("poller"))
            await asyncio.sleep(A_MOMENT)
            assert len(told) == turn
        poller.close()


@on_both_loops
@run_with(in_loop, fixtures=["new_loop"])
async def test_broken_socket_ends_the_wait() -> None:
    poller, told = WritablePoller(), Told()
    with pair() as (near, far):
        fill(near)
        poller.wait(near.fileno(), told.by("poller"))
        far.close()
        await asyncio.sleep(A_MOMENT)
        assert told == ["poller"]
        poller.close()


@on_both_loops
@run_with(in_loop, fixtures=["new_loop"])
async def test_only_writable_and_registered_sockets_are_notified() -> None:
    poller, told = WritablePoller(), Told()
    with pair() as (first, its_far), pair() as (second, other_far), pair() as (third, _):
        for near, name in ((first, "first"), (second, "second"), (third, "third")):
            fill(near)
            poller.wait(near.fileno(), told.by(name))
        poller.forget(second.fileno())
        poller.forget(second.fileno())
        drain(its_far)
        drain(other_far)
        await asyncio.sleep(A_MOMENT)
        assert told == ["first"]
        poller.close()
        poller.close()


@on_both_loops
@run_with(in_loop, fixtures=["new_loop"])
async def test_reused_descriptor_belongs_to_the_new_socket() -> None:
    poller, told = WritablePoller(), Told()
    with pair() as (near, _):
        number = near.fileno()
        fill(near)
        poller.wait(number, told.by("old"))
        poller.forget(number)
    with pair() as (near, far):
        assert near.fileno() == number
        fill(near)
        poller.wait(number, told.by("new"))
        drain(far)
        await asyncio.sleep(A_MOMENT)
        assert told == ["new"]
        poller.close()


@on_both_loops
@pytest.mark.parametrize("count", [1, 3])
@run_with(in_loop, fixtures=["new_loop"])
async def test_socket_filled_again_is_notified_again(*, count: int) -> None:
    def refill(near: socket.socket, act: Callable[[], bool]) -> Callable[[], bool]:
        def filled_again() -> bool:
            fill(near)
            return act()

        return filled_again

    poller, told = WritablePoller(), Told()
    with contextlib.ExitStack() as stack:
        pairs = [stack.enter_context(pair()) for _ in range(count)]
        for number, (near, _) in enumerate(pairs):
            fill(near)
            poller.wait(near.fileno(), refill(near, told.by(str(number))))
        near, far = pairs[0]
        for turn in range(1, 4):
            told.is_full_again = turn < 3
            await asyncio.sleep(A_MOMENT)
            assert len(told) == turn - 1, "it is full"
            drain(far)
            await asyncio.sleep(A_MOMENT)
            assert told == ["0"] * turn
        drain(far)
        await asyncio.sleep(A_MOMENT)
        assert told == ["0"] * 3, "it does not wait any more"
        poller.close()


@on_both_loops
@run_with(in_loop, fixtures=["new_loop"])
async def test_failing_callback_is_not_notified_again() -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: failures.append(context["exception"])
    )
    poller = WritablePoller()

    def fail() -> bool:
        raise KeyError("a bug")

    with pair() as (near, _):
        poller.wait(near.fileno(), fail)
        await asyncio.sleep(A_MOMENT)
        assert [type(failure) for failure in failures] == [KeyError]
        poller.close()
