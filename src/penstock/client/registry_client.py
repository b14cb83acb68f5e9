"""Client of a schema registry's REST API; the caller passes the function that sends requests.

Works with any registry that has Confluent's API. Calls block until the reply. A refused request
raises `Rejected` with the registry's error code; an unreachable or failing registry raises an
OSError.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

import msgspec

from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.limits import REFERENCED_MAX
from penstock.state.registry.parsed_schemas import AVRO, Dependency, Reference, SchemaSource

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
OK: Final = 200
SERVER_ERROR: Final = 500
TOO_MANY: Final = 429

Ask: TypeAlias = Callable[[str, str, bytes | None, Mapping[str, str], float], tuple[int, bytes]]
"""Sends a request (method, URL, body, headers, timeout in seconds); returns status and body."""


class Registered(NamedTuple):
    """Subject, id and version of a registered schema."""

    subject: str
    id: int
    version: int | None


class _Named(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Answer(msgspec.Struct, rename="camel"):
    id: int = 0
    version: int | None = None
    schema: str = ""
    schema_type: str = AVRO
    references: list[_Named] = []


class _Problem(msgspec.Struct):
    error_code: int = 0
    message: str = ""


class RegistryApi:
    """Client of the registry at `url`."""

    def __init__(
        self,
        ask: Ask,
        url: str,
        *,
        user: str | None = None,
        password: str = "",
        token: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self.url = url.rstrip("/")
        self._ask = ask
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": MEDIA_TYPE, "Accept": MEDIA_TYPE}
        if user is not None:
            secret = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {secret}"
        elif token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """Sends one request. Raises Rejected with the registry's error code if it is refused."""
        data = msgspec.json.encode(body) if body is not None else None
        status, answer = self._ask(method, self.url + path, data, self._headers, self._timeout_s)
        if status == OK:
            return answer
        try:
            problem = msgspec.json.decode(answer, type=_Problem)
        except msgspec.MsgspecError:
            problem = _Problem(message=answer[:200].decode("utf-8", "replace"))
        reason = f"{problem.message or 'request refused'} (HTTP {status})"
        if status >= SERVER_ERROR or status == TOO_MANY:
            raise ConnectionError(f"registry at {self.url} failed: {reason}")
        known = problem.error_code in set(RegistryErrorCode)
        raise Rejected(
            RegistryErrorCode(problem.error_code) if known else RegistryErrorCode.STORE, reason
        )

    def register(
        self,
        subject: str,
        schema: str,
        schema_type: str = AVRO,
        references: Sequence[Reference] = (),
    ) -> Registered:
        body = {
            "schema": schema,
            "schemaType": schema_type,
            "references": [one._asdict() for one in references],
        }
        path = f"/subjects/{quote(subject, safe='')}/versions"
        answer = msgspec.json.decode(self.call("POST", path, body), type=_Answer)
        return Registered(subject, answer.id, answer.version)

    def version(self, subject: str, version: int | None = None) -> tuple[Registered, SchemaSource]:
        """Returns a version of a subject, by default the latest, with all referenced schemas."""
        answer = self._version(subject, version)
        found = Registered(subject, answer.id, answer.version)
        return found, self._source(answer)

    def schema(self, schema_id: int) -> SchemaSource:
        """Returns the schema of an id, with all referenced schemas."""
        answer = msgspec.json.decode(self.call("GET", f"/schemas/ids/{schema_id}"), type=_Answer)
        return self._source(answer)

    def _version(self, subject: str, version: int | None) -> _Answer:
        number = "latest" if version is None else str(version)
        path = f"/subjects/{quote(subject, safe='')}/versions/{number}"
        return msgspec.json.decode(self.call("GET", path), type=_Answer)

    def _source(self, answer: _Answer) -> SchemaSource:
        closure: dict[tuple[str, int], Dependency] = {}
        self._collect(answer.references, closure, set())
        return SchemaSource(
            answer.schema_type, answer.schema, _references(answer), tuple(closure.values())
        )

    def _collect(
        self,
        references: Sequence[_Named],
        found: dict[tuple[str, int], Dependency],
        pending: set[tuple[str, int]],
    ) -> None:
        """Collects references depth first: dependencies before the schemas that refer to them."""
        for one in references:
            key = (one.subject, one.version)
            if key in found:
                continue
            if key in pending or len(pending) + len(found) >= REFERENCED_MAX:
                raise Rejected(
                    RegistryErrorCode.INVALID_SCHEMA,
                    f"references of {one.subject} form a cycle, or are more than {REFERENCED_MAX}",
                )
            pending.add(key)
            answer = self._version(*key)
            self._collect(answer.references, found, pending)
            pending.discard(key)
            found[key] = Dependency(
                one.subject, one.version, answer.schema_type, answer.schema, _references(answer)
            )


def _references(answer: _Answer) -> tuple[Reference, ...]:
    return tuple(Reference(one.name, one.subject, one.version) for one in answer.references)
