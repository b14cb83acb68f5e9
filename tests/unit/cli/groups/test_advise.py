"""`penstock group advise` against a broker: a hot key is found in a hot partition."""

import json

import pytest

from penstock.cli import main
from penstock.cli.groups.advise import (
    Finding,
    HotKey,
    conclude,
    hot_keys,
    hot_partitions,
    show_key,
    stuck_partitions,
)
from penstock.client.admin.scaling import PartitionLag, Scaling
from penstock.testing import Broker


def test_hot_key_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=4)
        at = ["-b", broker.bootstrap]
        for number in range(12):
            broker.publish("orders", b"v", key=f"k{number}")
        seek = ["group", "seek", "billing", "--to", "start", "-t", "orders", "--yes", *at]
        assert main.run(seek) == 0
        for _ in range(60):
            broker.publish("orders", b"v", key="big")
        capsys.readouterr()
        arguments = ["group", "advise", "billing", "--seconds", "1", *at]
        assert main.run([*arguments, "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["lag"] == 72
        (hot,) = found["hot_partitions"]
        assert hot["hot_keys"][0]["key"] == "big"
        assert any("no members" in one["what"] for one in found["findings"])
        assert main.run(arguments) == 0
        assert "-> spread the hot key" in capsys.readouterr().out


Rows = dict[tuple[str, int], PartitionLag]


def rows(*pairs: tuple[int, int]) -> Rows:
    return {("t", index): PartitionLag(*pair) for index, pair in enumerate(pairs)}


def findings(
    before: Rows,
    now: Rows,
    members: int = 1,
    desired: int = 1,
    keys: dict[tuple[str, int], list[HotKey]] | None = None,
) -> list[Finding]:
    hot = hot_partitions(before, now)
    return conclude(before, now, members, Scaling(desired, "why"), keys or {}, hot)


def test_partition_with_several_times_its_share_is_hot() -> None:
    before = rows(*[(0, 0)] * 6)
    assert hot_partitions(before, rows((0, 300), *[(0, 10)] * 5)) == [("t", 0)]
    assert hot_partitions(before, rows(*[(0, 100)] * 6)) == []
    assert hot_partitions(before, rows((0, 9), *[(0, 0)] * 5)) == []


def test_one_of_two_partitions_with_nearly_everything_is_hot() -> None:
    before = rows((0, 0), (0, 0))
    assert hot_partitions(before, rows((0, 95), (0, 5))) == [("t", 0)]
    assert hot_partitions(before, rows((0, 60), (0, 40))) == []


def test_lag_identifies_the_hot_partition_without_writes() -> None:
    now = rows((0, 500), *[(10, 10)] * 5)
    assert hot_partitions(now, now) == [("t", 0)]


def test_stuck_partition_is_distinguished_from_a_stuck_group() -> None:
    before, now = rows((5, 50), (5, 50)), rows((5, 60), (20, 60))
    assert stuck_partitions(before, now) == [("t", 0)]
    (found,) = findings(before, now)
    assert "t-0" in found.what
    assert "dead-letter queue" in found.proposal
    (found,) = findings(before, before)
    assert "nothing was read" in found.what


def test_healthy_group_is_not_blamed() -> None:
    # 100 records a second, committed every five seconds; one partition was quiet until now.
    before = rows((1000, 1450), (1000, 1100), (7, 7))
    now = rows((2000, 2450), (2000, 2030), (7, 8))
    assert findings(before, now, desired=2) == []
    assert findings(before, now, members=3, desired=1) == [], "spare members are not a fault"
    burst = rows((2000, 2450), (2000, 2030), (7, 900))
    assert findings(before, burst) == [], "written just now, so not yet committed"


def test_short_measurement_shows_no_stuck_partition() -> None:
    before, now = rows((5, 50), (5, 50)), rows((5, 60), (50, 60))
    hot: list[tuple[str, int]] = []
    scaling = Scaling(1, "why")
    assert conclude(before, now, 1, scaling, {}, hot, seconds=2.0) == []
    assert len(conclude(before, now, 1, scaling, {}, hot, seconds=10.0)) == 1


def test_group_that_falls_behind_is_advised_to_add_members() -> None:
    before, now = rows((0, 2000), (0, 2000)), rows((100, 2500), (100, 2500))
    (found,) = findings(before, now, desired=2)
    assert found.proposal == "add 1"


def test_group_without_members_is_advised_to_add_some() -> None:
    found = findings(rows((0, 9)), rows((0, 9)), members=0, desired=2)
    assert [one.what for one in found] == [
        "the group has no members",
        "2 members would suffice (why)",
    ]
    assert found[1].proposal == "add 2"


def test_members_without_a_partition_are_reported() -> None:
    (found,) = findings(rows((5, 5)), rows((5, 5)), members=3, desired=3)
    assert found.what == "2 of 3 members have no partition"


def test_hot_key_is_named_with_a_proposal() -> None:
    keys: list[bytes | None] = [b"big"] * 60 + [b"k%d" % n for n in range(39)] + [None]
    assert hot_keys(keys) == [HotKey(b"big", 0.6)]
    assert hot_keys([b"a"] * 5) == []
    before, now = rows(*[(0, 0)] * 6), rows((1, 300), *[(9, 10)] * 5)
    (found,) = findings(before, now, keys={("t", 0): hot_keys(keys)})
    assert "a key: big (60%)" in found.what
    assert "salting" in found.proposal
    (found,) = findings(before, now)
    assert "no single key" in found.what


def test_key_is_shown_without_control_characters() -> None:
    assert show_key(b"a\x1b[31m") == "a\\x1b[31m"
    assert show_key(b"\xff") == "\\xff"
    assert len(show_key(b"x" * 500)) == 40
