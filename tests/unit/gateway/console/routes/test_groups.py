"""Offset resets of groups: preview and execution."""

import asyncio

from tests.run_with import run_with
from tests.unit.gateway.console.console_client import API, ConsoleClient, on_console


@run_with(on_console)
async def test_reset_matches_its_preview(web: ConsoleClient) -> None:
    await web.publish(*range(10))
    await web.post("/offsets/commit", {"group": "g", "topic": "t", "partition": 0, "offset": 4})
    plan = await web.own("/groups/g/reset", to="start")
    assert [(row["old"], row["new"], row["again"]) for row in plan["moves"]] == [(4, 0, 4)]
    assert not plan["executed"]
    assert (await web.change("/groups/g/reset", {"to": "-3"})).status == 200
    seen = await web.own("/groups/g")
    await asyncio.sleep(10)
    seen = await web.own("/groups/g")
    assert [(row["position"], row["lag"]) for row in seen["places"]] == [(7, 3)]
    assert seen["places"][0]["oldest_ms"] is not None
    assert (await web.change("/groups/g/reset", {"to": "somewhere"})).status == 422
    assert (await web.get(f"{API}/groups/none/reset", to="start")).status == 404
