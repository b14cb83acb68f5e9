"""Logs as JSON: an object a line, with what the caller said, the failure, and the trace."""

import asyncio
import json
import logging

import pytest
from opentelemetry.sdk.trace import TracerProvider

from penstock.cli.terminal.logs import KINDS_MAX, JsonLines, LogRateLimit
from simulation.loop import SimLoop

LOG = logging.getLogger("penstock.test")


def line(record: logging.LogRecord) -> dict[str, object]:
    text = JsonLines({"node": 3}).format(record)
    assert "\n" not in text
    document: dict[str, object] = json.loads(text)
    return document


def record(message: str, *args: object, **more: object) -> logging.LogRecord:
    made = LOG.makeRecord("penstock.test", logging.WARNING, "f.py", 1, message, args, None)
    vars(made).update(more)
    return made


def test_log_line_has_time_level_logger_and_fields() -> None:
    found = line(record("%s of %d", "two", 5, topic="orders", created=1_700_000_000.25))
    assert found == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "penstock.test",
        "message": "two of 5",
        "node": 3,
        "topic": "orders",
    }


def test_logged_failure_has_its_stack() -> None:
    try:
        raise KeyError("gone")
    except KeyError as error:
        found = line(record("failed", exc_info=(KeyError, error, error.__traceback__)))
    assert found["error"] == "KeyError: 'gone'"
    assert "test_logs.py" in str(found["stack"])


def test_values_unknown_to_json_become_text() -> None:
    assert line(record("x", where=object()))["where"].__class__ is str


def test_log_line_has_the_current_span() -> None:
    assert "trace_id" not in line(record("x"))
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("t")
    with tracer.start_as_current_span("work") as span:
        found = line(record("x"))
    assert found["trace_id"] == f"{span.get_span_context().trace_id:032x}"
    assert found["span_id"] == f"{span.get_span_context().span_id:016x}"


def told(limit: LogRateLimit, at_s: float, words: str = "closing %s", **more: object) -> str | None:
    made = logging.makeLogRecord({"msg": words, "args": ("x",), "name": "n", **more})
    made.created = at_s
    return made.getMessage() if limit.filter(made) else None


def test_repeated_log_lines_are_suppressed_above_a_rate() -> None:
    limit = LogRateLimit(lines_max=3, window_s=10.0)
    for level in (logging.INFO, logging.ERROR):
        lines = [told(limit, 1.0 + at / 10, levelno=level) for at in range(10)]
        assert lines == ["closing x"] * 3 + [None] * 7
    assert told(limit, 2.5, "of another kind: %s") == "of another kind: x"
    assert (
        told(limit, 11.5, levelno=logging.INFO) == "closing x (7 similar lines suppressed before)"
    )
    assert told(limit, 11.6, levelno=logging.INFO) == "closing x"


def test_stack_traces_have_a_lower_limit() -> None:
    limit = LogRateLimit(lines_max=3, window_s=10.0, stacks_max=1)
    assert told(limit, 1.0, exc_info=(KeyError, KeyError(), None)) == "closing x"
    assert told(limit, 1.0, exc_info=(KeyError, KeyError(), None)) is None


def test_number_of_line_kinds_is_limited() -> None:
    limit = LogRateLimit(lines_max=3, window_s=10.0)
    passed = [told(limit, 1.0, f"{at} %s") for at in range(KINDS_MAX + 10)]
    assert len([one for one in passed if one]) == KINDS_MAX + 3


def test_suppressed_lines_are_counted_after_the_window(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = logging.getLogger("penstock.test.limit")
    limit = LogRateLimit(lines_max=1, window_s=10.0)
    logger.addFilter(limit)

    async def main() -> None:
        for at in range(5):
            logger.warning("closing %s", at)
        await asyncio.sleep(11)

    try:
        SimLoop(1, time_max=60).run(main())
    finally:
        logger.removeFilter(limit)
    said = [one.getMessage() for one in caplog.records if one.name == logger.name]
    assert said == ["closing 0", "4 similar lines suppressed: closing %s"]
