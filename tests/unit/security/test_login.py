"""SASL authentication of a connection."""

import asyncio

import pytest

from penstock.base.errors import Refused
from penstock.security import scram
from penstock.security.login import (
    AuthenticatedIdentity,
    BearerExchange,
    Login,
    LoginFailed,
    PlainExchange,
    ScramExchange,
)
from penstock.security.scram import ClientExchange, Credential, ServerExchange

PEER = "192.0.2.1"


async def knows(name: str, password: str, peer: str) -> bool:
    return (name, password) == ("bob", "secret")


async def token(text: str) -> AuthenticatedIdentity:
    if text != "good":
        raise LoginFailed("not good")
    return AuthenticatedIdentity("User:bob", 1000)


def make(name: str = "PLAIN") -> Login:
    kept = _credential("secret")
    login = Login(
        {
            "PLAIN": lambda: PlainExchange(knows),
            "SCRAM-SHA-256": lambda: ScramExchange(
                ServerExchange("SCRAM-SHA-256", lambda user: kept, b"", "server")
            ),
            "OAUTHBEARER": lambda: BearerExchange(token),
        }
    )
    login.choose(name)
    return login


def _credential(password: str) -> Credential:
    salted = scram.salted_password("SCRAM-SHA-256", password, b"salt", 4096)
    return scram.credential_of("SCRAM-SHA-256", salted, b"salt", 4096)


def test_password_makes_a_principal() -> None:
    login = make()
    assert not login.is_done
    step = asyncio.run(login.step(b"\0bob\0secret", PEER))
    assert step.identity == login.identity == AuthenticatedIdentity("User:bob")
    assert login.is_done


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0bob\0wrong",
        b"bob\0secret",
        b"admin\0bob\0secret",
        b"\0\0secret",
        b"\0bob\0",
        b"\xff\0\0",
    ],
)
def test_plain_message_that_is_wrong_is_refused(message: bytes) -> None:
    login = make()
    with pytest.raises(LoginFailed):
        asyncio.run(login.step(message, PEER))
    assert not login.is_done


def test_scram_takes_two_steps() -> None:
    login = make("SCRAM-SHA-256")
    client = ClientExchange("SCRAM-SHA-256", "bob", "secret", "client")

    async def go() -> None:
        first = await login.step(client.first(), PEER)
        assert first.identity is None
        assert not login.is_done
        last = await login.step(client.final(first.reply), PEER)
        client.verify(last.reply)

    asyncio.run(go())
    assert login.identity == AuthenticatedIdentity("User:bob")


def test_token_makes_a_principal_for_as_long_as_it_lasts() -> None:
    login = make("OAUTHBEARER")
    asyncio.run(login.step(b"n,,\x01auth=Bearer good\x01\x01", PEER))
    assert login.identity == AuthenticatedIdentity("User:bob", 1000)


@pytest.mark.parametrize(
    "message", [b"", b"n,,\x01\x01", b"n,,\x01auth=Bearer bad\x01\x01", b"\xff"]
)
def test_token_message_that_is_wrong_is_refused(message: bytes) -> None:
    with pytest.raises(LoginFailed):
        asyncio.run(make("OAUTHBEARER").step(message, PEER))


def test_mechanism_must_be_chosen_and_known() -> None:
    login = Login({"PLAIN": lambda: PlainExchange(knows)})
    with pytest.raises(Refused, match="SaslHandshake"):
        asyncio.run(login.step(b"\0bob\0secret", PEER))
    with pytest.raises(Refused, match="PLAIN"):
        login.choose("GSSAPI")


def test_identity_cannot_change_during_authentication() -> None:
    async def accept_all(name: str, password: str, peer: str) -> bool:
        return True

    login = Login({"PLAIN": lambda: PlainExchange(accept_all)})
    login.choose("PLAIN")
    asyncio.run(login.step(b"\0bob\0x", PEER))
    login.choose("PLAIN")
    with pytest.raises(LoginFailed, match="become"):
        asyncio.run(login.step(b"\0eve\0x", PEER))
    assert login.identity == AuthenticatedIdentity("User:bob")
