"""Machine checks of `penstock doctor`: disk, open files, clock, config.

Measuring and judging are separate: the `judge_*` functions take numbers and return a `Check`. A
check is `fail` if data or service is at risk now, `warn` if it will be, and then advises.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.cli.terminal.output import show_bytes

FREE_PERCENT_WARN, FREE_PERCENT_FAIL = 15.0, 5.0
SYNC_TIMES = 20
SYNC_BYTES = 4096
SYNC_MS_WARN, SYNC_MS_FAIL = 20.0, 200.0
FILES_WARN, FILES_FAIL = 65_536, 4_096
CLOCK_ERROR_MS_WARN = 1_000.0
TIME_ERROR = 5
"""Result of adjtimex(2) when the clock is not synchronized."""
MAXERROR_AT = 24
"""Offset in struct timex of the kernel's maximum error estimate, in microseconds."""


class CheckVerdict(enum.StrEnum):
    ok = "ok"
    skipped = "skipped"
    warn = "warn"
    fail = "fail"


class Check(NamedTuple):
    name: str
    verdict: CheckVerdict
    finding: str
    action: str = ""


def check_disk(directory: Path) -> list[Check]:
    """Checks space and sync time of the data directory's disk."""
    name = "disk space"
    place = directory
    while not place.exists() and place != place.parent:
        place = place.parent
    status = os.statvfs(place)
    total, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    found = [judge_space(name, str(place), total, free)]
    if not os.access(place, os.W_OK):
        action = "run it as the node's user, or pass the data directory with --data"
        return [
            *found,
            Check("sync", CheckVerdict.skipped, f"{place} is not writable", action),
        ]
    return [*found, judge_syncs(measure_syncs(place))]


def judge_space(name: str, place: str, total: int, free: int) -> Check:
    percent = 100 * free / total if total else 0.0
    finding = f"{show_bytes(free)} ({percent:.0f} %) free at {place}"
    action = "lower retention.ms or retention.bytes of the largest topics, or add disk space"
    if percent < FREE_PERCENT_FAIL:
        return Check(name, CheckVerdict.fail, finding, action)
    if percent < FREE_PERCENT_WARN:
        return Check(name, CheckVerdict.warn, finding, action)
    return Check(name, CheckVerdict.ok, finding)


def measure_syncs(place: Path) -> list[float]:
    """Returns the milliseconds of each of `SYNC_TIMES` small synced writes to a temporary file."""
    import tempfile
    import time

    taken: list[float] = []
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(SYNC_TIMES):
            began = time.perf_counter()
            file.write(bytes(SYNC_BYTES))
            file.flush()
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - began) * 1000)
    return taken


def judge_syncs(taken_ms: Sequence[float]) -> Check:
    ordered = sorted(taken_ms)
    median, worst = ordered[len(ordered) // 2], ordered[-1]
    finding = f"{median:.1f} ms to make a write durable (worst of {len(ordered)}: {worst:.1f} ms)"
    action = (
        "every acknowledged write waits for this: use a local SSD, and check what else writes to it"
    )
    if median > SYNC_MS_FAIL:
        return Check("sync", CheckVerdict.fail, finding, action)
    if median > SYNC_MS_WARN:
        return Check("sync", CheckVerdict.warn, finding, action)
    return Check("sync", CheckVerdict.ok, finding)


def check_files() -> Check:
    import resource

    return judge_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def judge_files(soft: int) -> Check:
    finding = f"{soft:,} files may be open at once" if soft >= 0 else "unlimited"
    action = (
        f"each partition and each connection needs some: run `ulimit -n {FILES_WARN}`, or set "
        f"LimitNOFILE={FILES_WARN} in the systemd unit"
    )
    if 0 <= soft < FILES_FAIL:
        return Check("open files", CheckVerdict.fail, finding, action)
    if 0 <= soft < FILES_WARN:
        return Check("open files", CheckVerdict.warn, finding, action)
    return Check("open files", CheckVerdict.ok, finding)


def check_clock() -> Check:
    """Checks the synchronization of the kernel's clock, without changing it."""
    import ctypes

    timex = ctypes.create_string_buffer(512)
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(timex)
    except (OSError, AttributeError):
        state = -1
    error_us = int.from_bytes(timex.raw[MAXERROR_AT : MAXERROR_AT + 8], "little", signed=True)
    return judge_clock(state, error_us / 1000)


def judge_clock(state: int, error_ms: float) -> Check:
    action = "run chrony or systemd-timesyncd: retention, delays and time lag depend on the clock"
    if state < 0:
        return Check("clock", CheckVerdict.skipped, "the kernel does not report it", action)
    if state == TIME_ERROR:
        return Check("clock", CheckVerdict.warn, "the clock is not synchronized", action)
    finding = f"synchronized to within {error_ms:.0f} ms"
    if error_ms > CLOCK_ERROR_MS_WARN:
        return Check("clock", CheckVerdict.warn, finding, action)
    return Check("clock", CheckVerdict.ok, finding)


def check_config(path: str | None) -> Check:
    """Loads the node's config file as the node does."""
    from penstock.cluster.configs.configs import InvalidConfig
    from penstock.node.config import load

    if path is None:
        return Check(
            "config", CheckVerdict.skipped, "no file given", "pass the node's file with --config"
        )
    try:
        config = load(path, {}, {})
    except InvalidConfig as error:
        return Check("config", CheckVerdict.fail, str(error), "correct the file")
    if config.is_insecure:
        action = "set up users and TLS: see docs/how-to/security.md"
        return Check("config", CheckVerdict.warn, f"{path} has no authentication", action)
    return Check("config", CheckVerdict.ok, f"{path} is valid")
