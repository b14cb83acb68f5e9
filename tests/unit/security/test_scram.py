"""SCRAM against the example of RFC 7677, and against itself."""

import base64

import pytest

from penstock.security import scram
from penstock.security.scram import ClientExchange, Credential, ScramFailed, ServerExchange

SHA256 = "SCRAM-SHA-256"


def credential(mechanism: str, password: str, salt: bytes = b"salt" * 4) -> Credential:
    salted = scram.salted_password(mechanism, password, salt, 4096)
    return scram.credential_of(mechanism, salted, salt, 4096)


def exchange(kept: Credential | None, mechanism: str = SHA256) -> ServerExchange:
    return ServerExchange(mechanism, lambda name: kept, b"secret", "server")


def test_example_of_the_rfc_is_answered_as_the_rfc_says() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = scram.salted_password(SHA256, "pencil", salt, 4096)
    kept = scram.credential_of(SHA256, salted, salt, 4096)
    server = ServerExchange(SHA256, lambda name: kept, b"", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = server.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = server.final(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.name == "user"


@pytest.mark.parametrize("mechanism", scram.MECHANISMS)
@pytest.mark.parametrize("name", ["bob", "a=b,c", "jürgen"])
def test_both_sides_understand_each_other(mechanism: str, name: str) -> None:
    asked: list[str] = []
    kept = credential(mechanism, "pa=ss,word")

    def find(name: str) -> Credential:
        asked.append(name)
        return kept

    server = ServerExchange(mechanism, find, b"secret", "server")
    client = ClientExchange(mechanism, name, "pa=ss,word", "client")
    client.verify(server.final(client.final(server.first(client.first()))))
    assert asked == [server.name] == [name]


def test_wrong_password_is_refused_and_so_is_an_unknown_user_at_the_same_step() -> None:
    for kept in (credential(SHA256, "right"), None):
        server = exchange(kept)
        client = ClientExchange(SHA256, "bob", "wrong", "client")
        proof = client.final(server.first(client.first()))
        with pytest.raises(ScramFailed):
            server.final(proof)


def test_unknown_user_is_always_asked_with_the_same_salt() -> None:
    first = exchange(None).first(b"n,,n=eve,r=x")
    assert exchange(None).first(b"n,,n=eve,r=x") == first
    assert exchange(None).first(b"n,,n=mallory,r=x") != first


def test_broker_that_does_not_know_the_password_is_not_believed() -> None:
    client = ClientExchange(SHA256, "bob", "password", "client")
    client.final(exchange(credential(SHA256, "password")).first(client.first()))
    with pytest.raises(ScramFailed):
        client.verify(b"v=" + base64.b64encode(b"x" * 32))


def test_broker_may_not_ask_for_too_few_iterations() -> None:
    client = ClientExchange(SHA256, "bob", "password", "client")
    with pytest.raises(ScramFailed, match="iterations"):
        client.final(b"r=clientserver,s=c2FsdA==,i=1")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"p=tls-unique,,n=bob,r=x",
        b"n,a=other,n=bob,r=x",
        b"n,,n=,r=x",
        b"n,,n=bob",
        b"n,,r=x,n=bob",
        b"n,,m=ext,n=bob,r=x",
        b"n,,n=b=ob,r=x",
        b"n,,n=bob,r=x,r=y",
        b"\xff\xfe",
        b"n,,n=bob,r=" + b"x" * 5000,
    ],
)
def test_first_message_that_is_not_well_formed_is_refused(message: bytes) -> None:
    with pytest.raises(ScramFailed):
        exchange(credential(SHA256, "password")).first(message)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"c=biws", b"c=eSws"),
        lambda text: text.replace(b"r=client", b"r=other"),
        lambda text: text[:-4],
        lambda text: text + b"AAAA",
        lambda text: text.replace(b",p=", b",q="),
        lambda text: b"",
        lambda text: b"c=biws,r=clientserver,p=!",
    ],
)
def test_final_message_that_was_changed_is_refused(change: object) -> None:
    server = exchange(credential(SHA256, "password"))
    client = ClientExchange(SHA256, "bob", "password", "client")
    proof = client.final(server.first(client.first()))
    with pytest.raises(ScramFailed):
        server.final(change(proof))  # type: ignore[operator]


def test_password_in_the_clear_can_be_checked_too() -> None:
    kept = credential(SHA256, "right")
    assert scram.verifies(SHA256, kept, "right")
    assert not scram.verifies(SHA256, kept, "wrong")
    assert not scram.verifies(SHA256, scram.invented(SHA256, "eve", b"secret"), "")
