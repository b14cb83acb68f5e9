"""Middleware of the console: sessions, write tokens, read-only mode, security headers."""

import asyncio

from penstock.gateway.console.middleware import CONTENT_SECURITY_POLICY
from penstock.gateway.console.sessions import (
    EACH_MAX,
    IDLE_SECONDS,
    SESSION_SECONDS,
    SESSIONS_MAX,
    Sessions,
)
from penstock.security.login import AuthenticatedIdentity, LoginFailed
from simulation.random import SimRandom
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


def sessions(users: dict[str, object]) -> Sessions:
    return Sessions(SimRandom(1), users.get)


def test_session_is_found_only_by_its_token() -> None:
    known = sessions({"ann": "v1"})
    session = known.begin("ann", 0.0)
    assert known.find(session.token, 1.0) is session
    assert session.principal == "User:ann"
    assert known.find(session.write_token, 1.0) is None


def test_idle_session_ends() -> None:
    known = sessions({"ann": "v1"})
    session = known.begin("ann", 0.0)
    assert known.find(session.token, IDLE_SECONDS - 1) is session
    assert known.find(session.token, 2 * IDLE_SECONDS - 2) is session
    assert known.find(session.token, 4 * IDLE_SECONDS) is None


def test_used_session_ends_after_its_maximum_duration() -> None:
    known = sessions({"ann": "v1"})
    session = known.begin("ann", 0.0)
    at = 0.0
    while at < SESSION_SECONDS - 1:
        assert known.find(session.token, at) is session
        at += IDLE_SECONDS / 2
    assert known.find(session.token, SESSION_SECONDS) is None
    assert len(known) == 0


def test_changed_or_deleted_user_ends_the_session() -> None:
    users: dict[str, object] = {"ann": "v1", "bob": "v1"}
    known = sessions(users)
    first, second = known.begin("ann", 0.0), known.begin("bob", 0.0)
    users["ann"] = "v2"
    del users["bob"]
    assert known.find(first.token, 1.0) is None
    assert known.find(second.token, 1.0) is None


def test_logout_ends_the_session() -> None:
    known = sessions({"ann": "v1"})
    session = known.begin("ann", 0.0)
    known.end(session.token)
    assert known.find(session.token, 1.0) is None


def test_excess_session_ends_the_oldest() -> None:
    known = sessions(dict.fromkeys(map(str, range(SESSIONS_MAX)), "v1"))
    first = [known.begin("0", 0.0) for _ in range(2)]
    for at in range(1, SESSIONS_MAX):
        last = known.begin(str(at), 1.0)
    assert len(known) == SESSIONS_MAX
    # The user with the most sessions loses the oldest: a single session is not ended for others.
    assert [known.find(one.token, 2.0) for one in first] == [None, first[1]]
    assert known.find(last.token, 2.0) is last


def test_repeated_logins_of_a_user_do_not_end_sessions_of_others() -> None:
    known = sessions({"ann": "v1", "bob": "v1"})
    bobs = known.begin("bob", 0.0)
    anns = [known.begin("ann", 1.0) for _ in range(SESSIONS_MAX + 5)]
    assert len(known) == EACH_MAX + 1
    assert known.find(bobs.token, 2.0) is bobs
    assert known.find(anns[0].token, 2.0) is None
    assert known.find(anns[-1].token, 2.0) is anns[-1]
