"""Simulated machine that runs a node: its disk, clock, power and process.

The node is the real one (`penstock.node.node.Node`) on simulated ports. Operations:

- `start()`: a new process recovers the disk and serves; False if it died before;
- `stop()`: graceful stop, as by SIGTERM;
- `kill()`: ends the process and keeps the page cache; resets its peers' connections;
- `cut_power()`: unsynced data may be lost; peers get no notice. `disk.crash_after(n)` does the same
  out of the n-th disk operation from now;
- `pause()`: as SIGSTOP, until `resume()`; peers get no reply, and no connection ends.

After any of these except `pause`, `is_up` is False until the next `start`. A node that fails by
itself (a failed sync) is stopped as the command line would do it, and `failed` has the error.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.base.ports import Store
from penstock.node.config import NodeConfig
from penstock.node.node import Node, NodeFailed
from penstock.node.ports import Ports
from simulation.clock import SimClock
from simulation.disk import PowerCut, SimDisk
from simulation.loop import SimLoop
from simulation.process import SimProcess
from simulation.random import SimRandom
from simulation.workers import SimWorkers

KAFKA_PORT = 9092
HTTP_PORT = 8080
DATA = "data"
SIM_KEK = "00" * 32
"""Key encryption key of every node, if encryption is configured."""
SYNC_S = (0.0001, 0.002)
CLEANER_S = (0.001, 3.0)
"""Duration of a compaction: long enough for many changes to the log meanwhile."""


class _Lock:
    """Lock of a data directory, held by one process."""

    def __init__(self, host: "SimHost") -> None:
        assert not host.is_locked, f"{host.name}: two processes at once"
        host.is_locked = True
        self._host = host

    def release(self) -> None:
        self._host.is_locked = False


class SimHost:
    """The machine with node id `node_id`; hosts are named `node-<id>`."""

    def __init__(
        self,
        loop: SimLoop,
        seed: int,
        node_id: int,
        overrides: dict[str, str],
        open_store: Callable[[], Store],
        disk: SimDisk,
        *,
        is_store_shared: bool = False,
        keeps_metadata: bool = False,
    ) -> None:
        self.name = f"node-{node_id}"
        self.node_id = node_id
        self.disk = disk
        self.clock = SimClock(loop)
        self.right_clock = SimClock(loop)
        """Clock without jumps."""
        self.node: Node | None = None
        """Running or starting node; None without a process."""
        self.is_up = False
        self.is_locked = False
        self.boots = 0
        self.failed: Exception | None = None
        """Error with which the last process ended by itself, if it did."""
        self._rng = random.Random(f"{seed}/{self.name}")
        self._loop = loop
        self.config = NodeConfig(
            data_dir=DATA,
            host=self.name,
            kafka_port=KAFKA_PORT,
            http_port=HTTP_PORT,
            node_id=node_id,
            # Tests of the console have nodes of their own.
            overrides={"console.history.enable": "false", **overrides},
        )
        self._open_store = open_store
        self._is_store_shared = is_store_shared
        self._keeps_metadata = keeps_metadata
        self._process: SimProcess | None = None
        self._sync_workers = SimWorkers()
        self._sync_s = SYNC_S
        self._died = asyncio.Event()
        self.is_powered_off = False
        disk.on_cut = self._power_lost

    @property
    def is_impaired(self) -> bool:
        """True while the node runs with an offline partition."""
        if self.node is None or not self.is_up:
            return False
        return any(partition.log.offline is not None for partition in self.node.partitions.led())

    def set_sync_time(self, sync_s: tuple[float, float] = SYNC_S) -> None:
        """Sets the duration of disk syncs from now on."""
        self._sync_s = self._sync_workers.delay_s = sync_s

    # -- start and stop ---------------------------------------------------------------------

    async def start(self, *, cut_after: int = 0) -> bool:
        """Switches the machine on if necessary, and starts a node. True when it serves.

        With `cut_after` the power is cut again at that operation of the disk.
        """
        assert self._process is None, f"{self.name} runs already"
        self.power_on()
        if cut_after:
            self.disk.crash_after(cut_after)
        self.boots += 1
        self.failed = None
        self.is_locked = False
        self._died.clear()
        process = self._process = self._loop.process(self.name)
        starting = process.start(self._begin())
        await self._either(starting)
        if process.is_dead:
            return False
        if (error := starting.exception()) is not None:
            self.failed = error
            self._end()
            return False
        self.is_up = True
        return True

    def power_on(self) -> None:
        """Switches the machine on after a power cut, which may lose unsynced data."""
        if self.is_powered_off:
            self.is_powered_off = False
            self.disk.crash(self._rng)

    def replace_disk(self, disk: SimDisk) -> None:
        """Replaces a lost disk; there must be no process."""
        assert self._process is None
        self.is_powered_off = False
        self.disk = disk
        disk.on_cut = self._power_lost

    async def _begin(self) -> None:
        node = self.node = Node(self.config, self.ports())
        await node.start()
        node.failed.add_done_callback(lambda _: self._node_failed(node))

    def ports(self, open_other: Callable[[str], Awaitable[Store]] | None = None) -> Ports:
        """Ports of a new process; `open_other` replaces the function that opens the store."""

        async def open_store(_: str) -> Store:
            return self._open_store()

        self.disk.mkdir(DATA)
        self.disk.sync_dir("")
        self._sync_workers = SimWorkers(self._rng.getrandbits(64), delay_s=self._sync_s)
        random, seed = SimRandom(self._rng.getrandbits(64)), self._rng.getrandbits(64)
        return Ports(
            clock=self.clock,
            random=random,
            disk=self.disk,
            workers=SimWorkers(seed),
            sync_workers=self._sync_workers,
            cleaner_workers=SimWorkers(seed + 1, delay_s=CLEANER_S),
            lock=lambda _: _Lock(self),
            open_store=open_other or open_store,
            is_store_shared=self._is_store_shared,
            keeps_metadata=self._keeps_metadata,
            read_secret=lambda _: SIM_KEK,
            process_id=self.boots,
        )

    async def stop(self) -> None:
        """Stops the node gracefully and waits for its end. Does nothing without a node."""
        if self._process is None or not self.is_up:
            return
        self.is_up = False
        node, process = self.node, self._process
        assert node is not None
        stopping = process.start(node.stop())
        await self._either(stopping)
        if not process.is_dead:
            self._end()

    def kill(self) -> None:
        """Kills the process, as kill -9."""
        if self._process is not None:
            self._loop.net.crash(self.name)
            self.disk.abandon()
            self._end()

    def cut_power(self) -> None:
        self.disk.cut()

    def pause(self) -> None:
        """Pauses the process, as SIGSTOP."""
        if self._process is not None:
            self._process.pause()
            self._loop.net.pause(self.name)

    def resume(self) -> None:
        """Resumes the process, as SIGCONT; does nothing if it runs."""
        self._loop.net.resume(self.name)
        if self._process is not None:
            self._process.resume()

    async def down(self) -> None:
        """Returns when there is no process."""
        while self._process is not None:
            await self._died.wait()

    # -- internals --------------------------------------------------------------------------

    def _power_lost(self) -> None:
        self.is_powered_off = True
        self._loop.net.crash(self.name, silent=True)
        self._end()

    def _node_failed(self, node: Node) -> None:
        """Stops a node that reports a fatal error."""
        if node is self.node and self.is_up:
            error = node.failed.exception()
            assert isinstance(error, NodeFailed)
            self.failed = error
            assert self._process is not None
            self._process.start(self.stop())

    def _end(self) -> None:
        """Removes the process."""
        if self._process is not None:
            self._process.kill()
            self._loop.net.crash(self.name)
            self._loop.net.resume(self.name)
        self._process = None
        self.node = None
        self.is_up = False
        self._died.set()

    async def _either(self, task: "asyncio.Task[Any]") -> None:
        """Returns when the task is done or the process is dead."""
        dying = asyncio.ensure_future(self._died.wait())
        await asyncio.wait((task, dying), return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await dying


__all__ = ["PowerCut", "SimHost"]
