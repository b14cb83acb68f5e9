"""Progress of sources, from Spark's progress events."""

import json
from typing import Any

from penstock.client.metadata import TopicPartition
from penstock.spark.progress import source_progress

JAVA = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream"


def source(end: Any, latest: Any, rows: int = 1) -> dict[str, Any]:
    return {
        "description": f"{JAVA}@5d913ec4",
        "startOffset": None,
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": rows,
    }


ENDS = {"orders": {"0": 60, "1": 40}, "@topicIds": {"orders": "x"}}
LATEST = {"orders": {"0": 100, "1": 40}, "@topicIds": {"orders": "x"}}


def test_rows_and_distance_are_those_of_the_records() -> None:
    event = {
        "sources": [source(ENDS, LATEST)],
        "observedMetrics": {"penstock 7 orders": {"rows": 100}, "own": {"rows": 5}},
    }
    (found,) = source_progress(json.dumps(event))
    assert str(found) == "topic orders, 2 partitions: 100 rows, at most 40 behind"
    assert found.end == {TopicPartition("orders", 0): 60, TopicPartition("orders", 1): 40}
    assert found.metrics == {
        "avgOffsetsBehindLatest": 20,
        "maxOffsetsBehindLatest": 40,
        "minOffsetsBehindLatest": 0,
    }


def test_rows_of_a_plain_source_are_those_of_spark() -> None:
    event = {"sources": [source(json.dumps(ENDS), None, rows=100)]}
    (found,) = source_progress(event)
    assert (found.rows, found.metrics) == (100, {})


def test_rows_of_several_sources_are_told_apart_by_topic() -> None:
    users = {"users": {"0": 3}}
    event = {
        "sources": [source(ENDS, LATEST), source(users, users), source(ENDS, LATEST)],
        "observedMetrics": {
            "penstock 1 orders": {"rows": 100},
            "penstock 2 users": {"rows": 3},
            "penstock 3 orders": {"rows": 90},
        },
    }
    assert [one.rows for one in source_progress(event)] == [None, 3, None]


def test_other_sources_and_queues_are_left_out() -> None:
    event = {
        "sources": [
            {"description": "RateStreamV2", "endOffset": "5", "latestOffset": "9"},
            source({"taken": [[0, 1]]}, None),
        ]
    }
    assert source_progress(event) == []
    assert source_progress(None) == []
