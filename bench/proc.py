"""Kernel statistics of a broker process: CPU, memory, threads, files."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
MIB = 1024 * 1024


def cpu_s(pid: int) -> float:
    """User and system time of all threads, including ended ones."""
    # The command name may contain spaces and parentheses: count fields after the last one.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def rss_mib(pid: int) -> float:
    """Current resident memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def thread_count(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def file_count(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


class Reading:
    """Resource use of a process during a `watched` block."""

    cpu_s: float = 0.0
    rss_mib_max: float = 0.0
    seconds: float = 0.0


@contextmanager
def watched(pid: int) -> Iterator[Reading]:
    """Measures a process during the block; samples memory twenty times a second."""
    reading = Reading()
    done = threading.Event()

    def sample() -> None:
        while True:
            reading.rss_mib_max = max(reading.rss_mib_max, rss_mib(pid))
            if done.wait(0.05):
                return

    sampler = threading.Thread(target=sample)
    cpu_before, started = cpu_s(pid), time.monotonic()
    sampler.start()
    try:
        yield reading
    finally:
        reading.seconds = time.monotonic() - started
        reading.cpu_s = cpu_s(pid) - cpu_before
        done.set()
        sampler.join()
