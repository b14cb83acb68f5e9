"""Runs the stages of a pipeline in one Spark session until they are finished or stopped.

A loop polls every query twice a second for progress, termination and stop requests. A failed query
is restarted from its checkpoint after a growing backoff, unless its error rules that out; it may
fail `restarts` times without finishing a batch in between. With `once`, each stage processes the
available records and ends before the next one starts, so that records pass through all stages.

Two runners of the same pipeline would use the same checkpoints. So a second one waits until the
first has published no status for `LIVENESS_TIMEOUT_MS`, and fails if it publishes one.
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
from penstock.pipelines.query_builder import PipelineEnvironment, QueryBuilder
from penstock.runtime.clock import SystemClock
from penstock.runtime.random import SystemRandom
from penstock.spark.connection import blocking_client

POLL_S: Final = 0.5
RESTARTS: Final = 5
_BACKOFF_S: Final = (2.0, 30.0)
"""Minimum and maximum backoff before a failed stage is restarted."""

T = TypeVar("T")


@dataclass(slots=True)
class StageRun:
    """Running stage with its queries and failures."""

    stage: Stage
    counter: ProgressCounter
    queries: list[Any] = field(default_factory=list)
    failures: int = 0
    """Consecutive failures without a finished batch in between."""
    batch_at_start: int = -1
    resume_at: float = 0.0

    @property
    def state(self) -> StageState:
        return self.counter.state


class Runner:
    """Runs a pipeline: `Runner(pipeline, PipelineEnvironment(...)).run(once=True)`."""

    def __init__(
        self,
        pipeline: Pipeline,
        environment: PipelineEnvironment,
        *,
        only: Sequence[str] = (),
        restarts: int = RESTARTS,
        on_change: Callable[[StageState], None] = lambda state: None,
    ) -> None:
        """`only` selects stages; `on_change` is called with every changed state."""
        wanted = {pipeline.stage(name).name for name in only}
        self.pipeline = pipeline
        random = SystemRandom()
        self.run_id = random.random_bytes(6).hex()
        self._backoff = Backoff(random, *_BACKOFF_S)
        self.runs = [
            StageRun(stage, ProgressCounter(self._state(stage)))
            for stage in pipeline.in_order()
            if not wanted or stage.name in wanted
        ]
        self._environment = environment
        self._restarts = restarts
        self._on_change = on_change
        self._query_builder = QueryBuilder(pipeline, environment)
        self._client = blocking_client(environment.access())
        self._stop_requests = status_topic.StopRequests(self._client.cluster, pipeline.name)
        self._published: dict[str, tuple[int, dict[str, Any]]] = {}
        self._stop_reason: str | None = None

    @property
    def states(self) -> list[StageState]:
        return [run.state for run in self.runs]

    def stop(self, reason: str) -> None:
        """Requests a stop, also from a signal handler; the loop stops the queries."""
        self._stop_reason = reason

    def run(self, *, once: bool = False) -> list[StageState]:
        """Runs until all stages are finished or stopped. Raises PipelineError if one failed."""
        self._prepare()
        try:
            if once:
                for run in self.runs:
                    self._run_some([run], once=True)
            else:
                self._run_some(self.runs, once=False)
        finally:
            self._stop_all()
        failed = [run.state for run in self.runs if run.state.state == FAILED]
        if failed:
            raise PipelineError("; ".join(f"{state.key}: {state.error}" for state in failed))
        return self.states

    # -- preparation --------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._call(status_topic.ensure_topics(self._client.cluster))
        self._refuse_second_runner()
        self._call(self._stop_requests.begin())
        written = {
            run.stage.target.name: run.stage.target
            for run in self.runs
            if isinstance(run.stage.target, Topic)
        }
        for run in self.runs:
            needed = [str(run.stage.source)]
            needed += [t.topic for t in run.stage.tables.values() if isinstance(t, Latest)]
            for name in needed:
                if name not in written and not self._call(
                    status_topic.has_topic(self._client.cluster, name)
                ):
                    raise PipelineError(
                        f"stage {run.stage.name!r} reads topic {name!r}, which does not exist; "
                        "see `penstock topic list`"
                    )
            written.setdefault(run.stage.dlq, Topic(run.stage.dlq))
        for topic in written.values():
            self._call(
                status_topic.create_missing(
                    self._client.cluster, topic.name, topic.partitions, topic.all_configs()
                )
            )

    def _refuse_second_runner(self) -> None:
        """Returns when no other process runs these stages; raises PipelineError if one does."""
        mine = {run.stage.name for run in self.runs}
        first: dict[str, int] = {}
        deadline = self._now() + status_topic.LIVENESS_TIMEOUT_MS / 1000
        while True:
            lines = self._call(status_topic.read_status(self._client.cluster, self.pipeline.name))
            now_ms = SystemClock().now_ms()
            alive = [
                line
                for line in lines
                if line["stage"] in mine
                and line.get("state") not in ENDED
                and now_ms - int(line.get("updated_ms") or 0) < status_topic.LIVENESS_TIMEOUT_MS
            ]
            for line in alive:
                if line["updated_ms"] > first.setdefault(line["stage"], line["updated_ms"]):
                    raise PipelineError(
                        f"{self.pipeline.name}/{line['stage']} runs in another process; stop it "
                        f"with `penstock pipeline stop {self.pipeline.name}`"
                    )
            if not alive or self._now() > deadline:
                return
            time.sleep(POLL_S)

    # -- main loop ----------------------------------------------------------------------------

    def _run_some(self, runs: Sequence[StageRun], *, once: bool) -> None:
        for run in runs:
            if self._stop_reason is None:
                self._start(run, once=once)
        while any(run.state.state not in ENDED for run in runs):
            for run in runs:
                self._update(run, once=once)
            self._measure(runs)
            self._publish_status()
            if self._stop_reason is None:
                who = self._call_optional(self._stop_requests.stop_requested_by())
                if who is not None:
                    self._stop_reason = f"requested by {who}"
            if self._stop_reason is not None:
                self._stop(runs)
                continue
            if any(run.state.state not in ENDED for run in runs):
                time.sleep(POLL_S)
        self._measure(runs)
        self._publish_status()

    def _start(self, run: StageRun, *, once: bool) -> None:
        try:
            run.queries = self._query_builder.start(self._query_builder.build(run.stage), once=once)
        except PySparkException as error:
            advice = explain(run.stage, str(error))
            run.state.state, run.state.error = FAILED, advice.text
            return
        except OSError as error:  # A service needed at the start (a registry) is unavailable.
            self._failed(run, f"{type(error).__name__}: {error}")
            return
        run.state.state = RUNNING
        run.batch_at_start = run.state.batch

    def _update(self, run: StageRun, *, once: bool) -> None:
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

    def _stop_all(self) -> None:
        """Stops all queries and publishes their final status."""
        self._stop(self.runs)
        self._publish_status()

    # -- status -------------------------------------------------------------------------------

    def _measure(self, runs: Sequence[StageRun]) -> None:
        for run in runs:
            if isinstance(run.stage.source, Queue):
                depth = self._call_optional(self._depth_of(run.stage.source.name, run.stage.group))
                run.state.lag = run.state.lag if depth is None else depth
                continue
            if not run.counter.done:
                continue
            latest = self._call_optional(self._ends_of(str(run.stage.source)))
            if latest is not None:
                run.counter.measure(latest)

    async def _depth_of(self, queue: str, group: str) -> int:
        cluster = self._client.cluster
        reports = await inspect(cluster, group, await partitions_of(cluster, queue))
        return sum(report.unfinished for report in reports.values())

    async def _ends_of(self, topic: str) -> dict[Any, int]:
        cluster = self._client.cluster
        asked = dict.fromkeys(await partitions_of(cluster, topic), LATEST)
        found = await list_offsets(cluster, asked, isolation_level=READ_COMMITTED)
        return {where: one.offset for where, one in found.items()}

    def _publish_status(self) -> None:
        """Publishes changed states immediately, and all active ones as a heartbeat."""
        now_ms = SystemClock().now_ms()
        news = []
        for state in self.states:
            at_ms, last_document = self._published.get(state.key, (0, {}))
            document = {**state.document(), "updated_ms": 0}
            is_new = document != last_document
            is_due = state.state not in ENDED and now_ms - at_ms >= status_topic.HEARTBEAT_MS
            if is_new or is_due:
                state.updated_ms = now_ms
                self._published[state.key] = (now_ms, document)
                news.append(state)
            if is_new:
                self._on_change(state)
        if news:
            self._call_optional(status_topic.publish_status(self._client.cluster, news))

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
            expectations={one.name: {"passed": 0, "failed": 0} for one in stage.expectations},
        )

    # -- requests to brokers ------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._client.run(work)

    def _call_optional(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Runs an informational request; unavailable brokers must not end the pipeline."""
        try:
            return self._client.run(work)
        except (Refused, PeerError, OSError):
            return None

    def _now(self) -> float:
        return self._client.loop.time()
