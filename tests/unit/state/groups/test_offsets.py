"""Committed offsets: commit, fetch, delete, transactions, retention."""

from typing import TYPE_CHECKING, Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.state.groups.config import GroupConfig
from penstock.state.groups.records import OffsetValue, encode, offset_key
from penstock.wire.messages.classic_groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from penstock.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.unit.state.groups.driver import Driver

if TYPE_CHECKING:
    from penstock.base.state_machine import Token

DAY_MS = 24 * 3_600_000
T = ("t",)


def txn_commit(
    driver: Driver,
    offset: int,
    *,
    producer: int = 7,
    epoch: int = 0,
    group: str = "g",
    member: str = "",
    generation: int = -1,
    metadata: str = "",
) -> ErrorCode:
    row = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=metadata
    )
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=group,
        producer_id=producer,
        producer_epoch=epoch,
        generation_id=generation,
        member_id=member,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[row])],
    )
    response = driver.call("TxnOffsetCommit", request)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def end_txn(driver: Driver, *, producer: int = 7, epoch: int = 0, commit: bool = True) -> None:
    token: Token = ("end", len(driver.replies))
    driver.take(driver.shard.complete_transaction(producer, epoch, commit, token, driver.now_ms))
    assert driver.replies[token] is None


def delete_offsets(driver: Driver, *topics: str, group: str = "g") -> Any:
    rows = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
        )
        for name in topics
    ]
    return driver.call("OffsetDelete", OffsetDeleteRequest(group_id=group, topics=rows))


def delete_groups(driver: Driver, *groups: str) -> list[ErrorCode]:
    response = driver.call("DeleteGroups", DeleteGroupsRequest(groups_names=list(groups)))
    return [ErrorCode(row.error_code) for row in response.results]


def listed(driver: Driver, **filters: list[str]) -> list[str]:
    response = driver.call("ListGroups", ListGroupsRequest(**filters))
    return [f"{r.group_id} {r.group_type} {r.group_state}" for r in response.groups]


def test_position_is_kept_and_read_back() -> None:
    driver = Driver()
    assert driver.commit("g", 42, metadata="note") == ErrorCode.NONE
    assert driver.fetch("g") == 42
    driver.crash()
    assert driver.fetch("g") == 42
    assert driver.fetch("g", partition=1) == -1
    assert driver.fetch("none") == -1


def test_all_topics_are_read_by_null_in_every_version() -> None:
    driver = Driver()
    driver.set_topics(t=1)
    driver.commit("g", 1, topic="t")
    driver.commit("g", 2, topic="gone")
    asked = OffsetFetchRequestGroup(group_id="g", topics=None)
    found = driver.call("OffsetFetch", OffsetFetchRequest(groups=[asked]), version=10).groups[0]
    assert [(t.name, t.partitions[0].committed_offset) for t in found.topics] == [
        ("gone", 2),
        ("t", 1),
    ]
    assert found.topics[1].topic_id == driver.topics["t"][0]
    flat = driver.call("OffsetFetch", OffsetFetchRequest(group_id="g", topics=None), version=7)
    assert [(t.name, t.partitions[0].committed_offset) for t in flat.topics] == [
        ("gone", 2),
        ("t", 1),
    ]
    rows = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 5])]
    flat = driver.call("OffsetFetch", OffsetFetchRequest(group_id="g", topics=rows), version=1)
    assert [row.committed_offset for row in flat.topics[0].partitions] == [1, -1]


def test_long_metadata_refuses_its_partition_only() -> None:
    driver = Driver(GroupConfig(offset_metadata_bytes_max=4))
    assert driver.commit("g", 1, metadata="12345") == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert driver.commit("g", 1, metadata="äöü") == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert driver.commit("g", 1, metadata=None) == ErrorCode.NONE
    assert txn_commit(driver, 2, metadata="12345") == ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_commit_of_many_positions_is_applied_as_its_records_say() -> None:
    def row(index: int, offset: int, metadata: str | None = "") -> OffsetCommitRequestPartition:
        return OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )

    driver = Driver(GroupConfig(offset_metadata_bytes_max=4))
    driver.commit("g", 1, topic="u", partition=300)
    before = driver.shard.offsets.sequence
    request = OffsetCommitRequest(
        group_id="g",
        member_id="",
        retention_time_ms=DAY_MS,
        topics=[
            # One of them twice, and one that is refused.
            OffsetCommitRequestTopic(
                name="t", partitions=[row(0, 5), row(1, 6, "12345"), row(0, 7, None)]
            ),
            OffsetCommitRequestTopic(name="u", partitions=[row(300, 8), row(70_000, 9, "n")]),
        ],
    )
    response = driver.call("OffsetCommit", request, version=4)
    assert [[found.error_code for found in topic.partitions] for topic in response.topics] == [
        [0, ErrorCode.OFFSET_METADATA_TOO_LARGE, 0],
        [0, 0],
    ]
    places = {place: value.offset for place, value in driver.shard.offsets.of("g").items()}
    assert places == {("t", 0): 7, ("u", 300): 8, ("u", 70_000): 9}
    driver.check_replay()
    assert driver.replayed().offsets.sequence == driver.shard.offsets.sequence == before + 1


