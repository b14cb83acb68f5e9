"""Logging of long-running commands to standard error, as text or as JSON lines.

Text is one line with time, level, logger and message. JSON is one object per line: `time` (UTC),
`level`, `logger`, `message`, the fields of the process (`node`), the caller's `extra`, `error` and
`stack` of an exception, and `trace_id` and `span_id` inside an OpenTelemetry span.
"""

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LEVELS = ("debug", "info", "warning", "error")
NETWORK_LOGGERS = (
    *("penstock.server", "penstock.http", "penstock.security", "penstock.console"),
    *("penstock.groups", "penstock.queues", "uvicorn.error", "asyncio"),
)
"""Loggers of connections and requests. Unauthenticated peers can cause their lines at will."""
LINES_MAX = 50
STACKS_MAX = 5
KINDS_MAX = 200
KIND_CHARS_MAX = 60
WINDOW_SECONDS = 10.0
SUMMARY_MARK = "is_suppression_summary"
# Attributes of every record; any other comes from `extra`.
_KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    envvar="PENSTOCK_LOG_FORMAT",
    show_envvar=True,
    help="Log format; json writes one object per line.",
)


def log_level_option(default: str) -> Callable[[F], F]:
    return click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        default=default,
        show_default=True,
        envvar="PENSTOCK_LOG_LEVEL",
        show_envvar=True,
        help="Lowest level logged to standard error.",
    )


class JsonLines(logging.Formatter):
    def __init__(self, fields: dict[str, object]) -> None:
        super().__init__()
        self._fields = fields

    def format(self, record: logging.LogRecord) -> str:
        from penstock.cli.terminal.output import show_time

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


class LogRateLimit(logging.Filter):
    """Log rate limit: passes a number of lines of a kind per window and counts the suppressed ones.

    It limits log lines that peers cause by connecting, sending requests and hanging up. Lines with
    the same message template are of one kind. Fewer lines with a stack trace pass, because each
    takes kilobytes. The count of suppressed lines appears with the next line of the kind, or at the
    end of the window if an event loop runs.

    At most `KINDS_MAX` kinds are counted apart; all further ones count as one kind.
    """

    def __init__(
        self,
        lines_max: int = LINES_MAX,
        window_s: float = WINDOW_SECONDS,
        stacks_max: int = STACKS_MAX,
    ) -> None:
        super().__init__()
        self._lines_max = lines_max
        self._stacks_max = stacks_max
        self._window_s = window_s
        self._kinds: dict[tuple[str, int, str], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if hasattr(record, SUMMARY_MARK):
            return True
        key = (record.name, record.levelno, str(record.msg)[:KIND_CHARS_MAX])
        if key not in self._kinds and len(self._kinds) >= KINDS_MAX:
            key = ("", 0, "")
        kind = self._kinds.setdefault(key, _Kind())
        if record.created >= kind.began_at + self._window_s:
            if kind.suppressed:
                record.msg = f"{record.msg} ({kind.suppressed} similar lines suppressed before)"
            kind.began_at, kind.lines, kind.suppressed = record.created, 0, 0
        kind.lines += 1
        if kind.lines <= (self._lines_max if record.exc_info is None else self._stacks_max):
            return True
        kind.suppressed += 1
        if kind.suppressed == 1:
            self._report_later(record, kind)
        return False

    def _report_later(self, record: logging.LogRecord, kind: "_Kind") -> None:
        import asyncio  # Imported here so that `--help` does not load it.

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # Logged by a worker thread.
        loop.call_later(self._window_s, self._report, record.name, record.levelno, record.msg, kind)

    def _report(self, name: str, level: int, template: str, kind: "_Kind") -> None:
        count, kind.suppressed = kind.suppressed, 0
        if count:
            mark = {SUMMARY_MARK: True}
            logging.getLogger(name).log(
                level, "%d similar lines suppressed: %s", count, template, extra=mark
            )


@dataclass(slots=True)
class _Kind:
    """Counts of one kind of lines in the current window."""

    began_at: float = float("-inf")
    lines: int = 0
    suppressed: int = 0


def _trace() -> dict[str, str]:
    """Returns the ids of the current span, if OpenTelemetry is loaded."""
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
    for name in NETWORK_LOGGERS:
        logging.getLogger(name).addFilter(LogRateLimit())
