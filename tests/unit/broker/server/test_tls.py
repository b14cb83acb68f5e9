"""Certificates of a listener: made, changed, refused; and the names in them."""

import os
import ssl
from pathlib import Path

import pytest
import trustme

from penstock.base.errors import Refused
from penstock.broker.server.tls import Certificates, TlsConfig, distinguished_name

CA = trustme.CA()


def write(path: Path) -> str:
    CA.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(path))
    return str(path)


def renew(certificates: Certificates) -> bool:
    """As the node does it; whether there was anything new."""
    renewed = certificates.reloaded()
    if renewed is not None:
        certificates.context = renewed
    return renewed is not None


def test_changed_certificate_files_are_loaded_once(tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    certificates = Certificates(TlsConfig(write(path)))
    before = certificates.current()
    assert not renew(certificates)
    write(path)
    os.utime(path, ns=(1, 1))
    assert renew(certificates)
    assert certificates.current() is not before
    assert not renew(certificates)


def test_invalid_certificate_files_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    certificates = Certificates(TlsConfig(write(path)))
    before = certificates.current()
    path.write_text("no key at all")
    with pytest.raises(Refused, match=r"server\.pem"):
        renew(certificates)
    assert not renew(certificates), "it is said once"
    assert certificates.current() is before


def lets_in(server: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    """True if the two complete a handshake, in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    other = server.wrap_bio(to_server, to_client, server_side=True)
    open_ends = [one, other]
    for _ in range(10):
        for end in tuple(open_ends):
            try:
                end.do_handshake()
                open_ends.remove(end)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return not open_ends


def test_ca_removed_from_the_truststore_is_no_longer_trusted(tmp_path: Path) -> None:
    """A context that only learns would go on believing a CA that was compromised."""
    old, new = trustme.CA(), trustme.CA()
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(old.cert_pem.bytes() + new.cert_pem.bytes())
    config = TlsConfig(write(tmp_path / "server.pem"), ca_file=str(trusted), client_auth="required")
    certificates = Certificates(config)
    clients = []
    for ca in (old, new):
        client = ssl.create_default_context()
        # In 1.3 a client is done before the server has looked at its certificate.
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        CA.configure_trust(client)
        ca.issue_cert("alice@example.org").configure_cert(client)
        clients.append(client)
    assert [lets_in(certificates.current(), client) for client in clients] == [True, True]
    trusted.write_bytes(new.cert_pem.bytes())
    assert renew(certificates)
    assert [lets_in(certificates.current(), client) for client in clients] == [False, True]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"key_file": "/nowhere.pem"}, "nowhere"),
        ({"client_auth": "required"}, "ssl.truststore.location"),
        ({"ca_file": "/nowhere.pem"}, "nowhere"),
        ({"versions": ["SSLv3"]}, "ssl.enabled.protocols"),
    ],
)
def test_invalid_tls_configs_are_refused_with_the_reason(
    tmp_path: Path, config: dict[str, object], why: str
) -> None:
    values = {"key_file": write(tmp_path / "server.pem"), **config}
    with pytest.raises(Refused, match=why):
        Certificates(TlsConfig(**values))  # type: ignore[arg-type]


def test_distinguished_names_are_formatted_as_in_rfc_2253() -> None:
    subject = (
        (("countryName", "DE"),),
        (("organizationName", "Smith, Jones + Co"),),
        (("commonName", " #alice "),),
    )
    assert (
        distinguished_name({"subject": subject}) == "CN=\\ #alice\\ ,O=Smith\\, Jones \\+ Co,C=DE"
    )
    assert distinguished_name({}) == ""
