"""Outbox: enqueueing messages in a database transaction."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Column, Engine, ForeignKey, Integer, MetaData, String, Table
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from penstock.app.outbox.enqueue import Outbox, unpack_headers
from penstock.app.outbox.tables import RowState
from penstock.app.outgoing import HeaderValue
from penstock.base.errors import ErrorCode, Refused
from simulation.clock import EPOCH_MS, SimClock
from simulation.random import SimRandom
from tests.unit.app.outbox.stage import database, sqlite_url


@pytest.fixture
def outbox() -> Outbox:
    return Outbox(clock=SimClock(), random=SimRandom(1))


@pytest.fixture
def engine(tmp_path: Path, outbox: Outbox) -> Iterator[Engine]:
    with database(sqlite_url(tmp_path), outbox) as engine:
        yield engine


def test_enqueued_row_has_the_message(engine: Engine, outbox: Outbox) -> None:
    with engine.begin() as connection:
        headers: list[tuple[str, HeaderValue]] = [("a", "1"), ("a", b"\xff"), ("b", None), ("n", 5)]
        message_id = outbox.enqueue(
            connection, "orders", {"id": 7}, key="k", headers=headers, delay="15m", priority=9
        )
        (row,) = connection.execute(outbox.tables.messages.select()).all()
    assert (row.topic, row.key, row.payload) == ("orders", b"k", b'{"id":7}')
    assert unpack_headers(row.headers) == [
        ("a", b"1"),
        ("a", b"\xff"),
        ("b", None),
        ("n", b"5"),
        ("penstock-delay-ms", b"900000"),
        ("penstock-priority", b"9"),
    ]
    assert (row.state, row.created_ms, row.message_id) == (RowState.PENDING, EPOCH_MS, message_id)
    assert len(message_id) == 32


class Model(DeclarativeBase):
    pass


class Order(Model):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str] = mapped_column(String(50))


def test_orm_sessions_share_the_metadata(tmp_path: Path) -> None:
    outbox = Outbox(Model.metadata)
    with database(sqlite_url(tmp_path), outbox) as engine:
        with Session(engine) as session, session.begin():
            order = Order(customer="ann")
            session.add(order)
            session.flush()
            outbox.enqueue(session, "orders", {"order": order.id}, key=str(order.id))
        with Session(engine) as session:
            outbox.enqueue(session, "orders", "never")
        with Session(engine) as session:
            assert session.query(Order).count() == 1
            assert outbox.counts(session)[RowState.PENDING] == 1


def test_tables_are_reused_and_may_be_renamed() -> None:
    metadata = MetaData()
    assert Outbox(metadata).tables == Outbox(metadata).tables
    assert Outbox(metadata, table="mail_outbox").tables.lanes.name == "mail_outbox_lanes"
    Table("child", metadata, Column("id", Integer, ForeignKey("penstock_outbox.id")))


def test_key_maps_to_one_lane_and_all_lanes_are_used() -> None:
    outbox = Outbox(lanes=4)
    lanes = {key: outbox._lane_of("t", key) for key in (b"%d" % n for n in range(100))}
    assert set(lanes.values()) == {0, 1, 2, 3}
    assert lanes == {key: outbox._lane_of("other topic", key) for key in lanes}
    assert outbox._lane_of("t", None) == outbox._lane_of("t", None)


def test_invalid_message_is_refused_at_enqueue(engine: Engine, outbox: Outbox) -> None:
    with engine.begin() as connection:
        with pytest.raises(Refused) as refused:
            outbox.enqueue(connection, "t", b"x" * 2_000_000)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(Refused) as refused:
            outbox.enqueue(connection, "", b"x")
        assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        with pytest.raises(ValueError, match="message_id"):
            outbox.enqueue(connection, "t", b"x", message_id="x" * 300)
        with pytest.raises(ValueError, match="priority"):
            outbox.enqueue(connection, "t", b"x", priority=10)
        with pytest.raises(TypeError, match="neither bytes, text nor JSON"):
            outbox.enqueue(connection, "t", object())
    with pytest.raises(ValueError, match="lanes"):
        Outbox(lanes=0)
