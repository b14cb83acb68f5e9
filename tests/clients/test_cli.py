"""The `penstock` command against a real broker, as people and scripts use it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.brokers import COMMAND, READY
from tests.conftest import Broker, FreshBroker

pytestmark = pytest.mark.clients

TIMEOUT_S = 120


class Cli:
    """Runs commands against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._environment = {**os.environ, "PENSTOCK_BROKERS": bootstrap, "NO_COLOR": "1"}

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [COMMAND, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
        )

    def run(
        self, *arguments: str, given: bytes = b"", stdout: int = subprocess.PIPE
    ) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [COMMAND, *arguments],
            input=given,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=self._environment,
            timeout=TIMEOUT_S,
        )

    def ok(self, *arguments: str, given: bytes = b"") -> str:
        done = self.run(*arguments, given=given)
        assert done.returncode == 0, done.stderr.decode()
        assert done.stderr == b""
        return done.stdout.decode()

    def fails(self, *arguments: str, code: int = 1) -> str:
        done = self.run(*arguments)
        assert done.returncode == code
        assert done.stdout == b""
        lines = done.stderr.decode().splitlines()
        assert len(lines) == 1, lines
        return lines[0]


@pytest.fixture
def cli(broker: Broker) -> Cli:
    return Cli(broker.bootstrap)


