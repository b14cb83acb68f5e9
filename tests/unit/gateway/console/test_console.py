"""Cache of responses per principal, until the next sample."""

from tests.run_with import run_with
from tests.unit.gateway.console.console_client import ConsoleClient, on_console


@run_with(on_console)
async def test_response_is_shared_until_the_next_sample_or_change(web: ConsoleClient) -> None:
    await web.publish("a")
    for _ in range(50):
        assert [row["name"] for row in (await web.own("/topics"))["topics"]] == ["t"]
    assert web.console.answers.made == 1
    await web.publish("a", topic="other")
    assert len((await web.own("/topics"))["topics"]) == 2
    assert web.console.answers.made == 2
    await web.console.sampler.sample()
    await web.own("/topics")
    await web.own("/topics", internal="true")
    assert web.console.answers.made == 4
