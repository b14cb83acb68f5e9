"""HTTP authentication: passwords, failures, and too many pending checks."""

import base64
from collections.abc import Awaitable, Callable

from penstock.base.errors import ErrorCode, Refused
from penstock.gateway.http.authentication import Authentication
from penstock.security.login import AuthenticatedIdentity, LoginFailed
from tests.run_with import run_with
from tests.unit.gateway.http.web import Answer, Web, on_web


class Bob:
    """The only user."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.is_crowded = False

    async def verify(self, name: str, password: str, peer: str) -> bool:
        self.asked.append((name, password, peer))
        if self.is_crowded:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "try again")
        return (name, password) == ("bob", "right")

    async def verify_token(self, token: str) -> AuthenticatedIdentity:
        raise LoginFailed("tokens are not supported")


def on_guarded_web(test: Callable[[Web, Bob], Awaitable[None]]) -> None:
    async def scene(web: Web) -> None:
        bob = Bob()
        web.app = Authentication(web.app, bob, web.node.ctx)
        await test(web, bob)

    on_web(scene)


async def ask(web: Web, header: str) -> Answer:
    token = base64.b64encode(header.encode()).decode()
    return await web.ask("GET", "/topics", authorization=f"Basic {token}")


@run_with(on_guarded_web)
async def test_password_is_verified_with_the_client_address(web: Web, bob: Bob) -> None:
    web.host = "192.0.2.7"
    assert (await ask(web, "bob:right")).status == 200
    assert bob.asked == [("bob", "right", "192.0.2.7")]


@run_with(on_guarded_web)
async def test_wrong_password_is_refused_and_counted(web: Web, bob: Bob) -> None:
    for header in ("bob:wrong", "missing:right", "bob", ":"):
        assert (await ask(web, header)).status == 401
    assert web.node.ctx.metrics.failed_logins.value == 4


@run_with(on_guarded_web)
async def test_too_many_password_checks_get_a_retryable_error(web: Web, bob: Bob) -> None:
    bob.is_crowded = True
    answer = await ask(web, "bob:right")
    assert (answer.status, answer.code) == (429, "THROTTLING_QUOTA_EXCEEDED")
    assert web.node.ctx.metrics.failed_logins.value == 0