def test_topic_created_by_a_typo_is_reported(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    done = cli.run("produce", topic + "x", "hello")
    assert done.returncode == 0
    assert f"this created topic '{topic}x'; did you mean '{topic}'?" in done.stderr.decode()


def test_topic_commands_cover_its_whole_life(cli: Cli, topic: str) -> None:
    created = cli.ok("topic", "create", topic, "-p", "2", "-c", "retention.ms=3600000")
    assert created == f"created topic {topic}\n"
    listed = json.loads(cli.ok("topic", "list", "--format", "json"))
    (row,) = [row for row in listed if row["name"] == topic]
    assert (row["partitions"], row["replication_factor"], row["under_replicated"]) == (2, 1, 0)
    assert topic in cli.ok("topic", "list")

    cli.ok("produce", topic, "one", "-p", "0")
    cli.ok("produce", topic, "two", "-p", "1")
    cli.ok("topic", "alter", topic, "-p", "3", "-c", "retention.ms=7200000")
    (described,) = json.loads(cli.ok("topic", "describe", topic, "--format", "json"))
    assert described["configs"] == {"retention.ms": "7200000"}
    assert [p["end_offset"] for p in described["partitions"]] == [1, 1, 0]
    cli.ok("topic", "alter", topic, "-d", "retention.ms")
    assert "retention.ms" not in cli.ok("topic", "describe", topic)

    truncated = json.loads(cli.ok("topic", "truncate", topic, "-p", "0", "-y", "--format", "json"))
    assert truncated["partitions"] == [{"partition": 0, "start_offset": 1}]
    assert cli.ok("consume", topic, "-e") == "two\n"

    assert cli.ok("topic", "delete", topic, "--yes") == f"deleted topic {topic}\n"
    assert topic not in cli.ok("topic", "list")


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_produced_lines_are_consumed_unchanged(cli: Cli, topic: str, codec: str) -> None:
    cli.ok("topic", "create", topic)
    lines = [f"line {n} é".encode() for n in range(2000)]
    out = cli.ok("produce", topic, "--codec", codec, given=b"\n".join(lines) + b"\n")
    assert out == f"produced 2000 records to {topic}: partition 0 offsets 0-1999\n"
    assert cli.ok("consume", topic, "-e").encode().splitlines() == lines


def test_keys_headers_and_templates_are_printed(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    cli.ok("produce", topic, "-K", ":", "-H", "who:me", given=b"a:1\nb:2:3\nplain\n")
    cli.ok("produce", topic, "-k", "gone", "-Z")
    shown = cli.ok("consume", topic, "-e", "-f", "%p/%o %k=%v [%h] %K %V\\n")
    assert shown.splitlines() == [
        "0/0 a=1 [who=me] 1 1",
        "0/1 b=2:3 [who=me] 1 3",
        "0/2 =plain [who=me] -1 5",
        "0/3 gone= [] 4 -1",
    ]
    rows = [
        json.loads(line) for line in cli.ok("consume", topic, "-e", "--format", "json").splitlines()
    ]
    assert [row["key"] for row in rows] == ["a", "b", None, "gone"]
    assert rows[3]["value"] is None


@pytest.mark.parametrize("arguments", [[], ["--format", "wide"], ["--format", "json"]])
def test_records_cannot_control_the_terminal(cli: Cli, topic: str, arguments: list[str]) -> None:
    cli.ok("topic", "create", topic)
    cli.ok("produce", topic, given=b"a\x1b]0;title\x07b\n")
    own, terminal = os.openpty()
    try:
        done = cli.run("consume", topic, "-e", *arguments, stdout=terminal)
        shown = os.read(own, 4096)
    finally:
        os.close(own)
        os.close(terminal)
    assert done.returncode == 0
    assert b"title" in shown
    assert b"\x1b" not in shown
    assert b"\x07" not in shown
    assert cli.ok("consume", topic, "-e") == "a\x1b]0;title\x07b\n", "a pipe gets what was sent"


def test_offset_syntax_selects_records(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    cli.ok("produce", topic, given=b"".join(b"%d\n" % n for n in range(20)))
    cases = {
        "end": range(0),
        "5:9": range(5, 9),
        "18:99": range(18, 20),
        "-3": range(17, 20),
        "@-1h": range(20),
        "@2020-01-01:2020-01-02": range(0),
    }
    for offset, expected in cases.items():
        shown = cli.ok("consume", topic, "-e", "-o", offset)
        assert shown.split() == [str(n) for n in expected], offset
    assert cli.ok("consume", topic, "-n", "4", "-o", "2").split() == ["2", "3", "4", "5"]


def test_consume_follows_until_it_is_interrupted(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    with cli.start("consume", topic) as following:
        assert following.stdout is not None
        cli.ok("produce", topic, "first")
        assert following.stdout.readline() == b"first\n"
        cli.ok("produce", topic, "second")
        assert following.stdout.readline() == b"second\n"
        following.send_signal(signal.SIGINT)
        _, complaint = following.communicate(timeout=TIMEOUT_S)
    assert following.returncode == 130
    assert b"Traceback" not in complaint


def test_slow_input_is_sent_line_by_line(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    with (
        cli.start("consume", topic, "-n", "1") as following,
        cli.start("produce", topic) as producing,
    ):
        assert producing.stdin is not None
        assert following.stdout is not None
        producing.stdin.write(b"early\n")
        producing.stdin.flush()
        assert following.stdout.readline() == b"early\n"  # While standard input is still open.
        producing.stdin.close()
        assert producing.wait(TIMEOUT_S) == 0
        assert following.wait(TIMEOUT_S) == 0


def test_closed_output_pipe_is_not_an_error(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    cli.ok("produce", topic, "x" * 1000, "-n", "5000")
    with cli.start("consume", topic) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        reading.stdout.readline()
        reading.stdout.close()
        assert reading.wait(TIMEOUT_S) == 0
        assert reading.stderr.read() == b""


def test_topic_errors_are_one_line(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    near = topic[:-1] + "x"
    assert f"did you mean {topic!r}" in cli.fails("consume", near)
    assert "does not exist" in cli.fails("topic", "describe", "no-such-thing-anywhere")
    assert "does not exist" in cli.fails("topic", "delete", "no-such-thing-anywhere")
    assert "already exists" in cli.fails("topic", "create", topic)
    assert cli.ok("topic", "create", topic, "--if-not-exists") == f"topic {topic} already exists\n"
    assert "retention.ms" in cli.fails("topic", "create", topic + "2", "-c", "retention.mss=1")
    assert "b/d" in cli.fails("topic", "create", "b/d")
    assert "partitions can only grow" in cli.fails("topic", "alter", topic, "-p", "1")
    assert "there is no partition 7" in cli.fails("consume", topic, "-p", "7")
    assert "there is no partition 7" in cli.fails("produce", topic, "x", "-p", "7")


def test_group_is_configured_before_its_first_member(cli: Cli, topic: str) -> None:
    group = f"{topic}-workers"
    limit = "share.delivery.count.limit"
    assert cli.ok("group", "alter", group, "-c", f"{limit}=3") == (
        f"altered group {group}: {limit}=3\n"
    )
    changed = ("config", "list", "-g", group, "--changed")
    assert f"{limit} 3 group" in [" ".join(row.split()) for row in cli.ok(*changed).splitlines()]
    assert f"{limit} = 3" in cli.ok("config", "describe", limit, "-g", group)
    cli.ok("group", "alter", group, "-d", limit)
    assert limit not in cli.ok(*changed)
    assert cli.fails("group", "alter", group, "-c", "share.delivery.count.limitt=3") == (
        f"penstock: group '{group}': unknown group config 'share.delivery.count.limitt', "
        f"did you mean '{limit}'?"
    )
    assert "nothing to change" in cli.fails("group", "alter", group)
    assert "use only one of" in cli.fails("config", "list", "-g", group, "-t", topic)


def test_topics_are_listed_by_name(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", f"{topic}.a", f"{topic}.b", f"__{topic}")
    assert cli.ok("topic", "list", f"{topic}.?", "-n") == f"{topic}.a\n{topic}.b\n"
    shown = json.loads(cli.ok("topic", "list", f"{topic}.b", "-n", "--format", "json"))
    assert [row["name"] for row in shown] == [f"{topic}.b"]
    assert f"__{topic}" not in cli.ok("topic", "list")
    assert cli.ok("topic", "list", f"__{topic[:3]}*", "-n").splitlines()[0].startswith("__")


def test_records_are_delayed_and_values_omitted(cli: Cli, topic: str, tmp_path: Path) -> None:
    (tmp_path / "photo").write_bytes(b"two\nlines")
    cli.ok("produce", topic, "--file", str(tmp_path / "photo"), "--delay", "5m", "--priority", "9")
    row = json.loads(cli.ok("consume", topic, "-e", "--format", "json"))
    assert row["value"] == "two\nlines"
    assert row["headers"] == [
        {"name": "penstock-delay-ms", "value": "300000"},
        {"name": "penstock-priority", "value": "9"},
    ]
    row = json.loads(cli.ok("consume", topic, "-e", "--format", "json", "--meta-only"))
    assert "value" not in row
    assert row["value_bytes"] == 9
    assert "two" not in cli.ok("consume", topic, "-e", "--meta-only")
    assert "--file is the whole value" in cli.fails(
        "produce", topic, "x", "--file", str(tmp_path / "photo")
    )


def test_copy_needs_an_existing_topic(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    said = cli.fails("replay", topic, "--to-topic", f"{topic}-again", "--from-offset", "start")
    assert f"create it first: `penstock topic create {topic}-again -p " in said


def test_configs_are_listed_and_explained(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-c", "max.message.bytes=2000")
    changed = json.loads(cli.ok("config", "list", "-t", topic, "--changed", "--format", "json"))
    assert [(c["name"], c["value"], c["source"]) for c in changed] == [
        ("max.message.bytes", "2000", "topic")
    ]
    assert "retention.ms = " in cli.ok("config", "describe", "retention.ms", "-t", topic)
    assert "did you mean 'retention.ms'" in cli.fails(
        "config", "describe", "retention.mss", "-t", topic
    )
    assert "num.partitions" in cli.ok("config", "list")
    assert "broker 99 does not exist" in cli.fails("config", "list", "--broker", "99")


def test_truncate_is_all_or_nothing(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-p", "2")
    cli.ok("produce", topic, "-p", "0", given=b"a\nb\nc\n")
    line = cli.fails("topic", "truncate", topic, "--before", "2", "--yes")
    assert f"{topic}[1] ends at offset 0, before 2; --before end deletes all" in line
    assert cli.ok("consume", topic, "-e").split() == ["a", "b", "c"]
    cli.ok("topic", "truncate", topic, "-p", "0", "--before", "2", "--yes")
    assert cli.ok("consume", topic, "-e").split() == ["c"]


def test_many_topics_are_created_though_one_fails(cli: Cli, topic: str) -> None:
    names = [f"{topic}-{n}" for n in range(3)]
    cli.ok("topic", "create", names[1])
    done = cli.run("topic", "create", *names)
    assert done.returncode == 1
    assert done.stdout.decode() == f"created topic {names[0]}\ncreated topic {names[2]}\n"
    (line,) = done.stderr.decode().splitlines()
    assert f"'{names[1]}' already exists (1 of 3 failed); choose another name" in line


def test_broker_configs_are_set_and_removed(fresh_broker: FreshBroker) -> None:
    cli = Cli(fresh_broker().bootstrap)

    def found(name: str) -> tuple[str, str]:
        entry = json.loads(cli.ok("config", "describe", name, "--format", "json"))
        return entry["value"], entry["source"]

    said = cli.ok("config", "set", "log.retention.ms=3600000", "max.connections=77")
    assert said == "changed all brokers: log.retention.ms=3600000, max.connections=77\n"
    assert found("log.retention.ms") == ("3600000", "cluster")
    cli.ok("config", "set", "log.retention.ms=7200000", "--broker", "1")
    assert found("log.retention.ms") == ("7200000", "broker")
    said = cli.ok("config", "unset", "log.retention.ms", "--broker", "1")
    assert said == "changed broker 1: log.retention.ms reset to the value at the start\n"
    assert found("log.retention.ms") == ("3600000", "cluster")
    cli.ok("config", "unset", "log.retention.ms", "max.connections")
    assert found("max.connections") == ("10000", "default")
    assert "--set num.partitions=" in cli.fails("config", "set", "num.partitions=3")
    assert "did you mean 'max.connections'?" in cli.fails("config", "set", "max.connection=3")
    assert "did you mean" in cli.fails("config", "unset", "max.connection")
    assert "broker 9 does not exist" in cli.fails(
        "config", "set", "max.connections=3", "--broker", "9"
    )
    assert "Not a number" in cli.fails("config", "set", "max.connections=few")
    assert "write name=value" in cli.fails("config", "set", "max.connections")


def test_batches_are_split_to_the_topic_limit(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "-c", "max.message.bytes=2000")
    lines = [b"%d" % n * 20 for n in range(500)]
    cli.ok("produce", topic, given=b"\n".join(lines))
    assert cli.ok("consume", topic, "-e").encode().splitlines() == lines
    complaint = cli.fails("produce", topic, "x" * 3000)
    assert "max.message.bytes" in complaint


def test_bench_measures_and_cleans_up(cli: Cli) -> None:
    results = json.loads(cli.ok("bench", "-n", "5000", "-p", "2", "--format", "json"))
    assert [(r["phase"], r["records"]) for r in results] == [("produce", 5000), ("consume", 5000)]
    assert all(r["records_per_s"] > 0 for r in results)
    assert "penstock-bench-" not in cli.ok("topic", "list")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_prints_one_line_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [COMMAND, "up", "--data", str(tmp_path / "data"), "--kafka-port", "0", "--http-port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    ready = READY.fullmatch(line.strip())
    assert ready is not None, line
    cli = Cli(ready["kafka"])
    cli.ok("produce", "kept", "safe")
    process.send_signal(number)
    out, complaint = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out, complaint) == (0, b"", b"")


def test_produced_records_survive_a_restart(fresh_broker: FreshBroker) -> None:
    process = fresh_broker()
    Cli(process.bootstrap).ok("produce", "kept", given=b"a\nb\n")
    process.stop()
    process.start()
    assert Cli(process.bootstrap).ok("consume", "kept", "-e") == "a\nb\n"


def test_settings_reach_the_broker(fresh_broker: FreshBroker) -> None:
    process = fresh_broker(sets={"num.partitions": 3, "auto.create.topics.enable": "false"})
    cli = Cli(process.bootstrap)
    cli.ok("topic", "create", "t")
    (described,) = json.loads(cli.ok("topic", "describe", "t", "--format", "json"))
    assert len(described["partitions"]) == 3
    assert "does not exist" in cli.fails("produce", "other", "x")


def test_port_in_use_is_one_line(fresh_broker: FreshBroker, tmp_path: Path) -> None:
    process = fresh_broker()
    port = process.bootstrap.rpartition(":")[2]
    done = subprocess.run(
        [COMMAND, "up", "--data", str(tmp_path / "other"), "--kafka-port", port],
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1
    assert done.stdout == b""
    assert len(done.stderr.splitlines()) == 1, done.stderr.decode()
    assert b"in use" in done.stderr


def test_config_file_is_read_and_flags_override_it(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        f'data = "{tmp_path}/data"\nkafka-port = 1\nhttp-port = 0\nnum.partitions = 4\n'
    )
    process = subprocess.Popen(
        [COMMAND, "up", "--config", str(file), "--kafka-port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    ready = READY.match(process.stdout.readline().decode())
    assert ready is not None
    cli = Cli(ready["kafka"])
    cli.ok("topic", "create", "t")
    assert (
        len(json.loads(cli.ok("topic", "describe", "t", "--format", "json"))[0]["partitions"]) == 4
    )
    process.terminate()
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0


def test_optimized_python_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-m", "penstock.cli.main", "up", "--data", str(tmp_path / "d")],
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1
    assert b"-O" in done.stderr
    assert b"Traceback" not in done.stderr


def test_producer_survives_a_broker_restart(fresh_broker: FreshBroker) -> None:
    """Every line is there once and in order although the broker was killed in between."""
    process = fresh_broker()
    kafka_port = int(process.bootstrap.rpartition(":")[2])
    cli = Cli(process.bootstrap)
    cli.ok("topic", "create", "t")
    with cli.start("produce", "t", "--timeout", "60") as producing:
        assert producing.stdin is not None
        assert producing.stdout is not None
        producing.stdin.write(b"0\n")
        producing.stdin.flush()
        # A producer that never reached the broker gives up at once: it has to have begun.
        assert cli.ok("consume", "t", "-n", "1") == "0\n"
        for n in range(1, 300):
            producing.stdin.write(b"%d\n" % n)
            producing.stdin.flush()
            time.sleep(0.005)
            if n == 100:
                process.kill()
                process.kafka_port = kafka_port
                process.spawn()
        producing.stdin.close()
        process.wait_ready()
        assert producing.wait(TIMEOUT_S) == 0
        assert b"produced 300 records" in producing.stdout.read()
    assert cli.ok("consume", "t", "-e").split() == [str(n) for n in range(300)]
