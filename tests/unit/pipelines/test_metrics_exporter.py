"""Metrics of a pipeline, scraped over HTTP."""

from urllib.request import urlopen

from penstock.pipelines.metrics_exporter import serve
from penstock.pipelines.progress import RUNNING, StageState


def test_scrape_returns_current_states() -> None:
    state = StageState("orders", "validate", "run", state=RUNNING, rows_in=5, lag=3)
    port, close = serve(0, lambda: [state])
    state.rows_in = 7
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    close()
    labels = '{pipeline="orders",stage="validate"}'
    assert f"penstock_pipeline_rows_in_total{labels} 7.0" in text
    assert f"penstock_pipeline_lag_records{labels} 3.0" in text
    assert f"penstock_pipeline_running{labels} 1.0" in text
    assert f"penstock_pipeline_failed{labels} 0.0" in text
