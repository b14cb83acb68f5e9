"""Registries by their addresses: who asks is told to the registry, and to nobody else."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from penstock.spark.option_values import OptionError
from penstock.spark.schemas.format import Malformed
from penstock.spark.schemas.schema_cache import RegistryAddress, RegistryCache, address_of


class Answers(HTTPServer):
    """A registry that says to everybody what it is told to say."""

    status, body = 200, b""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def say(self, status: int, body: bytes | dict[str, Any]) -> None:
        self.status = status
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Answers)
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def answers() -> Iterator[Answers]:
    with Answers() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_only_an_id_that_is_not_there_makes_rows_bad(answers: Answers) -> None:
    book = RegistryCache(RegistryAddress(answers.url))
    for status, body in (
        (401, {"error_code": 401, "message": "the token has expired"}),
        (403, {"error_code": 40301, "message": "not allowed"}),
        (404, b"<html>no such page, says the proxy</html>"),
    ):
        answers.say(status, body)
        with pytest.raises(ConnectionError, match=rf"does not answer: schema id 5: .*{status}"):
            book.schema(5)
    answers.say(404, {"error_code": 40403, "message": "Schema 5 not found"})
    with pytest.raises(Malformed, match="Schema 5 not found") as caught:
        book.schema(5)
    assert caught.value.kind == "UnknownSchema"


def test_a_registry_that_does_not_let_us_in_is_told_with_what_to_do(answers: Answers) -> None:
    book = RegistryCache(RegistryAddress(answers.url))
    answers.say(401, b"")
    with pytest.raises(OptionError, match=r"HTTP 401.*say who asks"):
        book.subject("orders-value", None)
    answers.say(404, {"error_code": 40401, "message": "Subject not found"})
    with pytest.raises(OptionError, match="registers a schema"):
        book.subject("orders-value", None)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("http://localhost:8080", RegistryAddress("http://localhost:8080")),
        (
            "https://ann:p%40ss%2Fword@registry:8081/apis?x=1",
            RegistryAddress("https://registry:8081/apis?x=1", "ann", "p@ss/word"),
        ),
        ("http://ann@[::1]:8080", RegistryAddress("http://[::1]:8080", "ann")),
        (RegistryAddress("http://a", token="t"), RegistryAddress("http://a", token="t")),
    ],
)
def test_an_address_may_say_who_asks(given: str | RegistryAddress, found: RegistryAddress) -> None:
    assert address_of(given) == found


def test_what_is_secret_is_not_shown() -> None:
    assert "hunter2" not in repr(address_of("http://ann:hunter2@registry"))
