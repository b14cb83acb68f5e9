"""History of an hour and a day: kept without viewers, bounded, and limited by permissions."""

import asyncio
from itertools import pairwise

import pytest

from penstock.gateway.console.history import DAY, EARLY_S, HOUR, KeptSamples, Period
from penstock.gateway.console.sampler import HISTORY_SECONDS, GroupProgress, Sample
from penstock.gateway.core.cluster_types import PositionKind
from tests.run_with import run_with
from tests.unit.gateway.console.console_client import API, ConsoleClient, Rights, on_console


def sample(at_s: float, *topics: str) -> Sample:
    return Sample(
        at_s,
        int(at_s * 1000),
        {topic: int(at_s) for topic in topics},
        {("g", topic): GroupProgress(PositionKind.CONSUMER, 7, int(at_s)) for topic in topics},
        {f"{topic}.dlq": 2 for topic in topics},
        1.5,
        2.5,
    )


def test_kept_samples_are_given_back_as_they_were() -> None:
    kept = KeptSamples(HOUR)
    given = [sample(0, "a"), sample(30, "a"), sample(60, "a", "b"), sample(90)]
    for one in given:
        kept.add(one)
    assert list(kept.last(10)) == given
    assert list(kept.last(2)) == given[2:]


def test_kept_samples_are_bounded_and_a_step_apart() -> None:
    kept = KeptSamples(Period(10.0, 5))
    for at_s in range(0, 200, 2):
        kept.add(sample(at_s, "a"))
    times = [one.at_s for one in kept.last(1000)]
    assert len(times) == 6
    assert all(after - before >= 10 - EARLY_S for before, after in pairwise(times))
    assert kept.rounds == 20


def test_periods_are_an_hour_and_a_day() -> None:
    assert (HOUR.step_s * HOUR.points, DAY.step_s * DAY.points) == (3600, 86_400)
    assert HOUR.step_s == HISTORY_SECONDS
    assert DAY.step_s % HISTORY_SECONDS == 0


KEPT = {"console.history.enable": "true"}


@run_with(lambda test: on_console(test, configs=KEPT))
async def test_history_is_kept_without_viewers(web: ConsoleClient) -> None:
    running = asyncio.ensure_future(web.console.run())
    await web.publish(*range(10))
    for _ in range(20):
        await asyncio.sleep(60)
        await web.publish(*range(6))
    assert web.console.sampler.rounds == 0
    hour = await web.own("/overview/history")
    assert (hour["period"], hour["step_s"]) == ("hour", 30.0)
    series = hour["series"]
    assert 35 <= len(series["at_ms"]) <= 41
    assert sum(series["records_in"]) * 30 == pytest.approx(120, abs=13)
    day = await web.own("/overview/history", period="day")
    assert 2 <= len(day["series"]["at_ms"]) <= 4
    # A second look adds what is new, and nothing twice.
    await asyncio.sleep(120)
    again = (await web.own("/overview/history"))["series"]["at_ms"]
    assert again[: len(series["at_ms"])] == series["at_ms"]
    assert 3 <= len(again) - len(series["at_ms"]) <= 5
    running.cancel()


@run_with(lambda test: on_console(test, configs=KEPT))
async def test_viewers_do_not_change_the_distance_of_the_history(web: ConsoleClient) -> None:
    running = asyncio.ensure_future(web.console.run())
    viewer = web.begin("GET", f"{API}/live")
    await asyncio.sleep(600)
    await viewer.disconnect()
    times = (await web.own("/overview/history"))["series"]["at_ms"]
    assert 17 <= len(times) <= 20
    assert web.console.sampler.rounds > 200
    running.cancel()


@run_with(on_console)
async def test_history_can_be_disabled(web: ConsoleClient) -> None:
    running = asyncio.ensure_future(web.console.run())
    await asyncio.sleep(300)
    assert (await web.own("/overview/history"))["series"]["at_ms"] == []
    running.cancel()


@run_with(lambda test: on_console(test, configs=KEPT))
async def test_history_has_only_what_the_viewer_may_describe(web: ConsoleClient) -> None:
    running = asyncio.ensure_future(web.console.run())
    await web.publish("x")
    await asyncio.sleep(70)
    await web.publish(*range(30))
    await asyncio.sleep(70)
    web.console.ctx.authorizer = Rights("t")
    series = (await web.own("/overview/history"))["series"]
    assert len(series["records_in"]) >= 3
    assert sum(series["records_in"]) == 0
    running.cancel()


@run_with(on_console)
async def test_unknown_period_is_refused(web: ConsoleClient) -> None:
    answer = await web.get(f"{API}/overview/history", period="year")
    assert answer.status in (400, 422)
    assert "must be hour or day" in answer.body.decode()
