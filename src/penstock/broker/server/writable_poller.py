"""Which of the sockets that were full take more: one epoll for all connections of a listener.

Event loops watch descriptors, too, but a large reply fills its socket again and again, and to begin
and end watching it costs them a dozen system calls each time. Here a socket is entered when it is
full for the first time, stays in while its reply goes on filling it, and is taken out when that is
through. The loop watches the epoll.

So a wait in the middle of a reply costs no system call of its own. While a single socket is
watched, the epoll need not even be asked which one it is: that the loop calls says it (ADR 29).
"""

import asyncio
import contextlib
import select
from collections.abc import Callable, Iterable

EVENTS_AT_ONCE = 256


class WritablePoller:
    """Tells connections when their full sockets take more."""

    def __init__(self) -> None:
        self._epoll: select.epoll | None = None
        self._acts: dict[int, Callable[[], bool]] = {}
        """Of the sockets in the epoll."""

    def wait(self, descriptor: int, act: Callable[[], bool]) -> None:
        """Calls `act` when the socket takes more, or is broken; again and again, until it says
        that the socket is not full any more."""
        if descriptor in self._acts:
            return
        if self._epoll is None:
            self._epoll = select.epoll()
            asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._look)
        self._epoll.register(descriptor, select.EPOLLOUT)
        self._acts[descriptor] = act

    def _look(self) -> None:
        acts = self._acts
        ready: Iterable[int] = tuple(acts)
        if len(acts) > 1:
            assert self._epoll is not None
            ready = [descriptor for descriptor, _ in self._epoll.poll(0, EVENTS_AT_ONCE)]
        for descriptor in ready:
            act = acts.get(descriptor)
            if act is None:
                continue  # Forgotten because of one before it.
            is_full = False
            try:
                is_full = act()
            finally:
                if not is_full:
                    self.forget(descriptor)

    def forget(self, descriptor: int) -> None:
        """Also before the socket is closed: its number may be another's afterwards."""
        if self._acts.pop(descriptor, None) is not None and self._epoll is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(descriptor)

    def close(self) -> None:
        if self._epoll is not None:
            asyncio.get_running_loop().remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
        self._acts.clear()
