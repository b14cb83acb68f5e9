"""Middleware of the console: sessions, write tokens, read-only mode, security headers."""

import asyncio

from penstock.gateway.console.middleware import CONTENT_SECURITY_POLICY
from penstock.security.login import AuthenticatedIdentity, LoginFailed
from tests.run_with import run_with
from tests.unit.gateway.console.console_client import CONSOLE_HEADER, ConsoleClient, on_console


class Ann:
    """The only user."""

    async def verify(self, name: str, password: str, peer: str) -> bool:
        return (name, password) == ("ann", "right")

    async def verify_token(self, token: str) -> AuthenticatedIdentity:
        raise LoginFailed("no tokens here")


def cookie_of(web: ConsoleClient, name: str = "ann") -> tuple[str, str]:
    """Starts a session; returns its cookie and write token."""
    web.console.sessions._user_of = lambda name: name
    session = web.console.sessions.begin(name, asyncio.get_running_loop().time())
    return f"{web.console.cookie}={session.token}", session.write_token


@run_with(on_console)
async def test_pages_have_headers_that_forbid_foreign_scripts(web: ConsoleClient) -> None:
    page = await web.get("/console")
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "require-trusted-types-for 'script'" in CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert page.headers["x-content-type-options"] == "nosniff"
    again = await web.ask("GET", "/console", if_none_match=page.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    missing = await web.get("/console/static/../console.py")
    assert missing.status == 404


@run_with(on_console)
async def test_browser_at_the_root_is_redirected_to_the_console(web: ConsoleClient) -> None:
    answer = await web.ask("GET", "/", accept="text/html")
    assert answer.headers["location"] == "/console"


@run_with(on_console, configs={"console.enable": "false"})
async def test_console_can_be_disabled(web: ConsoleClient) -> None:
    assert (await web.get("/console")).status == 404
    assert (await web.get("/console/api/session")).status == 404
    assert (await web.ask("GET", "/", accept="text/html")).headers["location"] == "/docs"
    assert (await web.get("/topics")).status == 200


@run_with(on_console, configs={"console.read.only": "true"})
async def test_read_only_mode_refuses_only_changes_of_the_console(web: ConsoleClient) -> None:
    refused = await web.ask("POST", "/topics", {"name": "t"}, **CONSOLE_HEADER)
    assert (refused.status, "console.read.only" in refused.json["detail"]) == (403, True)
    assert (await web.post("/topics", {"name": "t"})).status == 201
    assert (await web.own("/session"))["is_read_only"]


@run_with(on_console, users=Ann())
async def test_change_requires_the_write_token(web: ConsoleClient) -> None:
    path = "/console/api/groups/g/reset"
    assert (await web.post(path, {"to": "start"})).status == 403
    cookie, word = cookie_of(web)
    wrong = await web.ask("POST", path, {}, cookie=cookie, x_penstock_console="1")
    assert wrong.status == 403
    elsewhere = {"cookie": cookie, "x_penstock_console": word, "sec_fetch_site": "cross-site"}
    assert (await web.ask("POST", path, {}, **elsewhere)).status == 403
    right = await web.ask("POST", path, {}, cookie=cookie, x_penstock_console=word)
    assert right.status == 422


@run_with(on_console, users=Ann())
async def test_cookie_authenticates_only_console_requests(web: ConsoleClient) -> None:
    cookie, _ = cookie_of(web)
    seen = await web.ask("GET", "/console/api/session", cookie=cookie)
    assert seen.json["principal"] == "User:ann"
    for other in ("", "penstock-session-1=wrong", '"=;;;'):
        plain = await web.ask("GET", "/console/api/session", cookie=other)
        assert plain.json["principal"] == "User:ANONYMOUS"


@run_with(on_console, users=Ann())
async def test_login_sets_an_http_only_cookie(web: ConsoleClient) -> None:
    wrong = await web.change("/login", {"name": "ann", "password": "wrong"})
    assert wrong.status == 401
    assert "www-authenticate" not in wrong.headers
    right = await web.change("/login", {"name": "ann", "password": "right"})
    assert right.status == 204
    parts = right.headers["set-cookie"].lower()
    assert "httponly" in parts
    assert "samesite=strict" in parts
    assert "secure" not in parts


@run_with(on_console)
async def test_login_without_users_is_refused(web: ConsoleClient) -> None:
    answer = await web.change("/login", {"name": "ann", "password": "right"})
    assert answer.status == 422
    assert not (await web.own("/session"))["can_log_in"]
