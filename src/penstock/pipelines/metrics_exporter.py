"""Prometheus metrics of a running pipeline, on a port of its own process.

The broker does not serve them: it does not know pipelines. Each scrape reads the current states.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from penstock.pipelines.endpoints import PipelineError
from penstock.pipelines.progress import FAILED, RUNNING, StageState

METRICS: Final[tuple[tuple[str, str, str, Callable[[StageState], float]], ...]] = (
    ("rows_in", "counter", "Rows that the stage has read in this run.", lambda s: s.rows_in),
    ("rows_out", "counter", "Rows that the stage has written.", lambda s: s.rows_out),
    ("bad_rows", "counter", "Rows written to the dead-letter queue.", lambda s: s.bad_rows),
    ("late_rows", "counter", "Rows dropped behind the watermark.", lambda s: s.late_rows),
    ("restarts", "counter", "Restarts of the query after a failure.", lambda s: s.restarts),
    ("batch", "gauge", "Number of the last batch.", lambda s: s.batch),
    ("lag_records", "gauge", "Records not read yet; -1: unknown.", lambda s: s.lag),
    ("running", "gauge", "1 while the query runs.", lambda s: s.state == RUNNING),
    ("failed", "gauge", "1 after the stage has failed permanently.", lambda s: s.state == FAILED),
)


class StageCollector:
    """Collector of the stages' metrics for prometheus-client."""

    def __init__(self, states: Callable[[], Sequence[StageState]]) -> None:
        self._states = states

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        labels = ("pipeline", "stage")
        for name, kind, text, value in METRICS:
            family = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            made = family(f"penstock_pipeline_{name}", text, labels=labels)
            for state in self._states():
                made.add_metric((state.pipeline, state.stage), float(value(state)))
            yield made
        checked = CounterMetricFamily(
            "penstock_pipeline_expectation_rows",
            "Rows that an expectation was checked on, by result.",
            labels=(*labels, "expectation", "result"),
        )
        for state in self._states():
            for expectation, counts in state.expectations.items():
                for result, rows in counts.items():
                    checked.add_metric(
                        (state.pipeline, state.stage, expectation, result), float(rows)
                    )
        yield checked


def serve(
    port: int, states: Callable[[], Sequence[StageState]], host: str = "127.0.0.1"
) -> tuple[int, Callable[[], None]]:
    """Serves /metrics; returns the bound port and a function that stops the server.

    Port 0 selects a free port.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ModuleNotFoundError:
        raise PipelineError(
            "--metrics-port needs prometheus-client: pip install 'penstock-mq[pipelines]'"
        ) from None
    registry = CollectorRegistry()
    registry.register(StageCollector(states))
    server, thread = start_http_server(port, addr=host, registry=registry)

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return int(server.server_port), close
