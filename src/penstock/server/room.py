"""Which of the sockets that were full take more: one epoll for all connections of a listener.

Event loops watch descriptors, too, but a reply fills its socket once or twice, and to begin and
end watching it costs them a dozen system calls each time. Here a socket is entered once, and
waited for with a single call. The loop watches the epoll.

Each wait ends with the first event (EPOLLONESHOT), so nothing is heard of a socket that nobody
waits for. A socket may become writable before it is waited for: the kernel looks again then.
"""

import asyncio
import contextlib
import select
from collections.abc import Callable

EVENTS = select.EPOLLOUT | select.EPOLLONESHOT
EVENTS_AT_ONCE = 256


class Room:
    """Tells connections when their full sockets take more."""

    def __init__(self) -> None:
        self._epoll: select.epoll | None = None
        self._acts: dict[int, Callable[[], None]] = {}

    def wait(self, descriptor: int, act: Callable[[], None]) -> None:
        """Calls `act` once when the socket takes more, or is broken."""
        if descriptor in self._acts:
            assert self._epoll is not None
            self._epoll.modify(descriptor, EVENTS)
            return
        if self._epoll is None:
            self._epoll = select.epoll()
            asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._look)
        self._epoll.register(descriptor, EVENTS)
        self._acts[descriptor] = act

    def _look(self) -> None:
        assert self._epoll is not None
        for descriptor, _ in self._epoll.poll(0, EVENTS_AT_ONCE):
            act = self._acts.get(descriptor)
            if act is not None:
                act()

    def forget(self, descriptor: int) -> None:
        """Before the socket is closed: its number may be another's afterwards."""
        if self._acts.pop(descriptor, None) is not None and self._epoll is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(descriptor)

    def close(self) -> None:
        if self._epoll is not None:
            asyncio.get_running_loop().remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
        self._acts.clear()
