"""Committed offsets belong to a topic id: effects of recreating a topic."""

from penstock.base.errors import ErrorCode
from penstock.state.groups.config import GroupConfig
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from tests.unit.state.groups.driver import Driver, topic_id
from tests.unit.state.groups.test_offsets import end_txn, txn_commit


def recreate_unseen(driver: Driver) -> None:
    """Recreates the topic while the group has no coordinator."""
    driver.topics = {"t": (topic_id(99), 1)}
    driver.crash()


def test_position_is_not_applied_to_a_topic_created_anew() -> None:
    driver = Driver()
    driver.set_topics(t=1)
    driver.commit("g", 7)
    driver.crash()
    assert driver.fetch("g") == 7
    recreate_unseen(driver)
    assert driver.fetch("g") == -1
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert driver.call("OffsetFetch", everything).groups[0].topics == []
    assert [list(places) for _, places in driver.shard.positions()] == [[]]
    driver.commit("g", 2)
    assert driver.fetch("g") == 2
    assert [value.offset for _, rows in driver.shard.positions() for _, value in rows] == [2]


def test_position_of_a_topic_created_anew_is_removed_though_the_group_reads_it() -> None:
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=0, offsets_check_interval_ms=5_000))
    driver.set_topics(t=1, u=1)
    driver.beat("g", "m", topics=("t",))
    driver.commit("g", 7, member="m", epoch=1)
    driver.commit("g", 8, topic="u", member="m", epoch=1)
    recreate_unseen(driver)
    driver.sleep(5_000)
    assert driver.shard.offsets.of("g") == {}


def test_commit_by_id_counts_for_that_topic_only() -> None:
    driver = Driver()
    driver.set_topics(t=1)
    codes = []
    for asked in (topic_id(98), driver.topics["t"][0]):
        row = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_metadata=""
        )
        topic = OffsetCommitRequestTopic(name="t", topic_id=asked, partitions=[row])
        request = OffsetCommitRequest(group_id="g", member_id="", topics=[topic])
        codes.append(driver.call("OffsetCommit", request, version=10).topics[0].partitions[0])
        assert driver.fetch("g") == (-1 if len(codes) == 1 else 5)
    assert [row.error_code for row in codes] == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE]


def test_transactional_position_is_not_applied_to_a_topic_created_anew() -> None:
    driver = Driver()
    driver.set_topics(t=1)
    assert txn_commit(driver, 5) == ErrorCode.NONE
    recreate_unseen(driver)
    driver.commit("g", 2)
    assert txn_commit(driver, 3, producer=8) == ErrorCode.NONE
    end_txn(driver, producer=8)
    end_txn(driver)
    assert driver.fetch("g", is_stable=True) == 3
    recreate_unseen(driver)
    driver.set_topics(t=1)
    assert driver.fetch("g") == 3
    driver.topics = {"t": (topic_id(100), 1)}
    driver.crash()
    assert driver.fetch("g") == -1


def test_position_kept_without_a_topic_id_counts_for_whatever_has_the_name() -> None:
    driver = Driver()
    driver.commit("g", 7)
    recreate_unseen(driver)
    assert driver.fetch("g") == 7
    driver.set_topics()
    assert driver.fetch("g") == -1
