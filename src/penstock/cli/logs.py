"""How processes that run for long write their log on standard error: for people, or as JSON.

Text is one line with time, level, logger and message. JSON is one object a line: `time` (UTC),
`level`, `logger`, `message`, the fields of the process (`node`), what the caller gave as `extra`,
`error` and `stack` of an exception, and `trace_id` and `span_id` where the line was written below a
span of OpenTelemetry.
"""

import json
import logging
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LEVELS = ("debug", "info", "warning", "error")
OF_STRANGERS = ("penstock.server", "penstock.security")
"""Loggers that tell of connections."""
LINES_MAX = 100
WINDOW_SECONDS = 10.0
# What every record has; anything else was given as `extra`.
_KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    envvar="PENSTOCK_LOG_FORMAT",
    show_envvar=True,
    help="How to write the log; json is an object a line.",
)


def log_level_option(default: str) -> Callable[[F], F]:
    return click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        default=default,
        show_default=True,
        envvar="PENSTOCK_LOG_LEVEL",
        show_envvar=True,
        help="How much to tell on standard error.",
    )


class JsonLines(logging.Formatter):
    def __init__(self, fields: dict[str, object]) -> None:
        super().__init__()
        self._fields = fields

    def format(self, record: logging.LogRecord) -> str:
        from penstock.cli.output import show_time

        line: dict[str, object] = {
            "time": show_time(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._fields,
        }
        line |= {name: value for name, value in vars(record).items() if name not in _KNOWN}
        if record.exc_info is not None and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["error"] = f"{type(error).__qualname__}: {error}"
            line["stack"] = self.formatException(record.exc_info)
        line |= _trace()
        return json.dumps(line, ensure_ascii=False, default=str)


class Sparing(logging.Filter):
    """Lets so many lines of a logger through in a while, and then says how many it left out.

    For what strangers can cause at will by connecting and misbehaving; warnings always pass.
    """

    def __init__(self, lines_max: int = LINES_MAX, window_s: float = WINDOW_SECONDS) -> None:
        super().__init__()
        self._lines_max = lines_max
        self._window_s = window_s
        self._began_at = float("-inf")
        self._lines = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            return True
        if record.created >= self._began_at + self._window_s:
            left_out = max(0, self._lines - self._lines_max)
            if left_out:
                record.msg = f"({left_out} such lines left out) {record.msg}"
            self._began_at, self._lines = record.created, 0
        self._lines += 1
        return self._lines <= self._lines_max


def _trace() -> dict[str, str]:
    """The span that is current, where OpenTelemetry is used at all."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def set_up(format: str, level: str, **fields: object) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(fields) if format == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for name in OF_STRANGERS:
        logging.getLogger(name).addFilter(Sparing())
