"""Compares the output of copying with the input and names anomalies. Pure.

Every record of the input must be in the output once; the records of one transaction must be there
completely or not at all, as its copier was told; and in every partition of the output the records
of one input partition must keep their order.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.chaos.copier import Copy, target_of

EXAMPLES = 5


def anomalies(
    counts: Sequence[int], outputs: Sequence[Sequence[Copy]], fates: Mapping[str, str]
) -> list[str]:
    """All anomalies, each with examples; none if copying was exactly once.

    `counts` has the number of records of each input partition, `outputs` what is visible in each
    output partition, `fates` what copiers know of their transactions.
    """
    found = [
        *_records(counts, outputs),
        *_transactions(outputs, fates),
        *_order(outputs),
    ]
    return [f"{what}: {len(rows)}, such as {', '.join(rows[:EXAMPLES])}" for what, rows in found]


Finding = tuple[str, list[str]]


def _records(counts: Sequence[int], outputs: Sequence[Sequence[Copy]]) -> Iterator[Finding]:
    wanted = {(source, n) for source, count in enumerate(counts) for n in range(count)}
    seen: dict[tuple[int, int], list[str]] = defaultdict(list)
    for copy in itertools.chain.from_iterable(outputs):
        seen[copy.source, copy.number].append(copy.transaction)
    lost = [f"{source}/{number}" for source, number in sorted(wanted - seen.keys())]
    if lost:
        yield "lost", lost
    foreign = [f"{source}/{number}" for source, number in sorted(seen.keys() - wanted)]
    if foreign:
        yield "copied from an aborted transaction", foreign
    double = [
        f"{source}/{number} in {' and '.join(names)}"
        for (source, number), names in sorted(seen.items())
        if len(names) > 1
    ]
    if double:
        yield "duplicate", double
    strays = [
        f"{copy.source}/{copy.number} in {index}"
        for index, rows in enumerate(outputs)
        for copy in rows
        if target_of(copy.source, copy.number, len(outputs)) != index
    ]
    if strays:
        yield "in the wrong partition", strays


def _transactions(outputs: Sequence[Sequence[Copy]], fates: Mapping[str, str]) -> Iterator[Finding]:
    visible = Counter(copy.transaction for rows in outputs for copy in rows)
    sizes = {copy.transaction: copy.size for rows in outputs for copy in rows}
    torn = [f"{name} {visible[name]} of {size}" for name, size in sizes.items()]
    torn = [row for row, name in zip(torn, sizes, strict=True) if visible[name] != sizes[name]]
    if torn:
        yield "torn", torn
    dirty = [name for name in sizes if fates.get(name) == "aborted"]
    if dirty:
        yield "aborted but visible", dirty
    gone = [name for name, fate in fates.items() if fate == "committed" and name not in sizes]
    if gone:
        yield "committed but not visible", gone


def _order(outputs: Sequence[Sequence[Copy]]) -> Iterator[Finding]:
    back: list[str] = []
    for index, rows in enumerate(outputs):
        last: dict[int, int] = {}
        for copy in rows:
            if copy.number < last.get(copy.source, -1):
                back.append(f"{copy.source}/{copy.number} after {last[copy.source]} in {index}")
            last[copy.source] = copy.number
    if back:
        yield "out of order", back
