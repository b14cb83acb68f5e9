"""Results of a run: stored as JSON, printed as a table, written into the documentation.

`Results` holds every value of every round; medians and ratios are computed on demand.
"""

import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.catalogue import FIGURES, Figure

OWN, PEER, OLD = "penstock", "kafka", "older"


@dataclass
class Results:
    """Values of a run; `values[figure][side]` has one value per round."""

    machine: dict[str, str]
    rounds: int
    quick: bool
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    peer: str = PEER

    def add(self, side: str, figures: dict[str, float]) -> None:
        for key, value in figures.items():
            self.values.setdefault(key, {}).setdefault(side, []).append(value)

    def median(self, key: str, side: str) -> float | None:
        taken = self.values.get(key, {}).get(side)
        return statistics.median(taken) if taken else None

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, *paths: Path) -> "Results":
        """Results of runs; figures of later files replace those of earlier ones."""
        first, *later = (cls(**json.loads(path.read_text())) for path in paths)
        for other in later:
            first.values |= other.values
            first.machine = other.machine | first.machine
        return first


@dataclass(frozen=True)
class Row:
    """Comparison of one figure."""

    figure: Figure
    own: float | None
    peer: float | None

    @property
    def ratio(self) -> float | None:
        return self.own / self.peer if self.own is not None and self.peer else None

    @property
    def passes(self) -> bool | None:
        return None if self.own is None else self.figure.passes(self.own, self.peer)


def rows(results: Results) -> Iterator[Row]:
    """Figures of this run, in the catalogue's order; targets compare with Kafka only."""
    for figure in FIGURES:
        if results.peer != PEER:
            figure = replace(figure, rule="")
        own, peer = results.median(figure.key, OWN), results.median(figure.key, results.peer)
        if own is not None or peer is not None:
            yield Row(figure, own, peer)


def floor(results: Results) -> float | None:
    """CPU of the kernel alone to write 1 GB on this machine."""
    return results.median("floor_cpu", "machine")


def number(value: float | None) -> str:
    """Formats with three significant digits and thousands separators."""
    if value is None:
        return "-"
    if abs(value) >= 1_000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{float(f'{value:.3g}'):g}"


def show(results: Results, console: Console) -> None:
    """Prints the table of medians and ratios."""
    title = f"medians of {results.rounds} round(s)" + (
        ", quick: too short to judge by" if results.quick else ""
    )
    table = Table(title=title)
    for column in ("figure", "unit", "Penstock", results.peer, "ratio", "target", ""):
        left = column in ("figure", "unit", "target")
        table.add_column(column, justify="left" if left else "right")
    marks = {True: "[green]✓[/green]", False: "[red]✗[/red]", None: ""}
    for row in rows(results):
        figures = (number(row.own), number(row.peer), number(row.ratio))
        described = (row.figure.title, row.figure.unit)
        table.add_row(*described, *figures, row.figure.wanted, marks[row.passes])
    console.print(table)
    if floor(results) is not None:
        console.print(f"for scale: plain writes to a file cost {number(floor(results))} s/GB")
    for failure in results.failures:
        console.print(f"[red]failed:[/red] {failure}")


PAGE = """# Benchmarks

`make bench` measures Penstock and Apache Kafka {kafka} in one run, with the same clients, in
turns, on one machine ({machine}). These are medians of {rounds} rounds. Absolute figures
move with the machine and its neighbours; the ratios are what counts.

![Penstock beside Kafka](benchmarks.svg)

Penstock syncs every record to disk before it acknowledges it, Kafka (with its defaults) does not.

| Figure | Unit | Penstock | Kafka | Ratio | Target | Met |
|---|---|---:|---:|---:|---|---|
{rows}

## How it is measured

- Both brokers run one node on loopback with replication factor 1, data on the same disk. Kafka has
  a 1 GiB heap and the settings it ships with.
- Produce and consume: a load generator in C (`bench/load/load.c`) over the librdkafka that
  confluent-kafka carries, `acks=all`, no compression, librdkafka's own batching; {volume},
  read three times over.
  Broker CPU is user and system time of the broker process, per 10^9 bytes of payload.
- Requests: one connection keeps {window} produce requests of one 100-byte record in flight, frames
  built once.
- Heartbeats and offset commits: {connections} connections, each with a member of a group of its
  own and {in_flight} requests in flight, from another generator (`bench/load/pipe.c`) that sends
  frames built once. A commit is answered when it is kept: by Penstock on disk, by Kafka in memory.
- Transactions: one transactional producer of librdkafka at full speed on 6 partitions commits
  every 100 ms; a commit is timed from the moment when every record is delivered.
- Latency: 1,000 messages a second of 100 bytes for {latency_s} seconds, `linger.ms=0`; the clock
  runs from the producer's call to the consumer's; the first tenth is not counted.
- Memory: resident set after two idle seconds, and its peak while 100 partitions are written and
  read.
- Start: from exec to the first answered metadata request, on an existing data directory.
- The disk is synced and free memory is touched before each measurement, and both brokers drop
  deleted segments after half a second, so that neither side pays for the other's pages. For scale:
  plain writes to a file cost {floor} s of CPU per GB on this machine in this run.

Every value of every round is in the JSON file that the run leaves in `.cache/bench`.
"""


def write_page(results: Results, path: Path) -> None:
    """Writes docs/benchmarks.md from the results."""
    marks = {True: "yes", False: "**no**", None: ""}
    lines = [
        f"| {row.figure.title} | {row.figure.unit} | {number(row.own)} | {number(row.peer)} "
        f"| {number(row.ratio)} | {row.figure.wanted} | {marks[row.passes]} |"
        for row in rows(results)
    ]
    words = {"rounds": results.rounds, "rows": "\n".join(lines), "floor": number(floor(results))}
    words |= results.machine
    path.write_text(PAGE.format(**words))
