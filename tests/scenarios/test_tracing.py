"""Traces through the HTTP endpoint of a real broker, and to a collector by OTLP."""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from penstock.node.ports import Ports
from penstock.runtime.tracing import OtelTracer
from penstock.testing.broker import Broker
from penstock.testing.clock import SkewedLoop
from tests.conftest import FreshBroker
from tests.unit.app.test_tracing import Traces, parent_of

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT_ID = "00f067aa0ba902b7"
CONTEXT = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01", "tracestate": "vendor=1"}


def ask(method: str, url: str, body: object = None, headers: dict[str, str] | None = None) -> Any:
    request = urllib.request.Request(url, method=method, headers=headers or {})
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


class TracedBroker(Broker):
    traces: Traces

    def _ports(self, loop: SkewedLoop) -> Ports:
        tracer = OtelTracer(self.traces.provider)
        return replace(super()._ports(loop), tracer=lambda wanted: tracer if wanted else None)


@pytest.fixture
def traced() -> Iterator[TracedBroker]:
    broker = TracedBroker({"tracing.enable": "true"})
    broker.traces = Traces()
    with broker:
        yield broker


def test_trace_continues_through_http_from_publish_to_ack(traced: TracedBroker) -> None:
    url, traces = f"{traced.http}/topics/jobs", traced.traces
    ask("POST", f"{url}/messages", {"payload": 1}, CONTEXT)
    (message,) = ask("GET", f"{url}/poll?group=workers")["messages"]
    assert message["headers"]["traceparent"].split("-")[1] == TRACE_ID
    assert message["headers"]["tracestate"] == "vendor=1"
    ask("POST", f"{traced.http}/nack", {"receipt": message["receipt"], "delay_ms": 0})
    (again,) = ask("GET", f"{url}/poll?group=workers&wait_ms=20000")["messages"]
    ask("POST", f"{traced.http}/ack", {"receipt": again["receipt"]})
    assert traces.names() == [
        "send jobs", "receive jobs", "nack jobs", "receive jobs", "ack jobs",
    ]  # fmt: skip
    assert {f"{one:032x}" for one in traces.ids()} == {TRACE_ID}
    sent, received, nacked, *_ = traces.spans()
    assert f"{parent_of(sent):016x}" == PARENT_ID
    assert parent_of(received) == sent.context.span_id
    assert parent_of(nacked) == received.context.span_id


def test_message_context_overrides_the_request_context(traced: TracedBroker) -> None:
    own = f"00-{'a' * 32}-{'b' * 16}-01"
    body = {"messages": [{"payload": 1}, {"payload": 2, "headers": {"traceparent": own}}]}
    ask("POST", f"{traced.http}/topics/jobs/messages", body, CONTEXT)
    found = {m.value: dict(m.headers)["traceparent"] for m in traced.messages("jobs")}
    assert (found[b"1"] or b"").decode().split("-")[1] == TRACE_ID
    assert found[b"2"] == own.encode()


def test_context_is_propagated_without_tracing() -> None:
    with Broker() as broker:
        ask("POST", f"{broker.http}/topics/jobs/messages", {"payload": 1}, CONTEXT)
        (message,) = broker.messages("jobs")
        assert dict(message.headers)["traceparent"] == CONTEXT["traceparent"].encode()


def test_spans_are_exported_as_the_environment_says(
    fresh_broker: FreshBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}"
        )
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "orders-broker")
        broker = fresh_broker(sets={"tracing.enable": "true"})
        ask("POST", f"{broker.http}/topics/jobs/messages", {"payload": 1}, CONTEXT)
        deadline = time.monotonic() + 30
        while not got and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        server.shutdown()
        server.server_close()
    assert [path for path, _ in got] == ["/v1/traces"]
    body = got[0][1]
    assert bytes.fromhex(TRACE_ID) in body
    assert b"send jobs" in body
    assert b"orders-broker" in body
