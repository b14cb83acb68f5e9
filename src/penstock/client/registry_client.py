"""A schema registry's REST API from the other side, with whatever asks the web given from outside.

Works with any registry that speaks Confluent's API. Calls wait for their answer. A registry that
refuses is `Rejected` with its number; one that cannot be asked, or that is in trouble itself, is an
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
TROUBLE: Final = 500
TOO_MANY: Final = 429

Ask: TypeAlias = Callable[[str, str, bytes | None, Mapping[str, str], float], tuple[int, bytes]]
"""Method, URL, body, headers and seconds to wait; status and body come back."""


class Registered(NamedTuple):
    """Where a schema is."""

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
    """A registry, by its address."""

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
        """One request. Raises Rejected with the registry's number when it refuses."""
        data = msgspec.json.encode(body) if body is not None else None
        status, answer = self._ask(method, self.url + path, data, self._headers, self._timeout_s)
        if status == OK:
            return answer
        try:
            problem = msgspec.json.decode(answer, type=_Problem)
        except msgspec.MsgspecError:
            problem = _Problem(message=answer[:200].decode("utf-8", "replace"))
        told = f"{problem.message or 'the registry refused'} (HTTP {status})"
        if status >= TROUBLE or status == TOO_MANY:
            raise ConnectionError(f"the registry at {self.url} is in trouble: {told}")
        known = problem.error_code in set(RegistryErrorCode)
        raise Rejected(
            RegistryErrorCode(problem.error_code) if known else RegistryErrorCode.STORE, told
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
        """A version of a subject, the latest unless told otherwise, with all that it needs."""
        answer = self._version(subject, version)
        found = Registered(subject, answer.id, answer.version)
        return found, self._source(answer)

    def schema(self, schema_id: int) -> SchemaSource:
        """What an id stands for, with all that it needs."""
        answer = msgspec.json.decode(self.call("GET", f"/schemas/ids/{schema_id}"), type=_Answer)
        return self._source(answer)

    def _version(self, subject: str, version: int | None) -> _Answer:
        number = "latest" if version is None else str(version)
        path = f"/subjects/{quote(subject, safe='')}/versions/{number}"
        return msgspec.json.decode(self.call("GET", path), type=_Answer)

    def _source(self, answer: _Answer) -> SchemaSource:
        closure: dict[tuple[str, int], Dependency] = {}
        self._gather(answer.references, closure, set())
        return SchemaSource(
            answer.schema_type, answer.schema, _references(answer), tuple(closure.values())
        )

    def _gather(
        self,
        references: Sequence[_Named],
        found: dict[tuple[str, int], Dependency],
        open_ones: set[tuple[str, int]],
    ) -> None:
        """What these need comes first, then they."""
        for one in references:
            key = (one.subject, one.version)
            if key in found:
                continue
            if key in open_ones or len(open_ones) + len(found) >= REFERENCED_MAX:
                raise Rejected(
                    RegistryErrorCode.INVALID_SCHEMA, f"the references of {one.subject} do not end"
                )
            open_ones.add(key)
            answer = self._version(*key)
            self._gather(answer.references, found, open_ones)
            open_ones.discard(key)
            found[key] = Dependency(
                one.subject, one.version, answer.schema_type, answer.schema, _references(answer)
            )


def _references(answer: _Answer) -> tuple[Reference, ...]:
    return tuple(Reference(one.name, one.subject, one.version) for one in answer.references)
