"""`make bench-queues`: cycles of publish, receive and acknowledge with 1, 10 and 100 consumers.

    python -m bench.queues.run [--rounds N] [--peers DIR] [--only SIDE ...] [--write]

Sides take turns. Peers that are not installed are skipped with a message (`fetch_peers.sh` installs
them). The table has cycles per second and the latency of a message. `--write` updates the table and
the chart in docs/benchmarks-queues.md.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.peers.kafka import PeerMissing, peers_dir
from bench.queues import kafka_protocol, nats, rabbitmq, report, sqs
from bench.queues.cycles import CONSUMERS, Cycles
from bench.run import CACHE
from bench.sides import kafka, penstock

Measure = Callable[[int], Cycles]
SIDES = (
    "penstock, share group",
    "kafka, share group",
    "rabbitmq, quorum queue",
    "nats, jetstream",
    "penstock, sqs",
    "elasticmq, sqs",
)


def sides(stack: ExitStack, peers: Path, only: list[str], console: Console) -> dict[str, Measure]:
    """Available sides, started."""
    found: dict[str, Measure] = {}
    own = stack.enter_context(penstock().running(CACHE / "queues"))
    http = own.http  # type: ignore[attr-defined]

    def kafkas() -> Measure:
        peer = stack.enter_context(kafka(console.print).running(CACHE / "queues"))
        return lambda n: kafka_protocol.cycles(peer.bootstrap, n)

    def rabbit() -> Measure:
        uri = stack.enter_context(rabbitmq.running())
        return lambda n: rabbitmq.cycles(uri, n, peers / "perf-test")

    def jetstream() -> Measure:
        url = stack.enter_context(nats.running(peers / "bin"))
        return lambda n: nats.cycles(url, n)

    def elastic() -> Measure:
        endpoint = stack.enter_context(sqs.elasticmq(peers / "elasticmq"))
        return lambda n: sqs.cycles(endpoint, n)

    makers: dict[str, Callable[[], Measure]] = dict(
        zip(
            SIDES,
            (
                lambda: lambda n: kafka_protocol.cycles(own.bootstrap, n),
                kafkas,
                rabbit,
                jetstream,
                lambda: lambda n: sqs.cycles(http, n),
                elastic,
            ),
            strict=True,
        )
    )
    for name, make in makers.items():
        if only and not any(word in name for word in only):
            continue
        try:
            found[name] = make()
        except (PeerMissing, OSError) as missing:
            console.print(f"[yellow]without {name}: {missing}[/yellow]")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--peers", type=Path, default=peers_dir())
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--write", action="store_true", help=f"write {report.PAGE}")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 130)
    taken: dict[str, dict[int, list[Cycles]]] = {}
    with ExitStack() as stack:
        up = sides(stack, options.peers, options.only, console)
        for consumers in CONSUMERS:
            for _ in range(options.rounds):
                for name, measure in up.items():
                    began = time.monotonic()
                    one = measure(consumers)
                    taken.setdefault(name, {}).setdefault(consumers, []).append(one)
                    took = time.monotonic() - began
                    console.print(
                        f"[dim]{name}, {consumers}: {one.rate:,.0f}/s p99 {one.p99_ms} "
                        f"({took:.0f} s)[/dim]"
                    )
    show(taken, console)
    path = CACHE / time.strftime("queues-%Y%m%d-%H%M%S.json")
    path.write_text(
        json.dumps(
            {
                name: {n: [[c.rate, c.p99_ms] for c in found] for n, found in rows.items()}
                for name, rows in taken.items()
            }
        )
    )
    if options.write:
        report.write(taken, options.rounds)
    return 0


def show(taken: report.Taken, console: Console) -> None:
    table = Table(title="cycles a second (and p99)")
    table.add_column("side")
    for consumers in CONSUMERS:
        table.add_column(f"{consumers} consumers", justify="right")
    for name, rows in taken.items():
        table.add_row(name, *(report.cell(rows.get(consumers, [])) for consumers in CONSUMERS))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
