"""Anything a gateway accepts can be returned to every Kafka client, in every version.

Routes and actions are called with values that their types allow and clients hardly send; none of
them may end in an internal error (500), and afterwards groups and offsets are listed and described
as clients would.
"""

import contextlib
import json
import types
import typing
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import Refused
from penstock.gateway.console.console import ConsoleRow
from penstock.gateway.console.mount import ROWS as CONSOLE_ROWS
from penstock.gateway.console.routes import (
    dead_letters,
    groups,
    login,
    messages,
    overview,
    security,
)
from penstock.gateway.registry.route_table import ROWS, RegistryRow
from penstock.gateway.rest import stream
from penstock.gateway.rest.dead_letters import RedriveBody
from penstock.gateway.rest.endpoint import RestEndpoint
from penstock.gateway.rest.route_table import ENDPOINTS
from penstock.gateway.sns.actions import SNS_ACTIONS
from penstock.gateway.sqs.actions import SQS_ACTIONS
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from tests.property.kafka_answers import commit_offset, require_encodable
from tests.run_with import run_with
from tests.unit.gateway.console.console_client import API, CONSOLE_HEADER, ConsoleClient, on_console
from tests.unit.gateway.http.served_node import on_served
from tests.unit.gateway.http.web import Web, on_web
from tests.unit.gateway.sqs.sdk import Failed, Sdk, with_sdk

TEXTS = st.sampled_from(
    ["", "t", "g", "q", "a" * 249, "a" * 250, "é" * 20_000, "x" * 32_767, "x" * 40_000, "\0", "\n",
     "..", "a/b", "%ff", "￿", "😀" * 10_000, "-1", "0:0", "true", str(2**64), "*", "__audit"]
)  # fmt: skip
INTS = st.sampled_from(
    [-(2**63) - 1, -1, 0, 1, 2, 10, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**30]
)  # fmt: skip
JSON: st.SearchStrategy[Any] = st.one_of(st.none(), TEXTS, INTS, st.just({"a": [1]}), st.just([]))
UNTRIED = (stream.stream,)
"""They do not end by themselves."""
SLOW = ("wait_ms", "WaitTimeSeconds")


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values that JSON may bring where this type is expected."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is str:
        return TEXTS
    if kind in (int, float):
        return INTS
    if kind is bool:
        return st.booleans()
    if origin is list:
        return st.lists(values_of(inner[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(TEXTS, values_of(inner[1]), max_size=2)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values_of(one) for one in inner])
    if origin is None and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return struct_values(kind)
    return JSON


def struct_values(kind: Any) -> st.SearchStrategy[dict[str, Any]]:
    hints = typing.get_type_hints(kind)
    fields = msgspec.structs.fields(kind)
    rows = {one.encode_name: values_of(hints[one.name]) for one in fields}
    needed = {one.encode_name: rows[one.encode_name] for one in fields if one.required}
    rest = {name: row for name, row in rows.items() if name not in needed and name not in SLOW}
    return st.fixed_dictionaries(needed, optional=rest)


def asked(row: RestEndpoint) -> st.SearchStrategy[tuple[str, str, Any]]:
    """Method, path with query, body."""
    parts = [part for part in row.path.split("/") if part]
    names = [TEXTS if part.startswith("{") else st.just(part) for part in parts]
    known = {one.name: TEXTS | INTS for one in row.parameters if one.name not in SLOW}
    query = st.fixed_dictionaries({}, optional=known)
    body = st.none() if row.body is None else values_of(row.body)
    return st.builds(
        lambda where, what, given: (
            row.method,
            "/" + "/".join(quote(one, safe="") for one in where) + "?" + urlencode(what),
            given,
        ),
        st.tuples(*names),
        query,
        body,
    )


REQUESTS = st.one_of([asked(row) for row in ENDPOINTS if row.handler not in UNTRIED])
COMMITS = st.builds(
    lambda group, topic, partition, offset, metadata: {
        "group": group,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "metadata": metadata,
    },
    TEXTS,
    st.just("t"),
    st.just(0) | INTS,
    INTS,
    TEXTS,
)

CALLS = st.one_of(
    [
        st.tuples(st.just(name), struct_values(action.request))
        for name, action in SQS_ACTIONS.items()
    ]
)


SCHEMAS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "schema": TEXTS | st.sampled_from(['"string"', '{"type": "record"}', "[", "null"]),
        "schemaType": st.sampled_from(["AVRO", "JSON", "PROTOBUF", ""]) | JSON,
        "id": INTS,
        "version": INTS,
        "references": JSON,
        "metadata": JSON,
        "compatibility": TEXTS,
        "mode": st.sampled_from(["IMPORT", "READWRITE", "x"]),
    },
)


