"""Runs a pipeline's stages in one Spark session until they are done, or until told to stop.

A loop looks at every query twice a second: its progress, whether it ended, who asked to stop. A
query that failed is started again from its checkpoint, after a pause that grows, unless its error
says that this cannot help; it may fail `restarts` times without finishing a batch in between. With
`once` each stage processes what is there and ends before the next one begins, so that records go
all the way through.

Two that run the same pipeline would take the same checkpoints: who comes second waits until the
first has been silent for long enough, and gives up when it speaks.
"""

import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pyspark.errors import PySparkException

from penstock.base.errors import PeerError, Refused
from penstock.base.retry import Backoff
from penstock.client.admin.queues import inspect
from penstock.client.consumer.fetched import READ_COMMITTED
from penstock.client.list_offsets import LATEST, list_offsets, partitions_of
from penstock.pipelines import status_topic
from penstock.pipelines.endpoints import Latest, PipelineError, Queue, Topic
from penstock.pipelines.error_explanations import explain
from penstock.pipelines.pipeline import Pipeline, Stage
from penstock.pipelines.progress import (
    ENDED,
    FAILED,
    FINISHED,
    RESTARTING,
    RUNNING,
    STARTING,
    STOPPED,
    ProgressCounter,
    StageState,
)
from penstock.pipelines.query_builder import Builder, Surroundings
from penstock.runtime.clock import SystemClock
from penstock.runtime.random import SystemRandom
from penstock.spark.connection import blocking_client

POLL_S: Final = 0.5
RESTARTS: Final = 5
_PAUSE_S: Final = (2.0, 30.0)
"""Bounds of the pause before a stage that failed is started again."""

T = TypeVar("T")


@dataclass(slots=True)
class StageRun:
    """A stage while it runs."""

    stage: Stage
    counter: ProgressCounter
    queries: list[Any] = field(default_factory=list)
    failures: int = 0
    """Without a finished batch in between."""
    batch_at_start: int = -1
    resume_at: float = 0.0

    @property
    def state(self) -> StageState:
        return self.counter.state


