"""The Python that the documents show, run against a real broker."""

import subprocess
import sys

import pytest

from tests.conftest import Broker
from tests.docs.pages import Block, blocks

SNIPPETS = [block for block in blocks("python") if "localhost:9092" in block.text]


@pytest.mark.clients
@pytest.mark.parametrize("block", SNIPPETS, ids=lambda block: block.page)
def test_a_snippet_runs_as_shown(block: Block, broker: Broker) -> None:
    source = block.text.replace("localhost:9092", broker.bootstrap)
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
