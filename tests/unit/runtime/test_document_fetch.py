"""`penstock.runtime.document_fetch`: allowed URLs, and the size limit."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from penstock.base.errors import Refused
from penstock.runtime.document_fetch import DOCUMENT_BYTES_MAX, is_readable, read_document


@pytest.mark.parametrize(
    "url",
    ["https://id.example.com/keys", "http://127.0.0.1:1/x", "http://localhost/", "file:///etc/k"],
)
def test_https_loopback_and_files_are_read(url: str) -> None:
    assert is_readable(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://id.example.com/keys",
        "http://127.0.0.1.example.com/",
        "http://localhost.example.com/",
        "http://127.0.0.1@example.com/",
        "http://localhost:1@127.0.0.1/",
        "ftp://example.com/x",
        "file://example.com/x",
        "jndi:ldap://example.com/x",
        "http://[::1",
        "",
    ],
)
def test_only_https_and_files_are_read(url: str) -> None:
    assert not is_readable(url)
    with pytest.raises(Refused):
        read_document(url)


def test_a_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"{}")
    assert read_document(path.as_uri()) == b"{}"
    path.write_bytes(bytes(DOCUMENT_BYTES_MAX + 1))
    with pytest.raises(Refused):
        read_document(path.as_uri())


class _Elsewhere(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("location", "http://127.0.0.1:1/other")
        self.end_headers()

    def log_message(self, *unused: object) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Elsewhere)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/keys"
    server.shutdown()
    thread.join()
    server.server_close()


def test_redirects_are_refused(elsewhere: str) -> None:
    with pytest.raises(OSError, match="302"):
        read_document(elsewhere)
