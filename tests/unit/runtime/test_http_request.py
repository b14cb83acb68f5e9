"""One HTTP request: answers, errors that are answers, and what is not done."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from penstock.runtime import http_request
from penstock.runtime.http_request import ask_web


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


def test_a_response_is_returned_with_any_status(address: str) -> None:
    told = {"x-told": "told "}
    assert ask_web("POST", f"{address}/x", b"body", told, 10.0) == (200, b"told body")
    assert ask_web("POST", f"{address}/missing", b"", told, 10.0) == (404, b"told ")


def test_it_is_not_sent_elsewhere(address: str) -> None:
    assert ask_web("POST", f"{address}/moved", b"", {}, 10.0) == (302, b"")


def test_an_answer_has_a_limit(address: str) -> None:
    with pytest.raises(OSError, match="larger than"):
        ask_web("POST", f"{address}/large", b"", {}, 10.0)


def test_only_the_web_is_asked() -> None:
    with pytest.raises(ValueError, match="invalid URL"):
        ask_web("GET", "file:///etc/hostname", None, {}, 1.0)
