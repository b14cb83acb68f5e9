"""The HTTP port with TLS: certificates that change, and handshakes that nobody finishes."""

import contextlib
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from penstock.server.handshakes import HANDSHAKES_MAX
from tests.brokers import QUICK, PenstockProcess
from tests.waiting import eventually


class Site:
    """A broker whose HTTP port speaks TLS."""

    def __init__(self, directory: Path) -> None:
        self.ca = trustme.CA()
        self.key_file = directory / "server.pem"
        self.write_certificate()
        self.process = PenstockProcess(
            directory / "data",
            {**QUICK, "http.security.protocol": "SSL", "ssl.keystore.location": self.key_file},
        )
        self.trusting = ssl.create_default_context()
        self.ca.configure_trust(self.trusting)
        self.host, _, port = self.process.http.removeprefix("https://").rpartition(":")
        self.port = int(port)

    def write_certificate(self) -> None:
        new = self.key_file.with_suffix(".new")
        leaf = self.ca.issue_cert("127.0.0.1", "localhost")
        leaf.private_key_and_cert_chain_pem.write_to_path(str(new))
        new.rename(self.key_file)

    def get(self, path: str) -> bytes:
        url = f"{self.process.http}{path}"
        with urllib.request.urlopen(url, timeout=20, context=self.trusting) as reply:
            body: bytes = reply.read()
        return body


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("https"))
    try:
        yield site
    finally:
        site.process.stop()


def test_new_certificates_are_used_without_a_restart(site: Site) -> None:
    before = ssl.get_server_certificate((site.host, site.port))
    assert site.get("/healthz") == b"ok\n"
    site.write_certificate()
    eventually(
        lambda: ssl.get_server_certificate((site.host, site.port)) != before, "a new certificate"
    )
    assert site.get("/healthz") == b"ok\n"


def test_handshakes_that_nobody_finishes_do_not_keep_others_out(site: Site) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(HANDSHAKES_MAX + 50):
            held.enter_context(socket.create_connection((site.host, site.port)))
        assert site.get("/healthz") == b"ok\n"
