"""`cluster.controller.leader_elections`: replicas that lost records, and allowed cuts."""

import pytest
from msgspec.structs import replace

from penstock.cluster.controller import reassignment
from penstock.cluster.controller.leader_elections import (
    Rules,
    adapt,
    after_unclean_restart,
    may_go_back,
    must_leave,
    with_isr,
    without,
)
from penstock.cluster.metadata.accepted_losses import is_possible
from penstock.cluster.metadata.store_keys import NO_LEADER, BrokerRecord, PartitionRecord

WHOLE = PartitionRecord((1, 2, 3), 1, (1, 2, 3), leader_epoch=4)
RULES = Rules(min_isr=2)
UNCLEAN = Rules(min_isr=2, unclean=True)


def up(*nodes: int) -> dict[int, BrokerRecord]:
    return {node: BrokerRecord(node, "h", node) for node in nodes}


@pytest.mark.parametrize(
    "record",
    [
        WHOLE,
        replace(WHOLE, leader=2, isr=(2, 3), elr=(1,)),
        replace(WHOLE, leader=NO_LEADER, isr=(), last_known_elr=(1,)),
        replace(WHOLE, isr=(1,)),
    ],
)
def test_lost_replica_leaves_isr_elr_and_leadership(record: PartitionRecord) -> None:
    assert must_leave(record, 1)
    after = without(record, 1, up(1, 2, 3), RULES)
    assert after is not None
    assert 1 not in (after.leader, *after.isr, *after.elr, *after.last_known_elr)
    assert not must_leave(after, 1)


def test_lost_replica_outside_the_isr_has_nothing_to_leave() -> None:
    assert not must_leave(replace(WHOLE, leader=2, isr=(2, 3)), 1)


def test_only_replica_does_not_leave() -> None:
    assert not must_leave(PartitionRecord((1,), 1, (1,)), 1)


def test_leader_chosen_by_an_unclean_election_stays() -> None:
    """Two lost replicas would otherwise elect each other for ever."""
    chosen = without(replace(WHOLE, isr=(1,)), 1, up(1, 2), UNCLEAN)
    assert chosen is not None
    assert (chosen.leader, chosen.isr) == (2, (2,))
    assert not must_leave(chosen, 2)


def test_leader_chosen_by_an_unclean_election_leaves_once_another_has_followed() -> None:
    chosen = elect_uncleanly(3)
    assert not must_leave(chosen, 3)
    assert is_possible(chosen, 3)
    assert not must_leave(replace(chosen, elr=(1,)), 3), "that one has yet to follow it"
    joined = changed(with_isr(chosen, (1, 3), 2))
    assert must_leave(joined, 3)
    assert not is_possible(joined, 3)
    assert changed(without(joined, 3, up(1, 3), RULES)).leader == 1


def elect_uncleanly(node: int) -> PartitionRecord:
    leaderless = replace(WHOLE, leader=NO_LEADER, isr=(), leader_epoch=7)
    return changed(adapt(leaderless, up(node), UNCLEAN))


def changed(after: PartitionRecord | None) -> PartitionRecord:
    assert after is not None
    return after


def test_replica_truncates_only_to_follow_an_unclean_election() -> None:
    chosen = elect_uncleanly(3)
    assert (chosen.leader, chosen.is_recovering, chosen.unreconciled) == (3, True, (1, 2))
    assert chosen.unclean_epoch == chosen.leader_epoch == 8
    assert may_go_back(chosen, 1, 7)
    assert not may_go_back(chosen, 1, 8), "it has a record of that leader"
    assert not may_go_back(chosen, 3, 7), "it is that leader"


def test_replica_in_sync_since_the_unclean_election_never_truncates() -> None:
    """Replica 2 never returns: replicas 1 and 3 are whole without it."""
    joined = changed(with_isr(elect_uncleanly(3), (1, 3), 2))
    alone = changed(adapt(joined, up(3), RULES))
    later = changed(adapt(alone, up(1, 3), RULES) or alone)
    for record in (joined, alone, later, changed(adapt(joined, up(1), RULES))):
        assert (record.is_recovering, record.unreconciled) == (True, (2,))
        assert not may_go_back(record, 1, 7), "although it has no record of that leader"
        assert not may_go_back(record, 3, -1)
        assert may_go_back(record, 2, 7)
    whole = changed(with_isr(joined, (1, 2, 3), 2))
    assert (whole.is_recovering, whole.unreconciled) == (False, ())
    assert not may_go_back(whole, 2, 7)


def test_partition_is_whole_once_the_missing_replica_was_moved_away() -> None:
    joined = changed(with_isr(elect_uncleanly(3), (1, 3), 2))
    moved = changed(reassignment.begin(joined, (1, 3), up(1, 3), RULES))
    assert (moved.replicas, moved.is_recovering, moved.unreconciled) == ((1, 3), False, ())


def test_older_copy_may_predate_an_unclean_election() -> None:
    joined = changed(with_isr(elect_uncleanly(3), (1, 3), 2))
    old = changed(after_unclean_restart(joined, 1, up(3), RULES, is_empty=True))
    assert old.unreconciled == (1, 2)
    assert may_go_back(old, 1, 7)
    again = changed(
        after_unclean_restart(
            changed(with_isr(old, (1, 2, 3), 2)), 1, up(2, 3), RULES, is_empty=True
        )
    )
    assert (again.is_recovering, again.unreconciled) == (True, (1,))
    assert after_unclean_restart(again, 1, up(2, 3), RULES, is_empty=True) is None
    clean = changed(after_unclean_restart(WHOLE, 1, up(2, 3), RULES, is_empty=True))
    assert not clean.is_recovering, "there was no unclean election"


def test_clean_election_allows_no_truncation_below_the_high_watermark() -> None:
    after = adapt(WHOLE, up(2, 3), RULES)
    assert after is not None
    assert not any(may_go_back(after, node, 0) for node in (1, 2, 3))


@pytest.mark.parametrize("unclean_epoch", [-1, 4])
def test_older_record_allows_truncation_of_replicas_out_of_sync(
    unclean_epoch: int,
) -> None:
    """Older versions name no replica, and the oldest no epoch."""
    record = replace(WHOLE, isr=(1, 2), is_recovering=True, unclean_epoch=unclean_epoch)
    assert may_go_back(record, 3, 3)
    assert not may_go_back(record, 2, 3)
    assert may_go_back(record, 3, 4) == (unclean_epoch < 0)
    after = changed(adapt(record, up(1, 3), RULES))
    assert after.unreconciled == (2, 3), "from now on they are named"
