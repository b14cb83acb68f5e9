"""Every route with no, all, some and other hosts' permissions, according to the table.

A route without a row in `gateway.rest.permissions` fails, and so does one that requires other
permissions than its row says, or reveals to a client without permissions whether a topic exists.
"""

import asyncio
from typing import Any

import pytest

from penstock.gateway.rest import permissions as tables
from penstock.gateway.rest.endpoint import RestEndpoint
from penstock.gateway.rest.permissions import ROUTES
from penstock.gateway.rest.route_table import ENDPOINTS
from penstock.gateway.sns.actions import SNS_ACTIONS
from penstock.gateway.sqs.actions import SQS_ACTIONS
from tests.run_with import run_with
from tests.unit.gateway.http.granted_permissions import (
    DENIED,
    ELSEWHERE,
    EVE,
    GROUP,
    HOST,
    MISSING,
    TOPIC,
    GrantedPermissions,
    without_one,
)
from tests.unit.gateway.http.served_node import dead_letter, on_served
from tests.unit.gateway.http.web import Answer, Web, on_web

LETTERS = f"{TOPIC}.dlq"
NEW = "brand-new"
STREAM = "GET /topics/{name}/stream"
QUERIES = {
    "GET /topics/{name}/poll": f"group={GROUP}",
    STREAM: f"group={GROUP}",
    "GET /offsets": f"group={GROUP}&topic={{topic}}",
}
BODIES: dict[str, Any] = {
    "POST /topics/{name}/messages": {"payload": 1},
    "POST /offsets/commit": {"group": GROUP, "topic": "{topic}", "partition": 0, "offset": 0},
    "POST /topics": {"name": NEW, "partitions": 1},
    "POST /topics/{name}/partitions": {"partitions": 2},
    "PATCH /topics/{name}/configs": {"retention.ms": 60_000},
    "PATCH /groups/{group}/configs": {"share.record.lock.duration.ms": 60_000},
    "POST /dlq/{name}/redrive": {"dry_run": False, "limit": 1, "to": LETTERS},
    "POST /dlq/{name}/purge": {"all": True},
    "POST /topics/{name}/replay": {"group": GROUP, "from_offset": 0},
}
LOG_MODES = [
    ("GET", f"/topics/{{topic}}/poll?mode=log&group={GROUP}"),
    ("GET", "/topics/{topic}/poll?mode=log&partition=0&offset=0"),
    ("GET", f"/topics/{{topic}}/stream?mode=log&group={GROUP}"),
    ("GET", "/topics/{topic}/stream?mode=log&partition=0&offset=0"),
]


def name_of(row: RestEndpoint) -> str:
    return f"{row.method} {row.path}"


async def ask(web: Web, row: RestEndpoint, topic: str, receipt: str) -> Answer:
    name = name_of(row)
    path = row.path.replace("{name}", topic).replace("{group}", GROUP)
    path = path.replace("{letter}", "0:0").replace("{task}", "none")
    if name in QUERIES:
        path += "?" + QUERIES[name].replace("{topic}", topic)
    body = BODIES.get(name)
    if row.body is not None and body is None:
        body = {"receipt": receipt}
    if isinstance(body, dict):
        body = {key: topic if value == "{topic}" else value for key, value in body.items()}
    request = web.begin(row.method, path, body)
    if name == STREAM:
        await request.news.wait()
        await request.disconnect()
        return request.answer
    return await request.ended()


async def prepare(web: Web) -> str:
    """Creates a topic with messages, one leased to a group; returns its receipt."""
    await web.publish("1", "2", topic=TOPIC)
    (message,) = await web.poll(TOPIC, GROUP, max=1, lock_ms=3_600_000)
    receipt: str = message["receipt"]
    return receipt


def become_eve(web: Web) -> GrantedPermissions:
    lists = GrantedPermissions()
    web.node.ctx.authorizer = lists
    web.who, web.host = EVE, HOST
    return lists


async def check(web: Web, row: RestEndpoint, topic: str, receipt: str) -> None:
    needs = ROUTES[name_of(row)]
    lists = become_eve(web)
    before = web.node.ctx.image.topics
    answer = await ask(web, row, topic, receipt)
    if not needs:
        assert answer.status == 200
        assert b"secret" not in answer.body, "a name is revealed"
        return
    assert answer.status in DENIED, answer
    if "{name}" in row.path:
        missing = await ask(web, row, MISSING, receipt)
        expected = answer.body.replace(topic.encode(), MISSING.encode())
        assert (missing.status, missing.body) == (answer.status, expected), "it reveals what exists"
    names = {"topic": NEW if name_of(row) == "POST /topics" else topic}
    for some in without_one(needs):
        lists.give(some, **names)
        assert (await ask(web, row, topic, receipt)).status in DENIED, f"{some} is enough"
    lists.give(needs, ELSEWHERE, **names)
    assert (await ask(web, row, topic, receipt)).status in DENIED, "whatever the address"
    assert web.node.ctx.image.topics is before, "the request was executed all the same"
    if name_of(row).endswith("/redrive"):
        names["topic"] = topic
    lists.give(needs, **names)
    answer = await ask(web, row, topic, receipt)
    if name_of(row).endswith("/redrive"):
        # The target of a redrive needs WRITE permission; its name is not in the row.
        assert answer.status == 403
        assert "WRITE" in answer.json["detail"]
    else:
        assert answer.status not in DENIED, answer


OF_NODE = [row for row in ENDPOINTS if row.tag != "dlq" and not row.path.endswith("/replay")]
OF_CLUSTER = [row for row in ENDPOINTS if row not in OF_NODE]


def test_every_route_and_action_has_a_row() -> None:
    assert {name_of(row) for row in ENDPOINTS} == set(ROUTES)
    assert set(SQS_ACTIONS) == set(tables.ACTIONS)
    assert set(SNS_ACTIONS) == set(tables.SNS_ACTIONS)


@pytest.mark.parametrize("row", OF_NODE, ids=name_of)
@run_with(on_web)
async def test_route_requires_the_permissions_of_its_row(web: Web, *, row: RestEndpoint) -> None:
    receipt = await prepare(web)
    await check(web, row, TOPIC, receipt)


@pytest.mark.parametrize("row", OF_CLUSTER, ids=name_of)
@run_with(on_served)
async def test_route_that_acts_as_a_client_requires_the_permissions_of_its_row(
    web: Web, *, row: RestEndpoint
) -> None:
    topic = TOPIC if row.path.endswith("/replay") else LETTERS
    receipt = await prepare(web)
    await dead_letter(web, "3", topic=TOPIC)
    await check(web, row, topic, receipt)


@pytest.mark.parametrize(("method", "path"), LOG_MODES)
@run_with(on_web)
async def test_log_mode_without_permission_does_not_reveal_topics(
    web: Web, *, method: str, path: str
) -> None:
    await prepare(web)
    become_eve(web)
    answers = []
    for topic in (TOPIC, MISSING):
        request = web.begin(method, path.replace("{topic}", topic))
        async with asyncio.timeout(30):
            answer = await request.ended()
        answers.append((answer.status, answer.body.replace(topic.encode(), b"")))
    assert answers[0] == answers[1]
    assert answers[0][0] in DENIED
