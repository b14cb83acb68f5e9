"""Client addresses behind trusted and untrusted proxies."""

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


def test_forwarded_header_is_ignored_without_trusted_proxies() -> None:
    assert address("10.0.0.5", "1.2.3.4", trusted=False) == "10.0.0.5"
    assert address("10.0.0.5", trusted=False) == "10.0.0.5"


def test_forwarded_header_of_an_untrusted_address_is_ignored() -> None:
    assert address("1.1.1.1", "127.0.0.1") == "1.1.1.1"


def test_trusted_proxy_forwards_the_client_address() -> None:
    assert address("10.0.0.5", "1.2.3.4") == "1.2.3.4"
    assert address("192.168.7.1", "2001:db8::1") == "2001:db8::1"


def test_addresses_forged_by_the_client_are_ignored() -> None:
    assert address("10.0.0.5", "127.0.0.1, 1.2.3.4") == "1.2.3.4"
    assert address("10.0.0.5", "127.0.0.1", "1.2.3.4, 10.0.0.9") == "1.2.3.4"


@pytest.mark.parametrize("nonsense", ["", "unknown", "1.2.3.4:80", "*", "User:admin", ",,,"])
def test_malformed_forwarded_header_falls_back_to_the_proxy(nonsense: str) -> None:
    assert address("10.0.0.5", nonsense) == "10.0.0.5"


def test_ipv4_mapped_address_equals_its_ipv4_address() -> None:
    assert address("::ffff:1.1.1.1") == "1.1.1.1"
    assert address("::ffff:10.0.0.5", "1.2.3.4") == "1.2.3.4"


def test_connection_without_address_matches_only_wildcard_hosts() -> None:
    assert address(None) == "*"
