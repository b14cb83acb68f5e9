"""Counts log lines by service, level and minute.

    python -m examples.logs.data --brokers localhost:9092 --count 10000
    penstock pipeline run examples/logs/pipeline.py --once
    penstock consume logs.counts

Malformed lines are in `logs.parse.dlq`, with the reason.
"""

import re
from datetime import datetime
from typing import Any

from penstock.pipelines import Pipeline, Topic, aggregate, each

LINE = re.compile(r"(\S+) (\w+) \[([\w-]+)\] (.*)")
LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")

pipeline = Pipeline("logs", about="lines of logs, by service and minute")


def read_line(row: dict[str, Any]) -> dict[str, Any]:
    """Parses one line to columns. An exception becomes the reason of the dead letter."""
    found = LINE.fullmatch(row["value"].decode())
    if found is None:
        raise ValueError("not TIME LEVEL [SERVICE] MESSAGE")
    at, level, service, message = found.groups()
    if level not in LEVELS:
        raise ValueError(f"there is no level {level}")
    return {
        "at": datetime.fromisoformat(at),
        "level": level,
        "service": service,
        "message": message,
    }


@pipeline.extract("logs", to=Topic("logs.parsed", partitions=2), key="service")
def parse(lines: Any) -> Any:
    return each(lines, read_line, "at timestamp, level string, service string, message string")


@pipeline.transform(
    to=Topic("logs.counts", partitions=1, compact=True),
    key="concat_ws('/', service, level, date_format(window_start, 'yyyy-MM-dd HH:mm'))",
    mode="update",
)
def count(lines: Any) -> Any:
    return aggregate(
        lines,
        ["service", "level"],
        window="1 minute",
        event_time="at",
        late="1 hour",
        lines="count(*)",
    )
