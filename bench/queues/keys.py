"""`python -m bench.queues.keys`: order per key with failures, and their cost for other keys.

    python -m bench.queues.keys [--keys N] [--workers N] [--each N] [--rounds R]

Many workers process messages of many keys from one queue with order by key, without failures and
with 5 % of all attempts failing, in turns. A failed key waits for its retry; other keys must
continue, and messages of a key must stay in order. The ratio is attempts per second with failures
over attempts per second without: a failed attempt is work as well.
"""

import argparse
import asyncio
import logging
import statistics
import sys

from rich.console import Console

from bench.queues.report import PAGE, put
from bench.run import CACHE
from bench.sides import penstock
from tests.scenarios.working import KeysResult, run_keys

FAILING = 0.05


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 130)
    logging.disable(logging.ERROR)  # Every failure of a handler is logged, and there are many.
    rates: dict[float, list[float]] = {0.0: [], FAILING: []}
    violations = failures = 0
    with penstock().running(CACHE / "keys") as process:
        for _ in range(options.rounds):
            for share in rates:
                result = asyncio.run(_run(process.bootstrap, options, share))
                rates[share].append(result.check.attempts / result.seconds)
                violations += len(result.check.violations)
                failures += result.failures
                console.print(f"[dim]{share:.0%} fail: {rates[share][-1]:,.0f} tries/s[/dim]")
    plain, failing = (statistics.median(rates[share]) for share in (0.0, FAILING))
    text = (
        f"{options.keys:,} keys, {options.workers} workers, {options.each} messages of each key: "
        f"{violations} order violations in {failures:,} failures; {failing:,.0f} tries a second "
        f"with failures, {plain:,.0f} without: {failing / plain:.2f} of it."
    )
    console.print(text)
    if options.write:
        put("keys", text)
    return 1 if violations else 0


async def _run(bootstrap: str, options: argparse.Namespace, share: float) -> KeysResult:
    return await run_keys(
        bootstrap, keys=options.keys, workers=options.workers, each=options.each, share=share
    )


if __name__ == "__main__":
    sys.exit(main())
