"""The doors to the outside world that one node is given, and the real ones.

A node uses nothing but these and its event loop, so the simulator runs the same node on doors of
its own (`simulation.process`).
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
    """Keeps a second process away from a data directory."""

    def release(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything outside of a node that is not its loop."""

    clock: WallClock
    random: Random
    disk: Disk
    workers: Workers
    sync_workers: Workers
    """For the flusher alone, so that a sync waits for nothing but the disk."""
    cleaner_workers: Workers
    """For compaction alone, which takes minutes: everybody else would have a thread less."""
    lock: Callable[[str], Lock]
    """Takes the data directory for this process, or raises."""
    open_store: Callable[[str], Awaitable[Store]]
    """Opens the metadata, for which the path is where an embedded store keeps it. Raises
    ConnectionError or TimeoutError when it is elsewhere and does not answer."""
    is_store_shared: bool = False
    """Whether other nodes use the same metadata: then what tells of this node is under a lease."""
    read_secret: Callable[[str], str] = read_secret
    """What is kept at a place such as `file:PATH`. Blocks, and raises NoSecret."""
    keeps_metadata: bool = True
    """True if what is seen of the metadata is written down, so that an older store is noticed. A
    simulated run that never puts its store back does without."""
    process_id: int = 0
    processor_s: Callable[[], float] = lambda: 0.0
    """How long the thread of the loop has been running, without its waits. A simulated one takes
    no time at all."""
    tracer: Callable[[bool], Tracer | None] = lambda is_wanted: None
    """Whom to tell of traces, if that is wanted; None: nobody."""
    member_time: Callable[[], SteadyTime] | None = None
    """The time that groups and their members' sessions go by, made on the loop; None: as all the
    rest. A test whose clock jumps would otherwise lose every member (`penstock.testing`)."""


def real_ports(etcd: EtcdConfig | None = None) -> Ports:
    """This machine's. Without etcd the metadata is embedded."""

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
