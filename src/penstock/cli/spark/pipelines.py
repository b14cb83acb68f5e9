"""`penstock pipeline`: runs, plans, shows and stops pipelines declared in Python."""

from __future__ import annotations

import math
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.queues.dlq_redrive import who
from penstock.cli.spark.session import spark_options, spark_session
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output import (
    OutputFormat,
    format_option,
    print_data,
    print_table,
    show_count,
    show_duration,
)
from penstock.cli.terminal.session import (
    CommandSession,
    brokers_option,
    nearest,
    run,
    security_settings,
)

if TYPE_CHECKING:
    from penstock.pipelines.pipeline import Pipeline, Stage
    from penstock.pipelines.progress import StageState

STOP_WAIT_S = 60.0
TOLD_EVERY_S = 5.0

target_argument = click.argument(
    "target", metavar="FILE", help="A Python FILE, FILE:NAME, or MODULE:NAME."
)
stage_option = click.option(
    "--stage", "stages", multiple=True, metavar="NAME", help="Only this stage; repeatable."
)
checkpoints_option = click.option(
    "--checkpoints",
    envvar="PENSTOCK_CHECKPOINTS",
    show_envvar=True,
    default="penstock-checkpoints",
    show_default=True,
    metavar="FOLDER",
    help="Folder for the stages' checkpoints; on a cluster, one that all machines share.",
)


@click.group("pipeline", no_args_is_help=True)
def pipeline() -> None:
    """Run pipelines on Spark, and show their progress."""


# -- run --------------------------------------------------------------------------------------


@pipeline.command("run")
@target_argument
@stage_option
@click.option(
    "--once", is_flag=True, help="Process the existing records, stage by stage, and stop."
)
@checkpoints_option
@click.option(
    "--per-batch",
    type=click.IntRange(min=1),
    metavar="RECORDS",
    help="At most this many records per batch; overrides the stages.",
)
@click.option(
    "--registry",
    envvar="PENSTOCK_REGISTRY",
    show_envvar=True,
    metavar="URL",
    help="The schema registry, for stages with a subject: http://localhost:8080, or "
    "https://user:password@host.",
)
@click.option(
    "--restarts",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Restarts of a failing stage without progress.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65_535),
    help="Serve Prometheus metrics on this port; 0 picks a free one.",
)
@click.option(
    "--metrics-host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to serve metrics on; 0.0.0.0 lets other machines read them.",
)
@spark_options
@brokers_option
@format_option
def run_command(
    target: str,
    stages: tuple[str, ...],
    once: bool,
    checkpoints: str,
    per_batch: int | None,
    registry: str | None,
    restarts: int,
    metrics_port: int | None,
    metrics_host: str,
    master: str | None,
    remote: str | None,
    confs: tuple[str, ...],
    brokers: str,
    format: OutputFormat,
) -> None:
    """Run a pipeline until SIGTERM, Ctrl-C or `penstock pipeline stop`.

    Stages resume at their checkpoints, however the last run ended. Missing topics that stages write
    to are created.

    \b
    penstock pipeline run orders.py
    penstock pipeline run orders.py --once
    penstock pipeline run orders.py --stage validate --master spark://spark:7077
    """
    from penstock.pipelines.query_builder import PipelineEnvironment
    from penstock.pipelines.runner import Runner

    found = _load(target)
    with spark_session(f"penstock {found.name}", master, remote, confs) as spark:
        runner = Runner(
            found,
            PipelineEnvironment(
                spark,
                brokers,
                _absolute(checkpoints),
                per_batch,
                registry,
                security_settings()[0],
            ),
            only=stages,
            restarts=restarts,
            on_change=Teller(),
        )
        if metrics_port is not None:
            from penstock.pipelines.metrics_exporter import serve

            try:
                port, _ = serve(metrics_port, lambda: runner.states, metrics_host)
            except OSError as error:
                raise UserError(
                    f"cannot serve metrics on {metrics_host}:{metrics_port}: {error.strerror}"
                ) from None
            print(f"metrics on http://{metrics_host}:{port}/metrics", file=sys.stderr)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: runner.stop("by a signal"))
        states = runner.run(once=once)
    if format.is_data:
        print_data([state.document() for state in states], format)
    else:
        _print_states([state.document() for state in states], None)


