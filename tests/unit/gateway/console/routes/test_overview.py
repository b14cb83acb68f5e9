"""Overview page, with all and with fewer permissions."""

import asyncio

import pytest

from tests.run_with import run_with
from tests.unit.gateway.console.console_client import ConsoleClient, on_console
from tests.unit.gateway.http.served_node import dead_letter


@run_with(on_console)
async def test_overview_shows_rates_lag_and_problems(web: ConsoleClient) -> None:
    await web.publish(*range(10))
    await web.post(
        "/offsets/commit", {"group": "billing", "topic": "t", "partition": 0, "offset": 4}
    )
    await web.own("/overview")
    await web.publish(*range(20))
    await asyncio.sleep(10)
    seen = await web.own("/overview")
    assert seen["totals"]["records"] == 30
    assert seen["series"]["records_in"][-1] == pytest.approx(2.0, abs=0.1)
    assert seen["series"]["lag"][-1] == 26
    assert [one["name"] for one in seen["groups"]] == ["billing"]
    assert seen["problems"] == []
    await dead_letter(web, "x")
    await asyncio.sleep(10)
    (problem,) = (await web.own("/overview"))["problems"]
    assert "1 open dead letter" in problem["text"]
