"""Administration of share groups: describe, list, delete, topics."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.state.groups.config import GroupCaller
from penstock.state.groups.share.admin import LookAtShareGroup, ShareGroupView
from penstock.wire.messages.classic_groups import DeleteGroupsRequest, ListGroupsRequest
from penstock.wire.messages.share import ShareGroupDescribeRequest
from tests.unit.state.groups.driver import Driver, topic_id
from tests.unit.state.groups.share.test_heartbeat import beat, make

CALLER = GroupCaller("c", "/host", 0, "")


def describe(driver: Driver, group: str = "g") -> Any:
    request = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    return driver.call("ShareGroupDescribe", request).groups[0]


def listed(driver: Driver, *types: str) -> list[tuple[str, str, str, str]]:
    request = ListGroupsRequest(states_filter=(), types_filter=types)
    rows = driver.call("ListGroups", request).groups
    return [(r.group_id, r.group_type, r.group_state, r.protocol_type) for r in rows]


def delete(driver: Driver, group: str = "g") -> int:
    request = DeleteGroupsRequest(groups_names=[group])
    code: int = driver.call("DeleteGroups", request).results[0].error_code
    return code


def look(driver: Driver, **how: Any) -> ShareGroupView:
    request = LookAtShareGroup("g", **how)
    decision = driver.shard.handle(LookAtShareGroup.NAME, request, "look", CALLER, driver.now_ms)
    view = decision.replies[0][1]
    driver.replies.pop("look", None)
    driver.take(decision)
    assert isinstance(view, ShareGroupView)
    return view


def refused(driver: Driver, **how: Any) -> ErrorCode:
    with pytest.raises(Refused) as found:
        look(driver, **how)
    return found.value.code


def test_group_is_described_with_members_and_assignments() -> None:
    driver = make(2)
    beat(driver, "a", rack_id="r1")
    beat(driver, "b")
    found = describe(driver)
    assert (found.group_state, found.group_epoch, found.assignor_name) == ("Stable", 2, "simple")
    first, second = found.members
    assert (first.member_id, first.rack_id, first.client_id, first.member_epoch) == (
        "a",
        "r1",
        "c",
        1,
    )
    rows = [member.assignment.topic_partitions[0] for member in (first, second)]
    assert [(row.topic_name, list(row.partitions)) for row in rows] == [("t", [0]), ("t", [1])]


def test_group_that_is_none_is_not_found() -> None:
    driver = make()
    driver.beat("consumer", member="a", topics=("t",))
    assert describe(driver, "missing").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert describe(driver, "consumer").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_groups_are_listed_by_their_type() -> None:
    driver = make()
    beat(driver)
    driver.beat("consumer", member="a", topics=("t",))
    assert listed(driver, "share") == [("g", "Share", "Stable", "share")]
    assert len(listed(driver)) == 2
    beat(driver, epoch=-1)
    assert listed(driver, "Share") == [("g", "Share", "Empty", "share")]


def test_only_an_empty_group_is_deleted_and_only_on_request() -> None:
    driver = make(replays=False)
    beat(driver)
    assert delete(driver) == ErrorCode.NON_EMPTY_GROUP
    beat(driver, epoch=-1)
    driver.sleep(30 * 24 * 3_600_000)
    assert describe(driver).group_state == "Empty"
    assert delete(driver) == 0
    assert delete(driver) == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.compacted().durable_state()["groups"] == {}


def test_group_knows_the_topics_that_it_has_positions_in() -> None:
    driver = make()
    driver.set_topics(t=1, u=1, v=1)
    beat(driver, topics=("t", "unknown"))
    beat(driver, epoch=1, topics=("u",))
    assert look(driver) == ShareGroupView((topic_id(1), topic_id(2)), frozenset({"u"}))
    assert look(driver, remove=(topic_id(1),)).topics == (topic_id(2),)
    assert look(driver).topics == (topic_id(2),)
    driver.set_topics(t=1, v=1)
    assert look(driver).topics == ()


def test_topics_are_added_to_a_group_without_members() -> None:
    driver = make()
    assert refused(driver) is ErrorCode.GROUP_ID_NOT_FOUND
    view = look(driver, creates=True, must_be_empty=True, add=(topic_id(1),))
    assert view.topics == (topic_id(1),)
    driver.crash()
    assert look(driver).topics == (topic_id(1),)
    assert describe(driver).group_state == "Empty"


def test_group_with_members_is_not_to_be_changed() -> None:
    driver = make()
    beat(driver)
    assert refused(driver, must_be_empty=True) is ErrorCode.NON_EMPTY_GROUP
    driver.beat("g2", member="a", topics=("t",))
    request = LookAtShareGroup("g2", creates=True)
    with pytest.raises(Refused) as found:
        driver.shard.handle(LookAtShareGroup.NAME, request, "x", CALLER, driver.now_ms)
    assert found.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_share_group_refuses_offset_commits_and_fetches() -> None:
    driver = make()
    beat(driver)
    assert driver.commit("g", 5) is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.commit("g", 5, member="a", epoch=1) is ErrorCode.GROUP_ID_NOT_FOUND
