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
from dataclasses import dataclass
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LEVELS = ("debug", "info", "warning", "error")
OF_STRANGERS = (
    *("penstock.server", "penstock.http", "penstock.security", "penstock.console"),
    *("penstock.groups", "penstock.queues", "uvicorn.error", "asyncio"),
)
"""Loggers that tell of connections and of what comes in by them."""
LINES_MAX = 50
STACKS_MAX = 5
KINDS_MAX = 200
KIND_CHARS_MAX = 60
WINDOW_SECONDS = 10.0
TELLS_OF_OTHERS = "tells_of_others"
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


class Sparing(logging.Filter):
    """Lets so many lines of a kind through in a while, and then says how many more there were.

    For what strangers can cause at will by connecting, asking and hanging up. Lines are of one kind
    if they are made of the same words around what differs; of those with a stack, which take
    kilobytes each, fewer pass. What was left out is told with the next line of its kind, or when
    its window is over where there is a loop to tell the time.

    Bounds: `KINDS_MAX` kinds; beyond them all others are one.
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
        if hasattr(record, TELLS_OF_OTHERS):
            return True
        key = (record.name, record.levelno, str(record.msg)[:KIND_CHARS_MAX])
        if key not in self._kinds and len(self._kinds) >= KINDS_MAX:
            key = ("", 0, "")
        kind = self._kinds.setdefault(key, _Kind())
        if record.created >= kind.began_at + self._window_s:
            if kind.left_out:
                record.msg = f"{record.msg} (and {kind.left_out} more like it before)"
            kind.began_at, kind.lines, kind.left_out = record.created, 0, 0
        kind.lines += 1
        if kind.lines <= (self._lines_max if record.exc_info is None else self._stacks_max):
            return True
        kind.left_out += 1
        if kind.left_out == 1:
            self._tell_later(record, kind)
        return False

    def _tell_later(self, record: logging.LogRecord, kind: "_Kind") -> None:
        import asyncio  # Here, so that `--help` need not load it.

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # A worker's line.
        loop.call_later(self._window_s, self._tell, record.name, record.levelno, record.msg, kind)

    def _tell(self, name: str, level: int, words: str, kind: "_Kind") -> None:
        count, kind.left_out = kind.left_out, 0
        if count:
            mark = {TELLS_OF_OTHERS: True}
            logging.getLogger(name).log(level, "and %d more like it: %s", count, words, extra=mark)


@dataclass(slots=True)
class _Kind:
    """Lines of one kind, in the window that is open."""

    began_at: float = float("-inf")
    lines: int = 0
    left_out: int = 0


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
