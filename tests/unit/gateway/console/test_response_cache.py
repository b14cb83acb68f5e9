"""Lists are made once for all who have the same rights, until the next look."""

from tests.run_with import run_with
from tests.unit.gateway.console.looking import Looker, on_console


@run_with(on_console)
async def test_fifty_viewers_are_sent_the_same_answer_until_something_changes(web: Looker) -> None:
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
