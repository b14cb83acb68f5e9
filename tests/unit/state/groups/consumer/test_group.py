"""Consumer groups of KIP-848, through the shard."""

import re
from typing import Any

import msgspec
import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.state.groups.config import GroupConfig
from penstock.state.groups.records import RecordKind, encode, member_key, read_consumer_member
from penstock.state.groups.topic_regex import NameMatcher
from penstock.wire.messages.consumer_groups import ConsumerGroupDescribeRequest
from tests.unit.state.groups.driver import Driver

T = ("t",)


def compile_pattern(pattern: str) -> NameMatcher:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
    return lambda name: compiled.fullmatch(name) is not None


def make(partitions: int = 4, **options: Any) -> Driver:
    driver = Driver(compile_pattern=compile_pattern, **options)
    driver.set_topics(t=partitions)
    return driver


def describe(driver: Driver, group: str = "g") -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    return driver.call("ConsumerGroupDescribe", request).groups[0]


def test_first_member_gets_everything_at_once() -> None:
    driver = make()
    reply = driver.beat(member="a", topics=T)
    assert (reply.error_code, reply.member_epoch) == (0, 1)
    assert reply.heartbeat_interval_ms == 5_000
    assert driver.owned(reply) == {"t": [0, 1, 2, 3]}
    assert describe(driver).group_state == "Stable"


def test_quiet_heartbeat_writes_nothing_and_tells_no_assignment() -> None:
    driver = make()
    driver.beat(member="a", topics=T)
    size = len(driver.log)
    reply = driver.beat(member="a", epoch=1, owned={"t": [0, 1, 2, 3]})
    assert reply.error_code == 0
    assert reply.assignment is None
    assert len(driver.log) == size


def test_partition_moves_only_after_its_owner_has_given_it_up() -> None:
    driver = make()
    driver.beat(member="a", topics=T)
    joined = driver.beat(member="b", topics=T)
    assert driver.owned(joined) == {}
    assert joined.member_epoch == 2
    told = driver.beat(member="a", epoch=1)
    assert driver.owned(told) == {"t": [0, 1]}
    assert told.member_epoch == 1
    assert describe(driver).group_state == "Reconciling"
    still = driver.beat(member="b", epoch=2)
    assert still.assignment is None
    done = driver.beat(member="a", epoch=1, owned={"t": [0, 1]})
    assert done.member_epoch == 2
    given = driver.beat(member="b", epoch=2)
    assert driver.owned(given) == {"t": [2, 3]}
    assert describe(driver).group_state == "Stable"


def test_member_that_waits_for_partitions_is_asked_to_call_sooner() -> None:
    driver = make()
    driver.beat(member="a", topics=T)
    assert driver.beat(member="b", topics=T).heartbeat_interval_ms == 500
    assert driver.beat(member="a", epoch=1).heartbeat_interval_ms == 5_000
    assert driver.beat(member="b", epoch=2).heartbeat_interval_ms == 500
    driver.beat(member="a", epoch=1, owned={"t": [0, 1]})
    assert driver.beat(member="b", epoch=2).heartbeat_interval_ms == 5_000


def test_member_that_still_reports_a_revoked_partition_keeps_it() -> None:
    driver = make()
    driver.beat(member="a", topics=T)
    driver.beat(member="b", topics=T)
    driver.beat(member="a", epoch=1)
    assert driver.beat(member="a", epoch=1, owned={"t": [0, 1, 2]}).member_epoch == 1
    assert driver.beat(member="b", epoch=2).assignment is None


def test_partitions_of_a_leaving_member_are_free_at_once() -> None:
    driver = make()
    driver.beat(member="a", topics=T)
    driver.beat(member="b", topics=T)
    assert driver.beat(member="a", epoch=-1).member_epoch == -1
    reply = driver.beat(member="b", epoch=2)
    assert driver.owned(reply) == {"t": [0, 1, 2, 3]}
    assert reply.member_epoch == 3


