"""The Java client's programs of tests/clients/java: built once, run in as few JVMs as possible.

`run_checks` has a JVM run all checks of a class, which prints one JSON line for each. A `Jvm` runs
programs one after the other: ours, or Kafka's own command-line tools, which come from the jars that
`bench.peers.kafka` keeps for benchmarks. Needs a JDK and Maven: CI must have them. Run as a program
it builds and fetches, so that no test need.
"""

import fcntl
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from bench.peers import kafka
from tests.clients.tools import require_tool

PROJECT = Path(__file__).parent / "java"
CLASSES = PROJECT / "target" / "classes"
LIBS = PROJECT / "target" / "libs"
TIMEOUT_S = 280
# Short-lived: compiling well would cost more than it saves.
JAVA = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
JAVA += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
DONE = "== done\n"


def build() -> None:
    """Compile and fetch the client, unless nothing changed since the last time."""
    require_tool("javac", "apt-get install -y default-jdk-headless, or ensure_tools.sh")
    maven = require_tool("mvn", "apt-get install -y maven, or ensure_tools.sh")
    target = PROJECT / "target"
    target.mkdir(exist_ok=True)
    # Tests in several processes may want it at the same time.
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = target / "built"
        sources = [PROJECT / "pom.xml", *PROJECT.rglob("*.java")]
        newest = max(source.stat().st_mtime for source in sources)
        if stamp.exists() and stamp.stat().st_mtime >= newest:
            return
        command = [maven, "-B", "-q", "-f", str(PROJECT / "pom.xml"), "compile"]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={LIBS}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"Maven failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        stamp.touch()


class Answers:
    """Results of the checks of one class."""

    def __init__(self, rows: list[dict[str, Any]], complaints: str) -> None:
        self._rows = {row["check"]: row for row in rows}
        self._complaints = complaints[-2000:]

    def require(self, check: str) -> None:
        row = self._rows.get(check)
        assert row is not None, f"the Java client never came to it:\n{self._complaints}"
        assert row["ok"], f"{row['error']}\n{self._complaints}"


def run_checks(name: str, bootstrap: str) -> Answers:
    build()
    command = [*JAVA, "-cp", f"{CLASSES}:{LIBS}/*", f"penstock.clients.{name}"]
    command += [bootstrap, f"{os.getpid()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert rows, f"the Java client said nothing:\n{done.stdout}{done.stderr}"
    return Answers(rows, done.stderr)


def kafka_tools() -> "Jvm":
    return Jvm(kafka.fetch(print))


class Jvm:
    """Runs `main` of one class after the other; `close` ends it."""

    def __init__(self, libs: Path = LIBS) -> None:
        build()
        command = [*JAVA, "-cp", f"{CLASSES}:{libs}/*", "penstock.clients.Programs"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, program: str, *arguments: str) -> str:
        """Runs a program; returns its output."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\t".join((program, *arguments)) + "\n")
        process.stdin.flush()
        said = ""
        while (line := process.stdout.readline()) != DONE:
            said += line
            assert line, f"{program} ended the JVM:\n{said}"
        return said

    def close(self) -> None:
        process = self._process
        process.communicate(timeout=TIMEOUT_S)


if __name__ == "__main__":
    build()
    kafka.fetch(print)
