"""The Java client, which defines what Kafka's protocol means, with its defaults.

Maven builds tests/clients/java once per change of its sources; the checks run in one JVM and each
is reported here under its own name. Needs a JDK and Maven: CI must have them.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.tools import CODECS, require_tool
from tests.conftest import Broker

pytestmark = [pytest.mark.clients, pytest.mark.java]
PROJECT = Path(__file__).parent / "java"
CLASSES = PROJECT / "target" / "classes"
LIBS = PROJECT / "target" / "libs"
CHECKS = [
    "topics_are_created_listed_described_and_deleted",
    "partitions_are_added_but_never_taken_away",
    "configs_are_described_altered_and_validated",
    "the_cluster_and_its_log_dirs_are_described",
    "client_quotas_are_set_described_and_removed",
    *(f"records_come_back_as_sent_{codec}" for codec in CODECS),
    "headers_and_nulls_survive",
    "a_too_large_record_is_refused",
    "offsets_are_found_by_time_and_at_both_ends",
    "deleted_records_are_gone",
]


def build() -> None:
    """Compile and fetch the client, unless nothing changed since the last time."""
    require_tool("javac", "apt-get install -y default-jdk-headless, or ensure_tools.sh")
    maven = require_tool("mvn", "apt-get install -y maven, or ensure_tools.sh")
    stamp = PROJECT / "target" / "built"
    sources = [PROJECT / "pom.xml", *PROJECT.rglob("*.java")]
    newest = max(source.stat().st_mtime for source in sources)
    if stamp.exists() and stamp.stat().st_mtime >= newest:
        return
    command = [maven, "-B", "-q", "-f", str(PROJECT / "pom.xml"), "compile"]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={LIBS}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"Maven failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    stamp.touch()


@pytest.fixture(scope="module")
def answers(_shared_broker: Broker) -> dict[str, Any]:
    """One JVM runs every check; its answers by name."""
    build()
    command = ["java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += ["-cp", f"{CLASSES}:{LIBS}/*", "penstock.clients.Checks"]
    command += [_shared_broker.bootstrap, f"{os.getpid()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert rows, f"the Java client said nothing:\n{done.stdout}{done.stderr}"
    return {row["check"]: row for row in rows} | {"stderr": done.stderr}


@pytest.mark.parametrize("check", CHECKS)
def test_java(check: str, answers: dict[str, Any], broker: Broker) -> None:
    assert check in answers, f"the Java client never came to it:\n{answers['stderr'][-2000:]}"
    assert answers[check]["ok"], answers[check]["error"] + "\n" + answers["stderr"][-2000:]
