"""JSON bodies of requests to the registry.

Data contract rules are stored and returned; clients execute them.
"""

from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException

from penstock.gateway.http.request_io import utf8

T = TypeVar("T")
UNPROCESSABLE = 422
BAD_REQUEST = 400


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
