"""Migration of classic groups to consumer groups and back, through the shard."""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.state.groups.config import GroupConfig
from penstock.state.groups.consumer_protocol import (
    Assignment,
    ProtocolTopicPartitions,
    Subscription,
    read_assignment,
    write_assignment,
    write_subscription,
)
from penstock.wire.messages.classic_groups import ListGroupsRequest
from tests.unit.state.groups.driver import Driver, subscription

T = ("t",)


def given(*partitions: int) -> bytes:
    rows = [ProtocolTopicPartitions(topic="t", partitions=list(partitions))]
    return write_assignment(Assignment(assigned_partitions=rows), 3)


def owning(*partitions: int) -> tuple[tuple[str, bytes], ...]:
    rows = [ProtocolTopicPartitions(topic="t", partitions=list(partitions))]
    told = Subscription(topics=["t"], owned_partitions=rows)
    return (("range", write_subscription(told)),)


def partitions_of(reply: Any) -> list[int]:
    rows = read_assignment(reply.assignment).assigned_partitions
    return [partition for row in rows for partition in row.partitions]


def type_of(driver: Driver) -> str:
    response = driver.call("ListGroups", ListGroupsRequest())
    return ", ".join(f"{row.group_type} {row.group_state}" for row in response.groups)


def classic_pair(**config: Any) -> tuple[Driver, int, str, str]:
    """A stable classic group: a owns 0 and 1, b owns 2 and 3."""
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=0, **config))
    driver.set_topics(t=4)
    (a, ta), (b, _) = driver.enter(), driver.enter()
    driver.sleep(1)
    generation = driver.replies[ta].generation_id
    driver.sync("g", a, generation, {a: given(0, 1), b: given(2, 3)})
    driver.sync("g", b, generation)
    return driver, generation, a, b


