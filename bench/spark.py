"""`make bench-spark`: the Spark source and sink beside Spark's own Kafka connector.

    python -m bench.spark [--share N] [--rounds N] [--only PART ...] [--bootstrap HOST:PORT]

One broker, one session `local[2]`, topics filled once; then each side runs every case in turns, so
that other load affects both. The broker is a real Kafka with `--kafka` (needs Java and Maven), else
Penstock; it is the same for both sides. The connector is configured for fetches of 4 MiB, as in
Penstock's source. CPU is that of the driver, its JVM and the Python workers, without the broker.
Prints a table, the phases of a micro-batch and the goals met, and stores them as JSON in
.cache/bench. The session is the one that `penstock pipeline` opens.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from bench.sides import kafka, penstock
from bench.spark_topics import TopicShape, empty, fill
from penstock.spark.session import open_session

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache" / "bench"
CONNECTOR = ROOT / ".cache" / "spark-connector"
FETCH_BYTES = 4 << 20
ROWS_OF = {100: 10_000_000, 1024: 2_000_000}
JVM, OURS, RANGED = "spark-sql-kafka", "penstock", "read_stream"
TUNED = {
    "kafka.max.partition.fetch.bytes": str(FETCH_BYTES),
    "kafka.fetch.max.bytes": str(16 << 20),
    "kafka.max.poll.records": "50000",
    "kafka.receive.buffer.bytes": str(4 << 20),
}

BATCHES = 40
BATCHES_LEFT_OUT = 5
BATCH_MS_GOAL = 350
BATCH_PARTS = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets")
"""Phases of a batch as reported by Spark, in order; the rest is between them."""
CPU_SAMPLE_S = 0.2

Run = Callable[[], None]
Durations = dict[str, int]
"""Spark's `durationMs` of one batch."""


@dataclass
class Case:
    """Measured case: number of rows, and the function of each side."""

    name: str
    rows: int
    sides: dict[str, Run]
    goals: dict[str, float] = field(default_factory=dict)
    """Target of a side, as a multiple of the connector's rows per second."""
    rounds_max: int = 5
    after: Run | None = None
    """Called after each run to clean up."""
    rates: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)


class Spark:
    """Session with its reads and writes."""

    def __init__(self, bootstrap: str, scratch: Path) -> None:
        self.bootstrap = bootstrap
        self.scratch = scratch
        settings = {
            "spark.driver.memory": "2g",
            "spark.driver.host": "127.0.0.1",
            "spark.jars": ",".join(str(jar) for jar in sorted(CONNECTOR.glob("*.jar"))),
        }
        self.session = open_session("bench", master="local[2]", settings=settings)
        self._count = 0

    def options(self, side: str, topic: str) -> dict[str, str]:
        shared = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic}
        return {**shared, **(TUNED if side == JVM else {"fetchBytes": str(FETCH_BYTES)})}

    def batch(self, side: str, topic: str, columns: str | None = None) -> Run:
        options = self.options(side, topic)
        if side != JVM and columns is not None:
            options["columns"] = columns

        def run() -> None:
            form = "kafka" if side == JVM else "penstock"
            frame = self.session.read.format(form).options(**options).load()
            if columns is not None:
                frame = frame.select(*columns.split(","))
            frame.write.format("noop").mode("overwrite").save()

        return run

    def stream(self, side: str, topic: str) -> Run:
        options = {**self.options(side, topic), "startingOffsets": "earliest"}

        def run() -> None:
            if side == RANGED:
                from penstock.spark import read_stream

                frame = read_stream(self.session, **options)
            else:
                form = "kafka" if side == JVM else "penstock"
                frame = self.session.readStream.format(form).options(**options).load()
            self._drain(frame.writeStream.format("noop"))

        return run

    def sink(self, side: str, topic: str, out: str) -> Run:
        """Sinks with rows from `read_stream` on both sides.

        Penstock's sink is exactly once; the connector's supports only at least once.
        """
        options = {**self.options(RANGED, topic), "startingOffsets": "earliest"}

        def run() -> None:
            from penstock.spark import read_stream

            frame = read_stream(self.session, **options, columns="key,value")
            self._drain(self._writer(side, frame, out))

        return run

    def _writer(self, side: str, frame: Any, out: str) -> Any:
        form = "kafka" if side == JVM else "penstock"
        target = {"kafka.bootstrap.servers": self.bootstrap, "topic": out}
        return frame.writeStream.format(form).options(**target)

    def micro_batches(self, side: str, topic: str, out: str, count: int) -> list[Durations]:
        """Durations of small batches from source to sink, without the first ones."""
        options = {**self.options(side, topic), "startingOffsets": "latest"}
        if side == RANGED:
            from penstock.spark import read_stream

            frame = read_stream(self.session, **options, columns="key,value")
        else:
            form = "kafka" if side == JVM else "penstock"
            frame = self.session.readStream.format(form).options(**options).load()
        self._count += 1
        place = self.scratch / f"checkpoint-{self._count}"
        writer = self._writer(side, frame.select("key", "value"), out)
        query = writer.option("checkpointLocation", str(place)).queryName(f"q{self._count}").start()
        found: dict[int, Durations] = {}
        try:
            with trickle(self.bootstrap, topic):
                while len(found) < count + BATCHES_LEFT_OUT:
                    assert query.isActive, query.exception()
                    for row in query.recentProgress:
                        if row["numInputRows"]:
                            found[row["batchId"]] = row["durationMs"]
                    time.sleep(0.1)
        finally:
            query.stop()
        return [found[batch] for batch in sorted(found)][BATCHES_LEFT_OUT:]

    def _drain(self, writer: Any) -> None:
        self._count += 1
        place = self.scratch / f"checkpoint-{self._count}"
        query = writer.option("checkpointLocation", str(place)).trigger(availableNow=True).start()
        query.awaitTermination()


