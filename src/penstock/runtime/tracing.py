"""Tracing with OpenTelemetry: implements `base.tracing`; imported only while tracing is on.

If the application has configured OpenTelemetry, its provider, sampling and exporters are used.
Penstock's own processes (`penstock up`, `penstock worker`) configure it by OpenTelemetry's
standard variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, ...). They
send spans in the background, and the remaining ones at the end of the process.
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
    """Tracing is enabled but unavailable; the message says what to do."""


def is_enabled() -> bool:
    """True if the environment enables tracing."""
    return os.environ.get(ENABLED, "").lower() in ("1", "true", "yes", "on")


class OtelSpan:
    """Implements `penstock.base.tracing.TraceSpan`."""

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
    """Implements `penstock.base.tracing.Tracer`; the default provider is the application's."""

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
    """Configures OpenTelemetry by its variables, unless the application has done so."""
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise TracingUnavailable(NOT_INSTALLED) from None
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return OtelTracer()
    # Resource.create uses OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES only if the caller sets
    # no name: so the name is set only if neither variable does.
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
        raise TracingUnavailable(
            f"unsupported OTEL_TRACES_EXPORTER={wanted}: choose otlp, console or none"
        )
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
        raise TracingUnavailable(
            f"sending traces by {protocol} needs another package: pip install {package}"
        ) from None
