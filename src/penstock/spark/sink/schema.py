"""Which columns rows must have to be written; refused before anything runs."""

from pyspark.sql.types import StructType

from penstock.spark.option_values import OptionError, nearest
from penstock.spark.settings import HEADERS, WriteSettings

_TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    HEADERS: ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}


def check_rows(schema: StructType, settings: WriteSettings) -> None:
    """Refuses a schema that cannot be written, before anything runs."""
    names = [field.name for field in schema.fields]
    if "value" not in names:
        close = nearest("value", names)
        hint = f"; is it {close!r}?" if close else ""
        raise OptionError(f"there is no column 'value' to be written{hint}")
    if settings.topic is None and "topic" not in names:
        raise OptionError("where to? set the option 'topic', or give the rows a column 'topic'")
    if settings.keeps_timestamp and "timestamp" not in names:
        raise OptionError("includeTimestamp is on, and there is no column 'timestamp'")
    for field in schema.fields:
        if field.name == "timestamp" and not settings.keeps_timestamp:
            continue
        allowed = _TYPES.get(field.name)
        found = field.dataType.simpleString()
        if allowed is not None and found not in allowed:
            raise OptionError(f"column {field.name!r} is {' or '.join(allowed)}, not {found}")
