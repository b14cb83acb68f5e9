"""`cluster.replication.leader_state`: what followers' fetches mean for the high watermark and the
ISR."""

from penstock.cluster.metadata.store_keys import BrokerRecord, PartitionRecord
from penstock.cluster.replication.leader_state import (
    JOIN_SECONDS,
    UNKNOWN,
    LeaderState,
    UnreachableNodes,
)

LAG = 10.0
BROKERS = {node: BrokerRecord(node, "h", 1, epoch=100 + node) for node in (1, 2, 3)}


def reign(
    isr: tuple[int, ...] = (1, 2, 3), *, min_isr: int = 2, start: int = 0, **more: object
) -> LeaderState:
    record = PartitionRecord((1, 2, 3), 1, isr, 7, 4, **more)  # type: ignore[arg-type]
    return LeaderState(1, record, min_isr, start, 0.0)


def fetched(state: LeaderState, node: int, offset: int, end: int = 100, now_s: float = 0.0) -> None:
    assert state.fetched(node, 100 + node, offset, end, now_s) is not None


def test_high_watermark_is_the_smallest_durable_end_in_the_isr() -> None:
    state = reign()
    fetched(state, 2, 40)
    fetched(state, 3, 30)
    assert state.high_watermark(50, 0.0) == 30
    assert state.high_watermark(20, 0.0) == 20, "our own disk counts, too"


def test_isr_member_that_has_not_fetched_in_this_epoch_blocks_commits() -> None:
    state = reign()
    fetched(state, 2, 40)
    assert state.high_watermark(50, 0.0) == UNKNOWN


def test_nothing_is_committed_below_the_minimum() -> None:
    state = reign((1,), elr=(2,))
    assert state.is_under_min
    assert state.high_watermark(50, 0.0) == UNKNOWN


def test_nothing_is_committed_while_there_is_an_elr() -> None:
    state = reign((1,), elr=(2,), min_isr=1)
    assert not state.is_under_min
    assert state.is_frozen
    assert state.is_isr_due(0, 50, 0.0, LAG), "the ELR is to be cleared"


def test_topic_with_fewer_replicas_than_the_minimum_needs_all_of_them() -> None:
    state = LeaderState(1, PartitionRecord((1,), 1, (1,)), 2, 0, 0.0)
    assert state.is_alone
    assert not state.is_under_min


def test_leader_is_alone_only_when_it_is_the_only_replica() -> None:
    assert not reign((1,), min_isr=1).is_alone


def test_proposed_replica_counts_until_the_record_advances() -> None:
    state = reign((1, 2))
    fetched(state, 2, 50)
    fetched(state, 3, 40, now_s=-100.0)
    assert state.high_watermark(50, 0.0) == 50
    state.propose((1, 2, 3))
    assert 3 in state.maximal_isr
    assert state.high_watermark(60, 0.0) == 40
    state.adopt(PartitionRecord((1, 2, 3), 1, (1, 2), 7, 5), 2, 0.0)
    assert state.maximal_isr == (1, 2), "the proposal was guarded by the record before"


def test_older_record_changes_nothing() -> None:
    state = reign((1, 2))
    state.adopt(PartitionRecord((1, 2, 3), 1, (1,), 7, 3), 2, 0.0)
    assert state.record.isr == (1, 2)


def test_refused_proposal_no_longer_counts() -> None:
    state = reign((1, 2))
    state.propose((1, 2, 3))
    state.refused()
    assert state.maximal_isr == (1, 2)


def test_high_watermark_waits_briefly_for_a_joining_replica() -> None:
    state = reign((1, 2))
    fetched(state, 2, 60, end=60)
    fetched(state, 3, 50, end=50, now_s=0.0)
    assert state.high_watermark(60, 0.0) == 50
    assert state.high_watermark(60, JOIN_SECONDS) == 60


def test_replica_that_left_the_isr_counts_again_from_its_next_fetch() -> None:
    state = reign()
    fetched(state, 2, 50, end=50)
    fetched(state, 3, 50, end=50)
    state.adopt(PartitionRecord((1, 2, 3), 1, (1, 2), 7, 5), 2, 0.0)
    assert state.high_watermark(60, 0.0) == 50, "for two, not for three"
    assert not state.may_join(3, 50)
    fetched(state, 3, 50)
    assert state.may_join(3, 50)


def test_follower_joins_at_the_high_watermark_and_the_epoch_start() -> None:
    state = reign((1, 2), start=20)
    fetched(state, 3, 19)
    assert not state.may_join(3, 10)
    assert state.wanted_isr(10, 30, 0.0, LAG, BROKERS) == (1, 2)
    fetched(state, 3, 20)
    assert state.may_join(3, 10)
    assert state.wanted_isr(10, 30, 0.0, LAG, BROKERS) == (1, 2, 3)
    assert state.wanted_isr(21, 30, 0.0, LAG, BROKERS) == (1, 2), "the high watermark is ahead"