def asked_of_registry(row: RegistryRow) -> st.SearchStrategy[tuple[str, str, Any]]:
    parts = [part for part in row.path.split("/") if part]
    values = TEXTS | INTS.map(str) | st.sampled_from(["s", "1", "latest"])
    names = [values if part.startswith("{") else st.just(part) for part in parts]
    body = st.none() if row.method in ("GET", "DELETE") else SCHEMAS
    return st.builds(
        lambda where, given: (row.method, "/" + "/".join(quote(w, safe="") for w in where), given),
        st.tuples(*names),
        body,
    )


CONSOLE_BODIES: dict[Any, Any] = {
    dead_letters.start: RedriveBody,
    groups.reset: groups.ResetBody,
    login.log_in: login.LoginBody,
    security.set_password: security.PasswordBody,
    security.delete_user: security.UserBody,
    security.add_acl: security.AclRow,
    security.remove_acl: security.AclRow,
    security.set_quota: security.QuotaBody,
}
CONSOLE_STREAMS = (overview.live, messages.tail)
CONSOLE_QUERIES = (
    "limit", "partition", "from", "offset", "time_ms", "before", "after", "text", "pattern",
    "budget", "to", "internal", "topics", "values", "keys", "headers", "format", "sort", "topic",
)  # fmt: skip
WORDS = TEXTS | st.sampled_from(["t", "g", "0", "latest", "earliest", "offset", "time", "dlq"])
ACL_WORDS = {
    "resource": ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "USER"],
    "pattern": ["LITERAL", "PREFIXED", "ANY", "MATCH"],
    "operation": ["READ", "ALL", "WRITE", "ALTER", "ANY"],
    "permission": ["ALLOW", "DENY", "ANY"],
}
QUOTAS = st.fixed_dictionaries(
    {
        "entity": st.dictionaries(
            st.sampled_from(["user", "client-id", "ip", "x"]), TEXTS | st.none(), max_size=2
        ),
        "key": st.sampled_from(["producer_byte_rate", "consumer_byte_rate", "x"]) | TEXTS,
        "value": st.none() | st.floats(allow_nan=False, allow_infinity=False) | INTS,
    }
)


def console_body(row: ConsoleRow) -> st.SearchStrategy[Any]:
    kind = CONSOLE_BODIES.get(row.answer)
    if kind is None:
        return st.none()
    if kind is security.QuotaBody:
        return QUOTAS | struct_values(kind)
    if kind is security.AclRow:
        sensible = {name: st.sampled_from(words) for name, words in ACL_WORDS.items()}
        texts = {name: TEXTS | st.just("*") for name in ("name", "principal", "host")}
        users = {"principal": TEXTS.map(lambda name: f"User:{name}")}
        return struct_values(kind) | st.fixed_dictionaries(sensible | texts | users)
    if kind is security.PasswordBody:
        return st.fixed_dictionaries({"name": TEXTS, "password": st.just("secret") | TEXTS})
    return struct_values(kind)


def asked_of_console(row: ConsoleRow) -> st.SearchStrategy[tuple[str, str, Any]]:
    parts = [part for part in row.path.split("/") if part]
    names = [WORDS | INTS.map(str) if part.startswith("{") else st.just(part) for part in parts]
    query = st.dictionaries(st.sampled_from(CONSOLE_QUERIES), WORDS | INTS.map(str), max_size=3)
    return st.builds(
        lambda where, what, given: (
            row.method,
            API + "/" + "/".join(quote(one, safe="") for one in where) + "?" + urlencode(what),
            given,
        ),
        st.tuples(*names),
        query,
        console_body(row),
    )


CONSOLE = st.one_of(
    [asked_of_console(row) for row in CONSOLE_ROWS if row.answer not in CONSOLE_STREAMS]
)
GUARDED = {"authorizer.class.name": "acl", "allow.everyone.if.no.acl.found": "true"}
REGISTRY = st.one_of([asked_of_registry(row) for row in ROWS])
NOTICES = st.one_of(
    [
        st.tuples(
            st.just(name),
            st.dictionaries(
                st.sampled_from(
                    [
                        "Name",
                        "TopicArn",
                        "Message",
                        "Subject",
                        "AttributeName",
                        "AttributeValue",
                        "Protocol",
                        "Endpoint",
                        "SubscriptionArn",
                        "NextToken",
                        "ResourceArn",
                        "Tags__member__1__Key",
                        "Attributes__entry__1__key",
                    ]
                ),
                TEXTS | INTS.map(str) | st.just("arn:aws:sns:us-east-1:000000000000:news"),
                max_size=4,
            ),
        )
        for name in SNS_ACTIONS
    ]
)


