"""From a frame to a handler and back, for every API in the table."""

import struct
from collections.abc import Callable
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, PeerError
from penstock.broker.api.call import Call
from penstock.broker.api.dispatch import Dispatcher
from penstock.broker.api.routes import ROUTES
from penstock.security.login import Login, PlainExchange
from penstock.wire.codec import reader, writer
from penstock.wire.framing import read_response_header, request_frame
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.metadata import MetadataRequest
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node

API_VERSIONS, PRODUCE = 18, 0


class Connection:
    """Principal of the calls."""

    principal = "User:tester"
    peer = "127.0.0.1"
    listener = "PLAINTEXT"
    local_host = "127.0.0.1"

    def __init__(self, login: Login | None = None) -> None:
        self.login = login
        self.settled: list[Call] = []

    def settle(self, call: Call) -> None:
        self.settled.append(call)

    def close(self) -> None:
        raise AssertionError("nothing here closes the connection")

    def mute(self, seconds: float) -> None:
        pass

    def when_closed(self, act: Callable[[], None]) -> None:
        raise AssertionError("nothing here waits for the end of the connection")


def frame(key: int, version: int, body: bytes = b"", correlation_id: int = 7) -> memoryview:
    """A request with header v1, without its length."""
    return memoryview(struct.pack(">hhih", key, version, correlation_id, -1) + body)


def framed(request: Any, version: int) -> memoryview:
    parts: list[Any] = []
    writer(type(request), version)(request, parts)
    whole = b"".join(
        bytes(part) for part in request_frame(7, "tester", type(request), version, parts)
    )
    return memoryview(whole)[4:]


def answer_of(call: Call, declared: type[Any], version: int) -> Any:
    assert call.frame is not None
    view = memoryview(b"".join(bytes(part) for part in call.frame))
    assert int.from_bytes(view[:4], "big") == len(view) - 4
    correlation_id, position = read_response_header(view, 4, len(view), declared, version)
    assert correlation_id == call.correlation_id
    response, end = reader(declared, version)(view, position, len(view))
    assert end == len(view)
    return response


@run_with(on_node)
async def test_request_reaches_its_handler_and_its_response_is_framed(node: Node) -> None:
    dispatcher, connection = Dispatcher(node.ctx), Connection()
    request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    for version in range(5):
        view = framed(request, version)
        call = dispatcher.call(connection, view, 0, len(view))
        assert (call.version, call.client_id, call.correlation_id) == (version, "tester", 7)
        call.reply(dispatcher.handle(call, view, len(view)))
        assert answer_of(call, ApiVersionsResponse, version).error_code == 0
    assert len(connection.settled) == 5
    counted = node.ctx.metrics.route("ApiVersions")
    assert counted.requests.value == 5
    assert sum(counted.seconds.counts) == 5


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
@run_with(on_node)
async def test_only_api_versions_answers_an_unsupported_version(
    node: Node, *, version: int
) -> None:
    dispatcher = Dispatcher(node.ctx)
    view = frame(API_VERSIONS, version, b"anything at all")
    call = dispatcher.call(Connection(), view, 0, len(view))
    call.reply(dispatcher.handle(call, view, len(view)))
    answer = answer_of(call, ApiVersionsResponse, 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.api_keys


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
@run_with(on_node)
async def test_unsupported_version_closes_the_connection(node: Node, *, route: Any) -> None:
    dispatcher = Dispatcher(node.ctx)
    low, high = route.versions
    for version in (low - 1, high + 1):
        view = frame(route.key, version)
        if route.key == API_VERSIONS:
            continue
        with pytest.raises(PeerError, match=f"not supported: {low} to {high} are"):
            dispatcher.call(Connection(), view, 0, len(view))


@run_with(on_node)
async def test_unknown_api_closes_the_connection(node: Node) -> None:
    dispatcher = Dispatcher(node.ctx)
    for key in (-1, 9999):
        view = frame(key, 0)
        with pytest.raises(PeerError, match="unknown api"):
            dispatcher.call(Connection(), view, 0, len(view))


@run_with(on_node)
async def test_unsupported_versions_are_not_cached(node: Node) -> None:
    dispatcher = Dispatcher(node.ctx)
    for version in range(100, 200):
        view = frame(API_VERSIONS, version)
        dispatcher.call(Connection(), view, 0, len(view))
    assert len(dispatcher._prepared) == 0


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
@run_with(on_node)
async def test_truncated_body_closes_the_connection(node: Node, *, route: Any) -> None:
    dispatcher = Dispatcher(node.ctx)
    version = route.versions[1]
    tags = b"\0" if route.request.WIRE.is_flexible(version) else b""
    view = frame(route.key, version, tags)
    if not _has_body(route, version):
        return
    call = dispatcher.call(Connection(), view, 0, len(view))
    with pytest.raises(PeerError):
        dispatcher.handle(call, view, len(view))


def _has_body(route: Any, version: int) -> bool:
    wire = route.request.WIRE
    return wire.is_flexible(version) or any(field.is_in(version) for field in wire.fields)


@run_with(on_node)
async def test_trailing_bytes_are_ignored(node: Node) -> None:
    dispatcher = Dispatcher(node.ctx)
    view = frame(API_VERSIONS, 0, b"\1\2\3")
    call = dispatcher.call(Connection(), view, 0, len(view))
    assert dispatcher.handle(call, view, len(view)).error_code == 0


def test_every_api_has_one_route() -> None:
    names = [route.key for route in ROUTES]
    assert sorted(set(names)) == names, "in the order of their keys, each once"
    for route in ROUTES:
        low, high = route.request.WIRE.versions
        assert low <= route.versions[0] <= route.versions[1] <= high
        assert route.response.WIRE.key == route.key


@run_with(on_node)
async def test_unauthenticated_connection_may_only_authenticate(node: Node) -> None:
    async def knows(name: str, password: str, peer: str) -> bool:
        return True

    dispatcher = Dispatcher(node.ctx)
    login = Login({"PLAIN": lambda: PlainExchange(knows)})
    connection = Connection(login)
    view = framed(MetadataRequest(topics=None), 1)
    versions = framed(ApiVersionsRequest(), 0)
    dispatcher.call(connection, versions, 0, len(versions))
    with pytest.raises(PeerError, match="before authentication"):
        dispatcher.call(connection, view, 0, len(view))
    login.choose("PLAIN")
    await login.step(b"\0bob\0secret", connection.peer)
    dispatcher.call(connection, view, 0, len(view))
    login.ends_at = 0.0
    with pytest.raises(PeerError, match="session has expired"):
        dispatcher.call(connection, view, 0, len(view))
