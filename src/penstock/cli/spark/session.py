"""Spark session of commands that run on Spark, and its options."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.session import security_settings

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--master",
        envvar="PENSTOCK_SPARK_MASTER",
        show_envvar=True,
        metavar="URL",
        help="Spark master: local[*] (the default), spark://host:7077, yarn, k8s://...",
    ),
    click.option(
        "--remote",
        envvar="SPARK_REMOTE",
        show_envvar=True,
        metavar="sc://HOST:PORT",
        help="A Spark Connect server, instead of --master.",
    ),
    click.option(
        "--conf",
        "confs",
        multiple=True,
        metavar="NAME=VALUE",
        help="A Spark setting; repeatable.",
    ),
)

_V2 = "org.apache.spark.sql.execution.datasources.v2"
_REPEATING_LOGGERS = (
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
    "org.apache.spark.util.Utils",
    f"{_V2}.AppendDataExec",
    f"{_V2}.DataWritingSparkTask",
    f"{_V2}.WriteToDataSourceV2Exec",
)


def spark_options(command: F) -> F:
    """Adds --master, --remote and --conf; `spark_session` takes them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def spark_cluster(brokers: str) -> dict[str, str]:
    """Returns brokers and security settings as options of the data source."""
    settings, _ = security_settings()
    return {"brokers": brokers, **{f"kafka.{name}": value for name, value in settings.items()}}


@contextmanager
def spark_session(
    name: str, master: str | None, remote: str | None, confs: tuple[str, ...]
) -> Iterator[Any]:
    """Opens a session for one command; by default local on all cores."""
    from penstock.spark.session import has_session, open_session

    settings = {}
    for conf in confs:
        key, equals, value = conf.partition("=")
        if not equals:
            raise UserError(f"--conf {conf!r} is not NAME=VALUE")
        settings[key] = value
    is_ours = not has_session()
    session = open_session(name, master=master, remote=remote, settings=settings)
    if is_ours and not remote:
        _leave_reports_to_commands(session)
    try:
        yield session
    finally:
        if is_ours:
            session.stop()


def _leave_reports_to_commands(session: Any) -> None:
    """Turns off the loggers that repeat a failed or stopped query with its stack traces.

    Commands report the error of a query themselves, in one line.
    """
    log4j = session.sparkContext._jvm.org.apache.logging.log4j
    for name in _REPEATING_LOGGERS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


@contextmanager
def job_session(
    name: str, *, master: str | None, remote: str | None, confs: tuple[str, ...]
) -> Iterator[Any]:
    """Opens a session for a batch job: Spark shows its own progress bars on a terminal.

    Errors of Spark and of its tasks are reported in one line.
    """
    shown = (f"spark.ui.showConsoleProgress={str(sys.stderr.isatty()).lower()}",)
    with spark_session(f"penstock {name}", master, remote, (*shown, *confs)) as session:
        from pyspark.errors import PySparkException

        from penstock.pipelines.error_explanations import reason_of

        try:
            yield session
        except PySparkException as error:
            reason = reason_of(str(error))
            if reason.startswith("AssertionError"):
                raise
            raise UserError(reason) from error