class Runner:
    """`Runner(pipeline, Surroundings(spark, brokers, folder)).run(once=True)`."""

    def __init__(
        self,
        pipeline: Pipeline,
        around: Surroundings,
        *,
        only: Sequence[str] = (),
        restarts: int = RESTARTS,
        told: Callable[[StageState], None] = lambda state: None,
    ) -> None:
        """`only` names the stages to run; `told` is called with every change."""
        wanted = {pipeline.stage(name).name for name in only}
        self.pipeline = pipeline
        random = SystemRandom()
        self.run_id = random.random_bytes(6).hex()
        self._backoff = Backoff(random, *_PAUSE_S)
        self.runs = [
            StageRun(stage, ProgressCounter(self._state(stage)))
            for stage in pipeline.in_order()
            if not wanted or stage.name in wanted
        ]
        self._around = around
        self._restarts = restarts
        self._told = told
        self._builder = Builder(pipeline, around)
        self._link = blocking_client(around.access())
        self._control = status_topic.Control(self._link.cluster, pipeline.name)
        self._posted: dict[str, tuple[int, dict[str, Any]]] = {}
        self._stop_reason: str | None = None

    @property
    def states(self) -> list[StageState]:
        return [run.state for run in self.runs]

    def stop(self, reason: str) -> None:
        """From a signal handler: the loop stops the queries when it next looks."""
        self._stop_reason = reason

    def run(self, *, once: bool = False) -> list[StageState]:
        """Returns when all is done or stopped. Raises PipelineError for a stage that failed."""
        self._prepare()
        try:
            if once:
                for run in self.runs:
                    self._run_some([run], once=True)
            else:
                self._run_some(self.runs, once=False)
        finally:
            self._end_all()
        failed = [run.state for run in self.runs if run.state.state == FAILED]
        if failed:
            raise PipelineError("; ".join(f"{state.key}: {state.error}" for state in failed))
        return self.states

    # -- before -------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._ask(status_topic.ensure_topics(self._link.cluster))
        self._wait_for_others()
        self._ask(self._control.begin())
        written = {
            run.stage.target.name: run.stage.target
            for run in self.runs
            if isinstance(run.stage.target, Topic)
        }
        for run in self.runs:
            needed = [str(run.stage.source)]
            needed += [t.topic for t in run.stage.tables.values() if isinstance(t, Latest)]
            for name in needed:
                if name not in written and not self._ask(
                    status_topic.has_topic(self._link.cluster, name)
                ):
                    raise PipelineError(
                        f"stage {run.stage.name!r} reads topic {name!r}, which does not exist; "
                        "see `penstock topic list`"
                    )
            written.setdefault(run.stage.dlq, Topic(run.stage.dlq))
        for topic in written.values():
            self._ask(
                status_topic.create_missing(
                    self._link.cluster, topic.name, topic.partitions, topic.all_configs()
                )
            )

    def _wait_for_others(self) -> None:
        """Returns when nobody else runs these stages."""
        mine = {run.stage.name for run in self.runs}
        first: dict[str, int] = {}
        deadline = self._now() + status_topic.SILENT_MS / 1000
        while True:
            lines = self._ask(status_topic.read_board(self._link.cluster, self.pipeline.name))
            now_ms = SystemClock().now_ms()
            alive = [
                line
                for line in lines
                if line["stage"] in mine
                and line.get("state") not in ENDED
                and now_ms - int(line.get("updated_ms") or 0) < status_topic.SILENT_MS
            ]
            for line in alive:
                if line["updated_ms"] > first.setdefault(line["stage"], line["updated_ms"]):
                    raise PipelineError(
                        f"{self.pipeline.name}/{line['stage']} is running elsewhere; stop it with "
                        f"`penstock pipeline stop {self.pipeline.name}`"
                    )
            if not alive or self._now() > deadline:
                return
            time.sleep(POLL_S)

    # -- while --------------------------------------------------------------------------------

    def _run_some(self, runs: Sequence[StageRun], *, once: bool) -> None:
        for run in runs:
            if self._stop_reason is None:
                self._start(run, once=once)
        while any(run.state.state not in ENDED for run in runs):
            for run in runs:
                self._look_at(run, once=once)
            self._measure(runs)
            self._post()
            if self._stop_reason is None:
                who = self._try(self._control.stop_asked_by())
                if who is not None:
                    self._stop_reason = f"asked by {who}"
            if self._stop_reason is not None:
                self._stop(runs)
                continue
            if any(run.state.state not in ENDED for run in runs):
                time.sleep(POLL_S)
        self._measure(runs)
        self._post()

    def _start(self, run: StageRun, *, once: bool) -> None:
        try:
            run.queries = self._builder.start(self._builder.build(run.stage), once=once)
        except PySparkException as error:
            advice = explain(run.stage, str(error))
            run.state.state, run.state.error = FAILED, advice.text
            return
        except OSError as error:  # Whom it asks before it begins (a registry) is away.
            self._failed(run, f"{type(error).__name__}: {error}")
            return
        run.state.state = RUNNING
        run.batch_at_start = run.state.batch

    def _look_at(self, run: StageRun, *, once: bool) -> None:
        state = run.state
        if state.state == RESTARTING:
            if self._now() >= run.resume_at:
                self._start(run, once=once)
            return
        if state.state != RUNNING:
            return
        ended = [query for query in run.queries if not query.isActive]
        for index, query in enumerate(run.queries):
            for event in query.recentProgress:
                run.counter.take(event, is_first=index == 0)
        if state.batch > run.batch_at_start:
            run.failures = 0
        error = next((e for query in ended if (e := query.exception()) is not None), None)
        if error is not None:
            self._failed(run, str(error))
        elif len(ended) == len(run.queries):
            state.state = FINISHED if once else STOPPED
            state.error = None

    def _failed(self, run: StageRun, error: str) -> None:
        advice = explain(run.stage, error)
        run.state.error = advice.text
        run.failures += 1
        for query in run.queries:
            if query.isActive:
                query.stop()
        if not advice.can_restart or run.failures > self._restarts:
            run.state.state = FAILED
            return
        run.state.state = RESTARTING
        run.state.restarts += 1
        run.resume_at = self._now() + self._backoff.delay_s(run.failures - 1)

    def _stop(self, runs: Sequence[StageRun]) -> None:
        for run in runs:
            if run.state.state in ENDED:
                continue
            for query in run.queries:
                if query.isActive:
                    query.stop()
            run.state.state = STOPPED

    def _end_all(self) -> None:
        """Whatever happened: no query is left running, and the board says so."""
        self._stop(self.runs)
        self._post()

    # -- telling ------------------------------------------------------------------------------

    def _measure(self, runs: Sequence[StageRun]) -> None:
        for run in runs:
            if isinstance(run.stage.source, Queue):
                depth = self._try(self._depth_of(run.stage.source.name, run.stage.group))
                run.state.lag = run.state.lag if depth is None else depth
                continue
            if not run.counter.done:
                continue
            latest = self._try(self._ends_of(str(run.stage.source)))
            if latest is not None:
                run.counter.measure(latest)

    async def _depth_of(self, queue: str, group: str) -> int:
        cluster = self._link.cluster
        reports = await inspect(cluster, group, await partitions_of(cluster, queue))
        return sum(report.unfinished for report in reports.values())

    async def _ends_of(self, topic: str) -> dict[Any, int]:
        cluster = self._link.cluster
        asked = dict.fromkeys(await partitions_of(cluster, topic), LATEST)
        found = await list_offsets(cluster, asked, isolation_level=READ_COMMITTED)
        return {where: one.offset for where, one in found.items()}

    def _post(self) -> None:
        """Writes lines that changed, and all of them now and then as a sign of life."""
        now_ms = SystemClock().now_ms()
        news = []
        for state in self.states:
            at_ms, told = self._posted.get(state.key, (0, {}))
            document = {**state.document(), "updated_ms": 0}
            is_new = document != told
            is_due = state.state not in ENDED and now_ms - at_ms >= status_topic.HEARTBEAT_MS
            if is_new or is_due:
                state.updated_ms = now_ms
                self._posted[state.key] = (now_ms, document)
                news.append(state)
            if is_new:
                self._told(state)
        if news:
            self._try(status_topic.post(self._link.cluster, news))

    def _state(self, stage: Stage) -> StageState:
        return StageState(
            pipeline=stage.pipeline,
            stage=stage.name,
            run=self.run_id,
            state=STARTING,
            source=str(stage.source),
            target=str(stage.target),
            group=stage.group,
            dlq=stage.dlq,
        )

    # -- the way to the brokers ---------------------------------------------------------------

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        return self._link.run(work)

    def _try(self, work: Coroutine[Any, Any, T]) -> T | None:
        """For what only informs: brokers that are away must not end the pipeline."""
        try:
            return self._link.run(work)
        except (Refused, PeerError, OSError):
            return None

    def _now(self) -> float:
        return self._link.loop.time()
