"""Heartbeat task of a group member, for every kind of group.

Network failures are retried as long as the member exists. Permanent refusals, and replies that
break the protocol, end the task and are reported to the member.
"""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.base.errors import PeerError, Refused
from penstock.client.cluster import Cluster
from penstock.client.errors import RETRIABLE

JOIN = 0
"""Epoch of a member that joins."""
LEAVE = -1
"""Epoch of a member that leaves."""
INTERVAL_MS_MIN = 50
"""Lower bound of the heartbeat interval, whatever the coordinator says, in milliseconds."""
LEAVE_TIMEOUT_S = 2.0
"""Timeout of the request to leave, in seconds."""


class Heartbeats:
    """Calls `beat` at `start`, and every `interval_s` until `stop`."""

    def __init__(
        self,
        cluster: Cluster,
        beat: Callable[[], Awaitable[None]],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """`on_failed` gets the error that ends the task."""
        self._cluster = cluster
        self._beat = beat
        self._on_failed = on_failed
        self._interval_s = 1.0
        self._due_now = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def set_interval(self, interval_ms: int) -> None:
        """Sets the interval to the coordinator's."""
        self._interval_s = max(INTERVAL_MS_MIN, interval_ms) / 1000

    def beat_now(self) -> None:
        """Makes the next heartbeat due now."""
        self._due_now.set()

    async def start(self) -> None:
        """Sends the first heartbeat, raising its errors, and starts the task for the next ones."""
        await self._beat()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self, leave: Callable[[], Awaitable[object]]) -> None:
        """Ends the task and leaves the group; if that fails, the session expires."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await leave()
        except (OSError, Refused, PeerError):
            return

    async def _run(self) -> None:
        failures = 0
        while True:
            if not self._due_now.is_set():
                try:
                    async with asyncio.timeout(self._interval_s):
                        await self._due_now.wait()
                except TimeoutError:
                    pass
            self._due_now.clear()
            try:
                await self._beat()
                failures = 0
            except OSError:
                await self._cluster.backoff.wait(failures)
                failures += 1
            except Refused as refused:
                if refused.code not in RETRIABLE:
                    self._on_failed(refused)
                    return
            except PeerError as error:
                self._on_failed(error)
                return
