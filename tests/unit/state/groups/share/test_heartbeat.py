"""Members of share groups: join, heartbeat, leave, assignments."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.state.groups.config import GroupConfig, ShareGroupConfig
from penstock.state.groups.share.group import ShareGroup
from penstock.wire.messages.share import ShareGroupHeartbeatRequest
from tests.unit.state.groups.driver import Driver

T = ("t",)


def make(partitions: int = 4, **options: Any) -> Driver:
    driver = Driver(**options)
    driver.set_topics(t=partitions)
    return driver


def beat(
    driver: Driver,
    member: str = "a",
    epoch: int = 0,
    topics: tuple[str, ...] | None = None,
    group: str = "g",
    **more: Any,
) -> Any:
    if epoch == 0 and topics is None:
        topics = T
    request = ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=topics,
        **more,
    )
    return driver.call("ShareGroupHeartbeat", request)


def owned(driver: Driver, reply: Any) -> dict[str, list[int]]:
    names = {topic_id: name for name, (topic_id, _) in driver.topics.items()}
    rows = reply.assignment.topic_partitions
    return {names[row.topic_id]: list(row.partitions) for row in rows}


def test_first_member_reads_everything() -> None:
    driver = make()
    reply = beat(driver)
    assert (reply.error_code, reply.member_id, reply.member_epoch) == (0, "a", 1)
    assert reply.heartbeat_interval_ms == 5_000
    assert owned(driver, reply) == {"t": [0, 1, 2, 3]}


def test_members_divide_partitions_and_share_them_when_there_are_too_few() -> None:
    driver = make(2)
    beat(driver, "a")
    reply = beat(driver, "b")
    assert reply.member_epoch == 2
    assert owned(driver, reply) == {"t": [1]}
    assert owned(driver, beat(driver, "a", 1)) == {"t": [0]}
    assert owned(driver, beat(driver, "c")) in ({"t": [0]}, {"t": [1]})


def test_quiet_heartbeat_writes_nothing_and_tells_no_assignment() -> None:
    driver = make()
    beat(driver)
    size = len(driver.log)
    reply = beat(driver, epoch=1)
    assert (reply.error_code, reply.member_epoch, reply.assignment) == (0, 1, None)
    assert len(driver.log) == size


def test_answer_that_was_lost_is_given_again() -> None:
    driver = make(2)
    beat(driver, "a")
    beat(driver, "b")
    for _ in range(2):
        reply = beat(driver, "a", 1)
        assert reply.member_epoch == 2
        assert owned(driver, reply) == {"t": [0]}
    assert owned(driver, beat(driver, "a", 0)) == {"t": [0]}


def test_changed_subscription_begins_a_new_epoch() -> None:
    driver = make()
    driver.set_topics(t=1, u=2)
    beat(driver)
    reply = beat(driver, epoch=1, topics=("u", "u"))
    assert (reply.member_epoch, owned(driver, reply)) == (2, {"u": [0, 1]})


def test_topics_that_come_and_grow_are_assigned_with_the_next_heartbeat() -> None:
    driver = make(1)
    beat(driver, topics=("t", "later"))
    driver.set_topics(t=1, later=2)
    reply = beat(driver, epoch=1)
    assert (reply.member_epoch, owned(driver, reply)) == (2, {"later": [0, 1], "t": [0]})
    driver.set_topics(t=3, later=2)
    assert owned(driver, beat(driver, epoch=2))["t"] == [0, 1, 2]
    driver.set_topics(t=3, later=2, other=5)
    assert beat(driver, epoch=3).assignment is None


def test_partitions_of_a_leaving_member_are_reassigned() -> None:
    driver = make(2)
    beat(driver, "a")
    beat(driver, "b")
    reply = beat(driver, "b", -1)
    assert (reply.error_code, reply.member_epoch) == (0, -1)
    assert owned(driver, beat(driver, "a", 2)) == {"t": [0, 1]}
    assert beat(driver, "b", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_silent_member_is_removed() -> None:
    driver = make(2)
    beat(driver, "a")
    beat(driver, "b")
    driver.sleep(30_000)
    beat(driver, "a", 2)
    driver.sleep(20_000)
    assert beat(driver, "b", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert owned(driver, beat(driver, "a", 2)) == {"t": [0, 1]}


def test_group_has_a_session_timeout_of_its_own() -> None:
    config = GroupConfig(share_config_of=lambda group: ShareGroupConfig(1_000, 300))
    driver = make(config=config)
    assert beat(driver).heartbeat_interval_ms == 300
    driver.sleep(1_100)
    assert beat(driver, epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_crash_forgets_no_member() -> None:
    driver = make(2)
    beat(driver, "a")
    beat(driver, "b")
    driver.crash()
    assert beat(driver, "a", 2).error_code == 0
    driver.sleep(44_000)
    beat(driver, "a", 2)
    driver.sleep(2_000)
    assert beat(driver, "b", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"member": ""}, ErrorCode.INVALID_REQUEST),
        ({"group": " "}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"topics": ()}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member": "b", "epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"epoch": 9}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"group": "h", "epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"group": "h", "epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_invalid_heartbeat_is_refused(how: dict[str, Any], code: ErrorCode) -> None:
    driver = make()
    beat(driver)
    assert beat(driver, **how).error_code == code


def test_group_has_a_largest_size() -> None:
    driver = make(config=GroupConfig(share_group_size_max=2))
    for name in ("a", "b"):
        assert beat(driver, name).error_code == 0
    assert beat(driver, "c").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert beat(driver, "a", 0).error_code == 0


def test_group_keeps_its_type() -> None:
    driver = make()
    beat(driver, group="share")
    driver.beat("consumer", member="a", topics=T)
    assert beat(driver, group="consumer").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.beat("share", member="a", topics=T).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    joined = driver.replies[driver.join("share")]
    assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    beat(driver, epoch=-1, group="share")
    joined = driver.replies[driver.join("share")]
    assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_declaration_keeps_a_group_without_members() -> None:
    driver = make()
    reply = beat(driver, "gateway", is_declaration=True)
    assert (reply.error_code, reply.member_epoch, reply.assignment) == (0, 0, None)
    group = driver.shard.groups["g"]
    assert isinstance(group, ShareGroup)
    assert (group.state, group.members) == ("Empty", {})
    assert group.value.topics == (driver.topics["t"][0],)
    kept = list(driver.log)
    beat(driver, "gateway", is_declaration=True)
    assert driver.log == kept, "nothing new to keep"
    assert group.value.epoch == 0


def test_declaration_adds_topics_and_leaves_members_alone() -> None:
    driver = make()
    driver.set_topics(t=4, u=1)
    beat(driver, "a")
    assert beat(driver, "gateway", topics=("u",), is_declaration=True).error_code == 0
    group = driver.shard.groups["g"]
    assert isinstance(group, ShareGroup)
    assert list(group.members) == ["a"]
    assert set(group.value.topics) == {topic_id for topic_id, _ in driver.topics.values()}
    assert beat(driver, "a", epoch=1).error_code == 0
