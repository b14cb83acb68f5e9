"""`make bench`: measures Penstock and, if Java and Maven are available, Kafka in turns.

    python -m bench.run [--quick] [--rounds N] [--only PART ...] [--no-peer] [--redraw FILE ...]
    python -m bench.run --old COMMIT [--quick] [--rounds N] [--only PART ...]

Each round measures one side and then the other, so that other load affects both. A full run
with both sides rewrites docs/benchmarks.md and its chart; a quick or partial one only prints and
stores its JSON. Exits with 1 if a measurement failed, not if a target was missed.

With `--old`, an older commit of Penstock takes Kafka's place on a single node: the ratios say
what changed since, whatever else the machine does. Targets, which compare with Kafka, are left out.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import coordination, encryption, load, measures, replicated, report, tls
from bench.catalogue import PARTITIONS, SIZES
from bench.measures import QUICK, Sizes
from bench.peers import kafka as kafka_peer
from bench.probe import ProbeFailed
from bench.sides import Process, Side, kafka, penstock
from tests.mixed import trees
from tests.processes import ProcessFailed

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache" / "bench"
DOCS = ROOT / "docs"
CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")
"""Congestion control, part of the machine: on loopback, pacing costs more than sending."""
BUSY_LOAD = 0.7
WARM_UPS = 2
STARTED = ("start", "many", "memory")
RUNNING = ("traffic", "requests", "groups", "txns", "latency")
CLUSTERS = ("replicated", "tls")
OWN = ("encryption",)
PARTS = (*STARTED, *RUNNING, *CLUSTERS, *OWN)
FAILURES = (load.LoadFailed, ProbeFailed, ProcessFailed, OSError, subprocess.SubprocessError)

Measure = Callable[[], measures.Figures]


class Run:
    """Run with its sides, sizes and results."""

    def __init__(self, options: argparse.Namespace, sides: list[Side], progress: Progress) -> None:
        self.sizes = QUICK if options.quick else Sizes()
        if options.payload_mb:
            self.sizes = replace(self.sizes, payload_bytes=options.payload_mb * 1_000_000)
        self.parts = options.only or PARTS
        self.sides = sides
        self.data = CACHE / f"data-{os.getpid()}"
        self.progress = progress
        self.results = report.Results(describe(self.sizes), options.rounds, options.quick)
        self.results.peer = report.OLD if options.old else report.PEER
        self._bar = progress.add_task("", total=self._steps())

    def _steps(self) -> int:
        each = {"traffic": len(SIZES) * len(PARTITIONS), "txns": len(SIZES)}
        each["replicated"] = len(replicated.SHAPES)
        compared = [part for part in self.parts if part not in OWN]
        steps = sum(each.get(part, 1) for part in compared) * len(self.sides)
        steps += len(self.parts) - len(compared)
        own = any(side.name == report.OWN for side in self.sides)
        extra = (own and "latency" in self.parts) + ("traffic" in self.parts)
        return (steps + extra) * self.results.rounds

    def step(self, side: str, what: str, measure: Measure) -> None:
        """Takes one measurement of one side; records a failure and continues."""
        self.progress.update(self._bar, description=f"{side}: {what}")
        began = time.monotonic()
        try:
            figures = measure()
            self.results.add(side, figures)
            found = ", ".join(report.number(value) for value in figures.values())
            took = f"{time.monotonic() - began:.0f} s"
            self.progress.console.print(f"[dim]{side}, {what} ({took}): {found}[/dim]")
        except FAILURES as failure:
            self.results.failures.append(f"{side}, {what}: {failure}")
            self.progress.console.print(f"[red]{side}, {what}: {failure}[/red]")
        self.progress.advance(self._bar)

    def measure_all(self) -> None:
        self.measure_starts()
        if set(RUNNING) & set(self.parts):
            self.measure_running()
        if "replicated" in self.parts:
            self.measure_replicated()
        if "tls" in self.parts:
            self.measure_tls()
        if "encryption" in self.parts:
            self.measure_encryption()

    def measure_starts(self) -> None:
        """Measurements that need their own brokers."""
        measured: dict[str, Callable[[Side], measures.Figures]] = {
            "start": lambda side: measures.start(side, self.data),
            "many": lambda side: measures.start_many(side, self.data, self.sizes),
            "memory": lambda side: measures.memory(side, self.data, self.sizes),
        }
        for part, measure in measured.items():
            for _ in range(self.results.rounds if part in self.parts else 0):
                for side in self.sides:
                    self.step(side.name, part, lambda m=measure, s=side: m(s))  # type: ignore[misc]

    def measure_running(self) -> None:
        """Measurements on long-running brokers, in turns."""
        with ExitStack() as stack:
            up = {side.name: stack.enter_context(side.running(self.data)) for side in self.sides}
            self.warm_up(up)
            if "traffic" in self.parts:
                self.measure_traffic(up)
            if "requests" in self.parts:
                self.in_steps(up, "requests", lambda p: measures.requests(p, self.sizes))
            if "groups" in self.parts:
                self.in_steps(up, "groups", lambda p: coordination.groups(p, self.sizes))
            if "txns" in self.parts:
                self.measure_txns(up)
            if "latency" in self.parts:
                self.measure_latency(up)

    def measure_traffic(self, up: dict[str, Process]) -> None:
        for _ in range(self.results.rounds):
            self.step("machine", "plain writes", lambda: measures.floor(self.data, self.sizes))
        for size in SIZES:
            for partitions in PARTITIONS:

                def measure(
                    process: Process, size: int = size, partitions: int = partitions
                ) -> measures.Figures:
                    return measures.traffic(process, size, partitions, self.sizes)

                self.in_steps(up, f"traffic {size} B, {partitions} partition(s)", measure)

    def measure_txns(self, up: dict[str, Process]) -> None:
        for size in SIZES:

            def measure(process: Process, size: int = size) -> measures.Figures:
                return coordination.txns(process, size, self.sizes)

            self.in_steps(up, f"transactions {size} B", measure)

    def measure_replicated(self) -> None:
        """Measures three nodes of each side, both running; the side not measured is idle."""
        known = replicated.clusters(lambda text: None)
        with ExitStack() as stack:
            up = {
                side.name: stack.enter_context(replicated.running(known[side.name], self.data))
                for side in self.sides
            }
            for partitions in replicated.SHAPES:
                for cluster in up.values():
                    # Three JVMs compile three times as much code.
                    for _ in range(WARM_UPS):
                        replicated.writes(cluster, partitions, self.sizes)
            for partitions in replicated.SHAPES:
                for _ in range(self.results.rounds):
                    for name, cluster in up.items():

                        def measure(
                            c: replicated.Cluster = cluster, p: int = partitions
                        ) -> measures.Figures:
                            return replicated.writes(c, p, self.sizes)

                        self.step(name, f"three nodes, {partitions} partition(s)", measure)

    def measure_tls(self) -> None:
        certificate = tls.Certificate(self.data / "tls")
        found = tls.sides(certificate, [side.name for side in self.sides], lambda text: None)
        with tls.running(found, self.data) as up:
            for process in up.values():
                tls.traffic(process, certificate, self.sizes.warming())
            self.in_steps(up, "TLS", lambda p: tls.traffic(p, certificate, self.sizes))

    def measure_encryption(self) -> None:
        with encryption.running(self.data) as process:
            encryption.traffic(process, self.sizes.warming())
            for number in range(self.results.rounds):

                def measure(number: int = number) -> measures.Figures:
                    return encryption.traffic(process, self.sizes, number)

                self.step(report.OWN, "encryption", measure)

    def in_steps(
        self, up: dict[str, Process], what: str, measure: Callable[[Process], measures.Figures]
    ) -> None:
        for _ in range(self.results.rounds):
            for name, process in up.items():
                self.step(name, what, lambda p=process: measure(p))  # type: ignore[misc]

    def warm_up(self, up: dict[str, Process]) -> None:
        """Lets a JVM compile its hot paths first: a cold one would favor Penstock."""
        for name, process in up.items():
            self.progress.update(self._bar, description=f"{name}: warming up")
            for size in SIZES:
                for partitions in PARTITIONS:
                    measures.traffic(process, size, partitions, self.sizes.warming())

    def measure_latency(self, up: dict[str, Process]) -> None:
        """Measures each side in turn, and Penstock without sync."""
        with ExitStack() as stack:
            unsynced = None
            if report.OWN in up:
                side = penstock({"flush.policy": "page-cache"})
                unsynced = stack.enter_context(side.running(self.data))
            for _ in range(self.results.rounds):
                for name, process in up.items():
                    self.step(
                        name,
                        "latency",
                        lambda p=process: measures.latency(p, self.sizes),  # type: ignore[misc]
                    )
                if unsynced is not None:
                    self.step(
                        report.OWN,
                        "latency, page cache",
                        lambda p=unsynced: measures.latency(  # type: ignore[misc]
                            p, self.sizes, "latency_page_cache"
                        ),
                    )
        for rank in ("p50", "p99", "p999"):
            # Kafka never syncs, so its figure is compared with both of Penstock's.
            peers = self.results.values.get(f"latency_{rank}", {}).get(self.results.peer)
            if peers and unsynced is not None:
                self.results.values[f"latency_page_cache_{rank}"][self.results.peer] = peers


def describe(sizes: Sizes) -> dict[str, str]:
    """Description of the machine and the volume of work for the report."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    machine = f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()}"
    if CONGESTION.exists():
        machine += f", TCP with {CONGESTION.read_text().strip()}"
    return {
        "machine": machine,
        "kafka": kafka_peer.KAFKA_VERSION,
        "volume": f"{sizes.payload_bytes / 1e6:,.0f} MB of payload each",
        "window": str(measures.WINDOW),
        "connections": str(coordination.CONNECTIONS),
        "in_flight": str(coordination.IN_FLIGHT),
        "latency_s": str(sizes.latency_s),
        "load_before": f"{os.getloadavg()[0]:.2f}",
    }


