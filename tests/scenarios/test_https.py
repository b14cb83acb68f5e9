"""The HTTP port with TLS: changed certificates, and unfinished handshakes."""

import contextlib
import http.client
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from penstock.broker.server.tls_handshakes import HANDSHAKES_MAX
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


CONSOLE = {"x-penstock-console": "1"}
AMZ = {"content-type": "application/x-amz-json-1.0"}


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/topics", None, {}, 200),
        ("/topics/none", None, {}, 404),
        ("/subjects", None, {}, 200),
        ("/subjects/none/versions", b"{", {}, 400),
        ("/", b"{}", AMZ | {"x-amz-target": "AmazonSQS.ListQueues"}, 200),
        ("/", b"{}", AMZ | {"x-amz-target": "AmazonSQS.Nothing"}, 400),
        ("/", b"Action=GetTopicAttributes&TopicArn=x&Version=2010-03-31", {}, 400),
        ("/console", None, {}, 200),
        ("/console/api/none", None, CONSOLE, 404),
        ("/docs", None, {}, 200),
        ("/topics", None, {"origin": "https://other.example"}, 403),
        ("/topics/t/messages", b"{}", {"content-length": "999999999"}, 413),
        ("/topics/%ff", None, {}, 400),
        ("/topics", None, {"content-length": "-1"}, 400),
    ],
)
def test_every_response_has_security_headers(
    site: Site, path: str, body: bytes | None, headers: dict[str, str], status: int
) -> None:
    port = http.client.HTTPSConnection(site.host, site.port, timeout=20, context=site.trusting)
    with contextlib.closing(port):
        port.request("GET" if body is None else "POST", path, body, headers)
        answer = port.getresponse()
        rows = [(name.lower(), value) for name, value in answer.getheaders()]
    told = dict(rows)
    assert answer.status == status
    assert len(told) == len(rows), rows
    assert told["x-content-type-options"] == "nosniff"
    assert told["x-frame-options"] == "DENY"
    assert told["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in told["content-security-policy"]
    assert told["strict-transport-security"] == "max-age=31536000"


def test_unfinished_handshakes_do_not_block_clients(site: Site) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(HANDSHAKES_MAX + 50):
            held.enter_context(socket.create_connection((site.host, site.port)))
        assert site.get("/healthz") == b"ok\n"
