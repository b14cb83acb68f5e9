"""Classic groups: join, sync, heartbeat and leave, through the shard."""

import pytest

from penstock.base.errors import ErrorCode
from penstock.state.groups.config import GroupConfig
from penstock.wire.messages.classic_groups import (
    DescribeGroupsRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tests.unit.state.groups.clients import ClassicClient
from tests.unit.state.groups.driver import Driver, subscription


def state_of(driver: Driver, group: str = "g") -> str:
    response = driver.call("DescribeGroups", DescribeGroupsRequest(groups=[group]))
    return str(response.groups[0].group_state)


def test_member_without_an_id_is_given_one_and_must_come_again() -> None:
    driver = Driver()
    reply = driver.replies[driver.join()]
    assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert reply.member_id.startswith("c-")
    token = driver.join(member=reply.member_id)
    assert token not in driver.replies
    driver.sleep(1)
    assert driver.replies[token].generation_id == 1
    assert driver.replies[token].leader == reply.member_id


def test_before_version_4_a_member_joins_without_an_id() -> None:
    driver = Driver()
    token = driver.join(version=3)
    driver.sleep(1)
    assert driver.replies[token].error_code == ErrorCode.NONE


def test_only_the_leader_gets_the_members() -> None:
    driver = Driver()
    (a, ta), (b, tb) = driver.enter(topics=("x",)), driver.enter(topics=("y",))
    driver.sleep(1)
    assert [row.member_id for row in driver.replies[ta].members] == [a, b]
    assert driver.replies[ta].members[1].metadata == subscription("y")
    assert driver.replies[tb].members == []
    assert driver.replies[tb].leader == a


def test_assignments_reach_every_member_once_the_leader_has_synced() -> None:
    driver = Driver()
    (a, ta), (b, _) = driver.enter(), driver.enter()
    driver.sleep(1)
    generation = driver.replies[ta].generation_id
    waiting = driver.sync("g", b, generation)
    assert waiting not in driver.replies
    assert state_of(driver) == "CompletingRebalance"
    leading = driver.sync("g", a, generation, {a: b"A", b: b"B"})
    assert driver.replies[leading].assignment == b"A"
    assert driver.replies[waiting].assignment == b"B"
    assert state_of(driver) == "Stable"


def test_first_rebalance_waits_for_more_members_up_to_the_rebalance_timeout() -> None:
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=3_000))
    _, first = driver.enter(rebalance_ms=7_000)
    driver.sleep(2_000)
    _, second = driver.enter(rebalance_ms=7_000)
    driver.sleep(1_500)
    assert first not in driver.replies
    driver.sleep(3_000)
    assert driver.replies[first].generation_id == driver.replies[second].generation_id == 1


def test_first_rebalance_never_waits_longer_than_the_rebalance_timeout() -> None:
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=3_000))
    _, first = driver.enter(rebalance_ms=7_000)
    for _ in range(7):
        driver.sleep(1_000)
        driver.enter(rebalance_ms=7_000)
    driver.sleep(1)
    assert first in driver.replies


