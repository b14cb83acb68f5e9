"""Traces by OpenTelemetry: the real version of `base.tracing`, imported only where tracing is on.

An application that has set OpenTelemetry up is followed: its provider, sampling and exporters are
used. A process of ours (`penstock up`, `penstock worker`) sets it up by the variables that every
OpenTelemetry program obeys (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER,
...), and sends spans in the background; what is not sent when the process ends is sent then.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from penstock.base.tracing import CONTEXT_NAMES, Attributes, Headers, Kind

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

ENABLED = "PENSTOCK_TRACING"
SCOPE = "penstock"
NOT_INSTALLED = "tracing needs OpenTelemetry: pip install 'penstock-mq[otel]'"


class TracingUnavailable(Exception):
    """Tracing was asked for, and cannot be had; the message says what to do."""


def is_enabled() -> bool:
    """Whether the environment asks for tracing."""
    return os.environ.get(ENABLED, "").lower() in ("1", "true", "yes", "on")


class OtelSpan:
    """See `penstock.base.tracing.Span`."""

    __slots__ = ("_headers", "_otel", "_span")

    def __init__(self, otel: "OtelTracer", span: Any) -> None:
        self._otel = otel
        self._span = span
        self._headers: Headers | None = None

    @property
    def headers(self) -> Headers:
        if self._headers is None:
            self._headers = self._otel.context_headers(self._span)
        return self._headers

    def note(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def fail(self, error: BaseException) -> None:
        self._otel.set_failed(self._span, error)

    def end(self) -> None:
        self._span.end()

    def current(self) -> AbstractContextManager[None]:
        return self._otel.use(self._span)


class OtelTracer:
    """See `penstock.base.tracing.Tracer`. Without a provider, the application's is used."""

    def __init__(self, provider: Any = None) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise TracingUnavailable(NOT_INSTALLED) from None
        self._trace = trace
        self._propagator = TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=provider)
        self._kinds = {
            "producer": trace.SpanKind.PRODUCER,
            "consumer": trace.SpanKind.CONSUMER,
            "client": trace.SpanKind.CLIENT,
        }

    @property
    def has_current(self) -> bool:
        is_valid: bool = self._trace.get_current_span().get_span_context().is_valid
        return is_valid

    def begin(
        self, name: str, kind: Kind, attributes: Attributes, parent: Headers | None = None
    ) -> OtelSpan:
        context = None
        if parent:
            carrier = {
                header: value.decode("ascii", "replace")
                for header, value in parent
                if header in CONTEXT_NAMES and value is not None
            }
            context = self._propagator.extract(carrier)
        span = self._tracer.start_span(
            name, context, kind=self._kinds[kind], attributes=dict(attributes)
        )
        return OtelSpan(self, span)

    def context_headers(self, span: Any) -> Headers:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._trace.set_span_in_context(span))
        return tuple((name, value.encode()) for name, value in carrier.items())

    def set_failed(self, span: Any, error: BaseException) -> None:
        status = self._trace.Status(self._trace.StatusCode.ERROR, str(error)[:512])
        span.set_status(status)
        span.set_attribute("error.type", type(error).__qualname__)

    @contextmanager
    def use(self, span: Any) -> Iterator[None]:
        with self._trace.use_span(
            span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        ):
            yield


def start(service: str) -> OtelTracer:
    """Sets OpenTelemetry up for this process, unless the application has, as its variables say."""
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise TracingUnavailable(NOT_INSTALLED) from None
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return OtelTracer()
    # Resource.create heeds OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES only where the caller
    # names nothing: so the name is given only where nobody else gives one.
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    resource = Resource.create({} if named else {SERVICE_NAME: service})
    provider = TracerProvider(resource=resource)
    if os.environ.get("OTEL_TRACES_EXPORTER", "otlp") != "none":
        provider.add_span_processor(BatchSpanProcessor(_exporter()))
    trace.set_tracer_provider(provider)
    return OtelTracer(provider)


def _exporter() -> "SpanExporter":
    wanted = os.environ.get("OTEL_TRACES_EXPORTER", "otlp")
    if wanted == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    if wanted != "otlp":
        raise TracingUnavailable(f"OTEL_TRACES_EXPORTER={wanted}: choose otlp, console or none")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
    )
    try:
        if protocol == "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # type: ignore[import-not-found, unused-ignore]
                OTLPSpanExporter as GrpcExporter,
            )

            return GrpcExporter()  # type: ignore[no-any-return, unused-ignore]
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter()
    except ImportError:
        package = "opentelemetry-exporter-otlp-proto-" + ("grpc" if protocol == "grpc" else "http")
        raise TracingUnavailable(f"to send traces by {protocol}, pip install {package}") from None
