"""Port for tracing: spans that begin, carry their context in headers, and end.

`runtime.tracing` implements it with OpenTelemetry. Code that traces gets a `Tracer`; without one it
does nothing, at the cost of one comparison. The context has W3C's format, in the record headers
`traceparent` and `tracestate`, so that any Kafka client can take part.
"""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Literal, Protocol, TypeAlias

TRACE_PARENT, TRACE_STATE = "traceparent", "tracestate"
CONTEXT_NAMES = (TRACE_PARENT, TRACE_STATE)
CONTEXT_BYTES_MAX = 1024

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
Value: TypeAlias = str | int | float | bool
Attributes: TypeAlias = Mapping[str, Value]
Kind: TypeAlias = Literal["producer", "consumer", "client"]

# OpenTelemetry's attribute names for messaging spans.
SYSTEM, OPERATION, OPERATION_TYPE = (
    "messaging.system",
    "messaging.operation.name",
    "messaging.operation.type",
)
DESTINATION, PARTITION, OFFSET = (
    "messaging.destination.name",
    "messaging.destination.partition.id",
    "messaging.kafka.offset",
)
GROUP, COUNT, ATTEMPT = (
    "messaging.consumer.group.name",
    "messaging.batch.message_count",
    "penstock.delivery.attempt",
)


class TraceSpan(Protocol):
    """Span of work in progress. Ends exactly once, also after a failure."""

    @property
    def headers(self) -> Headers:
        """Context of the span, for messages and calls that it causes."""
        ...

    def note(self, attributes: Attributes) -> None: ...

    def fail(self, error: BaseException) -> None:
        """Marks the span as failed with this error."""
        ...

    def end(self) -> None: ...

    def current(self) -> AbstractContextManager[None]:
        """Context manager in which this span is current: new spans become its children."""
        ...


class Tracer(Protocol):
    @property
    def has_current(self) -> bool:
        """True while the caller runs within a span."""
        ...

    def begin(
        self, name: str, kind: Kind, attributes: Attributes, parent: Headers | None = None
    ) -> TraceSpan:
        """Begins a span as a child of the context in `parent`, or else of the current span."""
        ...


def context_of(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """Headers that carry a trace context; empty without one, or if it is too large."""
    found = tuple(pair for pair in headers if pair[0] in CONTEXT_NAMES)
    size = sum(len(value or b"") for _, value in found)
    has_parent = any(name == TRACE_PARENT and value for name, value in found)
    return found if has_parent and size <= CONTEXT_BYTES_MAX else ()


def with_context(headers: Headers, context: Headers) -> Headers:
    """Replaces the trace context of headers."""
    return (*(pair for pair in headers if pair[0] not in CONTEXT_NAMES), *context)


def about(
    operation: str, kind: str, topic: str, more: Attributes | None = None
) -> dict[str, Value]:
    """Attributes of every messaging span."""
    return {
        SYSTEM: "kafka",
        OPERATION: operation,
        OPERATION_TYPE: kind,
        DESTINATION: topic,
        **(more or {}),
    }
