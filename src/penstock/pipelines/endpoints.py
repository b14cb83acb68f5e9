"""Where a stage's rows come from and go to: topics, queues, files, a function of the user's.

Plain descriptions, checked when they are made; `building` turns them into Spark's words.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias


class PipelineError(ValueError):
    """A pipeline that cannot be run; the message says what is wrong and what would be right."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. Partitions and configs are for one that has to be created."""

    name: str
    partitions: int = -1
    """-1: as many as the broker gives by default."""
    compact: bool = False
    """Only the last record of each key is kept: a table."""
    configs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name:
            raise PipelineError("a topic needs a name")

    def __str__(self) -> str:
        return self.name

    def all_configs(self) -> dict[str, str]:
        compacted = {"cleanup.policy": "compact"} if self.compact else {}
        return {**compacted, **self.configs}


@dataclass(frozen=True, slots=True)
class Queue:
    """A topic that is read as a queue: records are leased, and settled with the checkpoint."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Files:
    """A folder of files, each row once for whoever reads the folder with Spark."""

    path: str
    format: str = "parquet"
    partition_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.format} {self.path}"


@dataclass(frozen=True, slots=True)
class EachBatch:
    """A function that is given every batch and its number.

    A batch may come again after a crash, with the same number and the same rows: whoever writes
    it elsewhere notes the number with the rows, or writes in a way that may be repeated.
    """

    function: Callable[[Any, int], None]

    def __str__(self) -> str:
        return f"function {self.function.__name__}"


@dataclass(frozen=True, slots=True)
class Latest:
    """A table that changes: the last value of every key of a topic, as of each batch."""

    topic: str
    schema: str
    """The fields of the JSON values, as Spark writes them: `id string, name string`."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A table that lies in files, as of the start of the stage."""

    path: str
    format: str = "parquet"
    schema: str | None = None


Source: TypeAlias = Topic | Queue
Target: TypeAlias = Topic | Files | EachBatch
Table: TypeAlias = Latest | Stored


def source_of(given: "str | Topic | Queue") -> Source:
    return Topic(given) if isinstance(given, str) else given


def target_of(given: "str | Topic | Files | EachBatch") -> Target:
    return Topic(given) if isinstance(given, str) else given
