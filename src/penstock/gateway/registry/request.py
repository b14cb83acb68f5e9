"""Request to the registry: path segments, query and body.

A subject may contain any character, also a slash, written as `%2F`: so the path is split before it
is decoded. `/contexts/{context}` at the start of a path selects the context.

JSON bodies of requests to the registry. Data contract rules are stored and returned; clients
execute them.
"""

from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request

from penstock.gateway.http.request_io import utf8
from penstock.state.registry.requests import LIMIT_MAX
from penstock.state.registry.subject_names import (
    DEFAULT_CONTEXT,
    EVERY_CONTEXT,
    join_subject,
    read_context,
    read_version,
    subject_in,
)

T = TypeVar("T")
UNPROCESSABLE = 422


class ReferenceBody(msgspec.Struct):
    """Reference to a version of another subject."""

    name: str
    subject: str
    version: int = -1


class MetadataBody(msgspec.Struct, omit_defaults=True):
    """Metadata of a schema."""

    tags: dict[str, list[str]] | None = None
    properties: dict[str, str] | None = None
    sensitive: list[str] | None = None


def plain(metadata: MetadataBody | None) -> dict[str, Any] | None:
    """Returns metadata as plain values; None if there are none."""
    values: dict[str, Any] = msgspec.to_builtins(metadata) if metadata is not None else {}
    return values or None


class SchemaBody(msgspec.Struct, rename="camel"):
    """Schema to register, look up or check."""

    schema: str | None = None
    schema_type: str | None = None
    references: list[ReferenceBody] | None = None
    metadata: MetadataBody | None = None
    rule_set: dict[str, Any] | None = None
    id: int | None = None
    version: int | None = None

    @property
    def about(self) -> dict[str, Any] | None:
        """Metadata as plain values."""
        return plain(self.metadata)


class ConfigBody(msgspec.Struct, rename="camel"):
    """Settings of a subject or of a context."""

    compatibility: str | None = None
    compatibility_level: str | None = None
    normalize: bool | None = None
    alias: str | None = None
    compatibility_group: str | None = None
    default_metadata: MetadataBody | None = None
    override_metadata: MetadataBody | None = None
    default_rule_set: dict[str, Any] | None = None
    override_rule_set: dict[str, Any] | None = None


class ModeBody(msgspec.Struct):
    """Mode to set."""

    mode: str = ""


def read_body(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(utf8(body), type=kind)
    except msgspec.ValidationError as error:
        raise HTTPException(UNPROCESSABLE, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(BAD_REQUEST, f"the request body is not valid JSON: {error}") from None


def read_config(body: bytes) -> ConfigBody:
    return read_body(body, ConfigBody)


BAD_REQUEST = 400
UNSUPPORTED = 415
NUMBER_CHARS_MAX = 10
BODY_TYPES = ("application/json", "application/octet-stream", "")
VENDOR = "application/vnd.schemaregistry"


@dataclass(frozen=True, slots=True)
class RegistryRequest:
    """Parsed request."""

    path: dict[str, str]
    query: QueryParams
    body: bytes
    context: str | None = None
    """Context in the path; None if it has none."""

    @property
    def subject(self) -> str:
        return self._here(self.path["subject"])

    @property
    def scope(self) -> str | None:
        """Scope of settings: a subject, or the context; None: the default context."""
        return self._here(self.path.get("subject", "")) or None

    @property
    def found_by(self) -> str | None:
        """Subject, or only the context, in which to look up an id."""
        return self._here(self.text("subject")) or None

    @property
    def deleted_context(self) -> str:
        """Context to delete, as the prefix of its subjects."""
        return join_subject(read_context(self.path["context"]), "") or f":{DEFAULT_CONTEXT}:"

    @property
    def is_qualified(self) -> bool:
        """True if references are returned with their contexts."""
        return self.text("referenceFormat") == "qualified"

    def prefix(self, otherwise: str) -> tuple[str, bool]:
        """Returns the requested subject prefix, and True if it applies to every context."""
        written = self.query.get("subjectPrefix", otherwise if self.context is None else "")
        subject = self._here(written)
        return subject.removeprefix(EVERY_CONTEXT), subject.startswith(EVERY_CONTEXT)

    def _here(self, written: str) -> str:
        return subject_in(self.context or DEFAULT_CONTEXT, written)

    @property
    def version(self) -> int:
        return read_version(self.path["version"])

    @property
    def id(self) -> int:
        return self._number(self.path["id"], "id")

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"

    def text(self, name: str) -> str:
        return self.query.get(name, "")

    @property
    def offset(self) -> int:
        return max(0, self._number(self.query.get("offset", "0"), "offset"))

    @property
    def limit(self) -> int:
        limit = self._number(self.query.get("limit", "-1"), "limit")
        return limit if 0 <= limit <= LIMIT_MAX else LIMIT_MAX

    def _number(self, written: str, name: str) -> int:
        digits = written.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= NUMBER_CHARS_MAX):
            raise HTTPException(BAD_REQUEST, f"invalid {name} {written[:40]!r}: must be a number")
        return int(written)


def path_parts(request: Request) -> list[str]:
    """Splits the path, then decodes each segment."""
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    path = raw.partition(b"?")[0].decode("ascii", "replace")
    return [unquote(part, errors="replace") for part in path.strip("/").split("/")]


def context_part(parts: list[str]) -> tuple[str | None, list[str]]:
    """Returns the context that a path starts with, and the remaining segments."""
    if parts[0] != "contexts" or len(parts) < 3:
        return None, parts
    context, rest = read_context(parts[1]), parts[2:]
    return context, rest


def check_media_type(request: Request) -> None:
    """Refuses content types that browsers send cross-site without a preflight request."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in BODY_TYPES and not kind.startswith(VENDOR):
        raise HTTPException(UNSUPPORTED, "HTTP 415 Unsupported Media Type")
