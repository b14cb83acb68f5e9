"""Metrics output, parsed by Prometheus' own Python library."""

import asyncio
import math
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from penstock.base import fair_scheduler
from penstock.base.fair_scheduler import FairScheduler
from penstock.base.metrics import AGE_BUCKETS, Catalogue, Histogram
from penstock.gateway.http.metrics import OPENMETRICS, TEXT, render, render_steps, sample_name

parse_text: Callable[[str], Iterable[Metric]] = text_string_to_metric_families
parse_openmetrics: Callable[[str], Iterable[Metric]] = openmetrics.text_string_to_metric_families
WANTS_OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.5"


def scrape(catalogue: Catalogue) -> tuple[dict[str, Metric], dict[str, Metric]]:
    """Renders and parses a catalogue in both formats."""
    text, text_type = render(catalogue, "*/*")
    strict, strict_type = render(catalogue, WANTS_OPENMETRICS)
    assert (text_type, strict_type) == (TEXT, OPENMETRICS)
    return _by_name(parse_text(text.decode())), _by_name(parse_openmetrics(strict.decode()))


def _by_name(families: Iterable[Metric]) -> dict[str, Metric]:
    return {family.name: family for family in families}


def test_counter_round_trips_with_labels_and_help() -> None:
    catalogue = Catalogue()
    bytes_in = catalogue.add("penstock_bytes_in_total", "counter", "Bytes produced.", ("topic",))
    bytes_in.counter("orders").value += 7
    for families in scrape(catalogue):
        family = families["penstock_bytes_in"]
        assert family.documentation == "Bytes produced."
        assert [(s.name, s.labels, s.value) for s in family.samples] == [
            ("penstock_bytes_in_total", {"topic": "orders"}, 7.0)
        ]


def test_counter_gets_the_total_suffix() -> None:
    catalogue = Catalogue()
    family = catalogue.add("penstock_requests", "counter", "Requests.")
    family.counter().value += 1
    body, _ = render(catalogue)
    assert b"\npenstock_requests_total 1\n" in body
    assert sample_name(family) == "penstock_requests_total"


def test_gauge_computed_at_scrape_time_round_trips() -> None:
    catalogue = Catalogue()
    values = {("orders", "0"): 1.5, ("orders", "1"): -2.0}
    catalogue.add(
        "penstock_depth", "gauge", "Depth.", ("topic", "partition"), read=lambda: values.items()
    )
    for families in scrape(catalogue):
        samples = families["penstock_depth"].samples
        assert {tuple(s.labels.values()): s.value for s in samples} == values


def test_histogram_buckets_are_cumulative_and_end_in_infinity() -> None:
    catalogue = Catalogue()
    histogram = catalogue.add("penstock_fsync_seconds", "histogram", "Time.").histogram()
    for seconds in (0.00005, 0.0001, 0.003, 99.0):
        histogram.observe(seconds)
    for families in scrape(catalogue):
        samples = families["penstock_fsync_seconds"].samples
        buckets = {s.labels["le"]: s.value for s in samples if s.name.endswith("_bucket")}
        assert buckets["0.0001"] == 2
        assert buckets["0.0025"] == 2
        assert buckets["0.005"] == 3
        assert buckets["10.0"] == 3
        assert buckets["+Inf"] == 4
        rest = {s.name: s.value for s in samples if not s.name.endswith("_bucket")}
        assert rest["penstock_fsync_seconds_count"] == 4
        assert math.isclose(rest["penstock_fsync_seconds_sum"], 99.00315)


@given(
    topic=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=20),
    value=st.floats(allow_nan=False),
)
def test_any_label_and_number_round_trip(topic: str, value: float) -> None:
    catalogue = Catalogue()
    catalogue.add("penstock_depth", "gauge", "Depth.", ("topic",)).counter(topic).value = value
    body, _ = render(catalogue, WANTS_OPENMETRICS)
    (family,) = parse_openmetrics(body.decode())
    (sample,) = family.samples
    assert (sample.labels, sample.value) == ({"topic": topic}, value)


