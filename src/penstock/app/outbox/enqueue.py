"""Putting messages into the outbox, inside the transaction of whoever has something to say.

    outbox = Outbox(metadata)
    with Session(engine) as session, session.begin():
        session.add(order)
        outbox.enqueue(session, "orders", payload, key=str(order.id))

The message is sent if and only if that transaction commits; getting it to the broker is `relay`'s
business. Rows with the same key are in one lane, so they leave in the order of their ids. A
message too large for any broker is refused here, where the caller can still do something about it.
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
"""A little less than what topics take by default; `Outbox(payload_bytes_max=...)` for others."""
LANES_MAX = 256
MESSAGE_ID = "message_id"


class DeliveryOptions(TypedDict, total=False):
    """What a message asks of the queues that deliver it."""

    delay: Duration | None
    deliver_at: Moment | None
    priority: int | None
    dedup_id: str | None
    expires_in: Duration | None


class Outbox:
    """The outbox of one database. Make it beside the other tables; it holds no connection."""

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
        """More `lanes` are sent side by side, by one relay or by several. Change their number
        only while nothing is pending: a key moves to another lane with it."""
        if not 1 <= lanes <= LANES_MAX:
            raise ValueError(f"an outbox has 1 to {LANES_MAX} lanes, not {lanes}")
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
        """Writes the message in the caller's transaction; answers its message id.

        An id of the caller's own makes the message recognisable as the same one elsewhere. What
        `Client.publish` takes to say when a queue delivers it (`delay`, `priority`, ...) is taken
        here as well; times count from now, not from when it is sent.
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
        """As `enqueue`, for SQLAlchemy's asyncio sessions and connections."""
        message = Outgoing(payload=payload, key=key, headers=headers, **delivery)
        row = self._row(topic, message, message_id)
        await session.execute(insert(self.tables.messages).values(row))
        return str(row[MESSAGE_ID])

    def counts(self, session: Connection | Session) -> dict[RowState, int]:
        """How many rows are in which state."""
        state = self.tables.messages.c.state
        found = session.execute(select(state, func.count()).group_by(state)).all()
        counted = {RowState(number): int(count) for number, count in found}
        return {state: counted.get(state, 0) for state in RowState}

    def retry_failed(self, session: Connection | Session) -> int:
        """Has what the broker refused sent again, once its cause is mended; answers how many."""
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
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic!r} is no name of a topic")
        if message_id is not None and not 0 < len(message_id) <= ID_CHARS_MAX:
            raise ValueError(f"a message id has 1 to {ID_CHARS_MAX} characters")
        key, payload = encode_key(message.key), encode_payload(message.payload)
        headers = msgspec.json.encode(message.record_headers()).decode()
        size = len(key or b"") + len(payload or b"") + len(headers)
        if size > self._payload_bytes_max:
            raise Refused(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a message of {size} bytes for {topic!r}: the outbox takes "
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
        """Messages without a key are in the line of their topic."""
        return zlib.crc32(key if key is not None else topic.encode()) % self.lanes


def unpack_headers(packed: str) -> list[tuple[str, bytes | None]]:
    return msgspec.json.decode(packed, type=list[tuple[str, bytes | None]])
