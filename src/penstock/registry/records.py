"""What the registry keeps in its topic: JSON keys and values, as Confluent's registry writes them.

A schema's key is its subject and version, so compaction keeps the last word on each; a value of
null is a version that is gone for good. Beside Confluent's there is `ID`: the highest id that was
ever given, written when the version that had it goes, because an id is never given again.
"""

from typing import Any, Final

import msgspec

from penstock.base.machine import Record
from penstock.registry.parsed import AVRO, Reference

SCHEMA: Final = "SCHEMA"
CONFIG: Final = "CONFIG"
MODE: Final = "MODE"
ID: Final = "ID"


class RegistryKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of every record."""

    keytype: str
    subject: str | None = None
    """None: all subjects."""
    version: int | None = None
    magic: int | None = None


class KeptReference(msgspec.Struct, frozen=True):
    """A reference of a kept schema."""

    name: str
    subject: str
    version: int


class KeptSchema(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of a subject."""

    subject: str
    version: int
    id: int
    schema: str
    guid: str
    """Made from what the schema says, so that it is the same for schemas that say the same."""
    schemaType: str = AVRO
    references: tuple[KeptReference, ...] = ()
    metadata: dict[str, Any] | None = None
    ruleSet: dict[str, Any] | None = None
    deleted: bool = False
    recordName: str | None = None
    """Of the record or message; what RecordNameStrategy takes for a subject."""

    @property
    def place(self) -> tuple[str, int]:
        return self.subject, self.version

    @property
    def referred(self) -> tuple[Reference, ...]:
        return tuple(Reference(one.name, one.subject, one.version) for one in self.references)


class KeptConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is set for a subject, or for all that have nothing set; None: nothing is."""

    compatibilityLevel: str | None = None
    normalize: bool | None = None
    alias: str | None = None
    compatibilityGroup: str | None = None
    defaultMetadata: dict[str, Any] | None = None
    overrideMetadata: dict[str, Any] | None = None
    defaultRuleSet: dict[str, Any] | None = None
    overrideRuleSet: dict[str, Any] | None = None


class KeptMode(msgspec.Struct, frozen=True):
    """The mode of a subject or of all."""

    mode: str


class KeptId(msgspec.Struct, frozen=True):
    """The highest id that was given."""

    id: int


Kept = KeptSchema | KeptConfig | KeptMode | KeptId
VALUES: Final[dict[str, type[Kept]]] = {
    SCHEMA: KeptSchema,
    CONFIG: KeptConfig,
    MODE: KeptMode,
    ID: KeptId,
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


def id_record(highest: int) -> Record:
    return _encode_key(RegistryKey(ID, magic=0)), msgspec.json.encode(KeptId(highest))


def read_record(key: bytes, value: bytes | None) -> tuple[RegistryKey, Kept | None] | None:
    """None: of a kind that is not known here."""
    read = _decode_key(key)
    kind = VALUES.get(read.keytype)
    if kind is None:
        return None
    return read, msgspec.json.decode(value, type=kind) if value is not None else None


def _schema_key(subject: str, version: int) -> bytes:
    return _encode_key(RegistryKey(SCHEMA, subject, version, 1))
