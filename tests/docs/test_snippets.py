"""The Python that the documents show, run against a real broker."""

import re
import subprocess
import sys

import pytest

from tests.conftest import Broker
from tests.docs.pages import Block, blocks

ADDRESSES = re.compile(r"localhost:(9092|8080)")
# Those for Spark run in tests/spark, on the session that is there.
SNIPPETS = [
    block
    for block in blocks("python")
    if ADDRESSES.search(block.text) and "pyspark" not in block.text
]


@pytest.mark.clients
@pytest.mark.parametrize("block", SNIPPETS, ids=lambda block: block.page)
def test_a_snippet_runs_as_shown(block: Block, broker: Broker) -> None:
    http = getattr(broker, "http", "")
    if "localhost:8080" in block.text and not http:
        pytest.skip("needs the HTTP address of the broker")
    source = block.text.replace("localhost:9092", broker.bootstrap)
    source = source.replace("http://localhost:8080", http)
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
