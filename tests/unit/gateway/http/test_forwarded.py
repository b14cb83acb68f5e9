"""From where a request comes, and whose word on that counts."""

import pytest

from penstock.gateway.http.forwarded import ForwardedFor, read_networks

TRUSTED = read_networks(["10.0.0.0/24", "192.168.7.1", "::1"])


async def nowhere(*args: object) -> None:
    raise AssertionError


def address(client: str | None, *forwarded: str, trusted: bool = True) -> str:
    scope = {
        "type": "http",
        "client": None if client is None else (client, 1),
        "headers": [(b"x-forwarded-for", value.encode()) for value in forwarded],
    }
    return ForwardedFor(nowhere, TRUSTED if trusted else []).address(scope)


def test_without_trusted_proxies_only_the_connection_counts() -> None:
    assert address("10.0.0.5", "1.2.3.4", trusted=False) == "10.0.0.5"
    assert address("10.0.0.5", trusted=False) == "10.0.0.5"


def test_a_stranger_cannot_say_where_it_comes_from() -> None:
    assert address("1.1.1.1", "127.0.0.1") == "1.1.1.1"


def test_a_proxy_says_whom_it_speaks_for() -> None:
    assert address("10.0.0.5", "1.2.3.4") == "1.2.3.4"
    assert address("192.168.7.1", "2001:db8::1") == "2001:db8::1"


def test_what_the_client_wrote_itself_is_not_believed() -> None:
    assert address("10.0.0.5", "127.0.0.1, 1.2.3.4") == "1.2.3.4"
    assert address("10.0.0.5", "127.0.0.1", "1.2.3.4, 10.0.0.9") == "1.2.3.4"


@pytest.mark.parametrize("nonsense", ["", "unknown", "1.2.3.4:80", "*", "User:admin", ",,,"])
def test_a_proxy_that_makes_no_sense_is_itself_the_peer(nonsense: str) -> None:
    assert address("10.0.0.5", nonsense) == "10.0.0.5"


def test_an_address_of_ipv4_is_the_same_over_ipv6() -> None:
    assert address("::ffff:1.1.1.1") == "1.1.1.1"
    assert address("::ffff:10.0.0.5", "1.2.3.4") == "1.2.3.4"


def test_a_connection_without_an_address_has_only_rights_for_every_host() -> None:
    assert address(None) == "*"
