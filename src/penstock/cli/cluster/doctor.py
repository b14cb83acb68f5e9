"""`penstock doctor`: checks this machine and the cluster, and advises on findings.

Cluster checks of `penstock doctor`: nodes, controller, leaders and replicas.

Machine checks of `penstock doctor`: disk, open files, clock, config. Measuring and judging are
separate: the `judge_*` functions take numbers and return a `Check`. A check is `fail` if data or
service is at risk now, `warn` if it will be, and then advises.
"""

from __future__ import annotations

import enum
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from penstock.base.ids import show_topic_id
from penstock.cli.terminal.errors import UserError, explain
from penstock.cli.terminal.output import (
    OutputFormat,
    console,
    format_option,
    print_data,
    show_bytes,
)
from penstock.cli.terminal.session import CommandSession, brokers_option, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.client.metadata import TopicInfo


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
    from penstock.cluster.configs.effective_configs import InvalidConfig
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


NAMED_MAX = 5


async def check_cluster(session: CommandSession, data: Path | None = None) -> list[Check]:
    """Checks the cluster, and whether the logs in a node's data directory belong to its topics.
    The caller reports a cluster that does not answer."""
    from penstock.client.admin.admin import Admin

    topics = await Admin(session.cluster).list_topics()
    metadata = session.cluster.metadata
    found = judge_cluster(topics, sorted(metadata.brokers), metadata.controller_id)
    if data is not None and _cluster_of(data) == metadata.cluster_id:
        found.append(judge_logs(topics, [one.name for one in (data / "logs").iterdir()]))
    return found


def _cluster_of(data: Path) -> str | None:
    """Returns the id of the cluster whose node has this data directory; None if it has no logs."""
    try:
        meta = json.loads((data / "meta.json").read_bytes())
        return str(meta["cluster_id"]) if (data / "logs").is_dir() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def judge_logs(topics: Sequence[TopicInfo], directories: Sequence[str]) -> Check:
    """Finds log directories of topics that the metadata does not have."""
    known = {show_topic_id(topic.topic_id) for topic in topics}
    strays = sorted(
        name
        for name in directories
        if not name.startswith(".") and name.rpartition(".")[2] not in known
    )
    if not strays:
        return Check("logs", CheckVerdict.ok, "every log directory belongs to a topic")
    action = (
        "if the metadata was restored from a backup, see docs/how-to/restore-metadata.md; if the "
        "topics were deleted while the node was away, remove the directories"
    )
    finding = f"{_some(strays)} belong to no topic that is visible to you"
    return Check("logs", CheckVerdict.warn, finding, action)


def judge_cluster(
    topics: Sequence[TopicInfo], nodes: Sequence[int], controller: int
) -> list[Check]:
    return [
        _nodes(nodes, controller),
        _leaders(topics),
        _copies(topics, nodes),
        _replication(topics, len(nodes)),
    ]


def unreachable(error: object) -> Check:
    action = "start it with `penstock up`, or pass its brokers with -b"
    return Check("cluster", CheckVerdict.fail, f"does not answer: {error}", action)


def _nodes(nodes: Sequence[int], controller: int) -> Check:
    finding = f"{len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}, controller {controller}"
    if controller not in nodes:
        action = "check etcd: without a controller no leader is replaced"
        return Check("cluster", CheckVerdict.fail, f"{finding}, which is down", action)
    if len(nodes) == 2:
        action = "the loss of one of two nodes stops acks=all: add a third"
        return Check("cluster", CheckVerdict.warn, finding, action)
    return Check("cluster", CheckVerdict.ok, finding)


def _leaders(topics: Sequence[TopicInfo]) -> Check:
    lost = [f"{t.name}-{p.index}" for t in topics for p in t.partitions.values() if p.leader_id < 0]
    if lost:
        action = "start the nodes that hold their replicas; see `penstock cluster describe`"
        return Check("leaders", CheckVerdict.fail, f"{_some(lost)} have no leader", action)
    return Check("leaders", CheckVerdict.ok, "every partition has a leader")


