"""One HTTP request: answers, errors that are answers, and what is not done."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from penstock.base.errors import Refused
from penstock.runtime import http_request
from penstock.runtime.http_request import DOCUMENT_BYTES_MAX, ask_web, is_readable, read_document


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("location", "/elsewhere")
            self.end_headers()
            return
        self.send_response(404 if self.path == "/missing" else 200)
        self.end_headers()
        if self.path == "/large":
            self.wfile.write(bytes(http_request.ANSWER_BYTES_MAX + 1))
        else:
            self.wfile.write(self.headers["x-told"].encode() + body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_response_is_returned_with_any_status(address: str) -> None:
    told = {"x-told": "told "}
    assert ask_web("POST", f"{address}/x", b"body", told, 10.0) == (200, b"told body")
    assert ask_web("POST", f"{address}/missing", b"", told, 10.0) == (404, b"told ")


def test_post_does_not_follow_redirects(address: str) -> None:
    assert ask_web("POST", f"{address}/moved", b"", {}, 10.0) == (302, b"")


def test_answer_has_a_limit(address: str) -> None:
    with pytest.raises(OSError, match="larger than"):
        ask_web("POST", f"{address}/large", b"", {}, 10.0)


def test_only_http_urls_are_accepted() -> None:
    with pytest.raises(ValueError, match="invalid URL"):
        ask_web("GET", "file:///etc/hostname", None, {}, 1.0)


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
def test_only_https_and_file_urls_are_read(url: str) -> None:
    assert not is_readable(url)
    with pytest.raises(Refused):
        read_document(url)


def test_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
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
