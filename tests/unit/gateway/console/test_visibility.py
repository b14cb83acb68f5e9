"""Rates, trends and estimates computed from samples."""

from collections import deque

from penstock.coordinator.groups_by_topic import PositionKind
from penstock.gateway.console.sampler import SAMPLES_MAX, GroupProgress, Sample
from penstock.gateway.console.visibility import (
    VIEWS_MAX,
    Views,
    grow,
    rate_of,
    series_of,
    trend_of,
)
from penstock.gateway.core.permissions import Principal


def sample(at_s: float, written: int, lag: int, done: int) -> Sample:
    lines = {
        ("g", "t"): GroupProgress(PositionKind.CONSUMER, lag, done),
        ("w", "t"): GroupProgress(PositionKind.SHARE, 5, done),
    }
    return Sample(at_s, int(at_s * 1000), {"t": written, "hidden": written * 9}, lines, {}, 0, 0)


SAMPLES = deque([sample(0, 100, 80, 20), sample(2, 300, 60, 240), sample(4, 500, 40, 460)])


def test_view_contains_only_visible_rates() -> None:
    view = Views(SAMPLES_MAX).of(Principal("User:ann"), None)
    grow(view, SAMPLES, 3, lambda topic: topic == "t", lambda group: group == "g")
    series = series_of(view.points)
    assert series.records_in == [100.0, 100.0]
    assert series.records_out == [110.0, 110.0]
    assert series.lag == [60, 40]
    assert series.waiting == [0, 0]


def test_view_grows_by_new_samples() -> None:
    view = Views(SAMPLES_MAX).of(Principal("User:ann"), None)
    for rounds in (1, 2, 2, 3):
        some = list(SAMPLES)[:rounds]
        grow(view, some, rounds, lambda topic: True, lambda group: True)
    assert [point.at_ms for point in view.points] == [2000, 4000]
    assert view.points.maxlen == SAMPLES_MAX


def test_views_are_limited_and_reset_when_permissions_change() -> None:
    views = Views(SAMPLES_MAX)
    first = views.of(Principal("User:0"), "rules")
    assert views.of(Principal("User:0"), "rules") is first
    for number in range(1, VIEWS_MAX + 1):
        views.of(Principal(f"User:{number}"), "rules")
    assert views.of(Principal("User:0"), "rules") is not first
    last = views.of(Principal("User:9"), "rules")
    assert views.of(Principal("User:9"), "other rules") is not last


def test_shrinking_lag_has_an_estimate() -> None:
    trend = trend_of(SAMPLES, [("g", "t")])
    assert (trend.lag, trend.per_s, trend.read_per_s, trend.eta_s) == (40, -10.0, 110.0, 4.0)
    assert trend.recent == [80, 60, 40]


def test_steady_or_unknown_lag_has_no_estimate() -> None:
    assert trend_of(SAMPLES, [("w", "t")]).eta_s is None
    assert trend_of(SAMPLES, [("missing", "t")]).lag == 0
    assert trend_of([], []).lag == 0


def test_topic_rate_covers_the_last_minute() -> None:
    old = sample(-300, 0, 0, 0)
    assert rate_of([old, *SAMPLES], "t") == 100.0
    assert rate_of(SAMPLES, "unknown") is None
    assert rate_of([SAMPLES[0]], "t") is None, "one sample gives no rate"
