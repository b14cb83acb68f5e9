"""Topics, as far as rights go."""

import json

from tests.run_with import run_with
from tests.unit.gateway.console.looking import API, Looker, Rights, on_console


@run_with(on_console)
async def test_nobody_is_told_of_what_they_may_not_see(web: Looker) -> None:
    await web.publish("a", topic="t")
    await web.publish("b", topic="secret")
    web.node.ctx.authorizer = Rights("secret", "kafka-cluster")
    assert [row["name"] for row in (await web.own("/topics"))["topics"]] == ["t"]
    for path in ("/topics/secret", "/topics/secret/messages", "/topics/secret/tail",
                 "/topics/secret/search?text=b", "/nodes"):  # fmt: skip
        assert (await web.get(API + path)).status in (401, 403), path
    assert "secret" not in json.dumps(await web.own("/overview"))
    assert (await web.own("/session"))["must_log_in"] is False
