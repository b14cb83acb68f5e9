"""Every route of the console without permissions: reveals nothing and changes nothing."""

import asyncio
import re
from typing import Any

import pytest

from penstock.broker.api.route_row import Needs, Operation, ResourceType
from penstock.gateway.console.console import ConsoleRow
from penstock.gateway.console.mount import FOLDER, MEDIA_TYPES, ROWS, read_all
from penstock.gateway.http.audit import ADMINISTRATIVE_ROUTES, ORDINARY_ROUTES
from tests.run_with import run_with
from tests.unit.gateway.console.console_client import API, CONSOLE_HEADER, ConsoleClient, on_console
from tests.unit.gateway.http.granted_permissions import EVE, GROUP, HOST, TOPIC, GrantedPermissions

OWN = {"/session", "/login", "/logout"}
"""Routes about the caller only."""
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


async def ask(web: ConsoleClient, row: ConsoleRow) -> tuple[int, bytes]:
    body = BODIES.get(f"{row.method} {row.path}")
    request = web.begin(row.method, path_of(row), body, **CONSOLE_HEADER)
    if row.path in ENDLESS:
        while not request.answer.body:
            request.news.clear()
            await request.news.wait()
        await request.disconnect()
        return request.answer.status, request.answer.body
    answer = await request.ended()
    return answer.status, answer.body


async def prepare(web: ConsoleClient) -> GrantedPermissions:
    """Creates a topic, a group that reads it, and a dead letter; the caller has no permissions."""
    await web.publish("a", "b", topic=TOPIC)
    commit = {"group": GROUP, "topic": TOPIC, "partition": 0, "offset": 1}
    assert (await web.post("/offsets/commit", commit)).status < 300
    await web.own("/overview")
    await asyncio.sleep(10)
    lists = web.node.ctx.authorizer = GrantedPermissions()
    web.who, web.host = EVE, HOST
    return lists


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.path}")
@run_with(on_console)
async def test_routes_without_permission_reveal_and_change_nothing(
    web: ConsoleClient, *, row: ConsoleRow
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


def test_every_changing_route_is_classified_for_the_audit_log() -> None:
    for row in ROWS:
        if row.method != "GET":
            name = f"{row.method} {API}{row.path}"
            assert name in ADMINISTRATIVE_ROUTES | ORDINARY_ROUTES, name


@run_with(on_console)
async def test_group_is_shown_without_hidden_topics(web: ConsoleClient) -> None:
    lists = await prepare(web)
    lists.give([Needs(ResourceType.GROUP, Operation.READ)])
    for path in (f"/groups/{GROUP}", "/groups", f"/groups/{GROUP}/reset?to=start"):
        answer = await web.get(API + path)
        assert TOPIC.encode() not in answer.body, path
    moved = await web.change(f"/groups/{GROUP}/reset", {"to": "start"})
    assert moved.status == 403
    assert TOPIC.encode() not in moved.body


SCRIPTS = sorted(path for path in FOLDER.rglob("*.js"))
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment"
    r"|srcdoc|\beval\(|new Function|setHTML"
)
ELSEWHERE = re.compile(r"https?://(?!www\.w3\.org/)")
IMPORTS = re.compile(r'from "(\.[^"]+)"')


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_never_create_markup_from_text(path) -> None:  # type: ignore[no-untyped-def]
    assert not MARKUP.findall(path.read_text())


def test_files_load_no_foreign_resources() -> None:
    for path in FOLDER.rglob("*"):
        if path.is_file():
            assert not ELSEWHERE.findall(path.read_text()), path.name


def test_every_import_resolves_to_a_file() -> None:
    for path in SCRIPTS:
        for name in IMPORTS.findall(path.read_text()):
            assert (path.parent / name).is_file(), f"{path.name} imports {name}"


def test_every_file_is_served_and_small() -> None:
    assets = read_all()
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert len(assets) == len(files)
    assert {path.suffix for path in files} <= set(MEDIA_TYPES)
    assert sum(len(asset.body) for asset in assets.values()) < 256 * 1024
    assert len({asset.etag for asset in assets.values()}) == len(assets)


def test_scripts_are_short() -> None:
    assert all(len(path.read_text().splitlines()) <= 500 for path in SCRIPTS)
