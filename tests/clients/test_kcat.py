"""kcat lists, produces and consumes with nothing but `-b`."""

import json
import subprocess

import pytest

from tests.clients.tools import CODECS, require_tool
from tests.conftest import Broker

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def kcat() -> str:
    return require_tool("kcat", "apt-get install -y kcat, or tests/clients/ensure_tools.sh")


def run(*command: str, given: str = "") -> str:
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kcat_produces_and_consumes(kcat: str, broker: Broker, topic: str) -> None:
    lines = "".join(f"key-{i}:value-{i}\n" for i in range(100))
    run(kcat, "-b", broker.bootstrap, "-P", "-t", topic, "-K", ":", given=lines)
    read = run(kcat, "-b", broker.bootstrap, "-C", "-t", topic, "-e", "-q", "-K", ":")
    assert read == lines


def test_kcat_lists_brokers_topics_and_partitions(kcat: str, broker: Broker, topic: str) -> None:
    run(kcat, "-b", broker.bootstrap, "-P", "-t", topic, given="x\n")
    text = run(kcat, "-b", broker.bootstrap, "-L")
    assert f"broker {broker.bootstrap.split(':')[0]}" in text or broker.bootstrap in text
    assert f'topic "{topic}" with 1 partitions' in text
    listing = json.loads(run(kcat, "-b", broker.bootstrap, "-L", "-J"))
    found = next(row for row in listing["topics"] if row["topic"] == topic)
    assert len(found["partitions"]) == 1
    assert found["partitions"][0]["leader"] == listing["brokers"][0]["id"]


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_compresses_and_is_idempotent(
    kcat: str, broker: Broker, topic: str, codec: str
) -> None:
    lines = "".join(f"a line that repeats, number {i}\n" for i in range(200))
    options = ("-X", "enable.idempotence=true", "-z", codec)
    run(kcat, "-b", broker.bootstrap, "-P", "-t", topic, *options, given=lines)
    assert run(kcat, "-b", broker.bootstrap, "-C", "-t", topic, "-e", "-q") == lines


def test_kcat_reads_the_last_records_and_queries_offsets_by_time(
    kcat: str, broker: Broker, topic: str
) -> None:
    run(kcat, "-b", broker.bootstrap, "-P", "-t", topic, given="".join(f"{i}\n" for i in range(9)))
    last = run(kcat, "-b", broker.bootstrap, "-C", "-t", topic, "-o", "-2", "-e", "-q")
    assert last == "7\n8\n"
    asked = run(kcat, "-b", broker.bootstrap, "-Q", "-t", f"{topic}:0:1")
    assert f"{topic} [0] offset 0" in asked
