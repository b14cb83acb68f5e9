"""Claims about the database's side of relaying, on SQLite and on PostgreSQL."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from penstock.app.outbox.claims import Hold, LaneLost, Lanes
from penstock.app.outbox.enqueue import Outbox
from penstock.app.outbox.relay import open_engine
from penstock.app.outbox.tables import RowState
from simulation.clock import SimClock
from simulation.random import SimRandom
from tests.postgres import PostgresProcess
from tests.unit.app.outbox.stage import sqlite_url, states

LEASE_MS = 10_000


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresProcess]:
    process = PostgresProcess()
    yield process
    process.stop()


class Stage:
    def __init__(self, url: str) -> None:
        self.clock = SimClock()
        self.outbox = Outbox(lanes=4, clock=self.clock, random=SimRandom(1))
        self.engine: Engine = open_engine(url)
        self.outbox.metadata.drop_all(self.engine)
        self.outbox.metadata.create_all(self.engine)
        self.lanes = self.relay(1)

    def relay(self, seed: int) -> Lanes:
        return Lanes(self.engine, self.outbox.tables, self.clock, SimRandom(seed), LEASE_MS)

    def enqueue(self, count: int, size: int = 1, key: str | None = None) -> None:
        with self.engine.begin() as connection:
            for number in range(count):
                self.outbox.enqueue(connection, "t", b"x" * size, key=key or f"k{number}")

    def take(self) -> Hold:
        self.lanes.create_missing()
        hold = self.lanes.take([])
        assert hold is not None
        return hold


@pytest.fixture(params=["sqlite", "postgresql"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    if request.param == "sqlite":
        stage = Stage(sqlite_url(tmp_path))
    else:
        stage = Stage(request.getfixturevalue("postgres").url)
    yield stage
    stage.engine.dispose()


def test_each_lane_is_taken_by_one_relay_until_its_lease_runs_out(stage: Stage) -> None:
    stage.enqueue(40)
    one, other = stage.relay(1), stage.relay(2)
    one.create_missing()
    other.create_missing()
    holds = [(one if turn % 2 else other).take([]) for turn in range(5)]
    assert [hold.lane if hold else None for hold in holds] == [0, 1, 2, 3, None]
    assert len({hold.identity for hold in holds if hold}) == 4
    stage.clock.jump(LEASE_MS + 1)
    again = other.take([0, 1])
    assert again is not None
    assert (again.lane, again.epoch) == (2, 2)
    assert again.identity == holds[2].identity if holds[2] else ""


def test_relays_that_start_together_share_out_the_lanes(stage: Stage) -> None:
    stage.enqueue(40)
    stage.lanes.create_missing()
    start, taken = threading.Barrier(4), []

    def take(seed: int) -> None:
        lanes = stage.relay(seed)
        start.wait()
        while (hold := lanes.take([])) is not None:
            taken.append(hold.lane)

    threads = [threading.Thread(target=take, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # SQLite lets one at a time, and the others may find that it was faster: then nobody has it yet.
    while (hold := stage.lanes.take([])) is not None:
        taken.append(hold.lane)
    assert sorted(taken) == [0, 1, 2, 3]


def test_who_lost_a_lane_changes_nothing(stage: Stage) -> None:
    stage.enqueue(3, key="k")
    old = stage.take()
    assert stage.lanes.claim(old, 1, 1_000) is not None
    stage.clock.jump(LEASE_MS + 1)
    new = stage.take()
    before = states(stage.engine, stage.outbox)
    for change in (
        lambda: stage.lanes.renew(old),
        lambda: stage.lanes.release(old),
        lambda: stage.lanes.claim(old, 1, 1_000),
        lambda: stage.lanes.mark_sent(old, 1),
        lambda: stage.lanes.give_back(old),
        lambda: stage.lanes.mark_failed(old, "x"),
        lambda: stage.lanes.purge(old, 0),
    ):
        with pytest.raises(LaneLost):
            change()
    assert (
        states(stage.engine, stage.outbox) == before == {RowState.PENDING: 2, RowState.CLAIMED: 1}
    )
    stage.lanes.renew(new)


def test_batches_are_numbered_upwards_and_settled_once(stage: Stage) -> None:
    stage.enqueue(5, key="k")
    hold = stage.take()
    first = stage.lanes.claim(hold, 2, 1_000)
    assert first is not None
    assert (first.number, [row["id"] for row in first.rows]) == (1, [1, 2])
    doubt = stage.lanes.in_doubt(hold)
    assert (doubt.number, doubt.done, doubt.last) == (1, 0, 1)
    stage.lanes.give_back(hold)
    assert stage.lanes.in_doubt(hold).number is None
    second = stage.lanes.claim(hold, 2, 1_000)
    assert second is not None
    assert (second.number, [row["id"] for row in second.rows]) == (2, [1, 2])
    stage.lanes.mark_sent(hold, 2)
    third = stage.lanes.claim(hold, 1, 1_000)
    assert third is not None
    stage.lanes.mark_failed(hold, "too large")
    assert states(stage.engine, stage.outbox) == {
        RowState.PENDING: 2,
        RowState.SENT: 2,
        RowState.FAILED: 1,
    }
    doubt = stage.lanes.in_doubt(hold)
    assert (doubt.number, doubt.done, doubt.last) == (None, 2, 3)
    with stage.engine.connect() as connection:
        errors = connection.scalars(select(stage.outbox.tables.messages.c.error)).all()
    assert sorted(map(str, errors)) == ["None"] * 4 + ["too large"]


def test_a_batch_holds_no_more_bytes_than_allowed_but_always_one(stage: Stage) -> None:
    stage.enqueue(3, size=400, key="k")
    hold = stage.take()
    sizes = []
    while (claimed := stage.lanes.claim(hold, 100, 900)) is not None:
        sizes.append(len(claimed.rows))
        stage.lanes.mark_sent(hold, claimed.number)
    assert sizes == [2, 1]
    stage.enqueue(2, size=5_000, key="k")
    claimed = stage.lanes.claim(hold, 100, 900)
    assert claimed is not None
    assert len(claimed.rows) == 1


def test_only_old_messages_that_were_sent_are_removed(stage: Stage) -> None:
    stage.enqueue(4, key="k")
    hold = stage.take()
    for _ in range(2):
        claimed = stage.lanes.claim(hold, 1, 1_000)
        assert claimed is not None
        stage.lanes.mark_sent(hold, claimed.number)
        stage.clock.jump(1_000)
    assert stage.lanes.purge(hold, 1_500) == 1
    assert stage.lanes.purge(hold, 0) == 1
    assert states(stage.engine, stage.outbox) == {RowState.PENDING: 2}