def test_member_of_no_group_cannot_commit() -> None:
    driver = Driver()
    assert driver.commit("g", 1, member="m", epoch=3) == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.commit("g", 1, member="m", epoch=3, version=8) == ErrorCode.ILLEGAL_GENERATION
    assert txn_commit(driver, 1, member="m", generation=3) == ErrorCode.ILLEGAL_GENERATION
    assert driver.shard.durable_state()["offsets"]["committed"] == {}


def test_group_of_positions_only_is_listed_described_and_deleted() -> None:
    driver = Driver()
    driver.commit("g", 1)
    assert listed(driver) == ["g Classic Empty"]
    found = driver.call("DescribeGroups", DescribeGroupsRequest(groups=["g"])).groups[0]
    assert (found.error_code, found.group_state) == (0, "Empty")
    assert delete_groups(driver, "g", "none") == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert listed(driver) == []
    assert driver.fetch("g") == -1


def test_filters_of_the_list_know_no_case() -> None:
    driver = Driver()
    driver.set_topics(t=1)
    driver.stable_group("a")
    driver.beat("b", "m", topics=T)
    driver.commit("c", 1)
    assert listed(driver, states_filter=["stable"]) == ["a Classic Stable", "b Consumer Stable"]
    assert listed(driver, types_filter=["CONSUMER"]) == ["b Consumer Stable"]
    assert listed(driver, states_filter=["empty"], types_filter=["classic"]) == ["c Classic Empty"]
    assert listed(driver, types_filter=["share"]) == []


def test_group_with_members_is_not_deleted() -> None:
    driver = Driver()
    driver.set_topics(t=1)
    _, (a,) = driver.stable_group("a")
    driver.beat("b", "m", topics=T)
    assert delete_groups(driver, "a", "b") == [ErrorCode.NON_EMPTY_GROUP] * 2
    driver.leave("a", a)
    driver.beat("b", "m", -1)
    assert delete_groups(driver, "a", "b") == [ErrorCode.NONE] * 2
    assert driver.shard.groups == {}


def test_version_6_returns_group_not_found() -> None:
    driver = Driver()
    request = DescribeGroupsRequest(groups=["none"])
    new = driver.call("DescribeGroups", request).groups[0]
    old = driver.call("DescribeGroups", request, version=5).groups[0]
    assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert (old.error_code, old.group_state) == (ErrorCode.NONE, "Dead")


def test_positions_of_topics_the_group_reads_are_not_deleted() -> None:
    driver = Driver()
    _, (a,) = driver.stable_group(topics=("t",))
    driver.leave("g", a)
    driver.commit("g", 1, topic="t")
    driver.commit("g", 1, topic="u")
    driver.stable_group(topics=("t",))
    response = delete_offsets(driver, "t", "u")
    codes = [topic.partitions[0].error_code for topic in response.topics]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert (driver.fetch("g", topic="t"), driver.fetch("g", topic="u")) == (1, -1)
    assert delete_offsets(driver, "t", group="none").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_positions_of_a_group_that_is_not_of_consumers_are_not_deleted_under_it() -> None:
    driver = Driver()
    driver.enter(protocol_type="connect", protocols=(("compatible", b""),))
    driver.sleep(1)
    assert delete_offsets(driver, "t").error_code == ErrorCode.NON_EMPTY_GROUP


