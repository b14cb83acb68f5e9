"""Ports to the outside world that one node uses, and their real versions.

A node uses only these and its event loop, so the simulator runs the same node on ports of its own
(`simulation.process`).
"""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.base.ports import Disk, Random, Store, WallClock, Workers
from penstock.base.tracing import Tracer
from penstock.cluster.storage.compaction_schedule import COMPACTIONS_MAX
from penstock.coordinator.runtime.steady_clock import SteadyTime
from penstock.log.flusher import SYNC_JOBS
from penstock.runtime.clock import SystemClock, thread_seconds
from penstock.runtime.directory_lock import DirectoryLock
from penstock.runtime.disk import LocalDisk
from penstock.runtime.etcd.config import EtcdConfig
from penstock.runtime.random import SystemRandom
from penstock.runtime.secrets import read_secret
from penstock.runtime.sqlite_store import SqliteStore
from penstock.runtime.workers import ThreadWorkers


class Lock(Protocol):
    """Lock that keeps a second process away from a data directory."""

    def release(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything outside a node except its event loop."""

    clock: WallClock
    random: Random
    disk: Disk
    workers: Workers
    sync_workers: Workers
    """For the flusher alone, so that a sync waits only for the disk."""
    cleaner_workers: Workers
    """For compaction alone: it takes minutes, and would occupy a thread that requests need."""
    lock: Callable[[str], Lock]
    """Locks the data directory for this process, or raises."""
    open_store: Callable[[str], Awaitable[Store]]
    """Opens the metadata store; an embedded store is at the path.

    Raises ConnectionError or TimeoutError if a remote one does not answer.
    """
    is_store_shared: bool = False
    """True if other nodes use the same metadata: then this node's entries are under a lease."""
    read_secret: Callable[[str], str] = read_secret
    """Reads a secret from a location such as `file:PATH`. Blocks, and raises NoSecret."""
    keeps_metadata: bool = True
    """True if seen metadata is recorded, so that an older store is detected.

    False in simulated runs that never restore their store.
    """
    process_id: int = 0
    processor_s: Callable[[], float] = lambda: 0.0
    """CPU seconds of the loop's thread, without waits. Always 0 in simulated runs."""
    tracer: Callable[[bool], Tracer | None] = lambda is_wanted: None
    """Returns the exporter of traces if they are wanted; None: traces are off."""
    member_time: Callable[[], SteadyTime] | None = None
    """Time of groups and their members' sessions, created on the loop; None: the same time as
    everything else. A test whose clock jumps would otherwise expire every member
    (`penstock.testing`)."""


def real_ports(etcd: EtcdConfig | None = None) -> Ports:
    """Returns this machine's ports. Without etcd the metadata is embedded."""

    async def open_etcd(path: str) -> Store:
        from penstock.runtime.etcd.store import EtcdStore

        assert etcd is not None
        return await EtcdStore.open(etcd)

    return Ports(
        clock=SystemClock(),
        random=SystemRandom(),
        disk=LocalDisk(),
        workers=ThreadWorkers(),
        sync_workers=ThreadWorkers(SYNC_JOBS, name="sync"),
        cleaner_workers=ThreadWorkers(COMPACTIONS_MAX, name="cleaner"),
        lock=DirectoryLock,
        open_store=SqliteStore.open if etcd is None else open_etcd,
        is_store_shared=etcd is not None,
        process_id=os.getpid(),
        processor_s=thread_seconds,
        tracer=_start_tracing,
    )


def _start_tracing(is_wanted: bool) -> Tracer | None:
    if not is_wanted:
        return None
    from penstock.runtime.tracing import start

    return start("penstock")
