"""`penstock group` and `penstock txn` against a real broker, with groups of real consumers."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition

from tests.clients.groups import Member, poll_until, share
from tests.clients.test_cli import TIMEOUT_S, Cli
from tests.conftest import Broker
from tests.waiting import eventually

pytestmark = pytest.mark.clients

RECORDS = 10


@pytest.fixture
def cli(broker: Broker) -> Cli:
    return Cli(broker.bootstrap)


@pytest.fixture
def filled(cli: Cli, topic: str) -> str:
    """A topic of two partitions with ten records in each."""
    cli.ok("topic", "create", topic, "-p", "2")
    lines = b"".join(b"%d\n" % n for n in range(RECORDS))
    for partition in ("0", "1"):
        cli.ok("produce", topic, "-p", partition, given=lines)
    return topic


def described(cli: Cli, group: str) -> dict[str, Any]:
    (document,) = json.loads(cli.ok("group", "describe", group, "--format", "json"))
    assert isinstance(document, dict)
    return document


def committed(cli: Cli, group: str) -> list[int]:
    return [row["committed_offset"] for row in described(cli, group)["partitions"]]


def seek(cli: Cli, *arguments: str) -> list[tuple[int | None, int, int | None]]:
    """Old offset, new offset and difference of each partition."""
    moved = json.loads(cli.ok("group", "seek", *arguments, "--format", "json"))
    assert moved["executed"] == ("--yes" in arguments or "--execute" in arguments)
    return [(p["old_offset"], p["new_offset"], p["difference"]) for p in moved["partitions"]]


def test_group_consumption_continues_where_it_stopped(cli: Cli, filled: str) -> None:
    group = f"group-{filled}"

    def read(*options: str) -> list[str]:
        shape = ("-f", "%p:%v\\n")
        return cli.ok("consume", filled, "-g", group, *shape, *options).splitlines()

    first = read("-n", "7")
    assert len(first) == 7
    assert sum(committed(cli, group)) == 7, "not a record more than was printed"
    rest = read("-e")
    assert sorted(first + rest) == sorted(f"{p}:{n}" for p in (0, 1) for n in range(RECORDS))
    assert committed(cli, group) == [RECORDS, RECORDS]
    assert read("-e") == []
    assert described(cli, group)["state"] == "Empty"


def test_new_group_starts_at_the_given_offset(cli: Cli, filled: str) -> None:
    late = cli.ok("consume", filled, "-g", f"late-{filled}", "-o", "-2", "-e", "-f", "%v ")
    assert late == "8 9 8 9 "
    none = cli.ok("consume", filled, "-g", f"end-{filled}", "-o", "end", "-e")
    assert none == ""
    assert "leave out -p" in cli.fails("consume", filled, "-g", "g", "-p", "0")
    assert "without a committed offset" in cli.fails("consume", filled, "-g", "g", "-o", "1:5")


def is_shared(cli: Cli, group: str) -> bool:
    """True if each of two members has a partition, and no record is left."""
    done = cli.run("group", "describe", group, "--format", "json")
    if done.returncode != 0:
        return False  # No member has joined yet.
    (found,) = json.loads(done.stdout)
    owners = {row["member_id"] for row in found["partitions"]}
    return len(owners) == len(found["members"]) == 2 and found["lag"] == 0


def test_members_share_a_topic_and_commit_when_interrupted(cli: Cli, filled: str) -> None:
    group = f"group-{filled}"
    with (
        cli.start("consume", filled, "-g", group) as one,
        cli.start("consume", filled, "-g", group) as other,
    ):
        eventually(lambda: is_shared(cli, group), "each of the two members has a partition")
        for member in (one, other):
            member.send_signal(signal.SIGINT)
        printed = [member.communicate(timeout=TIMEOUT_S) for member in (one, other)]
    assert [one.returncode, other.returncode] == [130, 130]
    assert b"Traceback" not in printed[0][1] + printed[1][1]
    lines = sorted(b"".join(out for out, _ in printed).split())
    assert lines == sorted([b"%d" % n for n in range(RECORDS)] * 2)
    assert committed(cli, group) == [RECORDS, RECORDS]
    assert described(cli, group)["members"] == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_with_members_is_described_and_not_changed(
    broker: Broker, cli: Cli, filled: str, protocol: str
) -> None:
    group = f"group-{filled}"
    settings = {"session_timeout_ms": 6_000} if protocol == "classic" else {}
    members = [Member(broker, group, filled, group_protocol=protocol, **settings) for _ in range(2)]
    try:
        poll_until(members, lambda: share(members, 2), "both members have a partition")
        for member in members:
            positions = [TopicPartition(filled, index, 4) for index in member.partitions]
            member.consumer.commit(offsets=positions, asynchronous=False)
        found = described(cli, group)
        assert (found["state"], found["type"], len(found["members"])) == ("Stable", protocol, 2)
        assert found["assignor"] in ("range", "uniform")
        assert [row["committed_offset"] for row in found["partitions"]] == [4, 4]
        assert [row["lag"] for row in found["partitions"]] == [6, 6]
        assert found["lag"] == 12
        assert found["lag_ms"] > 0
        owners = {row["member_id"] for row in found["partitions"]}
        assert owners == {member["member_id"] for member in found["members"]}
        assert group in cli.ok("group", "list", "--state", "stable")
        assert "lag          12 records" in cli.ok("group", "describe", group)

        for verb, rest in (("seek", ["--to", "start", "--yes"]), ("delete", ["--yes"])):
            line = cli.fails("group", verb, group, *rest)
            assert line == (
                f"penstock: group {group!r} has 2 members (Stable); "
                f"stop them first, then {verb} again"
            )
        line = cli.fails("group", "delete", group, "-t", filled, "--yes")
        assert line.endswith("members are subscribed to this topic; stop its members first")
    finally:
        for member in members:
            member.close()
    assert described(cli, group)["members"] == []
    assert committed(cli, group) == [4, 4]
    assert cli.ok("group", "delete", group, "--yes") == f"deleted group {group}\n"
    assert "does not exist" in cli.fails("group", "describe", group)


def test_seek_previews_first_and_moves_on_confirmation(cli: Cli, filled: str) -> None:
    group = f"group-{filled}"
    assert seek(cli, group, "--to", "4", "-t", filled) == [(None, 4, None)] * 2
    assert "does not exist" in cli.fails("group", "describe", group)
    assert "does not exist" in cli.fails("group", "seek", group, "--to", "start")

    assert seek(cli, group, "--to", "4", "-t", filled, "--yes") == [(None, 4, None)] * 2
    assert seek(cli, group, "--to", "end") == [(4, 10, 6)] * 2
    assert committed(cli, group) == [4, 4]
    assert seek(cli, group, "--to", "end", "-t", f"{filled}:1", "--execute") == [(4, 10, 6)]
    assert committed(cli, group) == [4, 10]
    assert seek(cli, group, "--to", "-3", "--yes") == [(4, 7, 3), (10, 7, -3)]
    assert seek(cli, group, "--to", "@-1h") == [(7, 0, -7)] * 2
    assert seek(cli, group, "--to", "999") == [(7, 10, 3)] * 2
    shown = cli.ok("group", "seek", group, "--to", "999").splitlines()
    assert shown[0].split() == ["TOPIC", "PARTITION", "OLD", "NEW", "DIFFERENCE"]
    assert shown[1].split(maxsplit=5) == [filled, "0", "7", "10", "+3", "999 is outside the log"]
    assert shown[-1] == "nothing was changed: this was a preview; pass --yes to move the group"
    assert "there is no partition 7" in cli.fails(
        "group", "seek", group, "--to", "end", "-t", f"{filled}:7"
    )
    assert "does not exist" in cli.fails("group", "seek", group, "--to", "end", "-t", "no-topic")


def test_offsets_are_copied_by_group_and_by_file(cli: Cli, filled: str, tmp_path: Path) -> None:
    group, copy = f"group-{filled}", f"copy-{filled}"
    seek(cli, group, "--to", "4", "-t", filled, "--yes")
    saved = tmp_path / "offsets.csv"
    saved.write_text(cli.ok("group", "describe", group, "--format", "csv"))
    assert saved.read_text() == f"{filled},0,4\n{filled},1,4\n"

    assert seek(cli, copy, "--to", f"group:{group}", "--yes") == [(None, 4, None)] * 2
    both = cli.ok("group", "describe", group, copy, "--format", "csv")
    assert both.splitlines()[0] == f"{group},{filled},0,4"
    seek(cli, group, "--to", "end", "--yes")
    assert seek(cli, group, "--to", f"file:{saved}", "-t", f"{filled}:1", "--yes") == [(10, 4, -6)]
    assert committed(cli, group) == [10, 4]
    done = cli.run("group", "seek", group, "--to", "file:-", "--yes", given=both.encode())
    assert done.returncode == 0, done.stderr
    assert committed(cli, group) == [4, 4]
    assert "does not exist" in cli.fails("group", "seek", copy, "--to", f"group:none-{filled}")

    assert (
        cli.ok("group", "delete", copy, "-t", f"{filled}:0", "--yes")
        == f"deleted 1 offset of group {copy}\n"
    )
    assert [row["partition"] for row in described(cli, copy)["partitions"]] == [1]
    cli.ok("group", "delete", copy, group, "--yes")
    assert filled not in cli.ok("group", "list")


@pytest.fixture
def producer(broker: Broker, filled: str) -> Iterator[Producer]:
    """A producer in the middle of a transaction, with one record in partition 0."""
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": f"txn-{filled}"}
    client = Producer({**settings, "transaction.timeout.ms": 60_000, "log_level": 0})
    client.init_transactions(30)
    client.begin_transaction()
    client.produce(filled, b"open", partition=0)
    assert client.flush(30) == 0
    yield client
    client.purge()


def test_open_transaction_is_described_and_aborted(
    cli: Cli, filled: str, producer: Producer
) -> None:
    name = f"txn-{filled}"
    listed = json.loads(cli.ok("txn", "list", "--state", "ongoing", "--format", "json"))
    assert name in [row["transactional_id"] for row in listed]
    assert name not in cli.ok("txn", "list", "--older", "1h")
    assert filled not in cli.ok("txn", "list", "--hanging", "--older", "0s", "-t", filled)
    (found,) = json.loads(cli.ok("txn", "describe", name, "--format", "json"))
    assert (found["state"], found["timeout_ms"]) == ("Ongoing", 60_000)
    assert [(p["topic"], p["partition"], p["start_offset"]) for p in found["partitions"]] == [
        (filled, 0, RECORDS)
    ]
    assert "Ongoing" in cli.ok("txn", "describe", name)

    # Ending it in one partition alone would tear it.
    line = cli.fails("txn", "abort", "-t", filled, "-p", "0", "--start-offset", str(RECORDS))
    assert line.endswith(f"use `penstock txn abort {name}`")
    line = cli.fails("txn", "abort", "-t", filled, "-p", "1", "--start-offset", "3")
    assert line.endswith("none is open there")

    assert "pass --yes to confirm" in cli.fails("txn", "abort", name)
    assert cli.ok("txn", "abort", name, "--yes") == f"aborted the transaction of {name}\n"
    assert cli.ok("consume", filled, "-p", "0", "--committed", "-e").count("\n") == RECORDS
    producer.produce(filled, b"late", partition=0)
    with pytest.raises(KafkaException, match="fenced"):
        producer.commit_transaction(30)
    assert "nothing to abort" in cli.fails("txn", "abort", name)
    assert f"did you mean {name!r}" in cli.fails("txn", "describe", f"{name}x")
