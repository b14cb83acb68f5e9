"""Measurements: each takes a running broker (or a side) and returns figures by key.

Keys are those of bench.catalogue. A measurement deletes the topics that it creates. Before
each one the disk is synced and memory is touched, so that one
side's dirty pages, or pages that the host must allocate first, are not charged to the other.
"""

import mmap
import os
import resource
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bench import load, probe, proc
from bench.sides import Process, Side, fresh_dir, topic, wait_led

Figures = dict[str, float]
GB = 1e9
WINDOW = 128
READ_TIMES = 3
"""Repetitions of a read, which takes half a second: the placement of the client's threads on
cores has too much influence on a single measurement."""


@dataclass(frozen=True)
class Sizes:
    """Amount of work of the measurements."""

    payload_bytes: int = 500_000_000
    requests: int = 60_000
    latency_s: int = 20
    loaded_bytes: int = 300_000_000
    partitions_many: int = 1_000

    def messages(self, size: int) -> int:
        return self.payload_bytes // size

    def warming(self) -> "Sizes":
        """A third of the messages, used to warm up before the first measurement of a shape."""
        return replace(self, payload_bytes=self.payload_bytes // 3)


QUICK = Sizes(payload_bytes=60_000_000, requests=6_000, latency_s=4, loaded_bytes=50_000_000)


def settle(sizes: Sizes | None = None) -> None:
    """Waits until earlier writes are on disk, and allocates memory for later ones.

    A page that a virtual machine has never used, or has returned, costs many times as much as
    an allocated one: writing 1 GB to files takes 0.3 s of CPU or 3 s, independent of the broker.
    """
    os.sync()
    if sizes is not None:
        size = sizes.payload_bytes * 3 // 2
        with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            for at in range(0, size, mmap.PAGESIZE):
                memory[at] = 1


def floor(root: Path, sizes: Sizes) -> Figures:
    """CPU of a plain write of the payload to a file: the lower bound of any broker."""
    settle(sizes)
    block = bytes(128 * 1024)
    with fresh_dir(root) as directory, (directory / "file").open("wb", buffering=0) as file:
        before = resource.getrusage(resource.RUSAGE_SELF)
        for _ in range(sizes.payload_bytes // len(block)):
            file.write(block)
        after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"floor_cpu": cpu_s / (sizes.payload_bytes / GB)}


def traffic(process: Process, size: int, partitions: int, sizes: Sizes) -> Figures:
    """Produces with librdkafka, then reads all back: rates and broker CPU per GB of payload."""
    count = sizes.messages(size)
    figures: Figures = {}
    with topic(process.bootstrap, partitions) as name:
        for verb, times in (("produce", 1), ("consume", READ_TIMES)):
            settle(sizes if verb == "produce" else None)
            seconds = 0.0
            with proc.watched(process.pid) as used:
                for _ in range(times):
                    done = load.run(
                        verb,
                        process.bootstrap,
                        name,
                        partitions,
                        count,
                        size,
                        settings=load.PRODUCER if verb == "produce" else None,
                    )
                    seconds += done["seconds"]
            key = f"{verb}_{size}_{partitions}"
            figures[f"{key}_rate"] = count * times / seconds
            figures[f"{key}_cpu"] = used.cpu_s / (count * times * size / GB)
    return figures


def requests(process: Process, sizes: Sizes) -> Figures:
    """Single-record produce requests over one pipelined connection."""
    with topic(process.bootstrap, 1) as name:
        probe.pipeline(process.bootstrap, name, sizes.requests // 10, 100, WINDOW)
        settle()
        with proc.watched(process.pid) as used:
            seconds = probe.pipeline(process.bootstrap, name, sizes.requests, 100, WINDOW)
    cpu_us = used.cpu_s / sizes.requests * 1e6
    return {"requests_rate": sizes.requests / seconds, "requests_cpu": cpu_us}


def latency(process: Process, sizes: Sizes, prefix: str = "latency") -> Figures:
    """Produce to consume at a low fixed rate, no linger."""
    with topic(process.bootstrap, 1) as name:
        settle()
        count = 1_000 * sizes.latency_s
        took = load.run(
            "latency", process.bootstrap, name, 1, count, 100, pace=1_000, settings=load.LATENCY
        )
    return {f"{prefix}_{rank}": took[f"{rank}_ms"] for rank in ("p50", "p99", "p999")}


def start(side: Side, root: Path) -> Figures:
    """Start of an empty broker, from exec to its first metadata reply, and its idle memory."""
    with fresh_dir(root) as directory:
        process = side.prepare(directory / "data")
        # The first start creates files; users wait for later starts.
        process.start()
        probe.wait_served(process.bootstrap)
        process.stop()
        settle()
        took = _timed_start(process, 0)
        try:
            cpu = proc.cpu_s(process.pid)
            time.sleep(2)
            return {"start": took, "start_cpu": cpu, "rss_idle": proc.rss_mib(process.pid)}
        finally:
            process.stop()


def start_many(side: Side, root: Path, sizes: Sizes) -> Figures:
    """Start with many partitions with data after a clean stop."""
    many = sizes.partitions_many
    with fresh_dir(root) as directory:
        process = side.prepare(directory / "data")
        process.start()
        probe.wait_served(process.bootstrap)
        with topic(process.bootstrap, many) as name:
            load.run(
                "produce", process.bootstrap, name, many, many * 10, 100, settings=load.PRODUCER
            )
            process.stop()
            settle()
            took = _timed_start(process, many)
            wait_led(process.bootstrap, name, many)
            pid = process.pid
            figures: Figures = {"start_1000": took, "files_1000": proc.file_count(pid)}
            figures["threads_1000"] = proc.thread_count(pid)
        process.stop()
        return figures


def memory(side: Side, root: Path, sizes: Sizes) -> Figures:
    """Peak memory of a fresh broker while 100 partitions are written and read."""
    peak = 0.0
    with ExitStack() as stack:
        process = stack.enter_context(side.running(root))
        names = [stack.enter_context(topic(process.bootstrap, 50)) for _ in range(2)]
        for name, size in zip(names, (100, 1024), strict=True):
            work = (process.bootstrap, name, 50, sizes.loaded_bytes // size, size)
            with proc.watched(process.pid) as used:
                load.run("produce", *work, settings=load.PRODUCER)
                load.run("consume", *work)
            peak = max(peak, used.rss_mib_max)
    return {"rss_loaded": peak}


def _timed_start(process: Process, partitions: int) -> float:
    began = time.monotonic()
    process.spawn()
    probe.wait_served(process.bootstrap, partitions)
    return time.monotonic() - began