def test_consumer_groups_guard_the_topics_they_read() -> None:
    driver = Driver()
    driver.set_topics(t=1)
    driver.beat(member="m", topics=T)
    driver.commit("g", 1, member="m", epoch=1)
    response = delete_offsets(driver, "t")
    code = response.topics[0].partitions[0].error_code
    assert code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_transactional_position_counts_once_its_transaction_commits() -> None:
    driver = Driver()
    driver.commit("g", 1)
    assert txn_commit(driver, 5) == ErrorCode.NONE
    assert driver.fetch("g") == 1
    assert driver.fetch("g", is_stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    driver.crash()
    assert driver.fetch("g", is_stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    end_txn(driver)
    assert driver.fetch("g", is_stable=True) == 5
    end_txn(driver)
    assert driver.fetch("g") == 5


def test_aborted_transaction_leaves_no_trace() -> None:
    driver = Driver()
    txn_commit(driver, 5)
    end_txn(driver, commit=False)
    assert driver.fetch("g", is_stable=True) == -1
    assert listed(driver) == []


def test_later_plain_commit_is_not_undone_by_an_earlier_transaction() -> None:
    driver = Driver()
    txn_commit(driver, 5)
    driver.commit("g", 9)
    driver.crash()
    end_txn(driver)
    assert driver.fetch("g") == 9


def test_later_commit_of_two_transactions_counts_in_any_order() -> None:
    for first, second in ((7, 8), (8, 7)):
        driver = Driver()
        txn_commit(driver, 5, producer=7)
        txn_commit(driver, 6, producer=8)
        end_txn(driver, producer=first)
        end_txn(driver, producer=second)
        assert driver.fetch("g") == 6


def test_marker_does_not_end_a_later_transaction() -> None:
    driver = Driver()
    txn_commit(driver, 5, epoch=3)
    end_txn(driver, epoch=2)
    assert driver.fetch("g", is_stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT


def test_late_request_of_an_ended_transaction_is_refused() -> None:
    driver = Driver()
    txn_commit(driver, 5, epoch=2)
    end_txn(driver, epoch=3)
    assert txn_commit(driver, 6, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    driver.crash()
    assert txn_commit(driver, 6, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert txn_commit(driver, 6, epoch=3) == ErrorCode.NONE
    assert txn_commit(driver, 6, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_memory_of_a_producer_ends() -> None:
    driver = Driver()
    end_txn(driver, epoch=3)
    assert driver.shard.offsets.producers
    driver.sleep(2 * DAY_MS)
    assert driver.shard.offsets.producers == {}


def test_transactional_commits_are_fenced() -> None:
    driver = Driver()
    driver.set_topics(t=1)
    generation, (a,) = driver.stable_group("g")
    assert txn_commit(driver, 1, member=a, generation=generation - 1) == (
        ErrorCode.ILLEGAL_GENERATION
    )
    assert txn_commit(driver, 1, member="x", generation=generation) == (ErrorCode.UNKNOWN_MEMBER_ID)
    assert txn_commit(driver, 1, member=a, generation=generation) == ErrorCode.NONE
    assert txn_commit(driver, 1) == ErrorCode.NONE
    driver.beat("k", "m", topics=T)
    assert txn_commit(driver, 1, group="k", member="m", generation=0) == (
        ErrorCode.ILLEGAL_GENERATION
    )
    assert txn_commit(driver, 1, group="k", member="m", generation=1) == ErrorCode.NONE
    assert txn_commit(driver, 1, group="") == ErrorCode.INVALID_GROUP_ID


def test_group_deletion_removes_pending_transactional_offsets() -> None:
    driver = Driver()
    txn_commit(driver, 5)
    assert delete_groups(driver, "g") == [ErrorCode.NONE]
    end_txn(driver)
    assert driver.fetch("g") == -1


def test_positions_of_a_deleted_topic_go_with_it() -> None:
    driver = Driver()
    driver.set_topics(t=1, u=1)
    driver.commit("g", 1, topic="t")
    driver.commit("g", 2, topic="u")
    driver.set_topics(u=1)
    assert (driver.fetch("g", topic="t"), driver.fetch("g", topic="u")) == (-1, 2)


def test_positions_of_an_empty_group_expire_after_it_became_empty() -> None:
    driver = Driver(replays=False)
    generation, (a,) = driver.stable_group(session_ms=1_000_000)
    driver.commit("g", 1, member=a, epoch=generation)
    for _ in range(8 * 24 * 6):
        driver.sleep(600_000)
        assert driver.heartbeat("g", a, generation) == ErrorCode.NONE
    assert driver.fetch("g") == 1
    driver.leave("g", a)
    driver.sleep(7 * DAY_MS - 1_200_000)
    assert driver.fetch("g") == 1
    driver.sleep(2_400_000)
    assert driver.fetch("g") == -1
    assert driver.shard.groups == {}


def test_positions_of_topics_a_stable_group_no_longer_reads_expire() -> None:
    driver = Driver(replays=False)
    driver.commit("g", 1, topic="old")
    generation, (a,) = driver.stable_group(topics=T, session_ms=1_800_000)
    driver.commit("g", 2, topic="t", member=a, epoch=generation)
    for _ in range(8 * 96):
        driver.sleep(DAY_MS // 96)
        driver.heartbeat("g", a, generation)
    assert (driver.fetch("g", topic="old"), driver.fetch("g", topic="t")) == (-1, 2)


def test_positions_of_a_group_without_members_expire_one_by_one() -> None:
    driver = Driver()
    driver.commit("g", 1, topic="a")
    driver.sleep(4 * DAY_MS)
    driver.commit("g", 2, topic="b")
    driver.sleep(4 * DAY_MS)
    assert (driver.fetch("g", topic="a"), driver.fetch("g", topic="b")) == (-1, 2)
    driver.sleep(4 * DAY_MS)
    assert listed(driver) == []


def test_commits_own_retention_is_honoured_up_to_version_4() -> None:
    driver = Driver()
    driver.commit("g", 1, retention_ms=DAY_MS, version=4)
    driver.sleep(DAY_MS + 600_001)
    assert driver.fetch("g") == -1


def test_position_that_waits_for_a_transaction_does_not_expire() -> None:
    driver = Driver()
    driver.commit("g", 1)
    txn_commit(driver, 2)
    driver.sleep(9 * DAY_MS)
    assert driver.fetch("g") == 1
    end_txn(driver)
    assert driver.fetch("g") == 2


def test_empty_group_without_positions_is_forgotten() -> None:
    driver = Driver()
    driver.set_topics(t=1)
    _, (a,) = driver.stable_group("a")
    driver.beat("b", "m", topics=T)
    driver.leave("a", a)
    driver.beat("b", "m", -1)
    driver.sleep(600_001)
    assert driver.shard.groups == {}
    assert driver.shard.durable_state()["groups"] == {}


def test_sweep_over_many_positions_takes_several_ticks() -> None:
    driver = Driver(replays=False)
    for n in range(5_000):
        driver.commit(f"g{n}", 1)
    driver.now_ms += 8 * DAY_MS
    ticks = 0
    while driver.shard.offsets.committed:
        before = len(driver.log)
        driver.now_ms = max(driver.now_ms, driver.shard.deadline() or 0)
        driver.take(driver.shard.tick(driver.now_ms))
        assert len(driver.log) - before <= 2_000
        ticks += 1
    assert ticks >= 3


def test_number_of_groups_is_bounded() -> None:
    driver = Driver(GroupConfig(groups_max=1))
    driver.commit("a", 1)
    assert driver.commit("b", 1) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.commit("a", 2) == ErrorCode.NONE
    assert driver.replies[driver.join("b")].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.beat("b", "m", topics=T).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("key", [b"", b"\x93\x7f\x00\x01", b"\x93\x04\x01\xa1g", b"text"])
def test_records_of_unknown_kind_or_version_are_left_alone(key: bytes) -> None:
    driver = Driver()
    driver.shard.apply(key, b"anything")
    assert driver.shard.groups == {}


def test_offsets_with_oversized_names_are_dropped_on_load() -> None:
    """Earlier versions accepted names over HTTP that are too long for Kafka's protocol."""
    shard = Driver().shard
    good, bad = OffsetValue(5, -1, "", 0, 1), OffsetValue(2**63, -1, "", 0, 2)
    shard.apply(offset_key("g", "t", 0), encode(good))
    shard.apply(offset_key("g", "t", 0), encode(bad))
    shard.apply(offset_key("h", "t", 0), encode(bad))
    shard.apply(offset_key("x" * 40_000, "t", 0), encode(good))
    shard.apply(offset_key("x" * 32_767, "t", 0), encode(good))
    shard.apply(offset_key("x" * 40_000, "t", 0), None)
    assert shard.offsets.of("g") == {("t", 0): good}
    assert sorted(shard.offsets.group_ids()) == ["g", "x" * 32_767]
