"""Protection against cross-site requests and DNS rebinding."""

from collections.abc import Awaitable, Callable, Mapping

import pytest
from starlette.responses import PlainTextResponse

from penstock.gateway.core.gateway import Gateway
from penstock.gateway.http.csrf import CsrfCheck
from penstock.gateway.http.forwarded import read_networks
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.gateway.http.web import Web

CONSOLE_HEADER = {"host": "127.0.0.1:8080"}
LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
Ask = Callable[[str, str, Mapping[str, str]], Awaitable[int]]


def with_port(
    test: Callable[[Ask, Node], Awaitable[None]],
    *,
    host: str = "127.0.0.1",
    is_guarded: bool = False,
    names: str = "",
    proxies: str = "",
) -> None:
    async def scene(node: Node) -> None:
        node.rights.is_on = is_guarded
        networks = read_networks([proxies] if proxies else [])
        web = Web(node)
        web.app = CsrfCheck(PlainTextResponse("done"), Gateway(node.ctx), host, networks)
        web.host = "10.0.0.1"

        async def ask(method: str, path: str, headers: Mapping[str, str]) -> int:
            return (await web.ask(method, path, None, **{**CONSOLE_HEADER, **headers})).status

        await test(ask, node)

    on_node(scene, configs={"http.hosts": names})


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:3000"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8081"},
        LINK,
    ],
)
@pytest.mark.parametrize("is_guarded", [False, True])
@run_with(with_port, fixtures=["is_guarded"])
async def test_cross_site_request_is_refused(
    ask: Ask, node: Node, *, headers: dict[str, str]
) -> None:
    for method, path in (
        ("POST", "/"),
        ("POST", "/topics/t/messages"),
        ("GET", "/topics/t/poll"),
        ("POST", "/console/api/login"),
        ("GET", "/console/api/overview"),
        ("POST", "/docs"),
    ):
        assert await ask(method, path, headers) == 403, (method, path)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:8080"},
        {"sec-fetch-site": "none"},
        {"origin": "http://127.0.0.1:8080"},
        {"host": "localhost:8080", "origin": "http://localhost:8080"},
    ],
)
@run_with(with_port)
async def test_same_site_and_program_requests_are_allowed(
    ask: Ask, node: Node, *, headers: dict[str, str]
) -> None:
    assert await ask("POST", "/topics/t/messages", headers) == 200
    assert await ask("GET", "/topics/t/poll", headers) == 200


@pytest.mark.parametrize("path", ["/", "/docs", "/console", "/console/static/app.js", "/metrics"])
@run_with(with_port)
async def test_cross_site_links_to_pages_are_allowed(ask: Ask, node: Node, *, path: str) -> None:
    assert await ask("GET", path, LINK) == 200
    assert await ask("GET", path, {"sec-fetch-site": "cross-site"}) == 403, "an embedded image"


FOREIGN = {"host": "evil.example:8080"}


@pytest.mark.parametrize(
    "host",
    ["localhost", "127.0.0.1:80", "[::1]:8080", "penstock:8080", "host.docker.internal", "a.test."],
)
@run_with(with_port)
async def test_private_host_names_are_allowed(ask: Ask, node: Node, *, host: str) -> None:
    assert await ask("GET", "/topics", {"host": host}) == 200
    assert await ask("GET", "/topics", FOREIGN) == 403


def test_public_host_names_are_allowed_if_listed_or_harmless() -> None:
    async def test(ask: Ask, node: Node) -> None:
        assert await ask("GET", "/topics", FOREIGN) == 200

    with_port(test, names="queue.example,Evil.example")
    with_port(test, names="*")
    with_port(test, is_guarded=True)
    with_port(test, host="0.0.0.0")


def test_forwarded_host_is_trusted_only_from_proxies() -> None:
    headers = {
        "host": "upstream",
        "x-forwarded-host": "queue.example",
        "origin": "https://queue.example",
    }

    async def trusted(ask: Ask, node: Node) -> None:
        assert await ask("POST", "/topics", headers) == 200

    async def untrusted(ask: Ask, node: Node) -> None:
        assert await ask("POST", "/topics", headers) == 403

    with_port(trusted, proxies="10.0.0.0/8", is_guarded=True)
    with_port(untrusted, proxies="192.168.0.0/16", is_guarded=True)