def test_hostile_help_and_labels_are_escaped() -> None:
    catalogue = Catalogue()
    family = catalogue.add("penstock_depth", "gauge", 'a "quoted"\nback\\slash', ("topic",))
    family.counter('x"} 1\npenstock_forged 1\n').value = 1
    body, _ = render(catalogue)
    assert len(body.splitlines()) == 3
    text, strict = scrape(catalogue)
    assert text["penstock_depth"].documentation == 'a "quoted"\nback\\slash'
    assert strict["penstock_depth"].documentation == 'a "quoted"\nback\\slash'


def test_special_numbers_use_prometheus_spelling() -> None:
    catalogue = Catalogue()
    catalogue.add("penstock_age", "gauge", "Age.").counter().value = math.nan
    body, _ = render(catalogue)
    assert body.endswith(b"penstock_age NaN\n")


def test_empty_catalogue_is_a_valid_scrape() -> None:
    assert render(Catalogue()) == (b"", TEXT)
    assert render(Catalogue(), WANTS_OPENMETRICS) == (b"# EOF\n", OPENMETRICS)


def test_external_histogram_is_read_at_scrape_time() -> None:
    catalogue = Catalogue()
    kept = Histogram(AGE_BUCKETS)
    catalogue.add("penstock_age_seconds", "histogram", "Age.", read=lambda: [((), kept)])
    kept.observe(0.07)
    kept.observe(100_000)
    for families in scrape(catalogue):
        samples = {
            (s.name, s.labels.get("le")): s.value for s in families["penstock_age_seconds"].samples
        }
        assert samples["penstock_age_seconds_bucket", "0.1"] == 1
        assert samples["penstock_age_seconds_bucket", "+Inf"] == 2
        assert samples["penstock_age_seconds_count", None] == 2


def test_large_scrape_yields_to_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_scheduler, "PIECE_STEPS", 1)
    catalogue = Catalogue()
    for number in range(10):
        catalogue.add(f"penstock_{number}", "gauge", "A number.").counter().value = number
    family = catalogue.add("penstock_many", "gauge", "Numbers.", ("what",))
    for number in range(100):
        family.counter(str(number)).value = number
    rounds = 0

    async def others() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    async def story() -> bytes:
        waiting = asyncio.ensure_future(others())
        answer = await FairScheduler().do("h", render_steps(catalogue, WANTS_OPENMETRICS))
        waiting.cancel()
        return answer

    assert asyncio.run(story()) == render(catalogue, WANTS_OPENMETRICS)[0]
    assert rounds >= 100


def test_histogram_is_consistent_although_rendering_yields(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fair_scheduler, "PIECE_STEPS", 1)
    catalogue = Catalogue()
    family = catalogue.add("penstock_age_seconds", "histogram", "Age.", ("what",))
    kept = [family.histogram(str(number)) for number in range(20)]

    async def others() -> None:
        while True:
            for histogram in kept:
                histogram.observe(1.0)
            await asyncio.sleep(0)

    async def story() -> bytes:
        waiting = asyncio.ensure_future(others())
        body = await FairScheduler().do("h", render_steps(catalogue, WANTS_OPENMETRICS))
        waiting.cancel()
        return body

    (found,) = parse_openmetrics(asyncio.run(story()).decode())
    ends = {}
    for number in range(20):
        mine = [sample for sample in found.samples if sample.labels["what"] == str(number)]
        told = {(sample.name, sample.labels.get("le")): sample.value for sample in mine}
        ends[number] = told["penstock_age_seconds_bucket", "+Inf"]
        assert told["penstock_age_seconds_sum", None] == ends[number]
        assert told["penstock_age_seconds_count", None] == ends[number]
    assert len(set(ends.values())) > 1, "no other task ran"