def test_classic_group_is_upgraded_while_its_members_go_on() -> None:
    driver, generation, a, b = classic_pair()
    joined = driver.beat(member="n", topics=T)
    assert joined.error_code == 0
    assert joined.member_epoch == generation + 1
    assert driver.owned(joined) == {}
    assert type_of(driver) == "Consumer Reconciling"
    assert driver.commit("g", 5, member=a, epoch=generation) == ErrorCode.NONE
    assert driver.heartbeat("g", a, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat("g", b, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    # a keeps all but what it must give up; it is held at its generation until it has done so.
    first = driver.replies[driver.join(member=a, protocols=owning(0, 1))]
    synced = driver.replies[driver.sync("g", a, first.generation_id)]
    assert first.error_code == synced.error_code == 0
    assert set(partitions_of(synced)) <= {0, 1}
    owned: tuple[int, ...]
    for member, owned in ((a, (0, 1)), (b, (2, 3))):
        for _ in range(3):
            reply = driver.replies[driver.join(member=member, protocols=owning(*owned))]
            synced = driver.replies[driver.sync("g", member, reply.generation_id)]
            owned = tuple(partitions_of(synced))
            if driver.heartbeat("g", member, reply.generation_id) == ErrorCode.NONE:
                break
    moved = driver.beat(member="n", epoch=generation + 1)
    assert len(driver.owned(moved)["t"]) == 1
    assert type_of(driver) == "Consumer Stable"


def test_upgrade_answers_waiting_members() -> None:
    driver, _, a, _ = classic_pair()
    waiting = driver.join(member=a)
    assert waiting not in driver.replies
    driver.beat(member="n", topics=T)
    assert driver.replies[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_upgraded_group_forgets_silent_classic_members() -> None:
    driver, generation, a, _ = classic_pair()
    driver.beat(member="n", topics=T)
    driver.sleep(10_001)
    assert driver.heartbeat("g", a, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    reply = driver.beat(member="n", epoch=generation + 1)
    assert driver.owned(reply) == {"t": [0, 1, 2, 3]}


def test_classic_member_joins_a_consumer_group() -> None:
    driver = Driver()
    driver.set_topics(t=4)
    driver.beat(member="n", topics=T)
    first = driver.replies[driver.join()]
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = driver.replies[driver.join(member=first.member_id)]
    assert joined.error_code == 0
    assert joined.generation_id == 2
    assert joined.leader == ""
    synced = driver.replies[driver.sync("g", first.member_id, 2)]
    assert partitions_of(synced) == []
    assert driver.heartbeat("g", first.member_id, 2) == ErrorCode.NONE
    driver.beat(member="n", epoch=1)
    driver.beat(member="n", epoch=1, owned={"t": [0, 1]})
    assert driver.heartbeat("g", first.member_id, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(member=first.member_id)
    synced = driver.replies[driver.sync("g", first.member_id, 2)]
    assert partitions_of(synced) == [2, 3]


def test_classic_member_must_sync_in_time() -> None:
    driver = Driver()
    driver.set_topics(t=4)
    driver.beat(member="n", topics=T)
    first = driver.replies[driver.join()]
    driver.join(member=first.member_id, session_ms=60_000, rebalance_ms=20_000)
    driver.sleep(20_001)
    assert driver.heartbeat("g", first.member_id, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_is_classic_again_when_its_last_consumer_member_goes() -> None:
    driver, generation, a, b = classic_pair()
    driver.beat(member="n", topics=T)
    driver.beat(member="n", epoch=-1)
    assert type_of(driver) == "Classic PreparingRebalance"
    assert driver.heartbeat("g", a, generation) == ErrorCode.ILLEGAL_GENERATION
    tokens = [driver.join(member=a), driver.join(member=b)]
    replies = [driver.replies[token] for token in tokens]
    assert all(reply.error_code == 0 for reply in replies)
    assert replies[0].generation_id > generation + 1
    assert {row.member_id for reply in replies for row in reply.members} == {a, b}


def test_downgrade_survives_a_crash() -> None:
    driver, _, a, b = classic_pair()
    driver.beat(member="n", topics=T)
    driver.sleep(9_000)
    for member in (a, b):
        driver.join(member=member)
    driver.beat(member="n", epoch=-1)
    driver.crash()
    assert type_of(driver) == "Classic PreparingRebalance"
    tokens = [driver.join(member=a), driver.join(member=b)]
    assert all(driver.replies[token].error_code == 0 for token in tokens)


def test_silent_consumer_member_brings_the_group_back_too() -> None:
    driver, _, a, b = classic_pair()
    driver.beat(member="n", topics=T)
    for _ in range(6):
        driver.sleep(8_000)
        for member in (a, b):
            reply = driver.replies.get(driver.join(member=member))
            if reply is not None:
                driver.sync("g", member, reply.generation_id)
    assert type_of(driver).startswith("Classic")


def test_static_classic_member_replaces_the_last_consumer_one() -> None:
    driver = Driver()
    driver.set_topics(t=2)
    driver.beat(member="n", topics=T, instance="i1")
    reply = driver.replies[driver.join(instance="i1")]
    assert reply.error_code == 0
    assert type_of(driver) == "Classic PreparingRebalance"
    assert driver.beat(member="n", epoch=1, instance="i1").error_code == (
        ErrorCode.GROUP_ID_NOT_FOUND
    )


def test_migration_can_be_switched_off() -> None:
    driver, _, _, _ = classic_pair(can_upgrade=False)
    assert driver.beat(member="n", topics=T).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert type_of(driver) == "Classic Stable"
    driver, generation, a, _ = classic_pair(can_downgrade=False)
    driver.beat(member="n", topics=T)
    driver.beat(member="n", epoch=-1)
    assert type_of(driver).startswith("Consumer")
    assert driver.heartbeat("g", a, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_group_that_is_not_of_consumers_is_not_upgraded() -> None:
    driver = Driver()
    driver.enter(protocol_type="connect", protocols=(("compatible", b""),))
    driver.sleep(1)
    assert driver.beat(member="n", topics=T).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_group_whose_words_cannot_be_read_is_not_upgraded() -> None:
    driver = Driver()
    driver.stable_group(protocols=(("range", b"\x00"),))
    assert driver.beat(member="n", topics=T).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_empty_group_changes_its_type_and_keeps_counting() -> None:
    driver = Driver()
    driver.set_topics(t=1)
    generation, (a,) = driver.stable_group()
    driver.leave("g", a)
    reply = driver.beat(member="n", topics=T)
    assert reply.member_epoch > generation
    assert type_of(driver) == "Consumer Stable"
    driver.beat(member="n", epoch=-1)
    later, _ = driver.stable_group()
    assert later > reply.member_epoch
    assert type_of(driver) == "Classic Stable"


def test_classic_member_must_support_the_protocol_of_the_group() -> None:
    driver = Driver()
    driver.set_topics(t=1)
    driver.beat(member="n", topics=T)
    wrong = driver.replies[driver.join(protocol_type="connect")]
    assert wrong.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    garbled = driver.replies[driver.join(protocols=(("range", b"\xff"),), version=3)]
    assert garbled.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    driver.join(version=3)
    other = driver.replies[driver.join(protocols=(("other", subscription("t")),))]
    assert other.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_classic_members_leave_a_consumer_group_by_leave_group() -> None:
    driver, _, a, b = classic_pair()
    driver.beat(member="n", topics=T)
    assert driver.leave("g", a, "n", "unknown") == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert driver.leave("g", b) == [ErrorCode.NONE]
    assert type_of(driver) == "Consumer Assigning"
