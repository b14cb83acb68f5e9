"""Tokens at the endpoints of a node: trusted signing keys, and how long they are cached."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.node.config_consistency import OF_TOKENS
from penstock.node.security.logins import REFRESH_SECONDS, Logins
from penstock.security.login import LoginFailed
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.security.test_oauth_tokens import key_document, sign

HOUR = 3_600.0
REFRESHED = HOUR + 1


def configs_of(path: Path) -> dict[str, str]:
    return {
        "sasl.oauthbearer.jwks.endpoint.url": path.as_uri(),
        "sasl.oauthbearer.expected.issuer": "us",
        "sasl.oauthbearer.expected.audience": "penstock",
    }


def with_logins(
    test: Callable[[Node, Logins, Path], Awaitable[None]], tmp_path: Path, missing: str = ""
) -> None:
    """Runs a test with a file of trusted keys, without the config that is `missing`."""
    path = tmp_path / "keys.json"
    path.write_bytes(key_document())
    configs = configs_of(path)
    configs.pop(missing, None)

    async def scene(node: Node) -> None:
        ctx = node.ctx
        logins = Logins(
            BrokerConfigs(configs), ctx.watcher, ctx.workers, ctx.clock, ctx.random, b"secret"
        )
        await test(node, logins, path)

    on_node(scene)


def token_of(node: Node, **changes: object) -> str:
    exp = node.ctx.clock.now_ms() // 1000 + 10 * HOUR
    return sign("RS256", {"sub": "bob", "exp": exp, "iss": "us", "aud": "penstock"} | changes)


def no_keys(path: Path) -> None:
    path.write_text(json.dumps({"keys": []}))


@run_with(with_logins, fixtures=["tmp_path"])
async def test_revoked_signing_key_is_refused_after_a_while(
    node: Node, logins: Logins, path: Path
) -> None:
    token = token_of(node)
    assert (await logins.verify_token(token)).principal == "User:bob"
    no_keys(path)
    await asyncio.sleep(HOUR / 2)
    assert (await logins.verify_token(token)).principal == "User:bob"
    await asyncio.sleep(REFRESHED / 2)
    with pytest.raises(LoginFailed, match="unknown signing key"):
        await logins.verify_token(token)


@run_with(with_logins, fixtures=["tmp_path"])
async def test_unreadable_key_file_keeps_the_keys_and_is_retried(
    node: Node, logins: Logins, path: Path
) -> None:
    token = token_of(node)
    await logins.verify_token(token)
    path.unlink()
    await asyncio.sleep(REFRESHED)
    assert (await logins.verify_token(token)).principal == "User:bob"
    no_keys(path)
    assert (await logins.verify_token(token)).principal == "User:bob", "asked a moment ago"
    await asyncio.sleep(REFRESH_SECONDS)
    with pytest.raises(LoginFailed, match="unknown signing key"):
        await logins.verify_token(token)


@run_with(with_logins, fixtures=["tmp_path"])
async def test_new_signing_key_is_found_and_lookups_are_rate_limited(
    node: Node, logins: Logins, path: Path
) -> None:
    no_keys(path)
    token = token_of(node)
    with pytest.raises(LoginFailed, match="unknown signing key"):
        await logins.verify_token(token)
    path.write_bytes(key_document())
    with pytest.raises(LoginFailed, match="unknown signing key"):
        await logins.verify_token(token)
    await asyncio.sleep(REFRESH_SECONDS)
    assert (await logins.verify_token(token)).principal == "User:bob"


@pytest.mark.parametrize("missing", OF_TOKENS)
@run_with(with_logins, fixtures=["tmp_path", "missing"])
async def test_tokens_are_refused_without_an_issuer(node: Node, logins: Logins, path: Path) -> None:
    with pytest.raises(LoginFailed, match="tokens are not accepted"):
        await logins.verify_token(token_of(node))
