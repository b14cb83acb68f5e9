"""Decodes values that start with a schema id (Confluent's framing: 0, then four bytes).

Schemas come from the cluster's registry and are cached, because an id never changes its schema. A
missing id is cached for `MISSING_SECONDS` only. Decoding runs in a worker.

Bounds: `SCHEMAS_MAX` cached schemas; values above `VALUE_BYTES_MAX` are not decoded.
"""

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.base.errors import Refused
from penstock.broker.api.context import Context
from penstock.gateway.core.cluster_types import SCHEMAS_TOPIC
from penstock.state.registry import requests
from penstock.state.registry.avro.schema import AvroSchema
from penstock.state.registry.avro.values import read_value as read_avro
from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.formats import parse
from penstock.state.registry.limits import REFERENCED_MAX
from penstock.state.registry.parsed_schemas import (
    AVRO,
    JSON,
    PROTOBUF,
    Dependency,
    Parsed,
    Reference,
    SchemaSource,
)

SCHEMAS_MAX = 256
MISSING_SECONDS = 10.0
VALUE_BYTES_MAX = 1 << 20
FRAME_BYTES = 5
FORMS = {AVRO: "avro", PROTOBUF: "protobuf", JSON: "json schema"}


@dataclass(frozen=True, slots=True)
class Decoded:
    """Value decoded by its schema, or the reason why that failed (`trouble`)."""

    schema_id: int
    form: str = ""
    text: str = ""
    trouble: str = ""


class Decoder:
    """Decodes values; one instance per console."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._known: OrderedDict[int, Parsed | str] = OrderedDict()
        """Schemas by id, or why there is none; empty: an unknown id."""
        self._until_s: dict[int, float] = {}

    async def decode(self, data: bytes) -> Decoded | None:
        """Decodes a value; None if it has no schema id."""
        if data[:1] != b"\0" or not FRAME_BYTES < len(data) <= VALUE_BYTES_MAX:
            return None
        if SCHEMAS_TOPIC not in self._ctx.image.topics:
            return None
        schema_id = int.from_bytes(data[1:FRAME_BYTES], "big")
        schema = await self._schema(schema_id)
        if schema is None:
            return None
        if isinstance(schema, str):
            return Decoded(schema_id, trouble=schema)
        try:
            text = await self._ctx.workers.run(_decode_value, schema, data)
        except (ValueError, IndexError, ArithmeticError) as error:
            return Decoded(
                schema_id, trouble=f"the value does not match schema {schema_id}: {error}"
            )
        return Decoded(schema_id, FORMS[schema.type], text)

    async def _schema(self, schema_id: int) -> Parsed | str | None:
        now_s = asyncio.get_running_loop().time()
        if schema_id in self._known and now_s < self._until_s.get(schema_id, now_s + 1):
            self._known.move_to_end(schema_id)
            return self._known[schema_id] or None
        try:
            found: Parsed | str = await self._parse(schema_id)
        except Refused as refused:
            # Empty for an unknown id: the value only looks like one with a schema.
            found = "" if _is_missing(refused) else refused.message or refused.code.name
            self._until_s[schema_id] = now_s + MISSING_SECONDS
        self._known[schema_id] = found
        while len(self._known) > SCHEMAS_MAX:
            old, _ = self._known.popitem(last=False)
            self._until_s.pop(old, None)
        return found or None

    async def _parse(self, schema_id: int) -> Parsed:
        shown = await self._ask(requests.GetById(schema_id))
        closure: dict[tuple[str, int], Dependency] = {}
        references = await self._gather(shown, closure)
        source = SchemaSource(shown.get("schemaType", AVRO), shown["schema"], references,
                        tuple(closure.values()))  # fmt: skip
        return await self._ctx.workers.run(parse, source)

    async def _gather(
        self, shown: dict[str, Any], closure: dict[tuple[str, int], Dependency]
    ) -> tuple[Reference, ...]:
        """Returns the references; adds the referenced schemas to `closure`, innermost first."""
        references = tuple(
            Reference(row["name"], row["subject"], row["version"])
            for row in shown.get("references", ())
        )
        for one in references:
            if (one.subject, one.version) in closure or len(closure) >= REFERENCED_MAX:
                continue
            other = await self._ask(requests.GetVersion(one.subject, one.version, True, ""))
            inner = await self._gather(other, closure)
            closure[one.subject, one.version] = Dependency(
                one.subject, one.version, other.get("schemaType", AVRO), other["schema"], inner
            )
        return references

    async def _ask(self, call: requests.AnyCall) -> dict[str, Any]:
        answer: dict[str, Any] = msgspec.json.decode(await self._ctx.produce.registry.ask(call))
        return answer


def _is_missing(refused: Refused) -> bool:
    return isinstance(refused, Rejected) and refused.number is RegistryErrorCode.SCHEMA_NOT_FOUND


def _decode_value(schema: Parsed, data: bytes) -> str:
    """Decodes a value; runs in a worker."""
    if isinstance(schema, AvroSchema):
        value = read_avro(schema.root, data, FRAME_BYTES)
    elif schema.type == JSON:
        value = json.loads(data[FRAME_BYTES:].decode())
    else:
        from penstock.state.registry.protobuf.schema import ProtobufSchema, read_value

        assert isinstance(schema, ProtobufSchema)
        value = read_value(schema.linked, data, FRAME_BYTES)
    return json.dumps(value, ensure_ascii=False, indent=2)
