"""State of one share group."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.state.groups.config import GroupConfig, TopicCatalogue
from penstock.state.groups.records import ShareGroupValue, ShareMemberValue
from penstock.state.groups.share.group import ShareGroup, assignments, subscribed, topics_hash
from tests.unit.state.groups.driver import topic_id

TOPICS = TopicCatalogue.of({"t": (topic_id(1), 2), "u": (topic_id(2), 1)})


def member(*topics: str) -> ShareMemberValue:
    return ShareMemberValue(None, "c", "/h", topics)


def test_group_without_anything_is_void() -> None:
    group = ShareGroup("g", GroupConfig())
    assert group.is_void
    assert group.state == "Empty"
    group.apply_group(ShareGroupValue(1, 0, ()))
    group.apply_member("a", member("t"))
    assert not group.is_void
    assert group.state == "Stable"
    tombstones = list(group.tombstones())
    assert [value for _, value in tombstones] == [None, None]
    group.apply_member("a", None)
    group.apply_group(None)
    assert group.is_void


def test_assignment_is_worked_out_once_for_each_epoch() -> None:
    group = ShareGroup("g", GroupConfig())
    group.apply_member("a", member("t"))
    group.apply_group(ShareGroupValue(1, 0, ()))
    first = group.assignment("a", TOPICS)
    assert first == ((topic_id(1), (0, 1)),)
    assert group.assignment("a", TOPICS) is first
    group.apply_member("b", member("t"))
    assert group.assignment("a", TOPICS) == ((topic_id(1), (0,)),)
    assert group.assignment("unknown", TOPICS) == ()


def test_only_existing_topics_count() -> None:
    assert subscribed([member("u", "gone"), member("t")], TOPICS) == ["t", "u"]
    assert topics_hash([], TOPICS) == 0
    assert topics_hash(["t"], TOPICS) != topics_hash(["u"], TOPICS)
    assert assignments({"a": member("gone")}, TOPICS) == {"a": ()}


def test_unknown_member_is_refused() -> None:
    group = ShareGroup("g", GroupConfig())
    with pytest.raises(Refused) as refused:
        group.check_member("a")
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
