"""Schema validation of records: `confluent.key.schema.validation` and `.value.`.

Each key or value must name its schema, and that schema must be registered under the subject that
the topic's strategy gives. The name is a zero byte and the schema's id as prefix, as Confluent's
serializers write it, or the guid in the header `__value_schema_id` (or `__key_`). Null keys and
values need none. Data is not decoded. Topics without validation have no overhead.
"""

import uuid
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.context import ProduceContext
from penstock.cluster.replication.partition import ProduceRules
from penstock.coordinator.registry import Mark
from penstock.state.registry.errors import Rejected
from penstock.wire import records

HEADERS: Final = {True: "__key_schema_id", False: "__value_schema_id"}
ID_MAGIC: Final = 0
GUID_MAGIC: Final = 1
ID_BYTES: Final = 5
GUID_BYTES: Final = 17


class Marks(NamedTuple):
    """Schemas of a batch's keys and values, without duplicates."""

    keys: list[Mark]
    values: list[Mark]


async def check_schemas(
    ctx: ProduceContext, topic: str, batch: memoryview, rules: ProduceRules, bytes_max: int
) -> None:
    """Raises Refused if a record lacks a schema, or has one that is not registered for the topic.

    `bytes_max` limits the decompressed batch.
    """
    async with ctx.inspecting:
        marks: Marks = await ctx.workers.run(_marks, batch, rules, bytes_max)
    for strategy, wanted, is_key in (
        (rules.key_schema, marks.keys, True),
        (rules.value_schema, marks.values, False),
    ):
        if strategy is None or not wanted:
            continue
        try:
            unknown = await ctx.registry.marks.unknown(topic, wanted, strategy, is_key=is_key)
        except Rejected:
            raise
        except Refused as refused:
            if refused.code is ErrorCode.INVALID_RECORD:
                raise
            # Retriable for producers.
            raise Refused(
                ErrorCode.REQUEST_TIMED_OUT,
                "the schema registry is unavailable, so schema ids cannot be verified: retry later",
            ) from refused
        if unknown:
            raise Refused(
                ErrorCode.INVALID_RECORD,
                f"schema {unknown[0]} is not registered for the {_part(is_key)}s of {topic}",
            )


def _marks(batch: memoryview, rules: ProduceRules, bytes_max: int) -> Marks:
    """Reads the schemas of a batch. Runs on a worker."""
    records.check_batch(batch)
    keys: dict[Mark, None] = {}
    values: dict[Mark, None] = {}
    for record in records.decode(batch, bytes_max=bytes_max):
        if rules.key_schema is not None and record.key is not None:
            keys[_mark(record.key, record.headers, is_key=True)] = None
        if rules.value_schema is not None and record.value is not None:
            values[_mark(record.value, record.headers, is_key=False)] = None
    return Marks(list(keys), list(values))


def _mark(
    data: bytes | memoryview,
    headers: Iterable[tuple[str, bytes | None]],
    *,
    is_key: bool,
) -> Mark:
    for name, value in headers:
        if name == HEADERS[is_key] and value is not None:
            if len(value) == GUID_BYTES and value[0] == GUID_MAGIC:
                return str(uuid.UUID(bytes=bytes(value[1:])))
            if len(value) == ID_BYTES and value[0] == ID_MAGIC:
                return int.from_bytes(value[1:], "big")
    if len(data) < ID_BYTES or data[0] != ID_MAGIC:
        raise Refused(ErrorCode.INVALID_RECORD, f"a {_part(is_key)} does not name its schema")
    return int.from_bytes(data[1:ID_BYTES], "big")


def _part(is_key: bool) -> str:
    return "key" if is_key else "value"
