"""Runs cells of the table of faults and workloads, and says what they came to.

    python -m tests.histories --seconds 30 --faults kills,state --workloads log,queue --seed 7

Without names it runs all 28, one after another, each on a cluster of its own. The seed says who is
met by what, and with which shape of a fault a cell begins; each round of the table has the next. A
cell that is not `ok` keeps its history and the logs of all nodes. Ends with 1 if there was one.
"""

import argparse
import itertools
import shutil
import sys
import time

from tests.histories.cells import WORKLOADS, Cell, run
from tests.histories.checker import OK, ROOT, program
from tests.histories.faults import KINDS

KEPT = ROOT / ".cache" / "histories"
HEAD = ("faults", "workload", "seed", "ok", "fail", "info", "faults", "silence s", "verdict")


def table(cells: list[Cell]) -> str:
    rows = [HEAD, *map(_row, cells)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(HEAD))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def _row(cell: Cell) -> tuple[str, ...]:
    counts = [str(cell.outcomes[name]) for name in ("ok", "fail", "info")]
    seen = str(len(cell.faults)), f"{cell.silence_s:.1f}", cell.verdict
    return cell.fault, cell.workload, str(cell.seed), *counts, *seen


def names_of(text: str, known: list[str]) -> list[str]:
    names = text.split(",") if text else known
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"{unknown} is none of {', '.join(known)}")
    return names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="of faults in each cell")
    parser.add_argument("--minutes", type=float, default=0.0, help="rounds of the table until then")
    parser.add_argument("--faults", default="", help=", ".join(KINDS))
    parser.add_argument("--workloads", default="", help=", ".join(WORKLOADS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="what went well, too")
    options = parser.parse_args()
    try:
        faults = names_of(options.faults, list(KINDS))
        workloads = names_of(options.workloads, list(WORKLOADS))
    except argparse.ArgumentTypeError as wrong:
        parser.error(str(wrong))
    program()
    cells: list[Cell] = []
    end = time.monotonic() + options.minutes * 60
    for seed in itertools.count(options.seed):
        for fault, workload in itertools.product(faults, workloads):
            cells.append(_one(fault, workload, options, seed, len(cells) + 1))
        if time.monotonic() >= end:
            break
    print(table(cells))
    return int(any(cell.verdict != OK for cell in cells))


def _one(fault: str, workload: str, options: argparse.Namespace, seed: int, number: int) -> Cell:
    print(f"{number}. {fault} x {workload}, seed {seed}", flush=True)
    directory = KEPT / f"{fault}-{workload}-{seed}"
    seconds: float = options.seconds
    cell = run(fault, workload, seconds, seed, directory, lambda text: print(text, flush=True))
    print(
        f"  {cell.verdict}: {dict(cell.outcomes)}, {dict(cell.reasons.most_common(4))}", flush=True
    )
    if cell.verdict == OK and not options.keep:
        shutil.rmtree(directory)
    else:
        print(f"{cell.text}\n  kept: {directory.relative_to(ROOT)}", flush=True)
    return cell


if __name__ == "__main__":
    sys.exit(main())
