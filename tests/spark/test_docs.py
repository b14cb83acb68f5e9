"""The Spark examples of the documents, run one after another on the shared session."""

from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import blocks
from tests.spark.topics import Topics

pytestmark = pytest.mark.spark


def test_the_examples_run_as_shown(spark: Any, topics: Topics, tmp_path: Path) -> None:
    shown = [block for block in blocks("python") if "pyspark" in block.text]
    assert shown
    for block in shown:
        source = block.text.replace("localhost:9092", topics.bootstrap)
        exec(compile(source.replace("/tmp/", f"{tmp_path}/"), block.page, "exec"), {})
    assert {message.value for message in topics.read("loud-orders")} >= {b"ORDER 0", b"ORDER 99"}
