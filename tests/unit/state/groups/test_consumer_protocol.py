"""The consumer protocol's bytes inside the classic one."""

import pytest

from penstock.base.errors import PeerError
from penstock.state.groups.consumer_protocol import (
    Assignment,
    ProtocolTopicPartitions,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)

OWNED = [ProtocolTopicPartitions(topic="t", partitions=[0, 2])]


@pytest.mark.parametrize("version", range(4))
def test_subscription_comes_back_as_far_as_its_version_carries_it(version: int) -> None:
    told = Subscription(
        topics=["t", "u"],
        user_data=b"x",
        owned_partitions=OWNED,
        generation_id=7,
        rack_id="r",
    )
    found_version, found = read_subscription(write_subscription(told, version))
    assert found_version == version
    assert list(found.topics) == ["t", "u"]
    assert [row.topic for row in found.owned_partitions] == (["t"] if version >= 1 else [])
    assert found.generation_id == (7 if version >= 2 else -1)
    assert found.rack_id == ("r" if version >= 3 else None)


def test_newer_version_is_read_as_the_newest_known() -> None:
    data = write_subscription(Subscription(topics=["t"]), 3)
    newer = b"\x00\x09" + data[2:] + b"more"
    assert read_subscription(newer)[0] == 3


def test_assignment_comes_back_and_no_bytes_are_nothing() -> None:
    data = write_assignment(Assignment(assigned_partitions=OWNED), 1)
    rows = read_assignment(data).assigned_partitions
    assert [(row.topic, list(row.partitions)) for row in rows] == [("t", [0, 2])]
    assert read_assignment(b"").assigned_partitions == ()


@pytest.mark.parametrize("data", [b"\x00", b"\xff\xff", b"\x00\x00", b"\x00\x00\x7f\xff\xff\xff"])
def test_garbage_is_the_peers_fault(data: bytes) -> None:
    with pytest.raises(PeerError):
        read_subscription(data)