def run(test: Callable[[Web], Awaitable[None]], on: Callable[..., None]) -> None:
    async def main(web: Web) -> None:
        await web.publish(1)
        await test(web)
        await require_encodable(web.node.ctx)

    on(main)


@settings(max_examples=40, deadline=None)
@given(st.lists(REQUESTS, min_size=20, max_size=40))
@run_with(run, on_served)
async def test_no_http_request_fails_or_breaks_a_listing(
    web: Web, *, requests: list[tuple[str, str, Any]]
) -> None:
    for method, path, body in requests:
        answer = await web.ask(method, path, None if body is None else json.dumps(body).encode())
        assert answer.status != 500, (method, path[:200], body, answer.body)


@settings(max_examples=40, deadline=None)
@given(st.lists(COMMITS, min_size=10, max_size=20))
@run_with(run, on_web)
async def test_no_offset_commit_breaks_a_listing(
    web: Web, *, commits: list[dict[str, Any]]
) -> None:
    for body in commits:
        assert (await web.post("/offsets/commit", body)).status < 500


KAFKA_COMMITS = st.tuples(
    st.integers(*OffsetCommitRequest.WIRE.versions),  # type: ignore[attr-defined]
    TEXTS,
    INTS,
    st.none() | TEXTS,
)


@settings(max_examples=20, deadline=None)
@given(st.lists(KAFKA_COMMITS, min_size=10, max_size=20))
@run_with(run, on_web)
async def test_no_kafka_commit_spoils_a_listing(
    web: Web, *, commits: list[tuple[int, str, int, str | None]]
) -> None:
    first = {"group": "g", "topic": "t", "partition": 0, "offset": 0}
    assert (await web.post("/offsets/commit", first)).status == 200, "there is a coordinator"
    for version, group, offset, metadata in commits:
        with contextlib.suppress(Refused):  # No client could have sent it.
            await commit_offset(web.node.ctx, version, group, offset, metadata)


@settings(max_examples=40, deadline=None)
@given(calls=st.lists(CALLS, min_size=10, max_size=30))
@run_with(with_sdk)
async def test_no_sqs_action_fails(sdk: Sdk, *, calls: list[tuple[str, dict[str, Any]]]) -> None:
    await sdk("CreateQueue", QueueName="q")
    for name, values in calls:
        if name == "ReceiveMessage":
            values["WaitTimeSeconds"] = 0
        status = 200
        try:
            await sdk(name, **values)
        except Failed as failed:
            status = failed.status
        assert status != 500, (name, values)


@settings(max_examples=20, deadline=None)
@given(st.lists(REGISTRY, min_size=20, max_size=40))
@run_with(run, on_served)
async def test_no_schema_request_fails_or_breaks_a_listing(
    web: Web, *, requests: list[tuple[str, str, Any]]
) -> None:
    for method, path, body in requests:
        given = None if body is None else json.dumps(body).encode()
        answer = await web.ask(method, path, given)
        assert answer.status != 500, (method, path[:200], body, answer.body)


@settings(max_examples=20, deadline=None)
@given(calls=st.lists(NOTICES, min_size=10, max_size=30))
@run_with(with_sdk)
async def test_no_sns_action_fails(sdk: Sdk, *, calls: list[tuple[str, dict[str, str]]]) -> None:
    await sdk.sns("CreateTopic", Name="news")
    for name, values in calls:
        status = 200
        try:
            await sdk.sns(name, **values)
        except Failed as failed:
            status = failed.status
        assert status != 500, (name, values)


def on_console_that(test: Callable[[ConsoleClient], Awaitable[None]], is_guarded: bool) -> None:
    on_console(test, configs=GUARDED if is_guarded else None)


@settings(max_examples=30, deadline=None)
@given(st.lists(CONSOLE, min_size=20, max_size=40), st.booleans())
@run_with(on_console_that, fixtures=["is_guarded"])
async def test_no_console_request_fails_or_breaks_a_listing(
    web: ConsoleClient, *, requests: list[tuple[str, str, Any]]
) -> None:
    await web.publish(1)
    await web.poll()
    for method, path, body in requests:
        given = None if body is None else json.dumps(body).encode()
        answer = await web.ask(method, path, given, **CONSOLE_HEADER)
        assert answer.status != 500, (method, path[:200], body, answer.body)
    await require_encodable(web.node.ctx)
