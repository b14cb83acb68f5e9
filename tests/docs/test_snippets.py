"""The Python that the documents show, run against a real broker."""

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.brokers import PenstockProcess
from tests.conftest import QUICK_GROUPS
from tests.docs.pages import Block, blocks

ADDRESSES = re.compile(r"localhost:(9092|8080)")
# Spark snippets run in tests/spark, on the shared session, and the comparison's in test_programs.
SNIPPETS = [
    block
    for block in blocks("python")
    if ADDRESSES.search(block.text)
    and "pyspark" not in block.text
    and block.page != "docs/compare.md"
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockProcess]:
    """Of their own: documents call their topics and subjects what they like."""
    process = PenstockProcess(tmp_path_factory.mktemp("snippets") / "data", QUICK_GROUPS)
    yield process
    process.stop()


@pytest.mark.clients
@pytest.mark.parametrize("block", SNIPPETS, ids=lambda block: block.page)
def test_documented_snippet_runs(block: Block, broker: PenstockProcess) -> None:
    source = block.text.replace("localhost:9092", broker.bootstrap)
    source = source.replace("http://localhost:8080", broker.http)
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
