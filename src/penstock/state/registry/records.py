"""Persisted records of the registry: JSON keys and values, as Confluent's registry writes them.

A schema's key is its subject and version, so compaction keeps its latest state; a null value is a
permanently deleted version. In addition to Confluent's there is `ID`: the highest id ever
assigned, written when the version that had it is deleted, because an id is never reused. For a
context the same is stored in its own record, `CONTEXT`.

A schema of a context other than the default one has its own kind of key, `CONTEXT_SCHEMA`: nodes
of a version without contexts skip it. With `SCHEMA` they would take its id for one of the default
context.
"""

from typing import Any, Final

import msgspec

from penstock.base.state_machine import Record
from penstock.state.registry.parsed_schemas import AVRO, Reference
from penstock.state.registry.subject_names import DEFAULT_CONTEXT, context_of, seen_from

SCHEMA: Final = "SCHEMA"
CONTEXT_SCHEMA: Final = "CONTEXT_SCHEMA"
CONTEXT: Final = "CONTEXT"
TENANT: Final = "default"
CONFIG: Final = "CONFIG"
MODE: Final = "MODE"
ID: Final = "ID"


class RegistryKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """Key of every record."""

    keytype: str
    subject: str | None = None
    """None: the default context."""
    version: int | None = None
    magic: int | None = None
    tenant: str | None = None
    context: str | None = None


class KeptReference(msgspec.Struct, frozen=True):
    """A reference of a stored schema."""

    name: str
    subject: str
    """Without context, if it is the context of the referring schema."""
    version: int


class KeptSchema(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of a subject."""

    subject: str
    version: int
    id: int
    schema: str
    guid: str
    """Derived from the content, so that equal schemas have equal guids."""
    schemaType: str = AVRO
    references: tuple[KeptReference, ...] = ()
    metadata: dict[str, Any] | None = None
    ruleSet: dict[str, Any] | None = None
    deleted: bool = False
    recordName: str | None = None
    """Name of the record or message, used by RecordNameStrategy."""

    @property
    def place(self) -> tuple[str, int]:
        return self.subject, self.version

    @property
    def referred(self) -> tuple[Reference, ...]:
        context = self.context
        return tuple(
            Reference(one.name, seen_from(context, one.subject), one.version)
            for one in self.references
        )

    @property
    def context(self) -> str:
        return context_of(self.subject)


class KeptConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """Settings of a subject, or of a context for its subjects without any; None: not set."""

    compatibilityLevel: str | None = None
    normalize: bool | None = None
    alias: str | None = None
    compatibilityGroup: str | None = None
    defaultMetadata: dict[str, Any] | None = None
    overrideMetadata: dict[str, Any] | None = None
    defaultRuleSet: dict[str, Any] | None = None
    overrideRuleSet: dict[str, Any] | None = None


class KeptMode(msgspec.Struct, frozen=True):
    """The mode of a subject or of a context."""

    mode: str


class KeptId(msgspec.Struct, frozen=True):
    """The highest id ever assigned."""

    id: int


class KeptContext(msgspec.Struct, frozen=True, omit_defaults=True):
    """An existing context, with or without schemas."""

    context: str
    tenant: str | None = None
    """Constant: Confluent's registry requires one."""
    highestId: int = 0
    """Highest id ever assigned, as far as the context's schemas do not show it."""


Kept = KeptSchema | KeptConfig | KeptMode | KeptId | KeptContext
VALUES: Final[dict[str, type[Kept]]] = {
    SCHEMA: KeptSchema,
    CONFIG: KeptConfig,
    MODE: KeptMode,
    ID: KeptId,
    CONTEXT_SCHEMA: KeptSchema,
    CONTEXT: KeptContext,
}
_encode_key: Final = msgspec.json.Encoder().encode
_decode_key: Final = msgspec.json.Decoder(RegistryKey).decode


def schema_record(kept: KeptSchema) -> Record:
    return _schema_key(kept.subject, kept.version), msgspec.json.encode(kept)


def forgotten_schema(subject: str, version: int) -> Record:
    return _schema_key(subject, version), None


def config_record(subject: str | None, config: KeptConfig | None) -> Record:
    key = _encode_key(RegistryKey(CONFIG, subject, magic=0))
    return key, msgspec.json.encode(config) if config is not None else None


def mode_record(subject: str | None, mode: str | None) -> Record:
    key = _encode_key(RegistryKey(MODE, subject, magic=0))
    return key, msgspec.json.encode(KeptMode(mode)) if mode is not None else None


def id_record(context: str, highest: int) -> Record:
    """Record of the highest id assigned in a context."""
    if context != DEFAULT_CONTEXT:
        return context_record(context, highest)
    return _encode_key(RegistryKey(ID, magic=0)), msgspec.json.encode(KeptId(highest))


def context_record(context: str, highest: int = 0) -> Record:
    return _context_key(context), msgspec.json.encode(KeptContext(context, TENANT, highest))


def forgotten_context(context: str) -> Record:
    return _context_key(context), None


def read_record(key: bytes, value: bytes | None) -> tuple[RegistryKey, Kept | None] | None:
    """Decodes a record; None for an unknown kind."""
    read = _decode_key(key)
    kind = VALUES.get(read.keytype)
    if kind is None:
        return None
    return read, msgspec.json.decode(value, type=kind) if value is not None else None


def _schema_key(subject: str, version: int) -> bytes:
    kind = SCHEMA if context_of(subject) == DEFAULT_CONTEXT else CONTEXT_SCHEMA
    return _encode_key(RegistryKey(kind, subject, version, 1))


def _context_key(context: str) -> bytes:
    return _encode_key(RegistryKey(CONTEXT, tenant=TENANT, context=context))
