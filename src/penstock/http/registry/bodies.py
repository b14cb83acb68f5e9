"""What requests to the registry carry: JSON bodies, read as these types and no others.

Fields that Confluent's API has and this registry does not act on (rules that change data on its
way, defaults and overrides of metadata) are refused rather than ignored: see `UNKEPT`.
"""

from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException

from penstock.http.exchange import utf8
from penstock.registry.errors import Number, Rejected

T = TypeVar("T")
UNPROCESSABLE = 422
BAD_REQUEST = 400


class ReferenceBody(msgspec.Struct):
    """A reference to another subject's version."""

    name: str
    subject: str
    version: int = -1


class MetadataBody(msgspec.Struct, omit_defaults=True):
    """What is said about a schema."""

    tags: dict[str, list[str]] | None = None
    properties: dict[str, str] | None = None
    sensitive: list[str] | None = None


class SchemaBody(msgspec.Struct, rename="camel"):
    """A schema to be registered, looked up or checked."""

    schema: str | None = None
    schema_type: str | None = None
    references: list[ReferenceBody] | None = None
    metadata: MetadataBody | None = None
    rule_set: dict[str, Any] | None = None
    id: int | None = None
    version: int | None = None

    @property
    def about(self) -> dict[str, Any] | None:
        """The metadata as plain values."""
        if self.metadata is None:
            return None
        plain: dict[str, Any] = msgspec.to_builtins(self.metadata)
        return plain or None


class ConfigBody(msgspec.Struct, rename="camel"):
    """What is set for a subject or for all."""

    compatibility: str | None = None
    compatibility_level: str | None = None
    normalize: bool | None = None
    alias: str | None = None
    compatibility_group: str | None = None
    default_metadata: Any = None
    override_metadata: Any = None
    default_rule_set: Any = None
    override_rule_set: Any = None


class ModeBody(msgspec.Struct):
    """A mode to be set."""

    mode: str = ""


UNKEPT = ("default_metadata", "override_metadata", "default_rule_set", "override_rule_set")


def read_body(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(utf8(body), type=kind)
    except msgspec.ValidationError as error:
        raise HTTPException(UNPROCESSABLE, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(BAD_REQUEST, f"the body is no JSON: {error}") from None


def read_config(body: bytes) -> ConfigBody:
    config = read_body(body, ConfigBody)
    for name in UNKEPT:
        if getattr(config, name) is not None:
            raise Rejected(Number.NOT_PERMITTED, f"{name} cannot be set in this registry")
    return config
