"""Tables of outbox and inbox, as SQLAlchemy Core tables in the caller's own MetaData.

So `metadata.create_all` and Alembic see them with the caller's tables, and ORM sessions use them in
the caller's transaction. Invariants:

- Ids of outbox rows only grow and are never reused (SQLite would reuse them by default).
- A row is pending, claimed by one numbered batch, sent, or failed; `sender` changes its state.
- A lane is a partition of the outbox: its rows are sent in the order of their ids. Each lane has
  one row in the lanes table, created by the first relay that finds messages in it. Its random
  `identity` is the lane's transactional id and ledger group in the cluster.
"""

import enum
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
)

TOPIC_CHARS_MAX = 249
ID_CHARS_MAX = 255

# SQLite numbers only plain INTEGER keys by itself.
_Id = BigInteger().with_variant(Integer(), "sqlite")


class RowState(enum.IntEnum):
    """State of an outbox row."""

    PENDING = 0
    CLAIMED = 1
    """In the batch that is being sent."""
    SENT = 2
    FAILED = 3
    """Refused by the broker; `error` has the reason."""


@dataclass(frozen=True, slots=True)
class OutboxTables:
    messages: Table
    lanes: Table


def outbox_tables(metadata: MetaData, name: str) -> OutboxTables:
    """Returns the tables `<name>` and `<name>_lanes`, existing ones if already defined."""
    if name in metadata.tables:
        return OutboxTables(metadata.tables[name], metadata.tables[f"{name}_lanes"])
    messages = Table(
        name,
        metadata,
        Column("id", _Id, primary_key=True, autoincrement=True),
        Column("lane", Integer, nullable=False),
        Column("state", SmallInteger, nullable=False, default=int(RowState.PENDING)),
        Column("topic", String(TOPIC_CHARS_MAX), nullable=False),
        Column("key", LargeBinary),
        Column("payload", LargeBinary),
        Column("headers", Text, nullable=False),
        Column("message_id", String(ID_CHARS_MAX), nullable=False),
        Column("created_ms", BigInteger, nullable=False),
        Column("batch", BigInteger),
        Column("sent_ms", BigInteger),
        Column("error", Text),
        Index(f"{name}_line", "lane", "state", "id"),
        sqlite_autoincrement=True,
    )
    lanes = Table(
        f"{name}_lanes",
        metadata,
        Column("lane", Integer, primary_key=True, autoincrement=False),
        Column("identity", String(64), nullable=False),
        Column("epoch", BigInteger, nullable=False, default=0),
        Column("batch", BigInteger, nullable=False, default=0),
        Column("done", BigInteger, nullable=False, default=0),
        Column("lease_until_ms", BigInteger, nullable=False, default=0),
    )
    return OutboxTables(messages, lanes)


def inbox_table(metadata: MetaData, name: str) -> Table:
    """Returns the table of processed messages, by consumer and message id."""
    if name in metadata.tables:
        return metadata.tables[name]
    return Table(
        name,
        metadata,
        Column("consumer", String(ID_CHARS_MAX), primary_key=True),
        Column("message_id", String(ID_CHARS_MAX), primary_key=True),
        Column("processed_ms", BigInteger, nullable=False),
        Index(f"{name}_age", "processed_ms"),
    )
