"""One cell of the table: a workload on a new cluster, one kind of fault again and again, a verdict.

A cell ends in one of these: `ok`; `illegal`, the checker found no order that the model allows;
`unknown`, it had not time enough; `stuck`, after all was mended something did not come back or a
client hung; `broken`, the cell itself could not go on.
"""

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.cluster_view import wait_whole
from tests.histories.checker import OK, check
from tests.histories.faults import KINDS
from tests.histories.groups import Groups
from tests.histories.journal import Journal
from tests.histories.logs import Logs
from tests.histories.queue import Queue
from tests.histories.stage import Stage, a_cluster, seeded
from tests.histories.transactions import Transactions
from tests.histories.workload import Workload
from tests.processes import ProcessFailed

WORKLOADS: dict[str, type[Workload]] = {
    "log": Logs,
    "transactions": Transactions,
    "queue": Queue,
    "groups": Groups,
}
STUCK, BROKEN = "stuck", "broken"
WARM_S = 1.0


@dataclass
class Cell:
    """Result of one run."""

    fault: str
    workload: str
    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    silence_s: float = 0.0
    verdict: str = OK
    text: str = ""
    reasons: Counter[str] = field(default_factory=Counter)

    def worsen(self, verdict: str, text: str) -> None:
        """Keeps the first that was not good, and all that is said."""
        if self.verdict == OK:
            self.verdict = verdict
        self.text = f"{self.text}\n{text}".strip()


def run(
    fault: str,
    workload: str,
    seconds: float,
    seed: int,
    directory: Path,
    say: Callable[[str], None] = print,
) -> Cell:
    """The history and the logs stay in `directory`."""
    cell = Cell(fault, workload, seed)
    journal = Journal()
    luck = seeded(fault, workload, seed)
    try:
        with a_cluster(directory, has_clocks=fault == "clocks") as (nodes, network, clocks):
            load = WORKLOADS[workload](nodes, journal, luck.getrandbits(64))
            load.prepare()
            stage = Stage(nodes, load.watched, load, luck, network, clocks)
            wait_whole(nodes, load.watched)
            load.begin()
            try:
                with _noted(cell):
                    load.wait_progress()
                    _disturb(stage, cell, seconds, seed, say)
                with _noted(cell):
                    stage.mend()
                    load.wait_progress()
            finally:
                load.end()
                for error in load.errors:
                    cell.worsen(STUCK, error)
            with _noted(cell):
                load.look()
    except (TimeoutError, ProcessFailed) as error:
        cell.worsen(BROKEN, f"the cluster did not begin: {error}")
    history = directory / "history.jsonl"
    journal.write(history)
    cell.outcomes, cell.silence_s = journal.counts(), journal.longest_silence_s()
    cell.reasons = journal.reasons("info") + journal.reasons("fail")
    verdict = check(WORKLOADS[workload].model, history)
    cell.text = f"{verdict.text}\n{cell.text}".strip()
    if verdict.word != OK:
        # Wrong results outweigh late ones.
        cell.verdict = verdict.word
    return cell


@contextlib.contextmanager
def _noted(cell: Cell) -> Iterator[None]:
    """Notes what did not come back in time, and goes on with what is left to be seen."""
    try:
        yield
    except (TimeoutError, ProcessFailed, AssertionError) as error:
        during = f" after {cell.faults[-1]}" if cell.faults else ""
        cell.worsen(STUCK, f"{type(error).__name__}{during}: {error}")


def _disturb(
    stage: Stage, cell: Cell, seconds: float, seed: int, say: Callable[[str], None]
) -> None:
    """One shape after another, beginning with the one the seed says, until time is up."""
    deadline = time.monotonic() + seconds
    shapes = KINDS[cell.fault]
    first = seed % len(shapes)
    for shape in itertools.islice(itertools.cycle(shapes), first, None):
        if time.monotonic() >= deadline:
            return
        cell.faults.append(shape.__name__)
        say(f"  {shape.__name__}")
        shape(stage)
        time.sleep(WARM_S)
