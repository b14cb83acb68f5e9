"""History of what clients asked and were answered, for a checker of another project to read.

Every operation has the time of its call and of its return on one clock, and one of three outcomes:
`ok`, it happened in between; `fail`, it did not happen and never will; `info`, unknown: it may
have happened at any time from its call on, or not at all. A time-out is `info`, always. The fields
of the lines are those of `Op` in tools/linearizability/main.go.
"""

import itertools
import json
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

OK, FAIL, INFO = "ok", "fail", "info"
Line = dict[str, Any]


class Call:
    """An operation that has begun; settled once, and else not certain."""

    def __init__(self, line: Line, journal: "Journal") -> None:
        self.line = line
        self._journal = journal

    def again(self) -> None:
        """It begins only now."""
        self.line["call"] = self._journal.now_ns()

    def ok(self, **fields: Any) -> None:
        self._settle(OK, fields)

    def fail(self, why: object, **fields: Any) -> None:
        self._settle(FAIL, {"why": str(why), **fields})

    def info(self, why: object, **fields: Any) -> None:
        self._settle(INFO, {"why": str(why), **fields})

    def _settle(self, outcome: str, fields: Line) -> None:
        assert self.line["outcome"] == INFO, f"settled before: {self.line}"
        self.line.update(fields, outcome=outcome)
        self.line["return"] = self._journal.now_ns()
        if outcome == OK:
            self._journal.oks_ns.append(self.line["return"])


class Journal:
    """Shared by all clients of a run; lines are in the order of their calls."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.oks_ns: list[int] = []
        """Times of successful operations."""
        self._began_ns = time.monotonic_ns()

    def now_ns(self) -> int:
        return time.monotonic_ns() - self._began_ns

    def call(self, process: str, f: str, **fields: Any) -> Call:
        line: Line = {"process": process, "f": f, "outcome": INFO, **fields}
        line["call"] = line["return"] = self.now_ns()
        self.lines.append(line)
        return Call(line, self)

    def done(self, began_ns: int, process: str, f: str, **fields: Any) -> Line:
        """An operation that was known only when it was answered."""
        line: Line = {"process": process, "f": f, "outcome": OK, "call": began_ns, **fields}
        line["return"] = self.now_ns()
        self.lines.append(line)
        self.oks_ns.append(line["return"])
        return line

    def write(self, path: Path) -> None:
        write(path, self.lines)

    def counts(self) -> Counter[str]:
        """Of outcomes."""
        return Counter(line["outcome"] for line in list(self.lines))

    def reasons(self, outcome: str) -> Counter[str]:
        """Reasons of failed or uncertain operations."""
        lines = [line for line in list(self.lines) if line["outcome"] == outcome]
        return Counter(f"{line['f']}: {line.get('why', 'no answer')}" for line in lines)

    def longest_silence_s(self) -> float:
        """The longest time in which nothing succeeded."""
        times = sorted(self.oks_ns)
        return max((b - a for a, b in itertools.pairwise(times)), default=0) / 1e9


def write(path: Path, lines: Iterable[Line]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
