"""A registry's REST API from the other side: what is asked, and what its answers mean."""

import json
from collections.abc import Mapping

import pytest

from penstock.client.registry_client import RegistryApi
from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.parsed_schemas import AVRO, Reference


class Web:
    """Answers by path; keeps what was asked."""

    def __init__(self, answers: Mapping[str, tuple[int, object]]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str, Mapping[str, str]]] = []

    def __call__(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], wait_s: float
    ) -> tuple[int, bytes]:
        path = url.removeprefix("http://here")
        self.asked.append((method, path, headers))
        status, answer = self.answers[path]
        return status, answer if isinstance(answer, bytes) else json.dumps(answer).encode()


def reference(subject: str) -> dict[str, object]:
    return {"name": subject, "subject": subject, "version": 1}


def version(schema_id: int, *references: str) -> tuple[int, object]:
    return 200, {
        "id": schema_id,
        "version": 1,
        "schema": f'"{schema_id}"',
        "references": [reference(one) for one in references],
    }


def test_schema_is_returned_with_its_references_in_order() -> None:
    web = Web(
        {
            "/subjects/a%2Fb/versions/latest": version(1, "left", "right"),
            "/subjects/left/versions/1": version(2, "deep"),
            "/subjects/right/versions/1": version(3, "deep"),
            "/subjects/deep/versions/1": version(4),
        }
    )
    registered, source = RegistryApi(web, "http://here/").version("a/b")
    assert registered == ("a/b", 1, 1)
    assert source.type == AVRO
    assert source.references == (Reference("left", "left", 1), Reference("right", "right", 1))
    assert [one.subject for one in source.closure] == ["deep", "left", "right"]


def test_circular_references_are_refused() -> None:
    web = Web(
        {
            "/schemas/ids/1": version(1, "a"),
            "/subjects/a/versions/1": version(2, "b"),
            "/subjects/b/versions/1": version(3, "a"),
        }
    )
    with pytest.raises(Rejected, match="form a cycle"):
        RegistryApi(web, "http://here").schema(1)


def test_refusal_has_the_registry_error_code() -> None:
    web = Web({"/schemas/ids/1": (404, {"error_code": 40403, "message": "Schema 1 not found"})})
    with pytest.raises(Rejected, match=r"Schema 1 not found \(HTTP 404\)") as caught:
        RegistryApi(web, "http://here").schema(1)
    assert caught.value.number is RegistryErrorCode.SCHEMA_NOT_FOUND


@pytest.mark.parametrize("status", [429, 500, 503])
def test_unavailable_registry_is_a_connection_error(status: int) -> None:
    web = Web({"/schemas/ids/1": (status, b"<html>busy</html>")})
    with pytest.raises(ConnectionError, match=f"failed: <html>busy</html> .HTTP {status}"):
        RegistryApi(web, "http://here").schema(1)


@pytest.mark.parametrize(
    ("login", "header"),
    [
        ({"user": "ann", "password": "pw"}, "Basic YW5uOnB3"),
        ({"token": "abc"}, "Bearer abc"),
        ({}, None),
    ],
)
def test_credentials_are_sent_as_authorization_header(
    login: dict[str, str], header: str | None
) -> None:
    web = Web({"/schemas/ids/1": version(1)})
    RegistryApi(web, "http://here", **login).schema(1)  # type: ignore[arg-type]
    assert web.asked[0][2].get("Authorization") == header
