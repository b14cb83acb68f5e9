"""Redrives in the console: progress, stop, undo."""

import asyncio

from tests.run_with import run_with
from tests.unit.gateway.console.console_client import ConsoleClient, on_console
from tests.unit.gateway.http.served_node import dead_letter, depth


@run_with(on_console)
async def test_redrive_is_undone_for_undelivered_copies(web: ConsoleClient) -> None:
    await dead_letter(web, "a", "b", "c")
    begun = (await web.change("/dlq/t.dlq/redrives", {})).json
    assert (begun["state"], begun["total"]) == ("running", 3)
    while (run := (await web.own("/redrives"))["redrives"][0])["state"] == "running":
        await asyncio.sleep(0.1)
    assert (run["sent"], run["can_undo"]) == (3, True)
    (taken,) = await web.poll(max=1)
    undone = (await web.change(f"/redrives/{run['id']}/undo", {})).json
    assert (undone["state"], undone["taken_back"]) == ("undone", 2)
    assert await depth(web, "t.dlq") == 2
    assert (await web.post("/ack", {"receipt": taken["receipt"]})).status < 300
    assert await web.poll(max=10) == []
    assert (await web.change(f"/redrives/{run['id']}/undo", {})).status == 422
    again = (await web.change("/dlq/t.dlq/redrives", {})).json
    assert again["total"] == 2


@run_with(on_console)
async def test_stopped_redrive_leaves_the_rest(web: ConsoleClient) -> None:
    await dead_letter(web, *"abcdef")
    begun = (await web.change("/dlq/t.dlq/redrives", {"rate": 0.5})).json
    await asyncio.sleep(3)
    stopped = (await web.change(f"/redrives/{begun['id']}/stop", {})).json
    assert stopped["state"] == "cancelled"
    assert 0 < stopped["sent"] < 6
    assert await depth(web, "t.dlq") == 6 - stopped["sent"]
