"""What each format can do with one schema, and how it says that a value is no good."""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from pyspark.sql.types import DataType

from penstock.spark.option_values import OptionError
from penstock.state.registry.parsed_schemas import AVRO, JSON, Parsed

Decode: TypeAlias = Callable[[bytes], Any]
"""From a payload, without the frame, to what Arrow makes a cell of. Raises Malformed."""
Encode: TypeAlias = Callable[[Any], bytes]
"""From a cell's Python value to a payload, without the schema's id. Raises Malformed."""


class Malformed(ValueError):
    """A value that does not follow its schema: the row's fault, not the job's."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Form(Protocol):
    """One schema, by which values are read and written."""

    @property
    def spark_type(self) -> DataType: ...

    def decoder(self, writer: Parsed) -> Decode:
        """Reads what was written with another version of the schema. Raises Malformed."""
        ...

    def encoder(self) -> Encode: ...


def form_of(parsed: Parsed, message: str | None = None) -> Form:
    """Raises OptionError where a package is missing, or Spark has no type for the schema."""
    if message is not None and parsed.type in (AVRO, JSON):
        raise OptionError(f"'message' is for Protobuf, and the schema is {parsed.type}")
    try:
        if parsed.type == AVRO:
            from penstock.spark.schemas.avro import AvroForm

            return AvroForm(parsed)
        if parsed.type == JSON:
            from penstock.spark.schemas.json_schema import JsonForm

            return JsonForm(parsed)
        from penstock.spark.schemas.protobuf import ProtobufForm

        return ProtobufForm(parsed, message)
    except ImportError as error:
        raise OptionError(
            f"{parsed.type} schemas need the package {error.name}: "
            "pip install 'penstock-mq[spark,registry]' wherever tasks run"
        ) from None
