"""Lane store of the relay, on SQLite and on PostgreSQL."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from penstock.app.outbox.claims import LaneLease, LaneLost, LaneStore
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

    def relay(self, seed: int) -> LaneStore:
        return LaneStore(self.engine, self.outbox.tables, self.clock, SimRandom(seed), LEASE_MS)

    def enqueue(self, count: int, size: int = 1, key: str | None = None) -> None:
        with self.engine.begin() as connection:
            for number in range(count):
                self.outbox.enqueue(connection, "t", b"x" * size, key=key or f"k{number}")

    def take(self) -> LaneLease:
        self.lanes.create_missing()
        lease = self.lanes.take([])
        assert lease is not None
        return lease


@pytest.fixture(params=["sqlite", "postgresql"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    if request.param == "sqlite":
        stage = Stage(sqlite_url(tmp_path))
    else:
        stage = Stage(request.getfixturevalue("postgres").url)
    yield stage
    stage.engine.dispose()


def test_lane_is_held_by_one_relay_until_its_lease_expires(stage: Stage) -> None:
    stage.enqueue(40)
    one, other = stage.relay(1), stage.relay(2)
    one.create_missing()
    other.create_missing()
    leases = [(one if turn % 2 else other).take([]) for turn in range(5)]
    assert [lease.lane if lease else None for lease in leases] == [0, 1, 2, 3, None]
    assert len({lease.identity for lease in leases if lease}) == 4
    stage.clock.jump(LEASE_MS + 1)
    again = other.take([0, 1])
    assert again is not None
    assert (again.lane, again.epoch) == (2, 2)
    assert again.identity == leases[2].identity if leases[2] else ""


def test_concurrent_relays_take_different_lanes(stage: Stage) -> None:
    stage.enqueue(40)
    stage.lanes.create_missing()
    start, taken = threading.Barrier(4), []

    def take(seed: int) -> None:
        lanes = stage.relay(seed)
        start.wait()
        while (lease := lanes.take([])) is not None:
            taken.append(lease.lane)

    threads = [threading.Thread(target=take, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # SQLite admits one at a time; a relay that lost the race may leave a lane free.
    while (lease := stage.lanes.take([])) is not None:
        taken.append(lease.lane)
    assert sorted(taken) == [0, 1, 2, 3]


def test_former_holder_of_a_lane_is_fenced(stage: Stage) -> None:
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


def test_batch_numbers_grow_and_settle_once(stage: Stage) -> None:
    stage.enqueue(5, key="k")
    lease = stage.take()
    first = stage.lanes.claim(lease, 2, 1_000)
    assert first is not None
    assert (first.number, [row["id"] for row in first.rows]) == (1, [1, 2])
    doubt = stage.lanes.in_doubt(lease)
    assert (doubt.number, doubt.done, doubt.last) == (1, 0, 1)
    stage.lanes.give_back(lease)
    assert stage.lanes.in_doubt(lease).number is None
    second = stage.lanes.claim(lease, 2, 1_000)
    assert second is not None
    assert (second.number, [row["id"] for row in second.rows]) == (2, [1, 2])
    stage.lanes.mark_sent(lease, 2)
    third = stage.lanes.claim(lease, 1, 1_000)
    assert third is not None
    stage.lanes.mark_failed(lease, "too large")
    assert states(stage.engine, stage.outbox) == {
        RowState.PENDING: 2,
        RowState.SENT: 2,
        RowState.FAILED: 1,
    }
    doubt = stage.lanes.in_doubt(lease)
    assert (doubt.number, doubt.done, doubt.last) == (None, 2, 3)
    with stage.engine.connect() as connection:
        errors = connection.scalars(select(stage.outbox.tables.messages.c.error)).all()
    assert sorted(map(str, errors)) == ["None"] * 4 + ["too large"]


def test_batch_is_bounded_in_bytes_with_at_least_one_message(stage: Stage) -> None:
    stage.enqueue(3, size=400, key="k")
    lease = stage.take()
    sizes = []
    while (claimed := stage.lanes.claim(lease, 100, 900)) is not None:
        sizes.append(len(claimed.rows))
        stage.lanes.mark_sent(lease, claimed.number)
    assert sizes == [2, 1]
    stage.enqueue(2, size=5_000, key="k")
    claimed = stage.lanes.claim(lease, 100, 900)
    assert claimed is not None
    assert len(claimed.rows) == 1


def test_purge_deletes_only_old_sent_rows(stage: Stage) -> None:
    stage.enqueue(4, key="k")
    lease = stage.take()
    for _ in range(2):
        claimed = stage.lanes.claim(lease, 1, 1_000)
        assert claimed is not None
        stage.lanes.mark_sent(lease, claimed.number)
        stage.clock.jump(1_000)
    assert stage.lanes.purge(lease, 1_500) == 1
    assert stage.lanes.purge(lease, 0) == 1
    assert states(stage.engine, stage.outbox) == {RowState.PENDING: 2}
