"""Outbox and inbox with SQLAlchemy's asyncio sessions, on PostgreSQL."""

import asyncio

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from penstock.app.outbox.enqueue import Outbox
from penstock.app.outbox.inbox import Inbox
from penstock.app.outbox.tables import RowState
from tests.postgres import PostgresProcess


async def use(url: str) -> None:
    metadata = MetaData()
    outbox, inbox = Outbox(metadata), Inbox(metadata, consumer="billing")
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
        await outbox.enqueue_async(connection, "t", "by connection")
        assert await inbox.is_first_async(connection, "m-1")
    async with AsyncSession(engine) as session, session.begin():
        assert not await inbox.is_first_async(session, "m-1")
        assert await inbox.is_first_async(session, "m-2")
        await outbox.enqueue_async(session, "t", {"by": "session"}, key="k", priority=3)
    async with AsyncSession(engine) as session:
        await outbox.enqueue_async(session, "t", "rolled back")
        assert await inbox.is_first_async(session, "m-3")
    async with AsyncSession(engine) as session:
        counts = await session.run_sync(outbox.counts)
        assert counts[RowState.PENDING] == 2
        assert await inbox.is_first_async(session, "m-3")
    await engine.dispose()


def test_asyncio_sessions_use_their_own_transaction() -> None:
    postgres = PostgresProcess()
    try:
        asyncio.run(use(postgres.url.replace("postgresql://", "postgresql+psycopg://")))
    finally:
        postgres.stop()
