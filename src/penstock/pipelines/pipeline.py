"""Pipelines: stages declared by decorators, validated and ordered. Independent of Spark.

    pipeline = Pipeline("orders")

    @pipeline.extract("orders", schema="id string not null, amount double", to="orders.valid")
    def validate(orders):
        return reject(orders, "amount <= 0", "amount must be positive")

A stage is a function from DataFrame to DataFrame with an input, an output, and the settings that
Structured Streaming needs to resume it. The four kinds differ in their requirements: an extract
names its input, an enrich has tables, a load writes outside of topics. Default names consist of the
pipeline's and the stage's name: the group `orders.validate`, the dead-letter queue
`orders.validate.dlq`, the checkpoint `orders/validate/v1`.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.app.durations import ms_of
from penstock.pipelines.endpoints import (
    PipelineError,
    Queue,
    Source,
    Table,
    Target,
    Topic,
    source_of,
    target_of,
)
from penstock.pipelines.expectations import (
    STAGE_MARK,
    Expectation,
    checked,
    expectations_of,
)
from penstock.pipelines.sql_stages import SqlStage

if TYPE_CHECKING:
    from penstock.pipelines.testing import PipelineTest

KINDS: Final = ("extract", "transform", "enrich", "load")
MODES: Final = ("append", "update", "complete")
STAGES_MAX: Final = 100
PER_BATCH: Final = 500_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Stage:
    """Source, function, target and checkpoint of one query."""

    pipeline: str
    name: str
    kind: str
    function: Callable[..., Any]
    source: Source
    target: Target
    group: str
    dlq: str
    version: int
    schema: str | None
    """Fields of JSON values; None: those of the stage that writes the source, or raw records."""
    subject: str | None
    """Subject in the schema registry whose schemas decode the values."""
    key: str | None
    """SQL expression for the key of written records."""
    mode: str
    every: str
    per_batch: int
    begin: str | None
    """Start of a new checkpoint; None: the end of the previous version, or the earliest offset."""
    tables: Mapping[str, Table] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    expectations: tuple[Expectation, ...] = ()
    """Conditions on the rows that the function returns."""

    @property
    def id(self) -> str:
        return f"{self.pipeline}/{self.name}"

    @property
    def checkpoint(self) -> str:
        """Path below the folder of all checkpoints."""
        return f"{self.pipeline}/{self.name}/v{self.version}"


class Pipeline:
    """Named stages that are connected by topics."""

    def __init__(self, name: str, *, about: str = "") -> None:
        if not _NAME.fullmatch(name):
            raise PipelineError(
                f"invalid pipeline name {name!r}: use letters, digits, '-', '_' and '.'"
            )
        self.name = name
        self.about = about
        self.stages: dict[str, Stage] = {}
        self._last: Target | None = None

    # -- declarations -------------------------------------------------------------------------

    def extract(self, source: "str | Topic | Queue", **options: Any) -> Callable[[F], F]:
        """Reads records of a topic or queue; `schema` or `subject` describes their values."""
        return self._stage("extract", source, options)

    def transform(
        self, source: "str | Topic | Queue | None" = None, **options: Any
    ) -> Callable[[F], F]:
        """Transforms rows; the default source is the target of the previous stage."""
        return self._stage("transform", source, options)

    def enrich(
        self, source: "str | Topic | Queue | None" = None, **options: Any
    ) -> Callable[[F], F]:
        """Transforms rows with `tables={"customers": ...}`, passed to the function by name."""
        if not options.get("tables"):
            raise PipelineError('an enrich stage needs tables={"customers": Latest(...)}')
        return self._stage("enrich", source, options)

    def load(self, source: "str | Topic | Queue | None" = None, **options: Any) -> Callable[[F], F]:
        """Writes rows to a topic, to `Files`, to a table, or to a function of the user."""
        return self._stage("load", source, options)

    def sql(
        self,
        name: str,
        query: str,
        source: "str | Topic | Queue | None" = None,
        **options: Any,
    ) -> None:
        """Adds a stage that runs a query on the table `rows`, and on its `tables` by name."""
        kind = "enrich" if options.get("tables") else "transform"
        self._add(kind, source, SqlStage(name, query), **options)

    def _stage(
        self, kind: str, source: "str | Topic | Queue | None", options: dict[str, Any]
    ) -> Callable[[F], F]:
        def declare(function: F) -> F:
            self._add(kind, source, function, **options)
            setattr(function, STAGE_MARK, True)
            return function

        return declare

    def _add(
        self,
        kind: str,
        source: "str | Topic | Queue | None",
        function: Callable[..., Any],
        *,
        to: "str | Target",
        name: str | None = None,
        schema: str | None = None,
        subject: str | None = None,
        key: str | None = None,
        mode: str = "append",
        group: str | None = None,
        dlq: str | None = None,
        version: int = 1,
        every: str = "1s",
        per_batch: int = PER_BATCH,
        begin: str | None = None,
        tables: Mapping[str, Table] | None = None,
        options: Mapping[str, Any] | None = None,
        expectations: Sequence[Expectation] = (),
    ) -> None:
        stage_name = name or function.__name__
        where = f"stage {stage_name!r}"
        if not _NAME.fullmatch(stage_name):
            raise PipelineError(
                f"invalid stage name {stage_name!r}: use letters, digits, '-', '_' and '.'"
            )
        if stage_name in self.stages:
            raise PipelineError(f"{where} is defined twice")
        if len(self.stages) >= STAGES_MAX:
            raise PipelineError(f"{where} exceeds the limit of {STAGES_MAX} stages")
        if schema is not None and subject is not None:
            raise PipelineError(f"{where}: schema and subject exclude each other")
        if mode not in MODES:
            raise PipelineError(f"{where}: mode must be one of {', '.join(MODES)}, not {mode!r}")
        if version < 1 or per_batch < 1:
            raise PipelineError(f"{where}: version and per_batch must be at least 1")
        read_from = self._source(where, source)
        self._check_times(where, every, begin)
        target = target_of(to)
        if isinstance(target, Topic) and str(read_from) == target.name:
            raise PipelineError(f"{where} reads and writes the same topic {target.name!r}")
        self.stages[stage_name] = Stage(
            pipeline=self.name,
            name=stage_name,
            kind=kind,
            function=function,
            source=read_from,
            target=target,
            group=group or f"{self.name}.{stage_name}",
            dlq=dlq or f"{self.name}.{stage_name}.dlq",
            version=version,
            schema=schema,
            subject=subject,
            key=key,
            mode=mode,
            every=every,
            per_batch=per_batch,
            begin=begin,
            tables=dict(tables or {}),
            options={k: str(v) for k, v in (options or {}).items()},
            expectations=checked(where, (*expectations_of(function), *expectations)),
        )
        self._last = target

    def _source(self, where: str, source: "str | Topic | Queue | None") -> Source:
        if source is not None:
            return source_of(source)
        if self._last is None:
            raise PipelineError(f"{where} is the first and has no source: name a topic")
        if not isinstance(self._last, Topic):
            raise PipelineError(
                f"{where} follows a stage that writes to {self._last}: name a source topic"
            )
        return self._last

    def _check_times(self, where: str, every: str, begin: str | None) -> None:
        try:
            ms_of(every)
            if begin not in (None, "earliest", "latest", "committed"):
                ms_of(begin)
        except (ValueError, TypeError) as error:
            raise PipelineError(f"{where}: {error}") from None

    # -- queries ------------------------------------------------------------------------------

    def stage(self, name: str) -> Stage:
        """Stage of this name; the error for an unknown name suggests the nearest one."""
        if name not in self.stages:
            close = difflib.get_close_matches(name, self.stages, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"stages: {_listed(self.stages)}"
            raise PipelineError(f"pipeline {self.name!r} has no stage {name!r}; {hint}")
        return self.stages[name]

    def in_order(self) -> list[Stage]:
        """Stages in topological order: the writer of a topic before its readers."""
        if not self.stages:
            raise PipelineError(f"pipeline {self.name!r} has no stages")
        writers: dict[str, list[Stage]] = {}
        for stage in self.stages.values():
            if isinstance(stage.target, Topic):
                writers.setdefault(stage.target.name, []).append(stage)
        ordered: list[Stage] = []
        visiting: list[str] = []

        def visit(stage: Stage) -> None:
            if stage in ordered:
                return
            if stage.name in visiting:
                cycle = " -> ".join([*visiting[visiting.index(stage.name) :], stage.name])
                raise PipelineError(f"the stages of {self.name!r} form a cycle: {cycle}")
            visiting.append(stage.name)
            needed = [str(stage.source)]
            for table in stage.tables.values():
                needed += [getattr(table, "topic", "")]
            for topic in needed:
                for writer in writers.get(topic, ()):
                    visit(writer)
            visiting.pop()
            ordered.append(stage)

        for stage in self.stages.values():
            visit(stage)
        return ordered

    def test(self, spark: Any) -> "PipelineTest":
        """Test kit: runs stages on rows in memory, without broker and checkpoints."""
        from penstock.pipelines.testing import PipelineTest

        return PipelineTest(self, spark)

    def writer_of(self, topic: str) -> Stage | None:
        """Stage that writes a topic; None if there is none."""
        for stage in self.stages.values():
            if isinstance(stage.target, Topic) and stage.target.name == topic:
                return stage
        return None


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(names) or "none"
