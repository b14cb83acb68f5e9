"""The checker of histories: good ones pass, and every kind of bad one is called by its name.

Each history is written down as it might have been, with times in steps; `planted` says what was
changed in it and which words must be in the answer.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.histories.checker import ILLEGAL, OK, check, require_checker
from tests.histories.journal import Line, write

Spoils = Callable[[list[Line]], object]


@pytest.fixture(scope="module", autouse=True)
def _checker() -> None:
    require_checker()


def op(f: str, call: int, end: int, outcome: str = "ok", **fields: Any) -> Line:
    shown = {"process": fields.pop("by", "p"), "f": f, "outcome": outcome}
    return {**shown, "call": call, "return": end, **fields}


def between(call: int, end: int) -> Line:
    return {"call": call, "return": end}


def append(offset: int, call: int, end: int, outcome: str = "ok", **fields: Any) -> Line:
    fields.setdefault("value", f"v{offset}")
    return op("append", call, end, outcome, key="0", offset=offset, **fields)


def read(first: int, values: list[str], call: int, end: int, **fields: Any) -> Line:
    records = [{"offset": first + n, "value": value} for n, value in enumerate(values)]
    bounds: Line = {"from": first, "next": first + len(values)}
    return op("read", call, end, key="0", **bounds, records=records, **fields)


def a_log() -> list[Line]:
    """Three acknowledged, one refused, one that was not certain and is there, one that is not."""
    return [
        append(0, 10, 20),
        append(1, 15, 30, by="q"),
        append(-1, 35, 40, "fail", value="refused"),
        append(-1, 41, 50, "info", value="v2"),
        append(-1, 42, 50, "info", value="nowhere"),
        read(0, ["v0", "v1"], 35, 45),
        append(3, 60, 70),
        read(2, ["v2", "v3"], 65, 75),
        read(0, ["v0", "v1", "v2", "v3"], 90, 99, final=True),
    ]


def renamed(line: Line, place: int, value: str) -> None:
    line["records"][place]["value"] = value


LOGS: dict[str, tuple[str, Spoils]] = {
    "lost at the end": ("lost or skipped: 3=v3", lambda rows: rows[-1]["records"].pop()),
    "lost in the middle": ("lost or skipped: 1=v1", lambda rows: rows[-1]["records"].pop(1)),
    "skipped by a reader": ("lost or skipped: 0=v0", lambda rows: rows[5]["records"].pop(0)),
    "phantom": (
        "read of 4=ghost, which was not there",
        lambda rows: rows[-1]["records"].append({"offset": 4, "value": "ghost"}),
    ),
    "refused but written": (
        "read of 4=refused, which was not there",
        lambda rows: rows[-1]["records"].append({"offset": 4, "value": "refused"}),
    ),
    "written twice": (
        "read of 4=v3, which was not there",
        lambda rows: rows[-1]["records"].append({"offset": 4, "value": "v3"}),
    ),
    "dirty read": ("read of 1=other", lambda rows: renamed(rows[5], 1, "other")),
    "overwritten": (
        "another record at that offset",
        lambda rows: rows.insert(6, append(1, 50, 55, value="again")),
    ),
    "read before it was sent": ("read of 3=v3", lambda rows: rows[6].update(between(80, 85))),
    "offset went back": (
        "its offset is after that of a record that was not sent by then",
        lambda rows: [rows.pop(5), rows[0].update(between(51, 58))],
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_invalid_log_history_is_named(name: str, tmp_path: Path) -> None:
    expect(tmp_path, "log", a_log(), *LOGS[name])


def some_transactions() -> list[Line]:
    """One is committed, one aborted, one not certain and there, one not certain and not there."""

    def transaction(name: str, call: int, outcome: str, *offsets: int) -> Line:
        rows = enumerate(offsets)
        writes = [{"key": str(k), "offset": at, "value": f"{name}/{k}"} for k, at in rows]
        return op("transaction", call, call + 5, outcome, value=name, writes=writes)

    def seen(key: int, call: int, final: bool, *values: tuple[int, str]) -> Line:
        records = [{"offset": at, "value": value} for at, value in values]
        fields: Line = {"from": 0, "next": values[-1][0] + 1, "records": records, "final": final}
        return op("read", call, call + 5, key=str(key), **fields)

    return [
        transaction("a", 10, "ok", 0, 0),
        transaction("b", 20, "fail", 2, 2),
        transaction("c", 30, "info", -1, -1),
        transaction("d", 40, "info", 6, 6),
        seen(0, 50, False, (0, "a/0"), (4, "c/0")),
        seen(0, 90, True, (0, "a/0"), (4, "c/0")),
        seen(1, 90, True, (0, "a/1"), (4, "c/1")),
    ]


TRANSACTIONS: dict[str, tuple[str, Spoils]] = {
    "torn": ("torn transaction c", lambda rows: rows[-1]["records"].pop()),
    "committed and lost": ("lost or skipped: 0=a/1", lambda rows: rows[-1]["records"].pop(0)),
    "aborted and there": (
        "read of 2=b/0, which was not there",
        lambda rows: rows[4]["records"].insert(1, {"offset": 2, "value": "b/0"}),
    ),
    "seen before its commit": ("read of 4=c/0", lambda rows: rows[2].update(call=60)),
    "seen, then gone": (
        "lost or skipped: 4=c/0",
        lambda rows: [row["records"].pop() for row in rows[-2:]],
    ),
}


@pytest.mark.parametrize("name", TRANSACTIONS)
def test_invalid_transaction_history_is_named(name: str, tmp_path: Path) -> None:
    expect(tmp_path, "transactions", some_transactions(), *TRANSACTIONS[name])


def a_queue() -> list[Line]:
    """One released, held too long and dead-lettered; one acknowledged; one that never was."""

    def on(value: str, f: str, call: int, end: int, outcome: str = "ok", **fields: Any) -> Line:
        return op(f, call, end, outcome, value=value, **fields)

    def lease(value: str, name: str, count: int, call: int, until: int) -> Line:
        fields: Line = {"lease": name, "count": count, "until": until, "limit": 3}
        return on(value, "lease", call, call + 5, **fields)

    return [
        on("m", "enqueue", 1, 5),
        lease("m", "m1", 1, 10, 1010),
        on("m", "nack", 20, 25, lease="m1"),
        lease("m", "m2", 2, 30, 1030),
        lease("m", "m3", 3, 1029, 2029),
        on("m", "dead", 2100, 2110),
        on("m", "gone", 3000, 3010),
        on("n", "enqueue", 2, 9, "info"),
        lease("n", "n1", 1, 20, 1020),
        on("n", "ack", 30, 35, "info", lease="n1"),
        lease("n", "n2", 2, 1050, 2050),
        on("n", "ack", 1060, 1070, lease="n2"),
        on("n", "gone", 3000, 3010),
        on("o", "enqueue", 2, 9, "info"),
        on("o", "gone", 3000, 3010),
    ]


QUEUES: dict[str, tuple[str, Spoils]] = {
    "leased twice": ("leased twice: m2", lambda rows: rows[4].update(between(900, 905))),
    "delivered after its acknowledgement": (
        "delivered again although acked",
        lambda rows: rows[9].update(outcome="ok"),
    ),
    "acknowledged under a lease that was over": (
        "settled under a lease that was over",
        lambda rows: rows[9].update(between(1056, 1058), outcome="ok"),
    ),
    "too many deliveries": ("the limit is 3", lambda rows: rows[4].update(count=4)),
    "a count that stands still": (
        "delivery 2 after delivery 2",
        lambda rows: rows[4].update(count=2),
    ),
    "lost": ("lost: sent", lambda rows: rows.pop(5)),
    "refused and delivered": (
        "refused or never sent",
        lambda rows: rows[7].update(outcome="fail"),
    ),
    "dead-lettered although acknowledged": (
        "dead-lettered although",
        lambda rows: rows.append(op("dead", 2100, 2110, value="n")),
    ),
}


@pytest.mark.parametrize("name", QUEUES)
def test_invalid_queue_history_is_named(name: str, tmp_path: Path) -> None:
    expect(tmp_path, "queue", a_queue(), *QUEUES[name])


def a_group() -> list[Line]:
    """Commits of which one is not certain, and owners who take turns."""

    def own(name: str, call: int, until: int) -> Line:
        return op("own", call, call + 5, key="g/0", lease=name, until=until)

    def commit(offset: int, call: int, outcome: str = "ok") -> Line:
        return op("commit", call, call + 5, outcome, key="g/0", offset=offset)

    def told(offset: int, call: int) -> Line:
        return op("fetch", call, call + 5, key="g/0", offset=offset)

    return [
        own("a 1", 0, 100),
        told(-1, 5),
        commit(10, 20),
        commit(20, 30, "info"),
        told(10, 40),
        told(20, 60),
        own("b 1", 101, 200),
        commit(30, 110),
        commit(40, 120, "info"),
        told(30, 150),
    ]


GROUPS: dict[str, tuple[str, Spoils]] = {
    "a commit that is lost": ("told 20, and 30", lambda rows: rows[-1].update(offset=20)),
    "an offset that goes back": (
        "told 10, and",
        lambda rows: rows.insert(6, rows[4] | between(70, 75)),
    ),
    "an offset that was never committed": ("told 99", lambda rows: rows[-1].update(offset=99)),
    "two owners": ("two owners: a 1", lambda rows: rows[6].update(between(80, 85))),
}


@pytest.mark.parametrize("name", GROUPS)
def test_invalid_group_history_is_named(name: str, tmp_path: Path) -> None:
    expect(tmp_path, "groups", a_group(), *GROUPS[name])


GOOD: dict[str, Callable[[], list[Line]]] = {
    "log": a_log,
    "transactions": some_transactions,
    "queue": a_queue,
    "groups": a_group,
}


@pytest.mark.parametrize("model", GOOD)
def test_valid_history_passes(model: str, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    write(path, GOOD[model]())
    verdict = check(model, path)
    assert verdict.word == OK, verdict.text


def test_only_the_lost_record_of_thousands_is_reported(tmp_path: Path) -> None:
    chance = random.Random(5)
    rows, now = [], 0
    for offset in range(6_000):
        now += 10
        # Five at a time, and answered in another order.
        rows.append(append(offset, now, now + chance.randrange(1, 50)))
        if offset % 50 == 49:
            values = [f"v{n}" for n in range(offset - 49, offset + 1)]
            rows.append(read(offset - 49, values, now + 55, now + 100))
            now += 55
    final = read(0, [f"v{n}" for n in range(6_000)], now + 200, now + 300, final=True)
    del final["records"][3_456]
    rows.append(final)
    path = tmp_path / "history.jsonl"
    write(path, rows)
    verdict = check("log", path)
    assert verdict.word == ILLEGAL
    assert "lost or skipped: 3456=v3456" in verdict.text
    assert len(verdict.text.splitlines()) < 10, verdict.text


def expect(tmp_path: Path, model: str, rows: list[Line], words: str, spoil: Spoils) -> None:
    spoil(rows)
    path = tmp_path / "history.jsonl"
    write(path, rows)
    verdict = check(model, path)
    assert verdict.word == ILLEGAL
    assert words in verdict.text, verdict.text
