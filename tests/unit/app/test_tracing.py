"""Application traces: from publish to acknowledgement, over retries, dead letters and copies."""

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock.app.message import LogMessage, Message
from penstock.app.outgoing import Outgoing
from penstock.app.retry_topics import RetryTopics
from penstock.app.task import Reject
from penstock.app.tracing import tracer_of
from tests.unit.app.simulated import Sim, on_broker
from tests.unit.app.test_worker import new_worker, serve


class Traces:
    """Spans that this process has recorded."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def spans(self) -> list[ReadableSpan]:
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def names(self) -> list[str]:
        return [span.name for span in self.spans()]

    def ids(self) -> set[int]:
        return {span.context.trace_id for span in self.spans()}

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans() if span.name == name]


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def test_publish_handler_and_ack_share_one_trace() -> None:
    traces = Traces()

    async def test(sim: Sim) -> None:
        worker = new_worker(sim, tracing=traces.provider)

        @worker.task("jobs")
        async def handle(message: Message) -> None:
            await worker.client.publish("done", b"!")

        @worker.task("done")
        def plain(message: Message) -> None:
            trace.get_tracer("mine", tracer_provider=traces.provider).start_span("work").end()

        async with sim.client(tracing=traces.provider) as client:
            await client.publish("jobs", b"1", headers={"own": "kept"})
            await serve(worker, 10)
            (kept,) = await client.poll("jobs", "others", wait=5)
            assert kept.header("own") == "kept"
            assert len([name for name, _ in kept.header_pairs if name == "traceparent"]) == 1

    on_broker(test)
    assert len(traces.ids()) == 1
    assert sorted(traces.names()) == sorted(
        ["send jobs", "process jobs", "send done", "ack jobs", "process done", "work", "ack done"]
    )
    (sent,), (handled,), (acked,) = map(traces.named, ("send jobs", "process jobs", "ack jobs"))
    assert parent_of(handled) == sent.context.span_id
    assert parent_of(acked) == handled.context.span_id
    assert parent_of(traces.named("send done")[0]) == handled.context.span_id
    assert parent_of(traces.named("work")[0]) == traces.named("process done")[0].context.span_id
    assert handled.attributes is not None
    assert handled.attributes["messaging.consumer.group.name"] == "workers"
    assert handled.attributes["penstock.delivery.attempt"] == 1
    assert sent.kind is trace.SpanKind.PRODUCER
    assert handled.kind is trace.SpanKind.CONSUMER


def test_retries_and_dead_letters_stay_in_the_trace() -> None:
    traces = Traces()

    async def test(sim: Sim) -> None:
        worker = new_worker(sim, tracing=traces.provider)

        @worker.task("jobs", retries=2, backoff="1s")
        async def fail(message: Message) -> None:
            raise KeyError("broken")

        @worker.task("jobs.dlq", group="undertakers")
        async def dead_letter(message: Message) -> None:
            pass

        async with sim.client(tracing=traces.provider) as client:
            await client.create_topic("jobs", 1)
            await client.create_topic("jobs.dlq", 1)
            await client.publish("jobs", b"1")
            await serve(worker, 60)

    on_broker(test)
    assert len(traces.ids()) == 1
    tries = traces.named("process jobs")
    assert [span.attributes["penstock.delivery.attempt"] for span in tries if span.attributes] == [
        1,
        2,
        3,
    ]
    assert {span.status.status_code for span in tries} == {trace.StatusCode.ERROR}
    assert len(traces.named("nack jobs")) == 2
    assert len(traces.named("reject jobs")) == 1
    assert traces.names()[-2:] == ["process jobs.dlq", "ack jobs.dlq"]


def test_retry_topics_and_exactly_once_copies_continue_the_trace() -> None:
    traces = Traces()

    async def test(sim: Sim) -> None:
        import asyncio

        async with sim.client(tracing=traces.provider) as client:
            await client.publish("orders", b"1")
            retried = RetryTopics(
                client, "orders", "billing", delays=["1s"], clock=sim.options()["clock"]
            )

            async def fail(message: LogMessage) -> None:
                raise Reject("no")

            running = asyncio.ensure_future(retried.run(fail))
            await asyncio.sleep(20)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            async with client.consume("orders", "copier", delivery="exactly-once") as orders:
                async for order in orders:
                    await orders.publish("copies", order.payload)
                    break
            async with client.consume(["copies", "orders.dlq"]) as reader:
                async for message in reader:
                    assert message.header("traceparent")
                    if message.topic == "copies":
                        break

    on_broker(test)
    assert len(traces.ids()) == 1
    assert {"send orders", "process orders", "send orders.dlq", "send copies"} == set(
        traces.names()
    )


def test_publish_many_creates_one_span() -> None:
    traces = Traces()

    async def test(sim: Sim) -> None:
        async with sim.client(tracing=traces.provider) as client:
            await client.publish_many("jobs", [b"1", Outgoing(payload=b"2", key="k"), b"3"])

    on_broker(test)
    (span,) = traces.spans()
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 3


def test_failed_publish_is_recorded_in_its_span() -> None:
    traces = Traces()

    async def test(sim: Sim) -> None:
        async with sim.client(tracing=traces.provider) as client:
            with pytest.raises(Exception, match="partition"):
                await client.publish("jobs", b"1", partition=99)

    on_broker(test)
    assert [span.status.status_code for span in traces.spans()] == [trace.StatusCode.ERROR]


def test_tracing_is_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_TRACING", raising=False)
    assert tracer_of(None) is None
    assert tracer_of(False) is None
    monkeypatch.setenv("PENSTOCK_TRACING", "1")
    assert tracer_of(None) is not None
    assert tracer_of(False) is None


def test_disabled_tracing_imports_no_opentelemetry() -> None:
    program = (
        "import sys, penstock; penstock.Client(), penstock.Worker(group='g'); "
        "import penstock.node.node; "
        "print([m for m in sys.modules if m.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
