"""Runs seed after seed for as long as it is told, and says what they came to.

    python -m tests.sim.soak --minutes 10 --first 1000 --jobs 2

New seeds each time unless `--first` is given: it starts where the clock is. Ends at the first
broken promise, with the command that repeats it and the last lines of its journal.
"""

import argparse
import concurrent.futures
import logging
import sys
import time

from penstock.sim.hosted import POINTS, run_seed
from penstock.sim.tally import Tally, Violation

JOURNAL_LINES_SHOWN = 60
SEEDS_PER_START = 100_000


def run_one(seed: int) -> Tally | str:
    """A seed's tally, or what it broke."""
    logging.disable(logging.CRITICAL)
    try:
        return run_seed(seed).tally
    except Violation as violation:
        journal = "\n".join(violation.journal[-JOURNAL_LINES_SHOWN:])
        return f"{journal}\n{violation}\nagain: make sim SEED={seed}"


def soak(first: int, minutes: float, jobs: int) -> int:
    total, seed = Tally(), first
    end = time.monotonic() + minutes * 60
    failure = None
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        waiting: set[concurrent.futures.Future[Tally | str]] = set()
        while failure is None and (waiting or time.monotonic() < end):
            while len(waiting) < jobs and time.monotonic() < end:
                waiting.add(pool.submit(run_one, seed))
                seed += 1
            done, waiting = concurrent.futures.wait(
                waiting, return_when=concurrent.futures.FIRST_COMPLETED
            )
            for future in done:
                result = future.result()
                if isinstance(result, str):
                    failure = result
                else:
                    total.add(result)
    print(f"seeds from {first}: {total.report(POINTS)}")
    if failure is not None:
        print(failure)
    return 0 if failure is None else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--first", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    first = options.first
    if first is None:
        first = int(time.time()) % 1_000_000 * SEEDS_PER_START
    return soak(first, options.minutes, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
