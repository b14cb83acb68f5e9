"""Application tracing: spans of publishing, handling and acknowledging messages.

`Client(tracing=True)` or `PENSTOCK_TRACING=1` in the environment enables it. The trace context
travels in the message's headers, so handling, retries and the dead-letter queue share one trace.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.app.outgoing import Outgoing, encode_headers
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
from penstock.runtime import tracing as runtime_tracing

if TYPE_CHECKING:
    from penstock.client.consumer.fetched import FetchedRecord as Fetched


def tracer_of(asked: Any) -> Tracer | None:
    """Tracer for the `tracing` option: None (environment decides), a bool, or a provider.

    OpenTelemetry is imported only if tracing is enabled.
    """
    if asked is None:
        asked = runtime_tracing.is_enabled()
    if asked is False:
        return None
    return runtime_tracing.OtelTracer(None if asked is True else asked)


@contextmanager
def sending(
    tracer: Tracer, topic: str, messages: Sequence[Outgoing]
) -> Iterator[tuple[TraceSpan, list[Outgoing]]]:
    """Span of one publish call, and the messages with its context in their headers.

    Its parent is the current span; without one, the context that the first message carries.
    """
    given = [encode_headers(one.headers) for one in messages]
    more = {COUNT: len(messages)} if len(messages) > 1 else {}
    parent = None if tracer.has_current or not given else context_of(given[0])
    span = tracer.begin(f"send {topic}", "producer", about("send", "send", topic, more), parent)
    context = span.headers
    try:
        yield (
            span,
            [
                replace(one, headers=with_context(headers, context))
                for one, headers in zip(messages, given, strict=True)
            ],
        )
    except BaseException as error:
        span.fail(error)
        raise
    finally:
        span.end()


def made_from(tracer: Tracer, message: "Fetched", headers: Headers) -> Headers:
    """Headers of an output derived from a message; without a span they continue its trace."""
    if tracer.has_current or context_of(headers):
        return headers
    return with_context(headers, context_of(message.headers))


class MessageTrace:
    """Trace of one received message: its handling and its acknowledgement."""

    __slots__ = ("_attempt", "_context", "_fetched", "_group", "_tracer")

    def __init__(self, tracer: Tracer, fetched: "Fetched", group: str, attempt: int) -> None:
        self._tracer = tracer
        self._fetched = fetched
        self._group = group
        self._attempt = attempt
        self._context = context_of(fetched.headers)

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Span of handling the message: a child of the message's context."""
        fetched = self._fetched
        attributes = about(
            "process",
            "process",
            fetched.topic,
            {
                GROUP: self._group,
                PARTITION: str(fetched.partition),
                OFFSET: fetched.offset,
                ATTEMPT: self._attempt,
            },
        )
        parent = context_of(fetched.headers)
        span = self._tracer.begin(f"process {fetched.topic}", "consumer", attributes, parent)
        self._context = span.headers
        try:
            with span.current():
                yield
        except BaseException as error:
            span.fail(error)
            raise
        finally:
            span.end()

    def settling(self, name: str, answer: "asyncio.Future[None]") -> None:
        """Span of an acknowledgement, from sending it to the answer; a child of handling."""
        topic = self._fetched.topic
        attributes = about(name, "settle", topic)
        span = self._tracer.begin(f"{name} {topic}", "client", attributes, self._context)

        def ended(done: "asyncio.Future[None]") -> None:
            if not done.cancelled() and (error := done.exception()) is not None:
                span.fail(error)
            span.end()

        answer.add_done_callback(ended)
