"""Spark examples of the documentation, run one after another on the shared session."""

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Broker
from tests.docs.pages import blocks
from tests.spark.topics import Topics

pytestmark = pytest.mark.spark


def test_documented_examples_run(
    spark: Any, broker: Broker, topics: Topics, tmp_path: Path
) -> None:
    http = getattr(broker, "http", "")
    shown = [block for block in blocks("python") if "pyspark" in block.text]
    assert shown
    for block in shown:
        if "localhost:8080" in block.text and not http:
            continue
        source = block.text.replace("localhost:9092", topics.bootstrap)
        source = source.replace("http://localhost:8080", http)
        exec(compile(source.replace("/tmp/", f"{tmp_path}/"), block.page, "exec"), {})
    assert {message.value for message in topics.read("loud-orders")} >= {b"ORDER 0", b"ORDER 99"}
    assert {message.value for message in topics.read("loaded-orders")} >= {b"order 0", b"order 99"}
    assert {dead_letter.error_class for dead_letter in topics.dead_letters("orders.dlq")} == {
        "Unframed"
    }
