"""`penstock.runtime.etcd.config`: valid settings, and the errors for invalid ones."""

from typing import Any

import pytest

from penstock.runtime.etcd.config import EtcdConfig, parse_endpoint
from penstock.runtime.etcd.http import EtcdEndpoint


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("http://h:1", EtcdEndpoint("h", 1, is_tls=False)),
        ("https://h:1/", EtcdEndpoint("h", 1, is_tls=True)),
        ("https://etcd.example", EtcdEndpoint("etcd.example", 2379, is_tls=True)),
        ("127.0.0.1:2379", EtcdEndpoint("127.0.0.1", 2379, is_tls=False)),
        ("http://[::1]:5", EtcdEndpoint("::1", 5, is_tls=False)),
    ],
)
def test_endpoints_are_urls_or_addresses(text: str, endpoint: EtcdEndpoint) -> None:
    assert parse_endpoint(text) == endpoint
    assert parse_endpoint(str(endpoint)) == endpoint


@pytest.mark.parametrize(
    "text", ["", "ftp://h:1", "http://", "http://h:99999", "http://h:x", "http://h:1/v3", "h:0"]
)
def test_invalid_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="use the form http://host:2379"):
        parse_endpoint(text)


def test_credentials_in_a_url_are_refused_and_not_quoted() -> None:
    with pytest.raises(ValueError, match="must not contain user and password") as refused:
        parse_endpoint("http://root:hidden@h:1")
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"endpoints": ()}, "missing etcd endpoint"),
        ({"prefix": "penstock"}, "must begin"),
        ({"prefix": "/penstock/"}, "not end"),
        ({"cert_file": "c.pem"}, "both or none"),
        ({"password": "p"}, "without a user"),
        ({"timeout_ms": 1}, "below the minimum of 100 ms"),
    ],
)
def test_config_that_cannot_work_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        EtcdConfig(**{"endpoints": ("http://h:1",), **fields})


def test_password_is_not_shown() -> None:
    config = EtcdConfig(("http://h:1",), user="u", password="hidden")
    assert "hidden" not in repr(config)
