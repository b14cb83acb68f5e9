"""Inbox of a consumer: a message's effects commit together with its id.

    inbox = Inbox(metadata, consumer="billing")
    with Session(engine) as session, session.begin():
        if inbox.is_first(session, message_id):
            session.add(Invoice(...))
    # Only now is the message acknowledged.

However often a message is delivered, its effects are in the database once. A second delivery finds
the id, a crash before the commit leaves neither, and two concurrent deliveries serialize at the
primary key. Keep ids for as long as a message may be redelivered; `forget_older` removes old ones.
"""

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, MetaData, Table, delete
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from penstock.app.outbox.tables import ID_CHARS_MAX, inbox_table
from penstock.base.ports import WallClock
from penstock.runtime.clock import SystemClock

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

TABLE = "penstock_inbox"


class Inbox:
    """Ids that one consumer has processed. Several consumers share a table, by name."""

    def __init__(
        self,
        metadata: MetaData | None = None,
        *,
        consumer: str,
        table: str = TABLE,
        clock: WallClock | None = None,
    ) -> None:
        _require_id(consumer)
        self.metadata = metadata if metadata is not None else MetaData()
        self.table: Table = inbox_table(self.metadata, table)
        self.consumer = consumer
        self._clock = clock or SystemClock()

    def is_first(self, session: Connection | Session, message_id: str) -> bool:
        """Inserts the id in the caller's transaction; False if it was processed before."""
        bind = session.get_bind() if isinstance(session, Session) else session
        inserted = session.execute(self._insert(bind.dialect.name, message_id))
        return inserted.first() is not None

    async def is_first_async(
        self, session: "AsyncConnection | AsyncSession", message_id: str
    ) -> bool:
        """Like `is_first`, for SQLAlchemy's asyncio sessions and connections."""
        return bool(await session.run_sync(lambda inner: self.is_first(inner, message_id)))

    def forget_older(self, session: Connection | Session, age_ms: int) -> int:
        """Deletes ids that were processed longer ago; returns the number of rows."""
        before_ms = self._clock.now_ms() - age_ms
        gone: Any = session.execute(
            delete(self.table).where(
                self.table.c.consumer == self.consumer, self.table.c.processed_ms < before_ms
            )
        )
        return int(gone.rowcount)

    def _insert(self, dialect: str, message_id: str) -> Any:
        _require_id(message_id)
        inserts: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
        if dialect not in inserts:
            raise NotImplementedError(
                f"inbox on {dialect}: only SQLite and PostgreSQL are supported"
            )
        row = {
            "consumer": self.consumer,
            "message_id": message_id,
            "processed_ms": self._clock.now_ms(),
        }
        statement = inserts[dialect](self.table).values(row).on_conflict_do_nothing()
        # Drivers differ in the row count here; RETURNING yields a row only if it is new.
        return statement.returning(self.table.c.message_id)


def _require_id(text: str) -> None:
    if not 0 < len(text) <= ID_CHARS_MAX:
        raise ValueError(f"id of {len(text)} characters: use 1 to {ID_CHARS_MAX}")
