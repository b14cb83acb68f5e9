"""Logs as JSON: an object a line, with what the caller said, the failure, and the trace."""

import json
import logging

from opentelemetry.sdk.trace import TracerProvider

from penstock.cli.logs import JsonLines, Sparing

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


def test_a_line_says_when_what_and_where() -> None:
    found = line(record("%s of %d", "two", 5, topic="orders", created=1_700_000_000.25))
    assert found == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "penstock.test",
        "message": "two of 5",
        "node": 3,
        "topic": "orders",
    }


def test_a_failure_comes_with_its_stack() -> None:
    try:
        raise KeyError("gone")
    except KeyError as error:
        found = line(record("failed", exc_info=(KeyError, error, error.__traceback__)))
    assert found["error"] == "KeyError: 'gone'"
    assert "test_logs.py" in str(found["stack"])


def test_what_json_cannot_say_is_said_as_text() -> None:
    assert line(record("x", where=object()))["where"].__class__ is str


def test_the_current_span_is_named() -> None:
    assert "trace_id" not in line(record("x"))
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("t")
    with tracer.start_as_current_span("work") as span:
        found = line(record("x"))
    assert found["trace_id"] == f"{span.get_span_context().trace_id:032x}"
    assert found["span_id"] == f"{span.get_span_context().span_id:016x}"


def test_strangers_do_not_fill_the_log() -> None:
    sparing = Sparing(lines_max=3, window_s=10.0)

    def told(at_s: float, level: int = logging.INFO) -> str | None:
        record = logging.makeLogRecord({"msg": "closing %s", "args": ("x",), "levelno": level})
        record.created = at_s
        return record.getMessage() if sparing.filter(record) else None

    assert [told(1.0 + at / 10) for at in range(10)] == ["closing x"] * 3 + [None] * 7
    assert told(2.5, logging.WARNING) == "closing x"
    assert told(11.5) == "(7 such lines left out) closing x"
    assert told(11.6) == "closing x"