def choose_sides(options: argparse.Namespace, console: Console, stack: ExitStack) -> list[Side]:
    """Penstock, and its peer: an older commit if one is given, else Kafka if available."""
    sides = [penstock()]
    if options.old:
        console.print(f"[dim]checking out {options.old}[/dim]")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        older = stack.enter_context(trees.checkout(options.old, folder / "old"))
        return [*sides, penstock(name=report.OLD, prefix=older.prefix())]
    if options.no_peer:
        return sides
    if options.no_penstock:
        sides = []

    def say(text: str) -> None:
        console.print(f"[dim]{text}[/dim]")

    try:
        kafka_peer.fetch(say)
    except kafka_peer.PeerMissing as missing:
        console.print(f"[yellow]measuring Penstock alone: {missing}[/yellow]")
        return sides
    return [*sides, kafka(lambda text: None)]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a first look")
    parser.add_argument(
        "--rounds", type=int, default=0, help="rounds per side (default 3; quick 1)"
    )
    parser.add_argument("--payload-mb", type=int, help="payload per produce and consume")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="only these parts")
    parser.add_argument("--old", metavar="COMMIT", help="compare with this commit, not with Kafka")
    parser.add_argument("--no-peer", action="store_true", help="measure Penstock alone")
    parser.add_argument("--no-penstock", action="store_true", help="measure Kafka alone")
    parser.add_argument(
        "--redraw",
        type=Path,
        nargs="+",
        help="write the documentation from this JSON; later files add and replace figures",
    )
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    if options.old:
        options.only = options.only or [*STARTED, *RUNNING]
        if refused := set(options.only) & {*CLUSTERS, *OWN}:
            parser.error(f"--old compares single nodes, not {', '.join(sorted(refused))}")
    return options


