"""Runs new seeds for a given time, and reports their results.

    python -m tests.sim.soak --minutes 10 --kind cluster --first 1000 --jobs 2

Kinds: `hosted` runs groups and transactions on one node, `cluster` a cluster with all faults at
once for some seconds, `long` a cluster for an hour with minutes between its faults, `queue` a queue
on a cluster, `loss` a cluster whose nodes lose files between two lives, `recreation` a group whose
topic is deleted and created again, `restoration` a metadata store that is put back to a backup;
`all` takes them in turn. Seeds are new each time unless `--first` is given: they start with the
time of day. Ends at the first violation, with the command that repeats it and the last lines of its
journal.

`--total FILE` adds the counts to those in the file, so that a long soak can be run in parts.
"""

import argparse
import concurrent.futures
import json
import logging
import sys
import time
from collections import Counter
from pathlib import Path

from simulation import lost_state_faults, queue_run
from simulation.cluster_run import ALL_POINTS, long_options_of, run_cluster
from simulation.coordinator_run import POINTS, run_seed
from simulation.results import Results, Violation
from simulation.store_restoration import RestorationRun
from simulation.topic_recreation import RecreationRun
from tests.sim import test_recreation, test_restoration

JOURNAL_LINES_SHOWN = 60
SEEDS_PER_START = 100_000
KINDS = ("hosted", "cluster", "long", "queue", "loss", "recreation", "restoration")
ALIKE = ("hosted", "cluster")
"""Kinds of which `make sim SEED` runs a seed."""
POINTS_OF = {
    "hosted": POINTS,
    "queue": queue_run.POINTS,
    "recreation": ("topic created anew", "OffsetCommit NONE"),
    "restoration": ("refused", "recovered"),
}


def run_one(kind: str, seed: int) -> Results | str:
    """A seed's results, or what it broke."""
    logging.disable(logging.CRITICAL)
    try:
        if kind == "hosted":
            return run_seed(seed).results
        if kind == "queue":
            return queue_run.run_queue(seed).results
        if kind == "loss":
            return run_cluster(seed, lost_state_faults.options_of(seed)).results
        if kind == "recreation":
            return run_seed(seed, test_recreation.OPTIONS, RecreationRun).results
        if kind == "restoration":
            return run_seed(seed, test_restoration.options(), RestorationRun).results
        return run_cluster(seed, long_options_of(seed) if kind == "long" else None).results
    except Violation as violation:
        journal = "\n".join(violation.journal[-JOURNAL_LINES_SHOWN:])
        return f"{journal}\n{violation}\nagain: {again(kind, seed)}"


def again(kind: str, seed: int) -> str:
    """The command that repeats a seed."""
    if kind in ALIKE:
        return f"make sim SEED={seed}"
    return f"python -m tests.sim.soak --kind {kind} --first {seed} --seeds 1"


def soak(
    kinds: list[str], first: int, minutes: float, seeds_max: int, jobs: int
) -> tuple[Results, str | None]:
    total, started, failure = Results(), 0, None
    end = time.monotonic() + minutes * 60
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        waiting: set[concurrent.futures.Future[Results | str]] = set()
        while failure is None:
            while len(waiting) < jobs and started < seeds_max and time.monotonic() < end:
                waiting.add(pool.submit(run_one, kinds[started % len(kinds)], first + started))
                started += 1
            if not waiting:
                break
            done, waiting = concurrent.futures.wait(
                waiting, return_when=concurrent.futures.FIRST_COMPLETED
            )
            for future in done:
                result = future.result()
                if isinstance(result, str):
                    failure = result
                else:
                    total.add(result)
    return total, failure


def add_to_file(path: Path, results: Results) -> Results:
    """Adds to the total of all soaks that use this file."""
    together = Results()
    if path.exists():
        found = json.loads(path.read_text())
        for name in ("operations", "faults", "points"):
            found[name] = Counter(found[name])
        together = Results(**found)
    together.add(results)
    rows = {name: getattr(together, name) for name in Results.__slots__}
    path.write_text(json.dumps(rows, indent=1))
    return together


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kind", choices=(*KINDS, "all"), default="all")
    parser.add_argument("--first", type=int, default=None)
    parser.add_argument("--seeds", type=int, default=10**9)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--total", type=Path, default=None)
    options = parser.parse_args()
    first = options.first
    if first is None:
        first = int(time.time()) % 1_000_000 * SEEDS_PER_START
    kinds = list(KINDS) if options.kind == "all" else [options.kind]
    total, failure = soak(kinds, first, options.minutes, options.seeds, options.jobs)
    points = POINTS_OF.get(options.kind, ALL_POINTS)
    print(f"seeds from {first}: {total.report(points)}")
    if options.total is not None:
        print(f"in all: {add_to_file(options.total, total).report(points)}")
    if failure is not None:
        print(failure)
    return 0 if failure is None else 1


if __name__ == "__main__":
    sys.exit(main())
