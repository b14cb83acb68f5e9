"""Topics with and without permissions."""

import json

from tests.run_with import run_with
from tests.unit.gateway.console.console_client import API, ConsoleClient, Rights, on_console


@run_with(on_console)
async def test_topics_without_permission_are_not_revealed(web: ConsoleClient) -> None:
    await web.publish("a", topic="t")
    await web.publish("b", topic="secret")
    web.node.ctx.authorizer = Rights("secret", "kafka-cluster")
    assert [row["name"] for row in (await web.own("/topics"))["topics"]] == ["t"]
    for path in ("/topics/secret", "/topics/secret/messages", "/topics/secret/tail",
                 "/topics/secret/search?text=b", "/nodes"):  # fmt: skip
        assert (await web.get(API + path)).status in (401, 403), path
    assert "secret" not in json.dumps(await web.own("/overview"))
    assert (await web.own("/session"))["must_log_in"] is False