class Teller:
    """Reports every change of a stage's state, and its progress from time to time, on stderr."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, float]] = {}

    def __call__(self, state: StageState) -> None:
        said, at = self._last.get(state.key, ("", 0.0))
        now = time.monotonic()
        if state.state == said and now - at < TOLD_EVERY_S:
            return
        self._last[state.key] = (state.state, now)
        error = f": {state.error}" if state.error else ""
        lag = "" if state.lag < 0 else f", {show_count(state.lag)} waiting"
        if state.batch < 0:
            rows = "no batch yet"
        else:
            rows = (
                f"batch {state.batch}: {show_count(state.rows_in)} in, "
                f"{show_count(state.rows_out)} out, {show_count(state.bad_rows)} bad"
            )
        print(
            f"{state.key} {state.state}, {rows}{lag}{error}",
            file=sys.stderr,
            flush=True,
        )


def _load(target: str) -> Pipeline:
    from penstock.pipelines.loader import load

    return load(target)


def _absolute(folder: str) -> str:
    """Makes a relative folder absolute; a Spark cluster would resolve it elsewhere."""
    from pathlib import Path

    return folder if "://" in folder else str(Path(folder).resolve())


# -- plan -------------------------------------------------------------------------------------


@pipeline.command("plan")
@target_argument
@stage_option
@brokers_option
@format_option
def plan(target: str, stages: tuple[str, ...], brokers: str, format: OutputFormat) -> None:
    """Show the graph of a pipeline, and its stages with topics, groups and waiting records.

    \b
    penstock pipeline plan orders.py
    """
    from penstock.pipelines.graph import draw, edges

    found = _load(target)
    wanted = [found.stage(name) for name in stages] or found.in_order()
    rows = run(brokers, lambda session: _facts(session, wanted))
    if format.is_data:
        graph = [edge._asdict() for edge in edges(found)]
        print_data({"pipeline": found.name, "stages": rows, "graph": graph}, format)
        return
    print("\n".join([*draw(found), ""]))
    print_table(
        ["stage", "kind", "reads", "writes", "group", "dead letters", "version ", "waiting "],
        [
            (
                row["stage"],
                row["kind"],
                _marked(row["source"], row["source_exists"]),
                _marked(row["target"], row["target_exists"]),
                row["group"],
                row["dlq"],
                row["version"],
                row["waiting"],
            )
            for row in rows
        ],
    )
    if any(not row["target_exists"] or not row["source_exists"] for row in rows):
        print("(new): missing; `pipeline run` creates topics that stages write to", file=sys.stderr)


def _marked(name: str, exists: bool) -> str:
    return name if exists else f"{name} (new)"


async def _facts(session: CommandSession, stages: list[Stage]) -> list[dict[str, Any]]:
    from penstock.pipelines.endpoints import Topic
    from penstock.pipelines.status_topic import has_topic

    rows: list[dict[str, Any]] = []
    for stage in stages:
        source = str(stage.source)
        exists = await has_topic(session.cluster, source)
        is_topic = isinstance(stage.target, Topic)
        rows.append(
            {
                "stage": stage.name,
                "kind": stage.kind,
                "source": source,
                "source_exists": exists,
                "target": str(stage.target),
                "target_exists": not is_topic
                or await has_topic(session.cluster, str(stage.target)),
                "group": stage.group,
                "dlq": stage.dlq,
                "version": stage.version,
                "mode": stage.mode,
                "every": stage.every,
                "schema": stage.schema,
                "subject": stage.subject,
                "checkpoint": stage.checkpoint,
                "expectations": [
                    {"name": one.name, "condition": one.condition, "on_fail": one.on_fail}
                    for one in stage.expectations
                ],
                "waiting": await _waiting(session, stage) if exists else 0,
            }
        )
    return rows


async def _waiting(session: CommandSession, stage: Stage) -> int:
    """Returns the records after the committed offsets of the stage's group."""
    from penstock.client.consumer.record_counts import count_unread

    return await count_unread(session.cluster, stage.group, [str(stage.source)])


# -- status -----------------------------------------------------------------------------------


@pipeline.command("status")
@click.argument("name", required=False, help="The pipeline [all].")
@brokers_option
@format_option
def status(name: str | None, brokers: str, format: OutputFormat) -> None:
    """Show the progress of pipelines: state, rows, bad rows, lag, last error.

    \b
    penstock pipeline status
    penstock pipeline status orders --format json
    """
    lines, now_ms = run(brokers, lambda session: _read(session, name))
    if format.is_data:
        print_data(
            [{**line, "age_ms": max(0, now_ms - line["updated_ms"])} for line in lines], format
        )
        return
    _print_states(lines, now_ms)