def test_silence_ends_a_session() -> None:
    driver = make()
    driver.beat(member="a", topics=T)
    driver.sleep(45_001)
    assert driver.beat(member="a", epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert describe(driver).group_state == "Empty"


def test_member_that_does_not_revoke_in_time_is_fenced() -> None:
    driver = make()
    driver.beat(member="a", topics=T, rebalance_ms=10_000)
    driver.beat(member="b", topics=T)
    driver.beat(member="a", epoch=1)
    driver.sleep(9_000)
    assert driver.beat(member="a", epoch=1, owned={"t": [0, 1, 2, 3]}).error_code == 0
    driver.sleep(1_001)
    assert driver.beat(member="a", epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.owned(driver.beat(member="b", epoch=2)) == {"t": [0, 1, 2, 3]}


def test_joining_member_moves_only_necessary_partitions() -> None:
    driver = make(100)
    members: dict[str, tuple[int, set[int]]] = {}

    def settle() -> int:
        moved = 0
        for _ in range(4):
            for name, (epoch, owned) in list(members.items()):
                reply = driver.beat(member=name, epoch=epoch, owned={"t": sorted(owned)})
                held = owned if reply.assignment is None else set(driver.owned(reply).get("t", ()))
                moved += len(held - owned)
                members[name] = (reply.member_epoch, held)
        return moved

    for n in range(10):
        reply = driver.beat(member=f"m{n}", topics=T)
        members[f"m{n}"] = (reply.member_epoch, set(driver.owned(reply).get("t", ())))
        moved = settle()
        assert moved <= 100 // (n + 1) + 1
    assert sorted(p for _, owned in members.values() for p in owned) == list(range(100))
    assert {len(owned) for _, owned in members.values()} == {10}


def test_new_partitions_and_topics_are_assigned_at_the_next_heartbeat() -> None:
    driver = make(2)
    driver.beat(member="a", topics=("t", "u"))
    driver.set_topics(t=3, u=1)
    reply = driver.beat(member="a", epoch=1)
    assert driver.owned(reply) == {"t": [0, 1, 2], "u": [0]}
    assert reply.member_epoch == 2
    driver.set_topics(u=1)
    assert driver.owned(driver.beat(member="a", epoch=2)) == {"u": [0]}


def test_change_of_unsubscribed_topics_changes_nothing() -> None:
    driver = make()
    driver.beat(member="a", topics=T)
    driver.set_topics(t=4, other=5)
    reply = driver.beat(member="a", epoch=1)
    assert (reply.member_epoch, reply.assignment) == (1, None)


def test_change_of_topics_during_a_crash_is_seen() -> None:
    driver = make(2)
    driver.beat(member="a", topics=T)
    driver.topics["t"] = (driver.topics["t"][0], 3)
    driver.crash()
    assert driver.owned(driver.beat(member="a", epoch=1)) == {"t": [0, 1, 2]}


def test_regular_expression_follows_the_topics() -> None:
    driver = Driver(compile_pattern=compile_pattern)
    driver.set_topics(orders=1, other=1)
    reply = driver.beat(member="a", regex="ord.*")
    assert driver.owned(reply) == {"orders": [0]}
    driver.set_topics(orders=1, other=1, ordinary=1)
    assert driver.owned(driver.beat(member="a", epoch=1)) == {"orders": [0], "ordinary": [0]}
    driver.crash()
    assert describe(driver).members[0].subscribed_topic_regex == "ord.*"
    changed = driver.beat(member="a", epoch=2, regex="")
    assert driver.owned(changed) == {}


def test_pattern_matches_only_topics_visible_to_its_member() -> None:
    """Partitions assigned to a member that may not read them would stay unread."""
    hidden = {("User:a", "secret")}

    def may_see(principal: str, address: str, topic: str) -> bool:
        assert address == "10.0.0.1"
        return (principal, topic) not in hidden

    driver = Driver(compile_pattern=compile_pattern, may_see=may_see)
    driver.set_topics(open=1, secret=2)
    assert driver.owned(driver.beat(member="a", regex=".*", client="a")) == {"open": [0]}
    driver.beat(member="b", regex=".*", client="b")
    driver.beat(member="a", epoch=1, owned={"open": [0]}, client="a")
    assert driver.owned(driver.beat(member="b", regex=".*", client="b")) == {"secret": [0, 1]}

    hidden.clear()
    driver.crash()
    driver.set_topics(open=1, secret=2)
    alone = driver.beat(group="h", member="a", regex=".*", client="a")
    assert driver.owned(alone) == {"open": [0], "secret": [0, 1]}
    hidden.add(("User:a", "secret"))
    driver.set_topics(open=1, secret=2)
    fewer = driver.beat(group="h", member="a", epoch=1, client="a")
    assert driver.owned(fewer) == {"open": [0]}


def test_member_of_an_earlier_version_keeps_its_topics() -> None:
    driver = Driver(compile_pattern=compile_pattern, may_see=lambda *asked: False)
    driver.set_topics(t=1)
    driver.beat(member="a", topics=("t",))
    key = member_key(RecordKind.CONSUMER_MEMBER, "g", "a")
    kept = read_consumer_member(next(value for at, value in driver.log if at == key and value))
    *as_it_was, _ = msgspec.structs.astuple(msgspec.structs.replace(kept, regex=".*"))
    driver.log.append((key, encode(("M", *as_it_was))))
    driver.crash()
    driver.set_topics(t=1, u=1)

    def wanted_of_a() -> set[str]:
        driver.beat(member="b", topics=("t",))
        (member,) = (one for one in describe(driver).members if one.member_id == "a")
        return {row.topic_name for row in member.target_assignment.topic_partitions}

    assert "u" in wanted_of_a(), "its member id is unknown"
    driver.beat(member="a", epoch=1, owned={"t": [0]})
    driver.beat(member="b", epoch=-1)
    assert "u" not in wanted_of_a(), "it has called, so now it is known"


def test_bad_regular_expression_is_refused() -> None:
    driver = make()
    reply = driver.beat(member="a", regex="(")
    assert reply.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert driver.shard.groups == {}


def test_range_assignor_is_used_when_asked_for() -> None:
    driver = Driver()
    driver.set_topics(t=3, u=3)
    driver.beat(member="a", topics=("t", "u"), assignor="range")
    assert describe(driver).assignor_name == "range"
    driver.beat(member="b", topics=("t", "u"), assignor="range")
    assert driver.owned(driver.beat(member="a", epoch=1)) == {"t": [0, 1], "u": [0, 1]}


def test_epoch_before_is_accepted_when_an_answer_may_be_lost() -> None:
    driver = make()
    driver.beat(member="a", topics=T)
    again = driver.beat(member="a", topics=T)
    assert (again.error_code, again.member_epoch) == (0, 1)
    driver.set_topics(t=5)
    assert driver.beat(member="a", epoch=1, owned={"t": [0, 1, 2, 3]}).member_epoch == 2
    assert driver.beat(member="a", epoch=1, owned={"t": [0, 1, 2, 3]}).member_epoch == 2
    fenced = driver.beat(member="a", epoch=1)
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("instance", [None, "i1"])
def test_rejoining_member_gets_its_epoch_and_assignment(instance: str | None) -> None:
    driver = make()
    driver.beat(member="a", topics=T, instance=instance)
    for partitions in (5, 6):
        driver.set_topics(t=partitions)
        driver.beat(member="a", epoch=partitions - 4, instance=instance)
    size = len(driver.log)
    again = driver.beat(member="a", topics=T, instance=instance)
    assert (again.error_code, again.member_epoch) == (0, 3)
    assert driver.owned(again) == {"t": [0, 1, 2, 3, 4, 5]}
    assert len(driver.log) == size
    assert describe(driver).group_state == "Stable"


def test_rejoining_member_drops_partitions_to_revoke() -> None:
    driver = make()
    driver.beat(member="a", topics=T)
    driver.set_topics(t=6)
    driver.beat(member="a", epoch=1)
    driver.beat(member="b", topics=T)
    assert driver.beat(member="a", epoch=2).member_epoch == 2, "it has to revoke first"
    again = driver.beat(member="a", topics=T)
    assert (again.error_code, again.member_epoch) == (0, 3)
    assert driver.owned(again) == {"t": [0, 1, 2]}
    assert driver.owned(driver.beat(member="b", epoch=3)) == {"t": [3, 4, 5]}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"group": "", "member": "x", "topics": T}, ErrorCode.INVALID_REQUEST),
        ({"member": "", "topics": T}, ErrorCode.INVALID_REQUEST),
        ({"member": "", "epoch": 1, "version": 0}, ErrorCode.INVALID_REQUEST),
        ({"member": "x"}, ErrorCode.INVALID_REQUEST),
        ({"member": "x", "topics": T, "owned": {"t": [0]}}, ErrorCode.INVALID_REQUEST),
        ({"member": "x", "topics": T, "instance": ""}, ErrorCode.INVALID_REQUEST),
        ({"member": "x", "epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member": "x", "epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member": "x", "topics": T, "assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member": "x", "epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member": "x", "epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member": "x", "epoch": 1, "instance": "i9"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member": "a", "epoch": 2}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"group": "none", "member": "x", "epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"group": "none", "member": "x", "epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_bad_heartbeat_gets_kafkas_own_error(options: dict[str, Any], code: ErrorCode) -> None:
    driver = make()
    driver.beat(member="a", topics=T)
    assert driver.beat(**options).error_code == code


def test_version_0_lets_the_coordinator_make_the_member_id() -> None:
    driver = make()
    reply = driver.beat(member="", topics=T, version=0)
    assert reply.error_code == 0
    assert reply.member_id.startswith("id")


def test_size_limit_holds() -> None:
    driver = make(config=GroupConfig(group_size_max=1))
    driver.beat(member="a", topics=T)
    assert driver.beat(member="b", topics=T).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.beat(member="a", epoch=1).error_code == 0


def test_static_member_that_left_for_now_takes_its_place_again() -> None:
    driver = make()
    driver.beat(member="a", topics=T, instance="i1")
    driver.beat(member="b", topics=T, instance="i2")
    driver.beat(member="a", epoch=1, instance="i1")
    driver.beat(member="a", epoch=1, instance="i1", owned={"t": [0, 1]})
    busy = driver.beat(member="a2", topics=T, instance="i1")
    assert busy.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert driver.beat(member="a", epoch=-2, instance="i1").member_epoch == -2
    back = driver.beat(member="a2", topics=T, instance="i1")
    assert back.member_epoch == 2
    assert driver.owned(back) == {"t": [0, 1]}
    assert driver.beat(member="a", epoch=2, instance="i1").error_code == (
        ErrorCode.FENCED_INSTANCE_ID
    )
    assert driver.beat(member="b", epoch=2, instance="i2").error_code == 0


def test_static_member_that_does_not_come_back_loses_its_place() -> None:
    driver = make()
    driver.beat(member="a", topics=T, instance="i1")
    driver.beat(member="a", epoch=-2, instance="i1")
    driver.sleep(45_001)
    assert describe(driver).group_state == "Empty"


def test_commits_are_fenced_by_the_member_epoch() -> None:
    driver = make()
    driver.beat(member="a", topics=T)
    assert driver.commit("g", 1, member="a", epoch=1) == ErrorCode.NONE
    assert driver.commit("g", 2, member="a", epoch=0) == ErrorCode.STALE_MEMBER_EPOCH
    assert driver.commit("g", 2, member="a", epoch=2) == ErrorCode.STALE_MEMBER_EPOCH
    assert driver.commit("g", 2, member="x", epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.commit("g", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.commit("g", 2, member="a", epoch=1, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert driver.fetch("g", member="a", epoch=1) == 1
    assert driver.fetch("g", member="a", epoch=0) == ErrorCode.STALE_MEMBER_EPOCH
    assert driver.fetch("g", member="x", epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.fetch("g") == 1


def test_loaded_group_goes_on_where_it_was() -> None:
    driver = make()
    driver.beat(member="a", topics=T)
    driver.beat(member="b", topics=T)
    driver.beat(member="a", epoch=1)
    driver.crash()
    assert driver.beat(member="b", epoch=2).assignment is None
    assert driver.beat(member="a", epoch=1, owned={"t": [0, 1]}).member_epoch == 2
    assert driver.owned(driver.beat(member="b", epoch=2)) == {"t": [2, 3]}


def test_pending_revocation_is_fenced_in_time_after_a_crash() -> None:
    driver = make()
    driver.beat(member="a", topics=T, rebalance_ms=10_000)
    driver.beat(member="b", topics=T)
    driver.beat(member="a", epoch=1)
    driver.crash()
    driver.sleep(10_001)
    assert driver.beat(member="a", epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_classic_group_is_not_described_as_a_consumer_group() -> None:
    driver = make()
    driver.stable_group("classic")
    assert describe(driver, "classic").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert describe(driver, "none").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_description_shows_moving_partitions() -> None:
    driver = make()
    driver.beat(member="a", topics=T)
    driver.beat(member="b", topics=T)
    driver.beat(member="a", epoch=1)
    found = describe(driver)
    assert (found.group_epoch, found.assignment_epoch) == (2, 2)
    rows = {
        member.member_id: (
            [list(row.partitions) for row in member.assignment.topic_partitions],
            [list(row.partitions) for row in member.target_assignment.topic_partitions],
            member.member_type,
        )
        for member in found.members
    }
    assert rows == {"a": ([[0, 1]], [[0, 1]], 1), "b": ([], [[2, 3]], 1)}
