"""Processes of the sink killed at each fault point: every record is written once.

Each kill hits the named step, because the process ends itself there. Unlike in `test_driver_killed`
the driver lives on, aborts the batch, and the query is started again. `PENSTOCK_SPARK_KILLS` sets
the number of kills.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from penstock.spark import read_stream
from penstock.spark.sink import fault_points
from tests.spark.topics import Topics

pytestmark = [pytest.mark.spark, pytest.mark.chaos]

KILLS = int(os.environ.get("PENSTOCK_SPARK_KILLS", "2"))
ROWS = 60
TURNS = (
    fault_points.TASK_WRITTEN,
    fault_points.FIRST_COMMITTED,
    fault_points.INTENT_STORED,
    fault_points.TASK_SENT,
    fault_points.BEFORE_INTENT,
    fault_points.ALL_COMMITTED,
)
"""Fault points of successive kills; the first two tell most about the protocol."""
INVISIBLE = (fault_points.TASK_SENT, fault_points.TASK_WRITTEN, fault_points.BEFORE_INTENT)
"""Points before the commit intent: nothing of the batch may become visible by the abort."""


def test_sink_killed_at_a_fault_point_writes_every_record_once(
    spark: Any, topics: Topics, topic: str, run_stream: Callable[..., Any]
) -> None:
    out = f"{topic}-out"
    topics.create(topic, 2)
    topics.create(out, 2)
    faults = Path(os.environ[fault_points.ENVIRONMENT])
    sink = {"topic": out, "brokers": topics.bootstrap}
    frame = read_stream(
        spark, brokers=topics.bootstrap, subscribe=topic, startingOffsets="earliest"
    ).select("value")
    for kill in range(KILLS):
        point = TURNS[kill % len(TURNS)]
        first, after = kill * ROWS, (kill + 1) * ROWS
        topics.numbers(topic, ROWS, start=first, partitions=2)
        written = topics.written(out)
        (faults / point).touch()
        with pytest.raises(StreamingQueryException):
            run_stream(frame, **sink)
        assert not (faults / point).exists(), f"the sink does not reach {point}"
        (faults / f"{point}.reached").unlink()
        assert topics.written(out) > written, "the sink has written before this point"
        expected = first if point in INVISIBLE else after
        assert topics.values(out) == list(range(expected)), f"after the kill at {point}"
        run_stream(frame, **sink)
        assert topics.values(out) == list(range(after)), f"after the restart from {point}"
