"""Outbox: inserts messages in the caller's database transaction.

    outbox = Outbox(metadata)
    with Session(engine) as session, session.begin():
        session.add(order)
        outbox.enqueue(session, "orders", payload, key=str(order.id))

The message is sent if and only if that transaction commits; `relay` sends it to the broker. A lane
is a partition of the outbox: rows with the same key share a lane and are sent in the order of their
ids. A message too large for any broker is refused here, while the caller can still react.
"""

import zlib
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec
from sqlalchemy import Connection, MetaData, func, insert, select
from sqlalchemy.orm import Session

from penstock.app.durations import Duration, Moment
from penstock.app.outbox.tables import ID_CHARS_MAX, TOPIC_CHARS_MAX, RowState, outbox_tables
from penstock.app.outgoing import Headers, Key, Outgoing, Payload, encode_key, encode_payload
from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random, WallClock
from penstock.runtime.clock import SystemClock
from penstock.runtime.random import SystemRandom

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

TABLE = "penstock_outbox"
PAYLOAD_BYTES_MAX = 1_000_000
"""Maximum message size, a little below the default of topics; set `payload_bytes_max` to change."""
LANES_MAX = 256
MESSAGE_ID = "message_id"


class DeliveryOptions(TypedDict, total=False):
    """Delivery options of a message in a queue."""

    delay: Duration | None
    deliver_at: Moment | None
    priority: int | None
    dedup_id: str | None
    expires_in: Duration | None


class Outbox:
    """Outbox of one database. Define it with the other tables; it holds no connection."""

    def __init__(
        self,
        metadata: MetaData | None = None,
        *,
        table: str = TABLE,
        lanes: int = 1,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        clock: WallClock | None = None,
        random: Random | None = None,
    ) -> None:
        """`lanes` is the number of partitions of the outbox, which relays send in parallel.

        Change it only while nothing is pending: keys then move to other lanes, and order across
        the change is not kept.
        """
        if not 1 <= lanes <= LANES_MAX:
            raise ValueError(f"lanes={lanes}: choose 1 to {LANES_MAX}")
        self.metadata = metadata if metadata is not None else MetaData()
        self.tables = outbox_tables(self.metadata, table)
        self.lanes = lanes
        self._payload_bytes_max = payload_bytes_max
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()

    def enqueue(
        self,
        session: Connection | Session,
        topic: str,
        payload: Payload,
        key: Key = None,
        headers: Headers = None,
        *,
        message_id: str | None = None,
        **delivery: Unpack[DeliveryOptions],
    ) -> str:
        """Inserts the message in the caller's transaction; returns its message id.

        Pass your own id to recognise the message elsewhere. The delivery options of
        `Client.publish` (`delay`, `priority`, ...) are accepted too; times count from now, not from
        when the message is sent.
        """
        message = Outgoing(payload=payload, key=key, headers=headers, **delivery)
        row = self._row(topic, message, message_id)
        session.execute(insert(self.tables.messages).values(row))
        return str(row[MESSAGE_ID])

    async def enqueue_async(
        self,
        session: "AsyncConnection | AsyncSession",
        topic: str,
        payload: Payload,
        key: Key = None,
        headers: Headers = None,
        *,
        message_id: str | None = None,
        **delivery: Unpack[DeliveryOptions],
    ) -> str:
        """Like `enqueue`, for SQLAlchemy's asyncio sessions and connections."""
        message = Outgoing(payload=payload, key=key, headers=headers, **delivery)
        row = self._row(topic, message, message_id)
        await session.execute(insert(self.tables.messages).values(row))
        return str(row[MESSAGE_ID])

    def counts(self, session: Connection | Session) -> dict[RowState, int]:
        """Number of rows in each state."""
        state = self.tables.messages.c.state
        found = session.execute(select(state, func.count()).group_by(state)).all()
        counted = {RowState(number): int(count) for number, count in found}
        return {state: counted.get(state, 0) for state in RowState}

    def retry_failed(self, session: Connection | Session) -> int:
        """Makes failed rows pending again, once the cause is fixed; returns their number."""
        messages = self.tables.messages
        done = session.execute(
            messages.update()
            .where(messages.c.state == RowState.FAILED)
            .values(state=int(RowState.PENDING), error=None)
        )
        count: int = done.rowcount  # type: ignore[attr-defined]
        return count

    def _row(self, topic: str, message: Outgoing, message_id: str | None) -> dict[str, Any]:
        if not 0 < len(topic) <= TOPIC_CHARS_MAX:
            raise Refused(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic name {topic!r}: use 1 to {TOPIC_CHARS_MAX} characters",
            )
        if message_id is not None and not 0 < len(message_id) <= ID_CHARS_MAX:
            raise ValueError(f"message_id of {len(message_id)} characters: use 1 to {ID_CHARS_MAX}")
        key, payload = encode_key(message.key), encode_payload(message.payload)
        headers = msgspec.json.encode(message.record_headers()).decode()
        size = len(key or b"") + len(payload or b"") + len(headers)
        if size > self._payload_bytes_max:
            raise Refused(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"message of {size} bytes for {topic!r}: the maximum is payload_bytes_max="
                f"{self._payload_bytes_max}",
            )
        return {
            "lane": self._lane_of(topic, key),
            "state": int(RowState.PENDING),
            "topic": topic,
            "key": key,
            "payload": payload,
            "headers": headers,
            MESSAGE_ID: message_id or self._random.random_bytes(16).hex(),
            "created_ms": self._clock.now_ms(),
        }

    def _lane_of(self, topic: str, key: bytes | None) -> int:
        """Lane of a key; messages without a key use the lane of their topic."""
        return zlib.crc32(key if key is not None else topic.encode()) % self.lanes


def unpack_headers(packed: str) -> list[tuple[str, bytes | None]]:
    return msgspec.json.decode(packed, type=list[tuple[str, bytes | None]])
