"""Audit log of every API in the route table: one entry where expected, and none elsewhere.

Requests are built as in `test_routes_permissions`, so an API that is added is tested here as well;
an API that is not classified fails.
"""

import asyncio
import inspect
import random
from typing import Any

import pytest

from penstock.base.errors import PeerError
from penstock.base.ids import TopicId
from penstock.broker.api import dispatch
from penstock.broker.api.audit_rules import ADMINISTRATIVE, DENIALS, FREQUENT, ORDINARY, codes_in
from penstock.broker.api.dispatch import Dispatcher
from penstock.broker.api.route_row import Route
from penstock.broker.api.routes import ROUTES
from penstock.security.audit_entries import DENIED, AuditEntry
from penstock.wire.messages import REQUESTS
from penstock.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from penstock.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.schema import wire_of
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.test_dispatch import Connection, framed
from tests.unit.broker.api.test_routes_permissions import (
    FILTERED,
    GROUP,
    GUARDED,
    OVERRIDES,
    TOPIC,
    DenyAll,
    filled,
    prepare,
)
from tests.unit.gateway.http.granted_permissions import AllowAll
from tests.wire.instances import make

ON = {"audit.enable": "true"}


def entries(node: Node) -> list[AuditEntry]:
    return node.ctx.security.audit._trail.take(100, node.ctx.clock.now_ms())


async def ask(node: Node, request: Any, version: int, principal: str = "User:eve") -> Any:
    """Sends a request through the dispatcher, as a connection does; returns None if it is not
    answered.
    """
    dispatcher, connection = Dispatcher(node.ctx), Connection()
    connection.principal = principal
    view = memoryview(bytearray(framed(request, version)))
    call = dispatcher.call(connection, view, 0, len(view))
    answer = dispatcher.handle(call, view, len(view))
    if inspect.isawaitable(answer):
        answer = await answer
    if answer is None:
        while not call.is_done:
            await asyncio.sleep(0.01)
    elif not call.is_done:
        call.reply(answer)
    return answer


def request_of(route: Route, topic_id: TopicId) -> Any:
    request = filled(route.request, route.versions[1], topic_id)
    for name, value in OVERRIDES.get(route.name, {}).items():
        setattr(request, name, value)
    if isinstance(request, OffsetCommitRequest):
        request.member_id, request.generation_id_or_member_epoch = "", -1
    return request


def test_every_api_is_classified_for_the_audit_log() -> None:
    keys = {route.key for route in ROUTES}
    undecided = keys - ADMINISTRATIVE.keys() - ORDINARY
    assert not undecided, f"put them into a table of penstock.broker.api.audit_rules: {undecided}"
    assert not ORDINARY & ADMINISTRATIVE.keys()
    assert keys >= ADMINISTRATIVE.keys()
    assert ADMINISTRATIVE.keys() >= FREQUENT


@pytest.mark.parametrize("key", ADMINISTRATIVE)
def test_resources_of_any_request_can_be_listed(key: int) -> None:
    """Names that are empty, names that are not there, no rows at all."""
    chance, declared = random.Random(key), REQUESTS[key]
    low, high = wire_of(declared).versions
    for _ in range(400):
        request = make(chance, declared, chance.randint(low, high))
        for resource in ADMINISTRATIVE[key](request):
            assert isinstance(resource, str)


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: route.name)
@run_with(on_node, configs=ON)
async def test_denied_request_is_one_audit_entry(node: Node, *, route: Route) -> None:
    topic_id = await prepare(node)
    node.ctx.authorizer = DenyAll()
    answer = await ask(node, request_of(route, topic_id), route.versions[1])
    told = entries(node)
    if route.name in FILTERED and not set(codes_in(answer)) & DENIALS:
        assert told == []
        return
    (entry,) = told
    assert (entry.principal, entry.peer, entry.door) == ("User:eve", "127.0.0.1", "kafka")
    assert (entry.action, entry.outcome) == (route.name, DENIED)
    assert entry.codes
    assert entry.resources


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: route.name)
@run_with(on_node, configs=ON)
async def test_allowed_request_is_an_audit_entry_only_if_administrative(
    node: Node, *, route: Route
) -> None:
    topic_id = await prepare(node)
    node.ctx.authorizer = AllowAll()
    try:
        async with asyncio.timeout(30):
            await ask(node, request_of(route, topic_id), route.versions[1])
    except (PeerError, TimeoutError):
        return  # It makes no sense otherwise, or waits for something.
    told = [(entry.action, entry.outcome != DENIED) for entry in entries(node)]
    assert told == ([(route.name, True)] if route.key in ADMINISTRATIVE else [])


@run_with(on_node, configs=ON)
async def test_audit_entry_names_resources_and_never_values(node: Node) -> None:
    await prepare(node)
    secret = IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="3600001")
    row = IncrementalAlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[secret])
    await ask(node, IncrementalAlterConfigsRequest(resources=[row], validate_only=False), 1)
    (entry,) = entries(node)
    assert entry.resources == (f"topic:{TOPIC} retention.ms",)
    assert "3600001" not in repr(entry)


@run_with(on_node, configs=ON)
async def test_failed_request_is_audited_and_validation_only_is_not(node: Node) -> None:
    await prepare(node)
    wanted = CreatableTopic(
        name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    for validate_only in (True, False):
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=1000, validate_only=validate_only)
        await ask(node, request, 7)
    (entry,) = entries(node)
    assert (entry.outcome, entry.codes) == ("failed", ("TOPIC_ALREADY_EXISTS",))


@run_with(on_node, configs=ON)
async def test_offset_commits_of_members_are_not_audited(
    node: Node, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "audited_call", None)

    route, request = await member_commit(node)
    await ask(node, request, route.versions[1])
    assert entries(node) == []


@run_with(on_node, configs=ON)
async def test_denied_offset_commit_of_a_member_is_audited(node: Node) -> None:
    route, request = await member_commit(node)
    node.ctx.authorizer = DenyAll()
    await ask(node, request, route.versions[1])
    (entry,) = entries(node)
    assert (entry.action, entry.outcome) == (route.name, DENIED)


async def member_commit(node: Node) -> tuple[Route, OffsetCommitRequest]:
    route = next(route for route in ROUTES if route.name == "OffsetCommit")
    request = request_of(route, await prepare(node))
    request.member_id, request.generation_id_or_member_epoch = "member", 3
    return route, request


@pytest.mark.parametrize(
    ("configs", "is_told"),
    [
        ({}, False),
        ({"audit.enable": "true"}, True),
        ({"authorizer.class.name": "acl"}, True),
        ({"authorizer.class.name": "acl", "audit.enable": "false"}, False),
    ],
)
@run_with(on_node, fixtures=["configs"])
async def test_audit_log_follows_acls_or_its_config(node: Node, *, is_told: bool) -> None:
    route = next(route for route in ROUTES if route.name == "DeleteGroups")
    await ask(node, request_of(route, await prepare(node)), 2)
    told = entries(node)
    assert bool(told) is is_told
    assert all(entry.resources == (f"group:{GROUP}",) for entry in told)


@run_with(on_node, configs=ON)
async def test_requests_between_nodes_are_not_audited(node: Node) -> None:
    route = next(route for route in ROUTES if route.name == "WriteTxnMarkers")
    request = request_of(route, await prepare(node))
    await ask(node, request, route.versions[1], "User:__node")
    assert entries(node) == []
