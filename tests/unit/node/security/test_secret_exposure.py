"""Secrets that other users could read, and a node's warnings about them before it starts."""

import pytest

from penstock.cluster.configs.effective_configs import InvalidConfig
from penstock.node.config import NodeConfig
from penstock.node.security.secret_exposure import (
    check_config_file,
    command_line_secrets,
    exposures,
)
from penstock.runtime.etcd.config import EtcdConfig
from penstock.runtime.file_permissions import Readers

CLEAR = {"listeners": "SASL_PLAINTEXT://0.0.0.0:9092"}
PLAIN = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}
HTTPS = {"http.security.protocol": "SSL"}


def said(overrides: dict[str, str], host: str = "127.0.0.1") -> list[str]:
    return exposures(NodeConfig(host=host, overrides=overrides), lambda path: Readers.OWNER)


@pytest.mark.parametrize(
    "config",
    [
        NodeConfig(overrides={"ssl.keystore.location": "/k.pem"}),
        NodeConfig(overrides={"admin.password.file": "/k.pem"}),
        NodeConfig(overrides={"encryption.kek.source": "file:/k.pem"}),
        NodeConfig(
            etcd=EtcdConfig(("https://e:2379",), cert_file="/c.pem", key_file="/k.pem"),
        ),
    ],
)
def test_world_readable_secret_is_reported_with_the_fix(
    config: NodeConfig,
) -> None:
    found = {"/k.pem": Readers.EVERY_USER, "/c.pem": Readers.EVERY_USER}
    with pytest.raises(InvalidConfig, match=r"every user .* chmod 600 /k\.pem"):
        exposures(config, found.__getitem__)
    found["/k.pem"] = Readers.GROUP
    (warning,) = exposures(config, found.__getitem__)
    assert "its group can read" in warning
    assert "chmod 600 /k.pem" in warning
    found["/k.pem"] = Readers.OWNER
    assert exposures(config, found.__getitem__) == []


def test_missing_secret_file_is_ignored() -> None:
    def missing(path: str) -> Readers:
        raise FileNotFoundError(path)

    config = NodeConfig(overrides={"ssl.keystore.location": "/k.pem"})
    assert exposures(config, missing) == []


def test_certificates_and_other_key_sources_are_not_secrets() -> None:
    overrides = {"ssl.truststore.location": "/ca.pem", "encryption.kek.source": "env:KEK"}
    assert exposures(NodeConfig(overrides=overrides), lambda path: Readers.EVERY_USER) == []


def test_config_file_with_a_password_is_a_secret() -> None:
    def all_users(path: str) -> Readers:
        return Readers.EVERY_USER

    assert check_config_file("/node.toml", ["num.partitions", "listeners"], all_users) == []
    for name in ("ssl.key.password", "sqs.credentials", "etcd.password"):
        with pytest.raises(InvalidConfig, match=rf"holds {name}.*chmod 600 /node\.toml"):
            check_config_file("/node.toml", ["num.partitions", name], all_users)
    (warning,) = check_config_file("/n", ["sqs.credentials"], lambda path: Readers.GROUP)
    assert "its group" in warning


def test_secret_on_the_command_line_is_reported_without_its_value() -> None:
    (warning,) = command_line_secrets(
        {"num.partitions": "3", "sqs.credentials": "A:B", "log.dirs": "/d"}
    )
    assert "sqs.credentials is on the command line" in warning
    assert "--config" in warning
    assert "A:B" not in warning
    assert command_line_secrets({"ssl.key.password": ""}) == []


def test_passwords_without_tls_beyond_loopback_are_reported() -> None:
    (warning,) = said(CLEAR | PLAIN)
    assert "SASL_PLAINTEXT on 0.0.0.0 accepts PLAIN without TLS" in warning
    assert "SASL_SSL" in warning
    assert "sasl.enabled.mechanisms" in warning


@pytest.mark.parametrize(
    "overrides",
    [
        CLEAR,
        PLAIN | {"listeners": "SASL_PLAINTEXT://127.0.0.1:9092"},
        PLAIN | {"listeners": "SASL_SSL://0.0.0.0:9092"},
        PLAIN | {"listeners": "PLAINTEXT://0.0.0.0:9092"},
    ],
    ids=["scram", "loopback", "tls", "no-login"],
)
def test_safe_listeners_are_not_reported(overrides: dict[str, str]) -> None:
    assert said(overrides) == []


def test_http_passwords_without_tls_are_reported() -> None:
    guarded = {"listeners": "SASL_SSL://0.0.0.0:9093", "authorizer.class.name": "acl"}
    (warning,) = said(guarded, host="0.0.0.0")
    assert "HTTP on 0.0.0.0 accepts passwords" in warning
    assert "http.security.protocol=SSL" in warning
    assert said(guarded | HTTPS, host="0.0.0.0") == []
    assert said(guarded) == []