def write_docs(results: report.Results) -> None:
    from bench.picture import draw  # matplotlib takes a second to import and is needed only here

    DOCS.mkdir(exist_ok=True)
    report.write_page(results, DOCS / "benchmarks.md")
    draw(results, DOCS / "benchmarks.svg")


def main() -> int:
    options = parse()
    # A log file gets a width for whole titles; a terminal has its own width.
    console = Console(width=None if sys.stdout.isatty() else 130)
    if options.redraw:
        write_docs(report.Results.load(*options.redraw))
        return 0
    for generator in ("load", "pipe"):
        load.binary(generator)
    if os.getloadavg()[0] > BUSY_LOAD:
        busy = f"the machine is busy (load {os.getloadavg()[0]:.1f})"
        console.print(f"[yellow]{busy}: latencies will say more about it than about us[/yellow]")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with ExitStack() as stack:
        sides = choose_sides(options, console, stack)
        progress = stack.enter_context(Progress(*columns, TimeElapsedColumn(), console=console))
        run = Run(options, sides, progress)
        results, path = run.results, CACHE / time.strftime("%Y%m%d-%H%M%S.json")
        try:
            run.measure_all()
        finally:
            # Saved after any failure: measurements took minutes, and `--redraw` can use them.
            results.save(path)
            shutil.rmtree(run.data, ignore_errors=True)
    report.show(results, console)
    console.print(f"every value: {path.relative_to(ROOT)}")
    if len(sides) == 2 and not (options.quick or options.only or options.payload_mb):
        write_docs(results)
        console.print("wrote docs/benchmarks.md and docs/benchmarks.svg")
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
