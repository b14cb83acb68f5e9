"""Poller of full sockets that become writable: one epoll for all connections of a listener.

Event loops can watch sockets, too, but a large reply fills its socket again and again, and starting
and ending a watch costs a dozen system calls each time. Here a socket is added when it is full for
the first time, stays while its reply keeps filling it, and is removed when the reply is sent. The
event loop watches the epoll.

So a wait in the middle of a reply costs no extra system call. While only one socket is watched, the
epoll is not even queried: the call by the loop means that this socket is writable (ADR 29).
"""

import asyncio
import contextlib
import select
from collections.abc import Callable, Iterable

EVENTS_AT_ONCE = 256


class WritablePoller:
    """Notifies connections when their full sockets are writable again."""

    def __init__(self) -> None:
        self._epoll: select.epoll | None = None
        self._acts: dict[int, Callable[[], bool]] = {}
        """Callbacks of the sockets in the epoll, by descriptor."""

    def wait(self, descriptor: int, act: Callable[[], bool]) -> None:
        """Calls `act` each time the socket is writable or broken, until `act` returns False:
        the socket is not full any more."""
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
                continue  # Removed by an earlier callback.
            is_full = False
            try:
                is_full = act()
            finally:
                if not is_full:
                    self.forget(descriptor)

    def forget(self, descriptor: int) -> None:
        """Removes a socket; required before it is closed, since its descriptor may be reused."""
        if self._acts.pop(descriptor, None) is not None and self._epoll is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(descriptor)

    def close(self) -> None:
        if self._epoll is not None:
            asyncio.get_running_loop().remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
        self._acts.clear()