def _copies(topics: Sequence[TopicInfo], nodes: Sequence[int]) -> Check:
    lacking = [
        f"{t.name}-{p.index}"
        for t in topics
        for p in t.partitions.values()
        if len(p.isr) < len(p.replicas)
    ]
    if not lacking:
        return Check("replicas", CheckVerdict.ok, "every replica is in sync")
    replicas = {n for t in topics for p in t.partitions.values() for n in p.replicas}
    missing = sorted(replicas - set(nodes))
    action = "see the logs of the nodes that are behind"
    if missing:
        action = f"start node {', '.join(map(str, missing))}"
    return Check("replicas", CheckVerdict.warn, f"{_some(lacking)} are under-replicated", action)


def _replication(topics: Sequence[TopicInfo], node_count: int) -> Check:
    alone = [
        t.name
        for t in topics
        if t.partitions and all(len(p.replicas) == 1 for p in t.partitions.values())
    ]
    if alone and node_count > 1:
        action = "add replicas with `penstock cluster reassign`, and set default.replication.factor"
        return Check(
            "replication", CheckVerdict.warn, f"{_some(alone)} have a single replica", action
        )
    return Check("replication", CheckVerdict.ok, "topics have as many replicas as the nodes allow")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED_MAX])
    rest = len(names) - NAMED_MAX
    return f"{shown} and {rest} more" if rest > 0 else shown


COLOURS = {"ok": "green", "skipped": "dim", "warn": "yellow", "fail": "red"}
ASK_SECONDS = 5.0

http_option = click.option(
    "--http",
    "urls",
    multiple=True,
    metavar="URL",
    help="The HTTP address of a node, such as http://127.0.0.1:8080; repeatable.",
)
config_option = click.option(
    "--config", metavar="FILE", help="The node's config file, to check as well."
)


@click.command("doctor", short_help="Check the machine and the cluster; advise on problems.")
@click.option(
    "--data",
    default="./penstock-data",
    show_default=True,
    metavar="DIR",
    help="The node's data directory, for the disk checks.",
)
@config_option
@http_option
@brokers_option
@format_option
def doctor(
    data: str, config: str | None, urls: tuple[str, ...], brokers: str, format: OutputFormat
) -> int:
    """Check disk, limits, clock, config and cluster; advise on problems.

    Run it on a node's machine, as the node's user. The exit code is 1 if a check fails; warnings
    do not count.

    \b
    penstock doctor
    penstock doctor --data /var/lib/penstock --config node.toml -b node-1:9092
    """
    found = examine(data, config, urls, brokers)
    if format.is_data:
        print_data([check._asdict() for check in found], format)
    else:
        _show(found)
    return 1 if any(check.verdict is CheckVerdict.fail for check in found) else 0


def examine(data: str, config: str | None, urls: tuple[str, ...], brokers: str) -> list[Check]:
    """Runs all checks. A check that cannot run is a finding, too."""
    found = [
        *check_disk(Path(data).absolute()),
        check_files(),
        check_clock(),
        check_config(config),
    ]
    found += [_check_http(url) for url in urls]
    try:
        return [
            *found,
            *run(brokers, lambda session: check_cluster(session, Path(data).absolute())),
        ]
    except UserError:
        raise
    except Exception as error:
        text = explain(error)
        if text is None:
            raise
        return [*found, unreachable(text)]


def _check_http(url: str) -> Check:
    from penstock.runtime.http_request import ask_web

    name = f"http {url}"
    try:
        status, body = ask_web("GET", url.rstrip("/") + "/readyz", None, {}, ASK_SECONDS)
    except ValueError as error:
        raise UserError(f"--http {url!r}: {error}") from None
    except OSError as error:
        action = "check that the node runs and that its port is reachable from here"
        return Check(name, CheckVerdict.fail, f"does not answer: {error}", action)
    text = body[:200].decode(errors="replace").strip()
    if status != 200:
        return Check(name, CheckVerdict.fail, text or str(status), "see the node's log")
    return Check(name, CheckVerdict.ok, "ready")


def _show(found: list[Check]) -> None:
    out = console()
    width = max(len(check.name) for check in found)
    for check in found:
        out.print(f"{check.verdict:<8}", style=COLOURS[check.verdict], end="", markup=False)
        out.print(f"{check.name:<{width}}  {check.finding}", markup=False)
        if check.action and check.verdict is not CheckVerdict.ok:
            out.print(f"{'':{8 + width}}  -> {check.action}", markup=False)