def test_join_rebalances_and_absent_members_are_removed() -> None:
    driver = Driver()
    generation, (a, b) = driver.stable_group(size=2, session_ms=30_000, rebalance_ms=20_000)
    _, token = driver.enter(session_ms=30_000, rebalance_ms=20_000)
    assert driver.heartbeat("g", a, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    again = driver.join(member=a, session_ms=30_000, rebalance_ms=20_000)
    assert driver.heartbeat("g", b, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    driver.sleep(19_000)
    assert token not in driver.replies
    driver.sleep(1_000)
    assert driver.replies[again].generation_id == generation + 1
    assert len(driver.replies[again].members) == 2
    assert driver.heartbeat("g", b, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_silence_ends_a_session_and_rebalances() -> None:
    driver = Driver()
    generation, (a, b) = driver.stable_group(size=2, session_ms=10_000)
    driver.sleep(8_000)
    assert driver.heartbeat("g", a, generation) == ErrorCode.NONE
    driver.sleep(3_000)
    assert driver.heartbeat("g", a, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat("g", b, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    token = driver.join(member=a)
    assert driver.replies[token].generation_id == generation + 1


def test_member_that_waits_in_a_join_needs_no_heartbeat() -> None:
    driver = Driver()
    generation, (a, b) = driver.stable_group(size=2, session_ms=10_000, rebalance_ms=60_000)
    token = driver.join(member=a, protocols=(("range", b"changed"),))
    for _ in range(5):
        driver.sleep(9_000)
        driver.heartbeat("g", b, generation)
    driver.join(member=b, session_ms=10_000)
    assert driver.replies[token].error_code == ErrorCode.NONE


def test_pending_member_that_never_joins_holds_a_rebalance_only_for_its_session() -> None:
    driver = Driver()
    generation, (a,) = driver.stable_group(session_ms=10_000)
    driver.join(session_ms=10_000)
    token = driver.join(member=a, protocols=(("range", b"changed"),))
    driver.sleep(9_000)
    assert token not in driver.replies
    driver.sleep(2_000)
    assert driver.replies[token].generation_id == generation + 1


def test_leader_that_never_syncs_is_removed_after_the_rebalance_timeout() -> None:
    driver = Driver()
    (a, ta), (b, _) = driver.enter(rebalance_ms=15_000), driver.enter(rebalance_ms=15_000)
    driver.sleep(1)
    generation = driver.replies[ta].generation_id
    waiting = driver.sync("g", b, generation)
    for _ in range(2):
        driver.sleep(7_000)
        driver.heartbeat("g", a, generation)
    driver.sleep(2_000)
    assert driver.replies[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat("g", a, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_stable_follower_that_joins_unchanged_gets_the_same_generation() -> None:
    driver = Driver()
    generation, (_, b) = driver.stable_group(size=2)
    token = driver.join(member=b)
    assert driver.replies[token].generation_id == generation


def test_leader_that_joins_again_rebalances() -> None:
    driver = Driver()
    _, (a, _) = driver.stable_group(size=2)
    assert driver.join(member=a) not in driver.replies
    assert state_of(driver) == "PreparingRebalance"


def test_protocol_most_members_prefer_is_chosen_among_the_common_ones() -> None:
    driver = Driver()
    _, token = driver.enter(protocols=(("range", b""), ("sticky", b"")))
    driver.enter(protocols=(("sticky", b""), ("range", b"")))
    driver.enter(protocols=(("sticky", b""), ("other", b""), ("range", b"")))
    driver.sleep(1)
    assert driver.replies[token].protocol_name == "sticky"


def test_leaving_empties_the_group_and_counts_a_generation() -> None:
    driver = Driver()
    generation, (a, b) = driver.stable_group(size=2)
    assert driver.leave("g", a, b, "unknown") == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert state_of(driver) == "Empty"
    later, _ = driver.stable_group()
    assert later > generation


def test_before_version_3_the_leaving_members_code_is_the_answers() -> None:
    driver = Driver()
    _, (a,) = driver.stable_group()
    request = LeaveGroupRequest(group_id="g", member_id="unknown")
    assert driver.call("LeaveGroup", request, version=2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    request = LeaveGroupRequest(group_id="g", member_id=a)
    assert driver.call("LeaveGroup", request, version=2).error_code == ErrorCode.NONE


def test_static_member_is_replaced_without_a_rebalance() -> None:
    driver = Driver()
    old_token = driver.join(instance="i1")
    driver.sleep(1)
    generation, (old,) = driver.finish_rebalance("g", [old_token])
    reply = driver.replies[driver.join(instance="i1")]
    assert reply.error_code == ErrorCode.NONE
    assert reply.generation_id == generation
    assert reply.skip_assignment
    assert reply.member_id != old
    assert driver.heartbeat("g", old, generation, "i1") == ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat("g", reply.member_id, generation, "i1") == ErrorCode.NONE
    synced = driver.replies[driver.sync("g", reply.member_id, generation, instance="i1")]
    assert synced.assignment == old.encode()
    assert driver.commit("g", 1, member=old, epoch=generation, instance="i1") == (
        ErrorCode.FENCED_INSTANCE_ID
    )


@pytest.mark.parametrize("crashes", [False, True])
def test_static_member_replaced_before_it_rejoins_leaves_no_partition_unowned(
    crashes: bool,
) -> None:
    """The first instance is told to revoke, and is replaced before it joins again."""
    driver = Driver()
    driver.set_topics(t=4)

    def client(name: str, instance: str | None = None) -> ClassicClient:
        return ClassicClient(driver, name, "g", ("t",), instance, is_cooperative=True)

    first, other = client("first", "i1"), client("other")
    first.step()
    driver.sleep(1)
    first.step()
    assert len(first.owned) == 4
    for one in (other, other, first, first, other):
        one.step()
    assert first.must_join
    assert first.owned | other.owned != {("t", index) for index in range(4)}
    if crashes:
        driver.crash()
    second = client("second", "i1")
    for _ in range(6):
        second.step()
        other.step()
    assert sorted([*second.owned, *other.owned]) == [("t", index) for index in range(4)]
    generation = second.epoch
    third = client("third", "i1")
    for _ in range(3):
        third.step()
        other.step()
    assert third.epoch == generation
    assert third.owned == second.owned


def test_replaced_leader_gets_the_old_id_before_version_9() -> None:
    driver = Driver()
    token = driver.join(instance="i1", version=8)
    driver.sleep(1)
    _, (old,) = driver.finish_rebalance("g", [token])
    reply = driver.replies[driver.join(instance="i1", version=8)]
    assert reply.leader == old
    assert reply.members == []


def test_second_instance_of_a_waiting_static_member_fences_the_first() -> None:
    driver = Driver()
    first = driver.join(instance="i1")
    second = driver.join(instance="i1")
    assert driver.replies[first].error_code == ErrorCode.FENCED_INSTANCE_ID
    driver.sleep(1)
    assert driver.replies[second].error_code == ErrorCode.NONE


def test_static_member_survives_a_rebalance_it_missed_until_its_session_ends() -> None:
    driver = Driver()
    tokens = [driver.join(instance="i1", session_ms=60_000, rebalance_ms=10_000)]
    tokens.append(driver.join(instance="i2", session_ms=60_000, rebalance_ms=10_000))
    driver.sleep(1)
    generation, (a, b) = driver.finish_rebalance("g", tokens)
    token = driver.join(
        member=a, instance="i1", session_ms=60_000, rebalance_ms=10_000, topics=("x",)
    )
    driver.sleep(10_000)
    assert driver.replies[token].generation_id == generation + 1
    assert {row.member_id for row in driver.replies[token].members} == {a, b}


def test_static_member_can_be_removed_by_its_instance_id() -> None:
    driver = Driver()
    driver.join(instance="i1")
    driver.sleep(1)
    assert driver.leave("g", instances=("i1", "i2")) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]


def test_generation_survives_a_crash_before_its_sync() -> None:
    driver = Driver()
    (a, ta), (b, _) = driver.enter(), driver.enter()
    driver.sleep(1)
    generation = driver.replies[ta].generation_id
    driver.crash()
    assert state_of(driver) == "CompletingRebalance"
    again = driver.replies[driver.join(member=a)]
    assert again.generation_id == generation
    assert len(again.members) == 2
    driver.sync("g", a, generation, {a: b"A", b: b"B"})
    assert driver.replies[driver.sync("g", b, generation)].assignment == b"B"


def test_stable_group_is_as_it_was_after_a_crash() -> None:
    driver = Driver()
    generation, (a, b) = driver.stable_group(size=2)
    driver.crash()
    assert driver.heartbeat("g", a, generation) == ErrorCode.NONE
    assert driver.replies[driver.sync("g", b, generation)].assignment == b.encode()
    driver.sleep(10_001)
    assert state_of(driver) == "Empty"


def test_dropped_caller_is_not_answered_but_its_member_stays() -> None:
    driver = Driver()
    member, token = driver.enter()
    driver.shard.dropped(token)
    driver.sleep(1)
    assert token not in driver.replies
    again = driver.replies[driver.join(member=member)]
    assert again.generation_id == 1


def test_second_join_of_a_waiting_member_answers_the_first() -> None:
    driver = Driver()
    member, first = driver.enter()
    second = driver.join(member=member)
    assert driver.replies[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    driver.sleep(1)
    assert driver.replies[second].error_code == ErrorCode.NONE


def test_size_limit_holds_for_members_and_for_ids_given_out() -> None:
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=0, group_size_max=2))
    driver.enter()
    first = driver.replies[driver.join()]
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    refused = driver.replies[driver.join()]
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.member_id == ""
    assert driver.join(member=first.member_id) not in driver.replies


def test_group_of_which_nothing_is_left_is_forgotten() -> None:
    driver = Driver()
    driver.join(session_ms=10_000)
    assert "g" in driver.shard.groups
    driver.sleep(10_001)
    assert driver.shard.groups == {}
    assert state_of(driver) == "Dead"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member": "unknown", "instance": "i9"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group": "new", "member": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("other", b""),)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group": "new", "protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group": "new", "protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("range", bytes(70_000)),)}, ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("version", [0, 3, 6, 9])
def test_bad_join_gets_kafkas_own_error(
    options: dict[str, object], code: ErrorCode, version: int
) -> None:
    driver = Driver()
    driver.stable_group()
    reply = driver.replies[driver.join(version=version, **options)]  # type: ignore[arg-type]
    assert reply.error_code == code
    assert reply.generation_id == -1


@pytest.mark.parametrize(
    ("member", "generation", "instance", "protocol", "code"),
    [
        ("unknown", 1, None, "range", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 0, None, "range", ErrorCode.ILLEGAL_GENERATION),
        ("", 2, None, "range", ErrorCode.ILLEGAL_GENERATION),
        ("", 1, "i9", "range", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, None, "sticky", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_bad_sync_gets_kafkas_own_error(
    member: str, generation: int, instance: str | None, protocol: str, code: ErrorCode
) -> None:
    driver = Driver()
    _, (a,) = driver.stable_group()
    token = driver.sync("g", member or a, generation, instance=instance, protocol=protocol)
    assert driver.replies[token].error_code == code


def test_sync_to_no_group_or_without_protocol_is_refused() -> None:
    driver = Driver()
    assert driver.replies[driver.sync("none", "m", 1)].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=())
    reply = driver.call("SyncGroup", request)
    assert reply.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.replies[driver.sync("", "m", 1)].error_code == ErrorCode.INVALID_GROUP_ID


def test_bad_heartbeat_gets_kafkas_own_error() -> None:
    driver = Driver()
    generation, (a,) = driver.stable_group()
    assert driver.heartbeat("none", a, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat("", a, generation) == ErrorCode.INVALID_GROUP_ID
    assert driver.heartbeat("g", "unknown", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat("g", a, generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat("g", a, generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert driver.leave("none", a) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_old_generation_cannot_commit() -> None:
    driver = Driver()
    generation, (a,) = driver.stable_group()
    assert driver.commit("g", 10, member=a, epoch=generation) == ErrorCode.NONE
    assert driver.commit("g", 9, member=a, epoch=generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert driver.commit("g", 9, member="unknown", epoch=generation) == (
        ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert driver.commit("g", 9) == ErrorCode.UNKNOWN_MEMBER_ID
    driver.leave("g", a)
    assert driver.commit("g", 11, member=a, epoch=generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.commit("g", 12) == ErrorCode.NONE
    assert driver.fetch("g") == 12


def test_commit_between_join_and_sync_must_wait() -> None:
    driver = Driver()
    member, token = driver.enter()
    driver.sleep(1)
    generation = driver.replies[token].generation_id
    assert driver.commit("g", 1, member=member, epoch=generation) == (
        ErrorCode.REBALANCE_IN_PROGRESS
    )


def test_commit_keeps_the_session_alive() -> None:
    driver = Driver()
    generation, (a,) = driver.stable_group(session_ms=10_000)
    for offset in range(4):
        driver.sleep(9_000)
        assert driver.commit("g", offset, member=a, epoch=generation) == ErrorCode.NONE


def test_pending_member_joins_a_group_that_all_others_have_left() -> None:
    driver = Driver()
    _, (a,) = driver.stable_group()
    pending = driver.replies[driver.join()].member_id
    driver.leave("g", a)
    token = driver.join(member=pending)
    driver.sleep(1)
    assert driver.replies[token].error_code == ErrorCode.NONE
