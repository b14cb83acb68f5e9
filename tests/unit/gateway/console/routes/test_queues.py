"""State of queues, nodes and pipelines."""

import asyncio

from tests.run_with import run_with
from tests.unit.gateway.console.console_client import ConsoleClient, on_console


@run_with(on_console)
async def test_queues_nodes_and_pipelines_show_their_state(web: ConsoleClient) -> None:
    await web.post(
        "/topics/t/messages",
        {"messages": [{"payload": at, "priority": at % 2} for at in range(6)]},
    )
    await web.poll(max=1)
    await asyncio.sleep(10)
    (queue,) = (await web.own("/queues"))["queues"]
    assert (queue["ready"], queue["leased"], queue["unfinished"]) == (5, 1, 6)
    assert queue["by_priority"][:2] == [3, 2]
    nodes = await web.own("/nodes")
    assert [node["is_this"] for node in nodes["nodes"]] == [True]
    assert await web.own("/pipelines") == {"has_topic": False, "stages": []}
    for state in ("starting", "running"):
        stage = {"pipeline": "p", "stage": "bronze", "state": state, "rows_in": 5, "new": 1}
        await web.post("/topics/__pipelines/messages", {"payload": stage, "key": "p/bronze"})
    await web.post("/topics/__pipelines/messages", {"payload": "invalid", "key": "x"})
    (row,) = (await web.own("/pipelines"))["stages"]
    assert (row["state"], row["rows_in"]) == ("running", 5)
