"""Traces through the doors: publishing, receiving and settling as spans, where tracing is on.

A message that comes with a context (`traceparent`) goes on with it: what is written carries the
context of the span of its publishing, what is received begins a span below the one it carries, and
settling goes below that. A receipt does not carry a context, so the last `REMEMBERED_MAX` are
remembered here; a message that is settled later, or at another node, is settled without a span.
Messages without a context are left alone when received: nobody follows them.
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
NO_ANSWER = Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "the settling did not come to an end")
VERDICTS = {
    SettleAction.ACCEPT: "ack",
    SettleAction.RELEASE: "nack",
    SettleAction.REJECT: "reject",
    SettleAction.EXTEND: "extend",
    SettleAction.GIVE_BACK: "give back",
}


class GatewayTracing:
    """What one node remembers of traces that go through its doors."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._receipts: dict[str, tuple[str, Headers]] = {}
        """By receipt: the topic, and the context of its receiving."""

    # -- publishing -------------------------------------------------------------------------

    def publishing(
        self, topic: str, messages: Sequence[OutgoingMessage]
    ) -> tuple[TraceSpan, Sequence[OutgoingMessage]]:
        """The span of one act of publishing, and the messages as they carry its context."""
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

    def settling(self, said: Sequence[tuple[str, SettleAction]]) -> list[TraceSpan | None]:
        """A span for each pair of a receipt and what is said of it, where it is remembered."""
        spans: list[TraceSpan | None] = []
        for receipt, verdict in said:
            known = self._receipts.get(receipt)
            if known is None:
                spans.append(None)
                continue
            topic, context = known
            name = VERDICTS[verdict]
            attributes = about(name, "settle", topic)
            spans.append(self._tracer.begin(f"{name} {topic}", "client", attributes, context))
        return spans

    def settled(
        self,
        said: Sequence[tuple[str, SettleAction]],
        spans: Sequence[TraceSpan | None],
        answers: Sequence[Refused | None],
    ) -> None:
        for (receipt, verdict), span, answer in zip(said, spans, answers, strict=True):
            if span is None:
                continue
            if answer is not None:
                span.fail(answer)
            elif verdict is not SettleAction.EXTEND:
                self._receipts.pop(receipt, None)
            span.end()
