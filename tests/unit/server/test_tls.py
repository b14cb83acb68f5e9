"""Certificates of a listener: made, changed, refused; and the names in them."""

import os
from pathlib import Path

import pytest
import trustme

from penstock.base.errors import Refused
from penstock.server.tls import Certificates, TlsConfig, distinguished_name

CA = trustme.CA()


def write(path: Path) -> str:
    CA.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(path))
    return str(path)


def test_new_files_are_news_once(tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    certificates = Certificates(TlsConfig(write(path)))
    assert not certificates.has_news()
    write(path)
    os.utime(path, ns=(1, 1))
    assert certificates.has_news()
    certificates.take_over()
    assert not certificates.has_news()


def test_files_that_do_not_do_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    certificates = Certificates(TlsConfig(write(path)))
    path.write_text("no key at all")
    with pytest.raises(Refused, match=r"server\.pem"):
        certificates.has_news()
    assert not certificates.has_news(), "it is said once"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"key_file": "/nowhere.pem"}, "nowhere"),
        ({"client_auth": "required"}, "ssl.truststore.location"),
        ({"ca_file": "/nowhere.pem"}, "nowhere"),
        ({"versions": ["SSLv3"]}, "ssl.enabled.protocols"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, config: dict[str, object], why: str) -> None:
    values = {"key_file": write(tmp_path / "server.pem"), **config}
    with pytest.raises(Refused, match=why):
        Certificates(TlsConfig(**values))  # type: ignore[arg-type]


def test_names_are_written_as_rfc_2253_writes_them() -> None:
    subject = (
        (("countryName", "DE"),),
        (("organizationName", "Smith, Jones + Co"),),
        (("commonName", " #alice "),),
    )
    assert (
        distinguished_name({"subject": subject}) == "CN=\\ #alice\\ ,O=Smith\\, Jones \\+ Co,C=DE"
    )
    assert distinguished_name({}) == ""
