"""Live tails are shared, bounded, and end with their last watcher."""

import asyncio

from tests.unit.console.looking import API, Looker, on_console


def test_watchers_of_a_topic_share_one_tail_and_it_ends_with_the_last() -> None:
    async def test(web: Looker) -> None:
        await web.publish("old")
        visits = [web.begin("GET", f"{API}/topics/t/tail") for _ in range(3)]
        await asyncio.sleep(1)
        assert len(web.console.tails) == 1
        await web.publish("new")
        await asyncio.sleep(1)
        for visit in visits:
            assert b'"text":"new"' in visit.answer.body
            assert b'"text":"old"' not in visit.answer.body
        await web.publish(*range(400))
        await asyncio.sleep(1)
        assert b'"skipped":300' in visits[0].answer.body
        for visit in visits:
            await visit.hang_up()
        assert len(web.console.tails) == 0

    on_console(test)
