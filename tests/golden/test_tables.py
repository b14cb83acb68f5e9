"""Tables that applications keep in databases of their own: outbox, inbox and dedup stores."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pytest
from sqlalchemy import MetaData, create_engine
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from penstock.app import dedup_stores
from penstock.app.dedup import ID_HEADERS
from penstock.app.dedup_stores import SqliteDedup
from penstock.app.outbox import Inbox, Outbox
from penstock.app.outbox.claims import LaneStore
from penstock.app.outbox.enqueue import unpack_headers
from penstock.app.outbox.sender import LEDGER, _record
from penstock.app.outbox.tables import RowState
from penstock.base.ids import Millis
from penstock.wire.records import Codec, encode
from simulation.random import SimRandom
from tests.golden.book import Book, Sample

NOW_MS: Final = 1_700_000_000_000
MESSAGE: Final = {"a": [1, None]}
HEADERS: Final = {"color": "red", "none": None}


class FixedClock:
    """A wall clock that stands still."""

    def now_ms(self) -> Millis:
        return Millis(NOW_MS)


def _samples() -> Iterator[Sample]:
    metadata = MetaData()
    outbox = Outbox(metadata, lanes=4, clock=FixedClock(), random=SimRandom(1))
    Inbox(metadata, consumer="billing")
    dialects: Any = (sqlite.dialect, postgresql.dialect)
    for dialect in (make() for make in dialects):
        for table in metadata.sorted_tables:
            texts = [str(CreateTable(table).compile(dialect=dialect))]
            texts += [str(CreateIndex(one).compile(dialect=dialect)) for one in table.indexes]
            yield Sample(f"{dialect.name}: {table.name}", _tidy("; ".join(texts)))
    yield from _rows(metadata, outbox)
    yield from _dedup()
    yield Sample("states", " ".join(str(int(one)) for one in RowState).encode())


def _rows(metadata: MetaData, outbox: Outbox) -> Iterator[Sample]:
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    with engine.begin() as session:
        outbox.enqueue(session, "orders", MESSAGE, "key", HEADERS, message_id="once", delay="1s")
        outbox.enqueue(session, "orders", None)
    LaneStore(engine, outbox.tables, FixedClock(), SimRandom(2), 1_000).create_missing()
    with engine.begin() as session:
        for table in (outbox.tables.messages, outbox.tables.lanes):
            for number, row in enumerate(session.execute(table.select()).mappings()):
                text = "; ".join(f"{name}={value!r}" for name, value in sorted(row.items()))
                yield Sample(f"row {number} of {table.name}", text.encode())
                if table is outbox.tables.messages:
                    record = bytes(encode([_record(row)], codec=Codec.NONE))
                    yield Sample(f"record of row {number}", record)
                    if number == 0:
                        packed = row["headers"].encode()
                        value = unpack_headers(row["headers"])
                        yield Sample("headers of row 0", packed, value, _unpack)
    yield Sample("ledger of the outbox", f"{LEDGER.topic} {LEDGER.partition}".encode())


def _unpack(data: bytes) -> Any:
    return unpack_headers(data.decode())


def _dedup() -> Iterator[Sample]:
    store = SqliteDedup(":memory:", scope="billing", clock=FixedClock())
    store.begin("one", "token")
    store.finish("one", "token")
    store.begin("two", "token")
    with closing(store._database):
        yield Sample("dedup store", "\n".join(store._database.iterdump()).encode())
    yield Sample("dedup headers", " ".join(ID_HEADERS).encode())
    yield Sample("dedup in Redis", repr((dedup_stores._DONE, _redis_prefix())).encode())


def _redis_prefix() -> str:
    client: Any = _NoRedis()
    return dedup_stores.RedisDedup(client, scope="billing")._prefix


class _NoRedis:
    def register_script(self, text: str) -> str:
        return text


def _tidy(text: str) -> bytes:
    return " ".join(text.split()).encode()


BOOK: Final = Book("tables", _samples)


@pytest.mark.parametrize("sample", BOOK.samples, ids=str)
def test_bytes_are_unchanged(sample: Sample) -> None:
    BOOK.check(sample)


def test_no_sample_is_lost() -> None:
    BOOK.check_names()


def test_stored_dedup_table_is_used() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(BOOK.stored()["dedup store"].decode())
        found = database.execute("SELECT id, done FROM penstock_dedup ORDER BY id").fetchall()
    assert found == [("one", 1), ("two", 0)]
