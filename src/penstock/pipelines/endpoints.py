"""Sources and targets of stages: topics, queues, files, or a function of the user.

Plain descriptions, validated when created; `query_builder` translates them to Spark.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

_TIES = ("fail", "higher-partition")


class PipelineError(ValueError):
    """Invalid or failed pipeline; the message names the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Topic:
    """Topic; partitions and configs apply only if the pipeline creates it."""

    name: str
    partitions: int = -1
    """Number of partitions; -1 is the broker's default."""
    compact: bool = False
    """True for a table: compaction keeps only the last record of each key."""
    configs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name:
            raise PipelineError("the name of a topic is empty")

    def __str__(self) -> str:
        return self.name

    def all_configs(self) -> dict[str, str]:
        compacted = {"cleanup.policy": "compact"} if self.compact else {}
        return {**compacted, **self.configs}


@dataclass(frozen=True, slots=True)
class Queue:
    """Topic read as a queue: records are leased, and acknowledged after the checkpoint."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Files:
    """Folder of files, which Spark readers see with each row exactly once."""

    path: str
    format: str = "parquet"
    partition_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.format} {self.path}"


@dataclass(frozen=True, slots=True)
class EachBatch:
    """Function that receives every batch and its number.

    After a crash a batch may be repeated with the same number and rows. So a function that writes
    to another system stores the number with the rows, or writes idempotently.
    """

    function: Callable[[Any, int], None]

    def __str__(self) -> str:
        return f"function {self.function.__name__}"


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """Delta table, written exactly once without Spark's Delta connector.

    Without `keys` rows are appended. With them the last row of each key is kept (SCD type 1), or
    with `scd=2` every version of it, with the columns valid_from, valid_to and is_current.
    """

    path: str
    keys: tuple[str, ...] = ()
    sequence_by: str | None = None
    """Column that orders the rows of a key; an older row does not replace a newer one."""
    apply_as_deletes: str | None = None
    """SQL condition for rows that delete their key."""
    scd: int = 1
    partition_by: tuple[str, ...] = ()
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of the object store, such as AWS_REGION; contains secrets."""

    def __post_init__(self) -> None:
        _check_changes(self)

    def __str__(self) -> str:
        return f"delta {self.path}"


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """Iceberg table `namespace.table` in a catalog, written exactly once by pyiceberg.

    The other fields are those of `DeltaTable`.
    """

    name: str
    catalog: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Properties of the catalog, such as type, uri and warehouse; empty: as configured for
    pyiceberg. Contains secrets."""
    catalog_name: str = "default"
    keys: tuple[str, ...] = ()
    sequence_by: str | None = None
    apply_as_deletes: str | None = None
    scd: int = 1
    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if "." not in self.name:
            raise PipelineError(f"Iceberg table {self.name!r} must be named namespace.table")
        _check_changes(self)

    def __str__(self) -> str:
        return f"iceberg {self.name}"


def _check_changes(target: "DeltaTable | IcebergTable") -> None:
    if isinstance(target.keys, str) or isinstance(target.partition_by, str):
        raise PipelineError(f"{target}: keys and partition_by are tuples of column names")
    if target.scd not in (1, 2):
        raise PipelineError(f"{target}: scd must be 1 or 2, not {target.scd!r}")
    if not target.keys and (target.sequence_by or target.apply_as_deletes or target.scd == 2):
        raise PipelineError(f"{target}: sequence_by, apply_as_deletes and scd=2 need keys")
    if target.scd == 2 and target.sequence_by is None:
        raise PipelineError(f"{target}: scd=2 needs sequence_by, the time of each version")


@dataclass(frozen=True, slots=True)
class Latest:
    """Changing table: the last value of every key of a topic, read for each batch."""

    topic: str
    schema: str
    """Fields of the JSON values in Spark's notation: `id string, name string`."""
    ties: str = "fail"
    """A key with equal timestamps in two partitions: `fail`, or `higher-partition`."""

    def __post_init__(self) -> None:
        if self.ties not in _TIES:
            raise PipelineError(f"ties must be one of {', '.join(_TIES)}, not {self.ties!r}")


@dataclass(frozen=True, slots=True)
class Stored:
    """Table in files, read at the start of the stage."""

    path: str
    format: str = "parquet"
    schema: str | None = None


Source: TypeAlias = Topic | Queue
Target: TypeAlias = Topic | Files | EachBatch | DeltaTable | IcebergTable
Table: TypeAlias = Latest | Stored


def source_of(given: "str | Topic | Queue") -> Source:
    return Topic(given) if isinstance(given, str) else given


def target_of(given: "str | Target") -> Target:
    return Topic(given) if isinstance(given, str) else given
