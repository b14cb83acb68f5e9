"""Sessions of classic groups: renewal, and the effect of a silent leader on other members."""

from penstock.base.errors import ErrorCode
from tests.unit.state.groups.driver import Driver


def test_dead_leader_does_not_remove_members_waiting_for_its_assignment() -> None:
    """All sessions began with the generation, so they are due at the same moment."""
    driver = Driver()
    (leader, first), (other, _) = driver.enter(), driver.enter()
    driver.sleep(1)
    generation = driver.replies[first].generation_id
    assert driver.replies[first].leader == leader
    waiting = driver.sync("g", other, generation)
    driver.sleep(10_000)
    assert driver.replies[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat("g", other, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat("g", leader, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_late_sync_of_a_stable_group_renews_the_session() -> None:
    driver = Driver()
    (leader, first), (other, _) = driver.enter(), driver.enter()
    driver.sleep(1)
    generation = driver.replies[first].generation_id
    driver.sync("g", leader, generation, {leader: b"A", other: b"B"})
    driver.sleep(9_000)
    assert driver.heartbeat("g", leader, generation) == ErrorCode.NONE
    assert driver.replies[driver.sync("g", other, generation)].assignment == b"B"
    driver.sleep(9_000)
    assert driver.heartbeat("g", other, generation) == ErrorCode.NONE


def test_joining_again_unchanged_renews_the_session() -> None:
    driver = Driver()
    generation, (leader, other) = driver.stable_group(size=2)
    driver.sleep(9_000)
    assert driver.heartbeat("g", leader, generation) == ErrorCode.NONE
    assert driver.replies[driver.join("g", other)].generation_id == generation
    driver.sleep(9_000)
    assert driver.heartbeat("g", other, generation) == ErrorCode.NONE
