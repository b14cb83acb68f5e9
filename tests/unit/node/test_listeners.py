"""Listeners that a node opens, and those it refuses."""

import pytest

from penstock.cluster.configs.effective_configs import BrokerConfigs, InvalidConfig
from penstock.node.listeners import (
    ListenerEndpoint,
    Protocol,
    endpoints,
    refuse_open_listeners,
    require_addresses,
    tls_config,
)

MAP = "listener.security.protocol.map"


def found(**sets: str) -> list[ListenerEndpoint]:
    configs = BrokerConfigs({name.replace("_", "."): value for name, value in sets.items()})
    return endpoints(configs, "127.0.0.1", 9092, None)


def test_default_is_one_plaintext_listener() -> None:
    only = ListenerEndpoint("PLAINTEXT", Protocol.PLAINTEXT, "127.0.0.1", 9092, "127.0.0.1", 0)
    assert found() == [only]


def test_listener_advertises_the_configured_address() -> None:
    (only,) = found(advertised_listeners="PLAINTEXT://broker.example.com:443")
    assert (only.host, only.port) == ("127.0.0.1", 9092)
    assert (only.advertised_host, only.advertised_port) == ("broker.example.com", 443)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", ""])
def test_wildcard_address_is_not_advertised_in_a_cluster(host: str) -> None:
    with pytest.raises(InvalidConfig, match=r"advertised\.listeners=SSL://HOST:9093"):
        require_addresses(found(listeners=f"SSL://{host}:9093"))
    told = "SSL://broker.example.com:9093"
    require_addresses(found(listeners=f"SSL://{host}:9093", advertised_listeners=told))


def test_inter_broker_listener_comes_first() -> None:
    listeners = "SASL_SSL://0.0.0.0:9093,INSIDE://10.0.0.1:9094"
    configs = BrokerConfigs(
        {
            "listeners": listeners,
            MAP: "SASL_SSL:SASL_SSL,INSIDE:SSL",
            "inter.broker.listener.name": "INSIDE",
            "advertised.listeners": "SASL_SSL://broker.example.com:443",
        }
    )
    inside, outside = endpoints(configs, "127.0.0.1", 9092, None)
    assert (inside.name, inside.protocol) == ("INSIDE", Protocol.SSL)
    assert (outside.host, outside.port) == ("0.0.0.0", 9093)
    assert (outside.advertised_host, outside.advertised_port) == ("broker.example.com", 443)


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        ({"listeners": "nonsense"}, "not a listener"),
        ({"listeners": "PLAINTEXT://localhost:99999"}, "not a listener"),
        ({"listeners": "OTHER://localhost:1"}, "OTHER:SASL_SSL"),
        ({"listeners": "SSL://a:1,SSL://b:2"}, "two listeners"),
        ({"listeners": "SSL://a:1", "advertised_listeners": "SASL_SSL://b:1"}, "not in listeners"),
        (
            {"listeners": "SSL://a:1", "inter_broker_listener_name": "PLAINTEXT"},
            "choose one of SSL",
        ),
        ({"listeners": "SSL://a:1", "listener_security_protocol_map": "SSL:TLS"}, "TLS"),
    ],
)
def test_invalid_listeners_are_refused(sets: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        found(**sets)


@pytest.mark.parametrize(
    ("listeners", "auth", "is_refused"),
    [
        ("PLAINTEXT://127.0.0.1:1", "none", False),
        ("PLAINTEXT://[::1]:1", "none", False),
        ("PLAINTEXT://localhost:1", "none", False),
        ("PLAINTEXT://0.0.0.0:1", "none", True),
        ("PLAINTEXT://10.0.0.1:1", "none", True),
        ("SSL://0.0.0.0:1", "none", True),
        ("SSL://0.0.0.0:1", "requested", True),
        ("SSL://0.0.0.0:1", "required", False),
        ("SASL_PLAINTEXT://0.0.0.0:1", "none", False),
        ("SASL_SSL://0.0.0.0:1", "none", False),
        ("SASL_SSL://0.0.0.0:1,PLAINTEXT://0.0.0.0:2", "none", True),
    ],
)
def test_open_listener_beyond_loopback_is_refused(
    listeners: str, auth: str, is_refused: bool
) -> None:
    configs = BrokerConfigs({"listeners": listeners, "ssl.client.auth": auth})
    opened = endpoints(configs, "127.0.0.1", 0, None)
    if not is_refused:
        refuse_open_listeners(opened, configs, "127.0.0.1")
        return
    with pytest.raises(InvalidConfig, match="--insecure"):
        refuse_open_listeners(opened, configs, "127.0.0.1")


def test_http_beyond_loopback_needs_an_authorizer() -> None:
    open_to_all = BrokerConfigs({})
    with pytest.raises(InvalidConfig, match="HTTP on"):
        refuse_open_listeners(found(), open_to_all, "0.0.0.0")
    refuse_open_listeners(found(), BrokerConfigs({"authorizer.class.name": "acl"}), "0.0.0.0")


def test_http_beyond_loopback_needs_acls_for_every_resource() -> None:
    sets = {"authorizer.class.name": "acl", "allow.everyone.if.no.acl.found": "true"}
    configs = BrokerConfigs(sets)
    found = endpoints(configs, "127.0.0.1", 9092, None)
    with pytest.raises(InvalidConfig, match="without an ACL"):
        refuse_open_listeners(found, configs, "0.0.0.0")
    refuse_open_listeners(found, configs, "127.0.0.1")


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        ({}, "needs ssl.keystore.location"),
        ({"ssl.keystore.location": "a", "ssl.keystore.type": "JKS"}, "PEM"),
        ({"ssl.keystore.location": "a", "ssl.keystore.key": "x"}, "one file"),
        (
            {"ssl.keystore.location": "a", "ssl.truststore.certificates": "x"},
            r"name it in ssl\.truststore\.location",
        ),
    ],
)
def test_incomplete_tls_settings_are_refused(sets: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        tls_config(BrokerConfigs(sets))
