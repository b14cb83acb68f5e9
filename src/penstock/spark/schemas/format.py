"""Interface of a schema format: converts values to and from payloads, reports malformed ones."""

import re
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from pyspark.sql.types import DataType

from penstock.spark.option_values import OptionError
from penstock.state.registry.parsed_schemas import AVRO, JSON, Parsed

Decode: TypeAlias = Callable[[bytes], Any]
"""Converts a payload without frame to a value that Arrow accepts. Raises Malformed."""
Encode: TypeAlias = Callable[[Any], bytes]
"""Converts a Python value to a payload without schema id. Raises Malformed."""

_REASON_CHARS_MAX: Final = 300


class Malformed(ValueError):
    """Value that does not match its schema: an error of the row, not of the job."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def reason_of(error: Exception) -> str:
    """Reason of a codec's error without values of the row.

    So the same fault has the same text, and its dead letters form one group.
    """
    if isinstance(error, UnicodeError):
        return "invalid UTF-8"
    text = " ".join(str(error).split())
    text = re.sub(r"^.* \(type <class '(\w+)'>\)", r"value of type \1", text)
    text = re.sub(r"^Could not convert .* with type (\w+)", r"value of type \1", text)
    text = re.sub(r": b?(['\"]).*$", "", text)
    text = re.sub(r"\b\d[\d.]*\b", "N", text)
    return text[:_REASON_CHARS_MAX] or type(error).__name__


class ValueCodec(Protocol):
    """Reads and writes values by one schema."""

    @property
    def spark_type(self) -> DataType: ...

    def decoder(self, writer: Parsed) -> Decode:
        """Reader of values written with another version of the schema. Raises Malformed."""
        ...

    def encoder(self) -> Encode: ...


def codec_for(parsed: Parsed, message: str | None = None) -> ValueCodec:
    """Codec of a schema. Raises OptionError if a package is missing or there is no Spark type."""
    if message is not None and parsed.type in (AVRO, JSON):
        raise OptionError(f"'message' applies to Protobuf only; the schema is {parsed.type}")
    try:
        if parsed.type == AVRO:
            from penstock.spark.schemas.avro import AvroCodec

            return AvroCodec(parsed)
        if parsed.type == JSON:
            from penstock.spark.schemas.json_schema import JsonCodec

            return JsonCodec(parsed)
        from penstock.spark.schemas.protobuf import ProtobufCodec

        return ProtobufCodec(parsed, message)
    except ImportError as error:
        raise OptionError(
            f"{parsed.type} schemas need the package {error.name}: "
            "pip install 'penstock-mq[spark,registry]' on every machine that runs tasks"
        ) from None
