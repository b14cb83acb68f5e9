"""Heartbeats of a group member: the task that calls the coordinator, for every kind of group.

Failures of the network are retried for as long as the member exists. Refusals that do not heal,
and answers that break the protocol, end the task and are reported to the member.
"""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.base.errors import PeerError, Refused
from penstock.client.cluster import Cluster
from penstock.client.errors import RETRIABLE

JOIN = 0
"""The epoch of a member that joins."""
LEAVE = -1
"""The epoch of a member that leaves."""
INTERVAL_MS_MIN = 50
LEAVE_S = 2.0


class Heartbeats:
    """Calls `beat` when `start`ed and every `interval_s` until `stop`ped."""

    def __init__(
        self,
        cluster: Cluster,
        beat: Callable[[], Awaitable[None]],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """`on_failed` is told of what ends the task."""
        self._cluster = cluster
        self._beat = beat
        self._on_failed = on_failed
        self._interval_s = 1.0
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def follow(self, interval_ms: int) -> None:
        """Takes over the interval that the coordinator wants."""
        self._interval_s = max(INTERVAL_MS_MIN, interval_ms) / 1000

    def hurry(self) -> None:
        """The next heartbeat is due now."""
        self._hurry.set()

    async def start(self) -> None:
        """Sends the first heartbeat, and raises what it raises; the others follow by themselves."""
        await self._beat()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self, goodbye: Callable[[], Awaitable[object]]) -> None:
        """Ends the task and says goodbye; without it the coordinator lets the session expire."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        try:
            async with asyncio.timeout(LEAVE_S):
                await goodbye()
        except (OSError, Refused, PeerError):
            return

    async def _run(self) -> None:
        failures = 0
        while True:
            if not self._hurry.is_set():
                try:
                    async with asyncio.timeout(self._interval_s):
                        await self._hurry.wait()
                except TimeoutError:
                    pass
            self._hurry.clear()
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
