"""Options of SQL tables: `CREATE TABLE orders USING penstock OPTIONS (...)`.

Spark passes the options of a table to a Python source only when it asks for the schema; reads and
writes of the table get none of them. What they do get is that schema, from Spark's catalog, with
the metadata of its columns. So the source stores the options in the metadata of the first column,
and every later read and write takes them from there. A table with declared columns has no such
metadata, and is refused when it is used.

One table may be read and written. So it may have options of both; each use takes its own.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import StructField, StructType

from penstock.spark.option_values import OptionError
from penstock.spark.settings import BOTH, IGNORED, READ, WRITE, option_of, read_options

METADATA_KEY: Final = "penstock.options"
_PREFIX: Final = "option."
_PROVIDER: Final = "provider"
"""Property that Spark adds to the options when it creates a table."""
_TOPIC: Final = "topic"
_SUBSCRIBE: Final = "subscribe"
_SOURCES: Final = frozenset({"subscribe", "subscribePattern", "assign", "queue", "topic"})


def is_table_definition(given: Mapping[str, str]) -> bool:
    """True if Spark asks for the schema of a table that it creates."""
    return _PROVIDER in given


def defined_options(given: Mapping[str, str]) -> dict[str, str]:
    """Options in a table's definition, without Spark's own properties; refuses invalid ones."""
    options = {
        name.removeprefix(_PREFIX): value
        for name, value in given.items()
        if name.startswith(_PREFIX)
    }
    if not options:
        raise OptionError(
            "missing options of the table: CREATE TABLE orders USING penstock "
            "OPTIONS (brokers 'localhost:9092', topic 'orders')"
        )
    for side in (READ, WRITE):
        read_options(options_for(options, side), side)
    return options


def with_table_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Schema of a new table, with its options in the metadata of the first column."""
    first, *rest = schema.fields
    metadata = {METADATA_KEY: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *rest])


def without_table_options(schema: StructType) -> StructType:
    return StructType([StructField(one.name, one.dataType, one.nullable) for one in schema.fields])


def effective_options(given: Mapping[str, str], schema: StructType, side: str) -> dict[str, Any]:
    """Options of a read or write; those of its table, if it is one, may be overridden.

    A DataFrame that was read from a table still has its metadata. So a write with options of its
    own never takes those of a table.
    """
    own = dict(given)
    chosen = [name for name in own if name.lower() not in IGNORED]
    text = next((t for one in schema.fields if (t := one.metadata.get(METADATA_KEY))), None)
    if text is not None and (side == READ or not chosen):
        replaced = {_canonical(name) for name in own}
        stored = json.loads(text)
        kept = {name: stored[name] for name in stored if _canonical(name) not in replaced}
        return options_for({**kept, **own}, side)
    if not chosen:
        raise OptionError(
            "missing option 'kafka.bootstrap.servers'; if this is a table: Spark does not pass "
            "the options of a table with declared columns. Create it without columns, CREATE TABLE "
            "orders USING penstock OPTIONS (...), or use CREATE TEMPORARY VIEW"
        )
    return own


def options_for(options: Mapping[str, str], side: str) -> dict[str, str]:
    """Options of a table that apply to a read or to a write.

    The topic of a table is both read and written, if the other side has no topic of its own.
    """
    found = {}
    for name, value in options.items():
        option = option_of(name)
        if option is None or option.side in (side, BOTH):
            found[name] = value
    names = {option.name: name for name in options if (option := option_of(name)) is not None}
    if side == WRITE and _TOPIC not in names and _SUBSCRIBE in names:
        topics = options[names[_SUBSCRIBE]]
        if "," not in topics:
            found[_TOPIC] = topics
    if side == READ and _TOPIC in names and len(names.keys() & _SOURCES) > 1:
        del found[names[_TOPIC]]
    return found


def _canonical(name: str) -> str:
    option = option_of(name)
    return name.lower() if option is None else option.name
