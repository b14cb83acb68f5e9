"""Schema formats by name, and parsing of a schema with its references.

Protobuf needs a package that may be missing, and is imported on first use.
"""

from functools import lru_cache

from penstock.state.registry.avro.schema import AvroFormat
from penstock.state.registry.errors import RegistryErrorCode, Rejected, invalid
from penstock.state.registry.jsonschema.schema import JsonFormat
from penstock.state.registry.limits import StepBudget, check_size
from penstock.state.registry.parsed_schemas import (
    AVRO,
    JSON,
    PROTOBUF,
    Parsed,
    Reference,
    SchemaFormat,
    SchemaSource,
)

REMEMBERED_MAX = 512
REMEMBERED_BYTES_MAX = 16 << 10
"""Maximum size of a cached schema: most are smaller."""
MESSAGES_MAX = 20


@lru_cache(maxsize=8)
def format_of(kind: str) -> SchemaFormat:
    if kind == AVRO:
        return AvroFormat()
    if kind == JSON:
        return JsonFormat()
    if kind != PROTOBUF:
        raise Rejected(RegistryErrorCode.INVALID_SCHEMA, f"Invalid schema type {kind[:80]}")
    try:
        from penstock.state.registry.protobuf.schema import ProtobufFormat
    except ImportError:
        raise invalid(
            "this node cannot read Protobuf schemas: run pip install 'penstock-mq[registry]' on it"
        ) from None
    return ProtobufFormat()


def parse(source: SchemaSource) -> Parsed:
    """Parses a schema; raises Rejected if it is invalid."""
    size = len(source.text) + sum(len(one.text) for one in source.closure)
    if size <= REMEMBERED_BYTES_MAX:
        return _parse_remembered(source)
    return _parse(source)


def _parse(source: SchemaSource) -> Parsed:
    check_size(source.text)
    done: dict[tuple[str, int], Parsed] = {}
    try:
        for one in source.closure:
            done[one.subject, one.version] = format_of(one.type).parse(
                one.text, _named(one.references, done)
            )
        return format_of(source.type).parse(source.text, _named(source.references, done))
    except RecursionError:
        raise invalid("nested too deep") from None


_parse_remembered = lru_cache(maxsize=REMEMBERED_MAX)(_parse)


def _named(
    references: tuple[Reference, ...], done: dict[tuple[str, int], Parsed]
) -> dict[str, Parsed]:
    return {one.name: done[one.subject, one.version] for one in references}


def unreadable(reader: Parsed, writer: Parsed) -> list[str]:
    """Reasons why `reader` cannot read data of `writer`; empty: it can."""
    if reader.type != writer.type:
        return [f"the schema's type changed from {writer.type} to {reader.type}"]
    try:
        found = format_of(reader.type).unreadable(reader, writer, StepBudget())
    except RecursionError:
        raise invalid("nested too deep to be compared") from None
    return list(dict.fromkeys(found))[:MESSAGES_MAX]
