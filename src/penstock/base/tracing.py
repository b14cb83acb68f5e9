"""Traces as this code sees them: spans that begin, carry their context in headers, and end.

The port of OpenTelemetry (`runtime.tracing`): whoever traces is given a `Tracer`, and whoever is
given none does nothing, at the cost of one comparison. The context travels as W3C says it, in the
record headers `traceparent` and `tracestate`, so that any Kafka client can take part.
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

# OpenTelemetry's names for what a span of messaging tells.
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
    """A piece of work that was begun. Ends once, whatever happens."""

    @property
    def headers(self) -> Headers:
        """Its context: what follows from it carries these."""
        ...

    def note(self, attributes: Attributes) -> None: ...

    def fail(self, error: BaseException) -> None:
        """It came to nothing, and why."""
        ...

    def end(self) -> None: ...

    def current(self) -> AbstractContextManager[None]:
        """While this lasts, spans begun by anybody are below this one."""
        ...


class Tracer(Protocol):
    @property
    def has_current(self) -> bool:
        """Whether whoever asks runs below some span."""
        ...

    def begin(
        self, name: str, kind: Kind, attributes: Attributes, parent: Headers | None = None
    ) -> TraceSpan:
        """A span below the context in `parent`; without one, below the current span, if any."""
        ...


def context_of(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """Those headers that carry a trace; empty where there is none, or too much of it."""
    found = tuple(pair for pair in headers if pair[0] in CONTEXT_NAMES)
    size = sum(len(value or b"") for _, value in found)
    has_parent = any(name == TRACE_PARENT and value for name, value in found)
    return found if has_parent and size <= CONTEXT_BYTES_MAX else ()


def with_context(headers: Headers, context: Headers) -> Headers:
    """Headers with this context instead of their own."""
    return (*(pair for pair in headers if pair[0] not in CONTEXT_NAMES), *context)


def about(
    operation: str, kind: str, topic: str, more: Attributes | None = None
) -> dict[str, Value]:
    """The attributes that every span of messaging has."""
    return {
        SYSTEM: "kafka",
        OPERATION: operation,
        OPERATION_TYPE: kind,
        DESTINATION: topic,
        **(more or {}),
    }
