"""A pipeline: stages declared by decorators, checked and put in order. No Spark in here.

    pipeline = Pipeline("orders")

    @pipeline.extract("orders", schema="id string not null, amount double", to="orders.valid")
    def validate(orders):
        return reject(orders, "amount <= 0", "amount must be positive")

A stage is a function from DataFrame to DataFrame with an input, an output, and what Structured
Streaming needs to go on where it stopped. The four kinds differ in what they must have: an extract
names its input, an enrich has tables, a load ends outside of the topics. Everything that is not
said has a name made of the pipeline's and the stage's, so that it can be found: the group
`orders.validate`, the dead letters `orders.validate.dlq`, the checkpoint `orders/validate/v1`.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from penstock.app.durations import ms_of
from penstock.pipelines.endpoints import (
    EachBatch,
    Files,
    PipelineError,
    Queue,
    Source,
    Table,
    Target,
    Topic,
    source_of,
    target_of,
)

KINDS: Final = ("extract", "transform", "enrich", "load")
MODES: Final = ("append", "update", "complete")
STAGES_MAX: Final = 100
PER_BATCH: Final = 500_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Stage:
    """One query: what it reads, what it does, where it writes, and where it keeps its place."""

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
    """The fields of JSON values; None: as the stage before wrote them, or raw records."""
    subject: str | None
    """Values have the registry's schemas of this subject."""
    key: str | None
    """An expression for the keys of what is written."""
    mode: str
    every: str
    per_batch: int
    begin: str | None
    """Where a new checkpoint begins; None: where an older version stopped, or at the start."""
    tables: Mapping[str, Table] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.pipeline}/{self.name}"

    @property
    def checkpoint(self) -> str:
        """Below the folder for checkpoints."""
        return f"{self.pipeline}/{self.name}/v{self.version}"


class Pipeline:
    """Stages by name, in the order in which their records flow."""

    def __init__(self, name: str, *, about: str = "") -> None:
        if not _NAME.fullmatch(name):
            raise PipelineError(f"{name!r} is no name for a pipeline; letters, digits, - _ . are")
        self.name = name
        self.about = about
        self.stages: dict[str, Stage] = {}
        self._last: Target | None = None

    # -- declaring ----------------------------------------------------------------------------

    def extract(self, source: "str | Topic | Queue", **options: Any) -> Callable[[F], F]:
        """Brings records in: what they are is said by `schema` or `subject`."""
        return self._stage("extract", source, options)

    def transform(
        self, source: "str | Topic | Queue | None" = None, **options: Any
    ) -> Callable[[F], F]:
        """Rows in, rows out; without a source, the output of the stage before."""
        return self._stage("transform", source, options)

    def enrich(
        self, source: "str | Topic | Queue | None" = None, **options: Any
    ) -> Callable[[F], F]:
        """As transform, with `tables={"customers": ...}` given to the function by name."""
        if not options.get("tables"):
            raise PipelineError('an enrich stage has tables: tables={"customers": Latest(...)}')
        return self._stage("enrich", source, options)

    def load(self, source: "str | Topic | Queue | None" = None, **options: Any) -> Callable[[F], F]:
        """Takes rows out: to a topic, to `Files`, or to a function of your own."""
        return self._stage("load", source, options)

    def _stage(
        self, kind: str, source: "str | Topic | Queue | None", options: dict[str, Any]
    ) -> Callable[[F], F]:
        def declare(function: F) -> F:
            self._add(kind, source, function, **options)
            return function

        return declare

    def _add(
        self,
        kind: str,
        source: "str | Topic | Queue | None",
        function: Callable[..., Any],
        *,
        to: "str | Topic | Files | EachBatch",
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
    ) -> None:
        stage_name = name or function.__name__
        where = f"stage {stage_name!r}"
        if not _NAME.fullmatch(stage_name):
            raise PipelineError(f"{stage_name!r} is no name for a stage")
        if stage_name in self.stages:
            raise PipelineError(f"{where} is there twice")
        if len(self.stages) >= STAGES_MAX:
            raise PipelineError(f"{where} is one too many: a pipeline has at most {STAGES_MAX}")
        if schema is not None and subject is not None:
            raise PipelineError(f"{where}: values have a schema or a subject, not both")
        if mode not in MODES:
            raise PipelineError(f"{where}: mode is one of {', '.join(MODES)}, not {mode!r}")
        if version < 1 or per_batch < 1:
            raise PipelineError(f"{where}: version and per_batch are at least 1")
        read_from = self._source(where, source)
        self._check_times(where, every, begin)
        target = target_of(to)
        if isinstance(target, Topic) and str(read_from) == target.name:
            raise PipelineError(f"{where} would read what it writes: {target.name!r}")
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
        )
        self._last = target

    def _source(self, where: str, source: "str | Topic | Queue | None") -> Source:
        if source is not None:
            return source_of(source)
        if self._last is None:
            raise PipelineError(f"{where} is the first: what does it read? Name a topic")
        if not isinstance(self._last, Topic):
            raise PipelineError(
                f"{where} follows one that writes to {self._last}: name the topic it reads"
            )
        return self._last

    def _check_times(self, where: str, every: str, begin: str | None) -> None:
        try:
            ms_of(every)
            if begin not in (None, "earliest", "latest", "committed"):
                ms_of(begin)
        except (ValueError, TypeError) as error:
            raise PipelineError(f"{where}: {error}") from None

    # -- asking -------------------------------------------------------------------------------

    def stage(self, name: str) -> Stage:
        """The stage of this name; a typo is answered with the nearest one."""
        if name not in self.stages:
            close = difflib.get_close_matches(name, self.stages, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {_listed(self.stages)}"
            raise PipelineError(f"pipeline {self.name!r} has no stage {name!r}; {hint}")
        return self.stages[name]

    def in_order(self) -> list[Stage]:
        """Whoever writes a topic before whoever reads it."""
        if not self.stages:
            raise PipelineError(f"pipeline {self.name!r} has no stages")
        writers: dict[str, list[Stage]] = {}
        for stage in self.stages.values():
            if isinstance(stage.target, Topic):
                writers.setdefault(stage.target.name, []).append(stage)
        ordered: list[Stage] = []
        under_way: list[str] = []

        def visit(stage: Stage) -> None:
            if stage in ordered:
                return
            if stage.name in under_way:
                circle = " -> ".join([*under_way[under_way.index(stage.name) :], stage.name])
                raise PipelineError(f"the stages of {self.name!r} feed each other: {circle}")
            under_way.append(stage.name)
            needed = [str(stage.source)]
            for table in stage.tables.values():
                needed += [getattr(table, "topic", "")]
            for topic in needed:
                for writer in writers.get(topic, ()):
                    visit(writer)
            under_way.pop()
            ordered.append(stage)

        for stage in self.stages.values():
            visit(stage)
        return ordered

    def writer_of(self, topic: str) -> Stage | None:
        """The stage whose output a topic is, if one is."""
        for stage in self.stages.values():
            if isinstance(stage.target, Topic) and stage.target.name == topic:
                return stage
        return None


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(names) or "none"
