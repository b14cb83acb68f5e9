"""Messages for unit tests of handlers, without a broker.

    message = build_message({"to": "ann"}, attempt=2)
    await send(message)
    assert message.outcome == "ack"

A built message records its settlement instead of sending it. A handler that returns leaves
`outcome` None: its worker would acknowledge the message.
"""

import asyncio
from typing import Any, Literal, TypeAlias

from penstock.app.message import Message, decode_state, encode_state
from penstock.app.outgoing import Headers, Key, Payload, encode_headers, encode_key, encode_payload
from penstock.base.errors import ErrorCode, Refused
from penstock.client.consumer.fetched import FetchedRecord
from penstock.client.share.acknowledgements import NO_OPTIONS, AcknowledgementType, AckOptions
from penstock.client.share.leases import HeldLease

Outcome: TypeAlias = Literal["ack", "nack", "reject"]
_OUTCOMES: dict[AcknowledgementType, Outcome] = {
    AcknowledgementType.ACCEPT: "ack",
    AcknowledgementType.RELEASE: "nack",
    AcknowledgementType.REJECT: "reject",
}
_LOCK_S = 30.0


class BuiltMessage(Message):
    """A message of no broker; see `build_message`."""

    __slots__ = ("delay_s", "error_class", "error_message", "extensions", "outcome", "state")

    def __init__(self, lease: HeldLease, state: Payload = None) -> None:
        super().__init__(self, lease)  # type: ignore[arg-type] # It is its own consumer.
        self.state = state
        """State that `save` saved last, or an earlier delivery."""
        self.outcome: Outcome | None = None
        self.delay_s: float | None = None
        """Delay of a `nack`; None: the queue's backoff."""
        self.error_class = ""
        self.error_message = ""
        self.extensions = 0
        """Number of calls of `extend`."""

    async def save(self, state: Payload) -> None:
        encode_state(state)
        await self._settle(AcknowledgementType.RENEW)
        self.state = state

    async def saved(self, type: Any = None) -> Any:
        return None if self.state is None else decode_state(encode_state(self.state), type)

    def settle(
        self,
        lease: HeldLease,
        kind: AcknowledgementType,
        options: AckOptions = NO_OPTIONS,
        *,
        is_awaited: bool = True,
    ) -> "asyncio.Future[None]":
        """Records the settlement, as a share consumer would send it."""
        if lease.is_settled:
            raise Refused(ErrorCode.INVALID_RECORD_STATE, f"{self!r} was settled before")
        if kind is AcknowledgementType.RENEW:
            self.extensions += 1
        else:
            lease.is_settled = True
            self.outcome = _OUTCOMES[kind]
            self.delay_s = None if options.delay_ms < 0 else options.delay_ms / 1000
            self.error_class = options.error_class or ""
            self.error_message = options.error_message or ""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


def build_message(
    payload: Payload = None,
    *,
    topic: str = "topic",
    key: Key = None,
    headers: Headers = None,
    attempt: int = 1,
    partition: int = 0,
    offset: int = 0,
    timestamp_ms: int = 0,
    state: Payload = None,
) -> BuiltMessage:
    """Builds a message as a handler receives it; the payload is encoded as `publish` does.

    `state` is what an earlier delivery saved.

    >>> message = build_message({"to": "ann"}, attempt=2)
    """
    record = FetchedRecord(
        topic,
        partition,
        offset,
        timestamp_ms,
        encode_key(key),
        encode_payload(payload),
        encode_headers(headers),
    )
    return BuiltMessage(HeldLease(record, attempt, _LOCK_S, _LOCK_S), state)


__all__ = ["BuiltMessage", "build_message"]