@contextmanager
def trickle(bootstrap: str, topic: str) -> Iterator[None]:
    """Sends a few records repeatedly from a separate thread."""
    stop = threading.Event()

    def send() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
        while not stop.wait(0.02):
            for number in range(20):
                producer.produce(topic, b"x" * 100, b"%d" % number)
            producer.poll(0)
        producer.flush(10)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class CpuMeter:
    """CPU seconds of this process and its descendants, including ended ones.

    Polls the processes, because the CPU time of an ended process is not available. Excludes the
    time after the last poll, very short processes, and processes started before the meter: the
    broker.
    """

    def __init__(self) -> None:
        self._me = psutil.Process()
        self._other_children = {child.pid for child in self._me.children()}
        self._seen: dict[tuple[int, float], float] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def seconds(self) -> float:
        with self._lock:
            for process in self._processes():
                try:
                    times = process.cpu_times()
                    self._seen[process.pid, process.create_time()] = times.user + times.system
                except psutil.NoSuchProcess:
                    continue
            return sum(self._seen.values())

    def _processes(self) -> Iterator[psutil.Process]:
        yield self._me
        for child in self._me.children():
            if child.pid in self._other_children:
                continue
            try:
                yield from [child, *child.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue

    def _watch(self) -> None:
        while True:
            time.sleep(CPU_SAMPLE_S)
            self.seconds()


def measure(case: Case, rounds: int, meter: CpuMeter, console: Console) -> None:
    for turn in range(min(rounds, case.rounds_max) + 1):
        for side, run in case.sides.items():
            before, started = meter.seconds(), time.monotonic()
            run()
            seconds, used = time.monotonic() - started, meter.seconds() - before
            if case.after is not None:
                case.after()
            if turn:  # The first turn warms up classes, workers and page cache.
                case.rates.setdefault(side, []).append(case.rows / seconds)
                case.cpu.setdefault(side, []).append(used)
            rate = f"{case.rows / seconds:,.0f} rows/s"
            console.print(f"  {case.name} {side}: {rate}, {used:.1f} s CPU")


def cases(spark: Spark, shapes: list[TopicShape], parts: set[str]) -> Iterator[Case]:
    sides = [OURS] if not list(CONNECTOR.glob("*.jar")) else [JVM, OURS]
    for shape in shapes:
        is_plain = shape.codec == "none"
        if "batch" in parts:
            runs = {side: spark.batch(side, shape.name) for side in sides}
            goals = {OURS: 1.3} if is_plain else {}
            rounds = 5 if is_plain else 2
            yield Case(f"batch {shape.label}", shape.records, runs, goals, rounds)
        if not is_plain:
            continue
        if "columns" in parts:
            runs = {side: spark.batch(side, shape.name, "offset,timestamp") for side in sides}
            yield Case(f"batch {shape.label}, two columns", shape.records, runs, {}, 2)
        if "stream" in parts:
            runs = {side: spark.stream(side, shape.name) for side in [*sides, RANGED]}
            goals = {OURS: 0.9, RANGED: 1.1}
            yield Case(f"stream {shape.label}", shape.records, runs, goals)
        if "sink" in parts:
            out = f"{shape.name}-out"
            runs = {side: spark.sink(side, shape.name, out) for side in sides}
            label = f"sink {shape.label}, exactly once"
            again = partial(recreate, spark.bootstrap, out)
            again()
            yield Case(label, shape.records, runs, {OURS: 0.8}, after=again)


def recreate(bootstrap: str, topic: str) -> None:
    """Recreates the output topic, so that every run of a sink writes to an empty one."""
    asyncio.run(empty(bootstrap, topic))


def show(found: list[Case], waits: dict[str, list[Durations]], console: Console) -> None:
    table = Table("case", "side", "rows/s", "x connector", "goal", "CPU s", "x connector")
    for case in found:
        base = statistics.median(case.rates[JVM]) if JVM in case.rates else None
        base_cpu = statistics.median(case.cpu[JVM]) if JVM in case.cpu else None
        for side in case.sides:
            rate, used = statistics.median(case.rates[side]), statistics.median(case.cpu[side])
            goal = case.goals.get(side)
            table.add_row(
                case.name,
                side,
                f"{rate:,.0f}",
                f"{rate / base:.2f}" if base else "",
                verdict(rate / base >= goal, f"{goal:g}") if base and goal else "",
                f"{used:.1f}",
                f"{used / base_cpu:.2f}" if base_cpu else "",
            )
    if found:
        console.print(table)
    if waits:
        console.print(batch_table(waits))


def batch_table(waits: dict[str, list[Durations]]) -> Table:
    """Table of micro-batch durations and medians of their phases, in ms."""
    table = Table("micro-batch", "batches", "p50", "p90", "goal", *BATCH_PARTS, title="in ms")
    table.columns[0].no_wrap = True
    for side, batches in waits.items():
        times = sorted(batch["triggerExecution"] for batch in batches)
        middle = statistics.median(times)
        parts = [statistics.median(batch.get(part, 0) for batch in batches) for part in BATCH_PARTS]
        table.add_row(
            side,
            str(len(times)),
            f"{middle:.0f}",
            f"{times[len(times) * 9 // 10]:.0f}",
            "" if side == JVM else verdict(middle <= BATCH_MS_GOAL, f"{BATCH_MS_GOAL}"),
            *(f"{part:.0f}" for part in parts),
        )
    return table


def verdict(is_met: bool, goal: str) -> str:
    return f"[green]{goal} met[/]" if is_met else f"[red]{goal} missed[/]"


def latencies(spark: Spark) -> dict[str, list[Durations]]:
    sides = [OURS, RANGED] if not list(CONNECTOR.glob("*.jar")) else [JVM, OURS, RANGED]
    found: dict[str, list[Durations]] = {}
    for side in sides:
        topic, out = f"latency-{side}", f"latency-{side}-out"
        recreate(spark.bootstrap, topic)
        recreate(spark.bootstrap, out)
        found[side] = spark.micro_batches(side, topic, out, BATCHES)
    return found


@contextmanager
def broker(arguments: argparse.Namespace, scratch: Path) -> Iterator[str]:
    if arguments.bootstrap:
        yield arguments.bootstrap
        return
    side = kafka(lambda text: None) if arguments.kafka else penstock()
    with side.running(scratch) as process:
        yield process.bootstrap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--share", type=int, default=1, help="only one N-th of the rows")
    parser.add_argument("--sizes", nargs="+", type=int, choices=ROWS_OF, default=list(ROWS_OF))
    parser.add_argument("--rounds", type=int, default=3)
    known = ["batch", "columns", "stream", "sink", "latency"]
    parser.add_argument("--only", nargs="+", choices=known, default=known)
    parser.add_argument("--codecs", nargs="+", default=["none", "lz4", "zstd"])
    parser.add_argument("--bootstrap", help="a broker that already runs")
    parser.add_argument("--kafka", action="store_true", help="a real Kafka instead of Penstock")
    arguments = parser.parse_args()
    console = Console(width=120)
    shapes = [
        TopicShape(size, ROWS_OF[size] // arguments.share, codec)
        for codec in arguments.codecs
        for size in arguments.sizes
    ]
    found: list[Case] = []
    with tempfile.TemporaryDirectory() as folder, broker(arguments, Path(folder)) as bootstrap:
        for shape in shapes if set(arguments.only) != {"latency"} else []:
            console.print(f"filling {shape.name} with {shape.records:,} records")
            asyncio.run(fill(bootstrap, shape))
        meter = CpuMeter()
        spark = Spark(bootstrap, Path(folder))
        for case in cases(spark, shapes, set(arguments.only)):
            measure(case, arguments.rounds, meter, console)
            found.append(case)
        waits = latencies(spark) if "latency" in arguments.only else {}
        spark.session.stop()
    show(found, waits, console)
    CACHE.mkdir(parents=True, exist_ok=True)
    rows = [{"case": c.name, "rows": c.rows, "rates": c.rates, "cpu_s": c.cpu} for c in found]
    kept = {"cases": rows, "micro_batch_ms": waits}
    (CACHE / "spark.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
