"""Traces of applications: sending, handling and settling as spans, where it is asked for.

`Client(tracing=True)` and the environment's `PENSTOCK_TRACING=1` ask for it. The trace of a message
goes with it in its headers: whoever handles it, tries it again, or finds it among the dead letters
goes on with the same trace.
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
    """`None` as the environment says, `True` with the application's OpenTelemetry, or a provider.

    Nothing of OpenTelemetry is imported unless it is wanted.
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
    """The span of one act of publishing, and the messages as they carry its context.

    It goes below the current span; where there is none, below what the first message carries.
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
    """Headers of what is made from a message: outside of any span they go on with its trace."""
    if tracer.has_current or context_of(headers):
        return headers
    return with_context(headers, context_of(message.headers))


class MessageTrace:
    """The trace of one message that came: handling it, and the verdict about it."""

    __slots__ = ("_attempt", "_context", "_fetched", "_group", "_tracer")

    def __init__(self, tracer: Tracer, fetched: "Fetched", group: str, attempt: int) -> None:
        self._tracer = tracer
        self._fetched = fetched
        self._group = group
        self._attempt = attempt
        self._context = context_of(fetched.headers)

    @contextmanager
    def handling(self) -> Iterator[None]:
        """A span of what is done with it, below the one it carries; others go below this one."""
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

    def settling(self, verdict: str, answer: "asyncio.Future[None]") -> None:
        """A span of a verdict on its way, below what was done with the message."""
        topic = self._fetched.topic
        attributes = about(verdict, "settle", topic)
        span = self._tracer.begin(f"{verdict} {topic}", "client", attributes, self._context)

        def ended(done: "asyncio.Future[None]") -> None:
            if not done.cancelled() and (error := done.exception()) is not None:
                span.fail(error)
            span.end()

        answer.add_done_callback(ended)