async def _read(session: CommandSession, name: str | None) -> tuple[list[dict[str, Any]], int]:
    from penstock.pipelines.status_topic import read_status

    lines = await read_status(session.cluster)
    chosen = [line for line in lines if name is None or line["pipeline"] == name]
    if name is not None and not chosen:
        close = nearest(name, sorted({str(line["pipeline"]) for line in lines}))
        hint = f"did you mean {close!r}?" if close else "no pipeline of this name has ever run"
        raise UserError(f"pipeline {name!r} does not exist; {hint}")
    return chosen, session.clock.now_ms()


def _print_states(lines: list[dict[str, Any]], now_ms: int | None) -> None:
    print_table(
        [
            "pipeline",
            "stage",
            "state",
            "batch ",
            "rows in ",
            "rows out ",
            "bad rows ",
            "expectations",
            "lag ",
            "told",
            "error",
        ],
        [
            (
                line["pipeline"],
                line["stage"],
                shown_state(line, now_ms),
                None if line.get("batch", -1) < 0 else line["batch"],
                show_count(line.get("rows_in", 0)),
                show_count(line.get("rows_out", 0)),
                show_count(line.get("bad_rows", 0)),
                shown_expectations(line.get("expectations") or {}),
                None if line.get("lag", -1) < 0 else show_count(line["lag"]),
                None if now_ms is None else f"{_ago(line, now_ms)} ago",
                line.get("error"),
            )
            for line in lines
        ],
    )


def shown_expectations(expectations: dict[str, dict[str, int]]) -> str | None:
    """Returns the share of rows that passed each expectation, never rounded up to 100 %."""
    from penstock.pipelines.expectations import pass_rate

    shown = []
    for name, counts in expectations.items():
        rate = pass_rate(counts["passed"], counts["failed"])
        text = "no rows" if rate is None else f"{math.floor(rate * 1000) / 10:g} %"
        shown.append(f"{name} {text}")
    return ", ".join(shown) or None


def shown_state(line: dict[str, Any], now_ms: int | None) -> str:
    """Returns the state, or `silent` for a stage whose report is overdue."""
    from penstock.pipelines.progress import ENDED
    from penstock.pipelines.status_topic import LIVENESS_TIMEOUT_MS

    state = str(line.get("state"))
    if now_ms is None or state in ENDED or now_ms - line["updated_ms"] <= LIVENESS_TIMEOUT_MS:
        return state
    return f"silent (was {state})"


def _ago(line: dict[str, Any], now_ms: int) -> str:
    return show_duration(max(0, now_ms - line["updated_ms"]))


# -- stop -------------------------------------------------------------------------------------


@pipeline.command("stop")
@click.argument("name", help="The pipeline's name, as in `pipeline status`.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it has stopped.")
@brokers_option
def stop(name: str, no_wait: bool, brokers: str) -> None:
    """Stop a running pipeline, wherever it runs, and wait until it has stopped.

    Its checkpoints remain: the next run resumes there.

    \b
    penstock pipeline stop orders
    """
    lines = run(brokers, lambda session: _ask_to_stop(session, name, no_wait))
    states = ", ".join(f"{line['stage']} {line['state']}" for line in lines)
    print(f"asked {name} to stop" if no_wait else f"{name}: {states}")


async def _ask_to_stop(session: CommandSession, name: str, no_wait: bool) -> list[dict[str, Any]]:
    import asyncio

    from penstock.cli.terminal.progress import Progress
    from penstock.pipelines.progress import ENDED
    from penstock.pipelines.status_topic import LIVENESS_TIMEOUT_MS, read_status, request_stop

    def alive(lines: list[dict[str, Any]], now_ms: int) -> list[dict[str, Any]]:
        return [
            line
            for line in lines
            if line["state"] not in ENDED and now_ms - line["updated_ms"] <= LIVENESS_TIMEOUT_MS
        ]

    lines, now_ms = await _read(session, name)
    if not alive(lines, now_ms):
        raise UserError(f"pipeline {name!r} is not running; see `penstock pipeline status`")
    await request_stop(session.cluster, name, who())
    if no_wait:
        return lines
    deadline = time.monotonic() + STOP_WAIT_S
    with Progress(f"waiting for {name} to stop", unit="looks") as progress:
        while alive(lines, session.clock.now_ms()):
            if time.monotonic() > deadline:
                raise UserError(
                    f"pipeline {name!r} has not stopped {STOP_WAIT_S:.0f} s after the request; "
                    f"see `penstock pipeline status {name}`"
                )
            await asyncio.sleep(0.2)
            lines = await read_status(session.cluster, name)
            progress.advance()
    return lines
