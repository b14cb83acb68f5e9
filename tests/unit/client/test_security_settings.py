"""Security settings of a client, by the names that Kafka clients use."""

from pathlib import Path

import pytest
import trustme

from penstock.base.errors import Refused
from penstock.client.security_settings import is_security, parse_security, read_properties
from simulation.random import SimRandom

RANDOM = SimRandom(1)


def test_default_security_is_plaintext() -> None:
    found = parse_security({}, RANDOM)
    assert found.tls is None
    assert found.authenticate is None


def test_user_implies_sasl_and_certificate_implies_tls(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(ca))
    found = parse_security({"sasl.username": "bob", "sasl.password": "x"}, RANDOM)
    assert found.tls is None
    assert found.authenticate is not None
    found = parse_security(
        {"sasl.username": "b", "sasl.password": "x", "ssl.ca.location": str(ca)}, RANDOM
    )
    assert found.tls is not None
    assert found.tls.check_hostname
    off = {"ssl.ca.location": str(ca), "ssl.endpoint.identification.algorithm": ""}
    found = parse_security(off, RANDOM)
    assert found.tls is not None
    assert not found.tls.check_hostname


def test_jaas_line_is_parsed() -> None:
    text = 'org.apache.kafka.X required username="bob" password="a\\"b";'
    settings = {"security.protocol": "sasl_plaintext", "sasl.jaas.config": text}
    assert parse_security(settings, RANDOM).authenticate is not None


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"sasl.usrname": "bob"}, "sasl.username"),
        ({"security.protocol": "TLS"}, "SASL_SSL"),
        ({"security.protocol": "SASL_SSL", "sasl.username": "bob"}, "sasl.password"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.token"),
        ({"ssl.ca.location": "/nowhere.pem"}, "nowhere"),
        ({"ssl.truststore.type": "JKS"}, "PEM"),
    ],
)
def test_invalid_security_settings_are_refused(settings: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_security(settings, RANDOM)


def test_unsupported_mechanism_is_refused() -> None:
    settings = {"sasl.mechanism": "GSSAPI", "sasl.username": "b", "sasl.password": "x"}
    with pytest.raises(Refused, match="SCRAM-SHA-256"):
        parse_security(settings, RANDOM)


def test_properties_are_read_line_by_line() -> None:
    assert read_properties("# note\n\n a = b=c \n!x\n") == {"a": "b=c"}
    with pytest.raises(ValueError, match="line 2"):
        read_properties("a=b\nnonsense\n")
    assert is_security("ssl.ca.location")
    assert not is_security("group.id")
