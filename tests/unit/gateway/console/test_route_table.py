"""Every route of the console, asked without any right: nothing is told, and nothing is changed."""

import asyncio
from typing import Any

import pytest

from penstock.broker.api.route_row import Needs, Operation, ResourceType
from penstock.gateway.console.route_row import ConsoleRow
from penstock.gateway.console.route_table import ROWS
from penstock.gateway.http.audit import ADMINISTRATIVE_ROUTES, ORDINARY_ROUTES
from tests.run_with import run_with
from tests.unit.gateway.console.looking import API, OURS, Looker, on_console
from tests.unit.gateway.http.rights import EVE, GROUP, HOST, TOPIC, Lists

OWN = {"/session", "/login", "/logout"}
"""About whoever asks, and nobody else."""
ENDLESS = {"/live"}
DENIED = (401, 403, 404)
QUERY = {"reset": "to=start", "search": "text=a"}
ACL = {
    "resource": "TOPIC",
    "name": TOPIC,
    "pattern": "LITERAL",
    "principal": EVE,
    "host": "*",
    "operation": "ALL",
    "permission": "ALLOW",
}
BODIES: dict[str, Any] = {
    "POST /groups/{group}/reset": {"to": "start"},
    "POST /dlq/{name}/redrives": {},
    "POST /security/users": {"name": "eve", "password": "x"},
    "DELETE /security/users": {"name": "ann"},
    "POST /security/acls": ACL,
    "DELETE /security/acls": ACL,
    "POST /security/quotas": {"entity": {"user": "eve"}, "key": "request_percentage", "value": 1},
}


def path_of(row: ConsoleRow) -> str:
    path = API + row.path.replace("{name}", TOPIC).replace("{group}", GROUP)
    path = path.replace("{partition}", "0").replace("{offset}", "0").replace("{id}", "x")
    query = QUERY.get(path.rpartition("/")[2])
    return f"{path}?{query}" if query else path


async def ask(web: Looker, row: ConsoleRow) -> tuple[int, bytes]:
    body = BODIES.get(f"{row.method} {row.path}")
    visit = web.begin(row.method, path_of(row), body, **OURS)
    if row.path in ENDLESS:
        while not visit.answer.body:
            visit.news.clear()
            await visit.news.wait()
        await visit.hang_up()
        return visit.answer.status, visit.answer.body
    answer = await visit.ended()
    return answer.status, answer.body


async def prepare(web: Looker) -> Lists:
    """A topic, a group that reads it, a dead letter; and somebody with no right to any of it."""
    await web.publish("a", "b", topic=TOPIC)
    commit = {"group": GROUP, "topic": TOPIC, "partition": 0, "offset": 1}
    assert (await web.post("/offsets/commit", commit)).status < 300
    await web.own("/overview")
    await asyncio.sleep(10)
    lists = web.node.ctx.authorizer = Lists()
    web.who, web.host = EVE, HOST
    return lists


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.path}")
@run_with(on_console)
async def test_without_any_right_nothing_is_told_and_nothing_is_changed(
    web: Looker, *, row: ConsoleRow
) -> None:
    await prepare(web)
    before = web.node.ctx.image
    status, body = await ask(web, row)
    if row.path not in OWN and status not in DENIED:
        assert status == 200
        assert row.method == "GET"
        assert TOPIC.encode() not in body
        assert GROUP.encode() not in body
    after = web.node.ctx.image
    assert (after.topics, after.acls, after.users) == (before.topics, before.acls, before.users)
    assert (after.quotas, after.group_configs) == (before.quotas, before.group_configs)


def test_every_route_that_changes_something_has_been_thought_of() -> None:
    for row in ROWS:
        if row.method != "GET":
            name = f"{row.method} {API}{row.path}"
            assert name in ADMINISTRATIVE_ROUTES | ORDINARY_ROUTES, name


@run_with(on_console)
async def test_a_group_is_not_told_with_topics_that_may_not_be_seen(web: Looker) -> None:
    lists = await prepare(web)
    lists.give([Needs(ResourceType.GROUP, Operation.READ)])
    for path in (f"/groups/{GROUP}", "/groups", f"/groups/{GROUP}/reset?to=start"):
        answer = await web.get(API + path)
        assert TOPIC.encode() not in answer.body, path
    moved = await web.change(f"/groups/{GROUP}/reset", {"to": "start"})
    assert moved.status == 403
    assert TOPIC.encode() not in moved.body
