"""`cluster.controller.elections`: replicas that lost records, and cuts that only some may make."""

import pytest
from msgspec.structs import replace

from penstock.cluster.controller.elections import Rules, may_go_back, must_leave, settle, without
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
def test_a_lost_replica_leaves_wherever_it_counts(record: PartitionRecord) -> None:
    assert must_leave(record, 1)
    after = without(record, 1, up(1, 2, 3), RULES)
    assert after is not None
    assert 1 not in (after.leader, *after.isr, *after.elr, *after.last_known_elr)
    assert not must_leave(after, 1)


def test_a_lost_replica_that_nobody_counts_on_has_nothing_to_leave() -> None:
    assert not must_leave(replace(WHOLE, leader=2, isr=(2, 3)), 1)


def test_the_only_replica_there_is_stays() -> None:
    assert not must_leave(PartitionRecord((1,), 1, (1,)), 1)


def test_the_choice_of_an_unclean_election_stays() -> None:
    """Two lost replicas would otherwise elect each other for ever."""
    chosen = without(replace(WHOLE, isr=(1,)), 1, up(1, 2), UNCLEAN)
    assert chosen is not None
    assert (chosen.leader, chosen.isr) == (2, (2,))
    assert not must_leave(chosen, 2)


def test_only_who_knows_nothing_of_an_unclean_election_may_go_back() -> None:
    nobody = replace(WHOLE, leader=NO_LEADER, isr=(), leader_epoch=7)
    chosen = settle(nobody, up(3), UNCLEAN)
    assert chosen is not None
    assert (chosen.leader, chosen.is_recovering) == (3, True)
    assert chosen.unclean_epoch == chosen.leader_epoch == 8
    assert may_go_back(chosen, 7)
    assert not may_go_back(chosen, 8)
    later = settle(replace(chosen, isr=(1, 3)), up(1), RULES)
    assert later is not None
    assert later.leader_epoch == 9
    assert not may_go_back(later, 8), "a clean election allows nothing new"
    assert may_go_back(later, 7)


def test_a_clean_election_lets_nobody_go_back() -> None:
    after = settle(WHOLE, up(2, 3), RULES)
    assert after is not None
    assert not may_go_back(after, 0)


def test_an_older_version_marks_an_unclean_election_by_recovering_alone() -> None:
    assert may_go_back(replace(WHOLE, is_recovering=True), 4)
