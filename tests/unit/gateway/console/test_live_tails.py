"""Live tails: sharing, limits, end."""

import asyncio

from penstock.gateway.console.live_tails import TAILS_EACH_MAX, WATCHERS_EACH_MAX
from tests.run_with import run_with
from tests.unit.gateway.console.console_client import API, ConsoleClient, on_console


@run_with(on_console)
async def test_watchers_share_a_tail_that_ends_with_the_last(web: ConsoleClient) -> None:
    await web.publish("old")
    visits = [web.begin("GET", f"{API}/topics/t/tail") for _ in range(3)]
    await asyncio.sleep(1)
    assert len(web.console.tails) == 1
    await web.publish("new")
    await asyncio.sleep(1)
    for request in visits:
        assert b'"text":"new"' in request.answer.body
        assert b'"text":"old"' not in request.answer.body
    await web.publish(*range(400))
    await asyncio.sleep(1)
    assert b'"skipped":300' in visits[0].answer.body
    for request in visits:
        await request.disconnect()
    assert len(web.console.tails) == 0


@run_with(on_console)
async def test_user_above_the_tail_limit_is_refused_before_the_response(
    web: ConsoleClient,
) -> None:
    for at in range(TAILS_EACH_MAX + 1):
        await web.publish("x", topic=f"t{at}")
    web.host = "10.0.0.1"
    visits = [web.begin("GET", f"{API}/topics/t{at}/tail") for at in range(TAILS_EACH_MAX)]
    await asyncio.sleep(1)
    assert [request.answer.status for request in visits] == [200] * TAILS_EACH_MAX
    over = await web.get(f"{API}/topics/t{TAILS_EACH_MAX}/tail")
    assert (over.status, over.code) == (429, "THROTTLING_QUOTA_EXCEEDED")
    # A watched topic does not count again.
    visits += [
        web.begin("GET", f"{API}/topics/t0/tail") for _ in range(WATCHERS_EACH_MAX - TAILS_EACH_MAX)
    ]
    await asyncio.sleep(1)
    assert (await web.get(f"{API}/topics/t0/tail")).status == 429
    web.host = "10.0.0.2"
    visits.append(web.begin("GET", f"{API}/topics/t{TAILS_EACH_MAX}/tail"))
    await asyncio.sleep(1)
    assert visits[-1].answer.status == 200
    for request in visits:
        await request.disconnect()
    web.host = "10.0.0.1"
    again = web.begin("GET", f"{API}/topics/t{TAILS_EACH_MAX}/tail")
    await asyncio.sleep(1)
    assert again.answer.status == 200
    await again.disconnect()
