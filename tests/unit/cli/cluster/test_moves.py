"""Plans as files: what is read, and what is said about one that cannot be."""

import io
import json

import pytest

from penstock.cli.cluster.moves import read_plan
from penstock.cli.terminal.errors import UserError
from penstock.client.metadata import TopicPartition


def test_kafka_reassignment_plan_is_read() -> None:
    rows = [
        {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]},
        {"topic": "u", "partition": 3, "replicas": [3]},
    ]
    plan = read_plan(io.StringIO(json.dumps({"version": 1, "partitions": rows})))
    assert plan == {TopicPartition("t", 0): (1, 2), TopicPartition("u", 3): (3,)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"partitions": 3}',
        '{"partitions": [{"topic": "t"}]}',
        '{"partitions": [1]}',
    ],
)
def test_invalid_plan_file_is_explained(text: str) -> None:
    with pytest.raises(UserError, match=r"--plan: .* expected"):
        read_plan(io.StringIO(text))
