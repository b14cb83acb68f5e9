"""Notifications to systemd (sd_notify): ready, stopping, and alive for its watchdog.

systemd names a datagram socket in NOTIFY_SOCKET, and in WATCHDOG_USEC how often it wants to hear
that the process is alive. Without them nothing is sent. Notifications are best effort: one that
cannot be sent changes nothing for the node.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
ALIVE: Final = "WATCHDOG=1"
PINGS_PER_TIMEOUT: Final = 3
"""One ping may come late, and one may be lost, before systemd restarts the node."""


class Systemd:
    """The systemd that started this process; where none did, methods do nothing."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._interval_s = _interval_s(environment)
        self._pings: asyncio.Task[None] | None = None

    def ready(self, status: str) -> None:
        """Reports that the node serves; from now on the event loop pings the watchdog."""
        self._send(f"{READY}\nSTATUS={status}")
        if self._address and self._interval_s:
            self._pings = asyncio.get_running_loop().create_task(self._ping())

    def stopping(self) -> None:
        """Reports that the node stops. The watchdog stays: a stop that hangs is ended as well."""
        self._send(f"{STOPPING}\nSTATUS=stopping")

    async def close(self) -> None:
        if self._pings is not None:
            self._pings.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pings

    async def _ping(self) -> None:
        # A loop that hangs sends none: that is what the watchdog is for.
        while True:
            self._send(ALIVE)
            await asyncio.sleep(self._interval_s)

    def _send(self, text: str) -> None:
        if not self._address:
            return
        # A leading @ names an abstract socket.
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sending,
        ):
            sending.sendto(text.encode(), address)


def of_process() -> Systemd:
    """The systemd that the environment names."""
    return Systemd(os.environ)


def _interval_s(environment: Mapping[str, str]) -> float:
    """Time between pings; 0: no watchdog, or that of another process."""
    timeout_us = environment.get("WATCHDOG_USEC", "")
    if not timeout_us.isdigit() or environment.get("WATCHDOG_PID", "") not in (
        "",
        str(os.getpid()),
    ):
        return 0
    return int(timeout_us) / 1e6 / PINGS_PER_TIMEOUT
