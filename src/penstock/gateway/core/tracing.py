"""Tracing of the gateways: publish, receive and settle as spans, if tracing is enabled.

A published message carries the context of its publish span, whose parent is the context that it
came with (`traceparent`). Receiving a message starts a child span of the context it carries, and
settling it a child span of that one. A receipt does not carry a context, so the last
`REMEMBERED_MAX` contexts are kept here. A message settled later, or through another node, gets no
settle span. Received messages without a context get no span: no trace continues there.
"""

from collections.abc import Sequence
from dataclasses import replace

from penstock.base.errors import ErrorCode, Refused
from penstock.base.tracing import (
    ATTEMPT,
    COUNT,
    GROUP,
    OFFSET,
    PARTITION,
    Headers,
    Tracer,
    TraceSpan,
    about,
    context_of,
    with_context,
)
from penstock.coordinator.queues.settle import SettleAction
from penstock.gateway.core.messages import OutgoingMessage, Placed, ReceivedMessage

REMEMBERED_MAX = 10_000
NO_ANSWER = Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "settling did not complete")
ACTION_NAMES = {
    SettleAction.ACCEPT: "ack",
    SettleAction.RELEASE: "nack",
    SettleAction.REJECT: "reject",
    SettleAction.EXTEND: "extend",
    SettleAction.GIVE_BACK: "give back",
}


class GatewayTracing:
    """Traces gateway calls of one node."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._receipts: dict[str, tuple[str, Headers]] = {}
        """Topic and context of the receive span, by receipt."""

    # -- publishing -------------------------------------------------------------------------

    def publishing(
        self, topic: str, messages: Sequence[OutgoingMessage]
    ) -> tuple[TraceSpan, Sequence[OutgoingMessage]]:
        """Starts the span of a publish call; returns it and the messages with its context."""
        parent = context_of(messages[0].headers) if messages else ()
        more = {COUNT: len(messages)} if len(messages) > 1 else {}
        attributes = about("send", "send", topic, more)
        span = self._tracer.begin(f"send {topic}", "producer", attributes, parent)
        carried = [
            replace(one, headers=with_context(one.headers, span.headers))
            if context_of(one.headers) in ((), parent)
            else one
            for one in messages
        ]
        return span, carried

    def published(self, span: TraceSpan, placed: Sequence[Placed | Refused]) -> None:
        first = placed[0] if len(placed) == 1 else None
        if isinstance(first, Placed):
            span.note({PARTITION: str(first.partition), OFFSET: first.offset})
        refused = next((one for one in placed if isinstance(one, Refused)), None)
        if refused is not None:
            span.fail(refused)

    # -- receiving and settling -------------------------------------------------------------

    def received(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        for one in messages:
            parent = context_of(one.headers)
            if not parent:
                continue
            attributes = about(
                "receive",
                "receive",
                one.topic,
                {
                    GROUP: group,
                    PARTITION: str(one.partition),
                    OFFSET: one.offset,
                    ATTEMPT: one.delivery_count,
                },
            )
            span = self._tracer.begin(f"receive {one.topic}", "consumer", attributes, parent)
            self._receipts[one.receipt] = one.topic, span.headers
            span.end()
        while len(self._receipts) > REMEMBERED_MAX:
            del self._receipts[next(iter(self._receipts))]

    def settling(self, actions: Sequence[tuple[str, SettleAction]]) -> list[TraceSpan | None]:
        """Starts a span for each receipt whose context is known."""
        spans: list[TraceSpan | None] = []
        for receipt, action in actions:
            known = self._receipts.get(receipt)
            if known is None:
                spans.append(None)
                continue
            topic, context = known
            name = ACTION_NAMES[action]
            attributes = about(name, "settle", topic)
            spans.append(self._tracer.begin(f"{name} {topic}", "client", attributes, context))
        return spans

    def settled(
        self,
        actions: Sequence[tuple[str, SettleAction]],
        spans: Sequence[TraceSpan | None],
        answers: Sequence[Refused | None],
    ) -> None:
        for (receipt, action), span, answer in zip(actions, spans, answers, strict=True):
            if span is None:
                continue
            if answer is not None:
                span.fail(answer)
            elif action is not SettleAction.EXTEND:
                self._receipts.pop(receipt, None)
            span.end()