def test_follower_joins_only_under_the_registration_it_fetches_with() -> None:
    state = reign((1, 2))
    fetched(state, 3, 50)
    reborn = {**BROKERS, 3: BrokerRecord(3, "h", 1, epoch=999)}
    leaving = {**BROKERS, 3: BrokerRecord(3, "h", 1, epoch=103, is_draining=True)}
    gone = {1: BROKERS[1], 2: BROKERS[2]}
    for brokers in (reborn, leaving, gone):
        assert state.wanted_isr(50, 50, 0.0, LAG, brokers) == (1, 2)
    assert state.wanted_isr(50, 50, 0.0, LAG, BROKERS) == (1, 2, 3)


def test_follower_lags_after_too_long_behind_the_end() -> None:
    state = reign((1, 2))
    fetched(state, 2, 50, end=50, now_s=5.0)
    assert not state.is_isr_due(50, 60, 15.0, LAG)
    assert state.is_isr_due(50, 60, 15.1, LAG)
    assert state.wanted_isr(50, 60, 15.1, LAG, BROKERS) == (1,)


def test_unreachable_follower_has_less_time_and_twice_that_without_a_majority() -> None:
    state = reign((1, 2, 3))
    for node in (2, 3):
        fetched(state, node, 50, end=50, now_s=5.0)
    one, both = (UnreachableNodes(frozenset(nodes), 2.0) for nodes in ((3,), (2, 3)))
    assert not state.is_isr_due(50, 60, 7.0, LAG, one)
    assert state.is_isr_due(50, 60, 7.1, LAG, one)
    assert state.wanted_isr(50, 60, 7.1, LAG, BROKERS, one) == (1, 2)
    assert state.wanted_isr(50, 60, 7.1, LAG, BROKERS, both) == (1, 2, 3)
    assert state.wanted_isr(50, 60, 9.1, LAG, BROKERS, both) == (1,)
    assert state.wanted_isr(50, 60, 7.1, 1.0, BROKERS, both) == (1,), "never more than others have"
    assert not state.is_isr_due(50, 50, 99.0, LAG, both), "there is nothing they lack"


def test_unreachable_follower_that_never_fetched_is_not_waited_for() -> None:
    state = reign((1, 2, 3))
    fetched(state, 2, 50, end=50, now_s=0.1)
    assert state.wanted_isr(50, 60, 0.1, LAG, BROKERS, UnreachableNodes(frozenset({3}), 2.0)) == (
        1,
        2,
    )
    assert state.wanted_isr(50, 60, 0.1, LAG, BROKERS) == (1, 2, 3)
    lonely = reign((1, 2, 3))
    assert lonely.wanted_isr(
        50, 60, 0.1, LAG, BROKERS, UnreachableNodes(frozenset({2, 3}), 2.0)
    ) == (1, 2, 3)


def test_reaching_the_end_of_the_last_fetch_is_keeping_up() -> None:
    state = reign((1, 2))
    fetched(state, 2, 0, end=50, now_s=0.0)
    fetched(state, 2, 50, end=100, now_s=9.0)
    assert state.copies[2].caught_up_s == 0.0, "it was at the end of the time of its last fetch"
    fetched(state, 2, 100, end=150, now_s=18.0)
    assert state.copies[2].caught_up_s == 9.0
    fetched(state, 2, 120, end=200, now_s=27.0)
    assert state.copies[2].caught_up_s == 9.0
    assert state.is_isr_due(100, 200, 19.1, LAG)


def test_follower_at_the_end_of_an_idle_log_never_lags() -> None:
    state = reign((1, 2))
    fetched(state, 2, 50, end=50, now_s=0.0)
    state.note_time(50, 1000.0)
    assert not state.is_isr_due(50, 50, 1000.0, LAG)
    assert not state.is_isr_due(50, 51, 1001.0, LAG), "time counts from the first append on"
    assert state.is_isr_due(50, 51, 1011.0, LAG)


def test_copies_follow_the_replicas_of_the_record() -> None:
    state = reign((1, 2))
    assert state.fetched(9, 109, 10, 10, 0.0) is None
    state.adopt(PartitionRecord((1, 2, 9), 1, (1, 2), 7, 5), 2, 0.0)
    assert list(state.copies) == [2, 9]
    fetched(state, 9, 10)
    assert state.may_join(9, 10)


def test_low_watermark_is_the_highest_start_reached_by_every_live_replica() -> None:
    state = reign()
    state.copies[2].start_offset = 5
    state.copies[3].start_offset = 3
    assert state.low_watermark(10, BROKERS) == 3
    assert state.low_watermark(10, {1: BROKERS[1], 2: BROKERS[2]}) == 5
    assert state.low_watermark(10, {1: BROKERS[1]}) == 10
