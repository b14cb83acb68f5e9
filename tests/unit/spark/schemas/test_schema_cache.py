"""Registry addresses, and the errors of a registry that refuses a request."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from penstock.spark.option_values import OptionError
from penstock.spark.schemas.format import Malformed
from penstock.spark.schemas.schema_cache import RegistryAddress, RegistryCache, address_of


class FakeRegistry(HTTPServer):
    """Registry that answers every request with the configured reply."""

    status, body = 200, b""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def reply_with(self, status: int, body: bytes | dict[str, Any]) -> None:
        self.status = status
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, FakeRegistry)
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_only_an_unknown_schema_id_is_malformed(registry: FakeRegistry) -> None:
    cache = RegistryCache(RegistryAddress(registry.url))
    for status, body in (
        (401, {"error_code": 401, "message": "the token has expired"}),
        (403, {"error_code": 40301, "message": "not allowed"}),
        (404, b"<html>not found, by a proxy</html>"),
    ):
        registry.reply_with(status, body)
        with pytest.raises(ConnectionError, match=rf"schema id 5: .*{status}"):
            cache.schema(5)
    registry.reply_with(404, {"error_code": 40403, "message": "Schema 5 not found"})
    with pytest.raises(Malformed) as caught:
        cache.schema(5)
    assert caught.value.kind == "UnknownSchema"


def test_denied_access_and_unknown_subject_are_refused(registry: FakeRegistry) -> None:
    cache = RegistryCache(RegistryAddress(registry.url))
    registry.reply_with(401, b"")
    with pytest.raises(OptionError, match=r"HTTP 401.*RegistryAddress"):
        cache.subject("orders-value", None)
    registry.reply_with(404, {"error_code": 40401, "message": "Subject not found"})
    with pytest.raises(OptionError, match="register a schema"):
        cache.subject("orders-value", None)


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
def test_registry_url_may_contain_credentials(
    given: str | RegistryAddress, found: RegistryAddress
) -> None:
    assert address_of(given) == found


def test_repr_hides_the_password() -> None:
    assert "hunter2" not in repr(address_of("http://ann:hunter2@registry"))
