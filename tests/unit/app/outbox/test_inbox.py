"""Inbox: effects and message id commit together."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import (
    Column,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    insert,
    select,
)
from sqlalchemy.orm import Session

from penstock.app.outbox.inbox import Inbox
from penstock.app.outbox.relay import open_engine
from simulation.clock import SimClock
from tests.postgres import PostgresProcess
from tests.unit.app.outbox.stage import sqlite_url

METADATA = MetaData()
EFFECTS = Table("effects", METADATA, Column("id", Integer, primary_key=True), Column("of", String))
CLOCK = SimClock()
INBOX = Inbox(METADATA, consumer="billing", clock=CLOCK)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresProcess]:
    process = PostgresProcess()
    yield process
    process.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    if request.param == "sqlite":
        url = sqlite_url(tmp_path)
    else:
        url = request.getfixturevalue("postgres").url
    engine = open_engine(url)
    METADATA.drop_all(engine)
    METADATA.create_all(engine)
    yield engine
    engine.dispose()


def handle(engine: Engine, message_id: str, *, dies: bool = False) -> bool:
    """Handler with an effect; returns True for the first delivery."""
    with engine.connect() as connection:
        is_first = INBOX.is_first(connection, message_id)
        if is_first:
            connection.execute(insert(EFFECTS).values(of=message_id))
        if not dies:
            connection.commit()
        return is_first


def effects(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return [
            str(text) for text in connection.scalars(select(EFFECTS.c.of).order_by(EFFECTS.c.id))
        ]


def test_effects_happen_once_per_message(engine: Engine) -> None:
    assert [handle(engine, text) for text in ("a", "a", "b", "a")] == [True, False, True, False]
    assert effects(engine) == ["a", "b"]


def test_crashed_handler_leaves_neither_effect_nor_id(engine: Engine) -> None:
    assert handle(engine, "a", dies=True)
    assert effects(engine) == []
    assert handle(engine, "a")
    assert effects(engine) == ["a"]


def test_sessions_work_and_consumers_are_independent(engine: Engine) -> None:
    other = Inbox(METADATA, consumer="mailing")
    with Session(engine) as session, session.begin():
        assert INBOX.is_first(session, "a")
        assert other.is_first(session, "a")
        assert not INBOX.is_first(session, "a")


def test_exactly_one_concurrent_delivery_is_first(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        engine = create_engine(engine.url, connect_args={"timeout": 30})
    start = threading.Barrier(4)
    firsts: list[bool] = []

    def deliver() -> None:
        start.wait()
        firsts.extend(handle(engine, f"m-{number}") for number in range(20))

    threads = [threading.Thread(target=deliver) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.dispose()
    assert (len(firsts), sum(firsts)) == (80, 20)
    assert sorted(effects(engine)) == sorted(f"m-{number}" for number in range(20))
    engine.dispose()


def test_forget_older_deletes_old_ids(engine: Engine) -> None:
    handle(engine, "old")
    CLOCK.jump(60_000)
    handle(engine, "new")
    with engine.begin() as connection:
        assert INBOX.forget_older(connection, 30_000) == 1
    assert handle(engine, "old")
    assert not handle(engine, "new")


def test_invalid_ids_and_databases_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="characters"):
        Inbox(consumer="")
    with pytest.raises(ValueError, match="characters"):
        INBOX._insert("sqlite", "x" * 256)
    with pytest.raises(NotImplementedError, match="mysql"):
        INBOX._insert("mysql", "x")
