"""Elections and in-sync replicas: the rules of KIP-966, one by one."""

import pytest
from msgspec.structs import replace

from penstock.cluster.configs.effective_configs import BrokerConfigs, resolve_topic
from penstock.cluster.controller import leader_elections
from penstock.cluster.controller.leader_elections import Election, Rules, kind_of
from penstock.cluster.controller.placement import initial_record
from penstock.cluster.metadata.store_keys import NO_LEADER, BrokerRecord, PartitionRecord

RECORD = initial_record((1, 2, 3))
RULES = Rules(min_isr=2)


def up(*nodes: int, draining: tuple[int, ...] = ()) -> dict[int, BrokerRecord]:
    return {node: BrokerRecord(node, "h", node, is_draining=node in draining) for node in nodes}


def adapt(record: PartitionRecord, *nodes: int, rules: Rules = RULES) -> PartitionRecord:
    after = leader_elections.adapt(record, up(*nodes), rules)
    return record if after is None else after


def cut(*pairs: tuple[int, int]) -> dict[int, frozenset[int]]:
    cuts: dict[int, frozenset[int]] = {}
    for one, other in (*pairs, *((b, a) for a, b in pairs)):
        cuts[one] = cuts.get(one, frozenset()) | {other}
    return cuts


def connect(
    record: PartitionRecord, cuts: dict[int, frozenset[int]], rules: Rules = RULES
) -> PartitionRecord | None:
    return leader_elections.adapt(record, up(*record.replicas), rules, cuts)


def test_partition_is_unchanged_while_all_replicas_are_up() -> None:
    assert leader_elections.adapt(RECORD, up(1, 2, 3), RULES) is None


def test_next_in_sync_replica_in_order_succeeds_a_dead_leader() -> None:
    after = adapt(RECORD, 2, 3)
    assert (after.leader, after.isr, after.elr) == (2, (2, 3), ())
    assert (after.leader_epoch, after.partition_epoch) == (1, 1)


def test_dead_follower_leaves_the_isr_and_the_leader_stays() -> None:
    after = adapt(RECORD, 1, 3)
    assert (after.leader, after.isr) == (1, (1, 3))
    assert (after.leader_epoch, after.partition_epoch) == (0, 1)


def test_replica_leaving_the_isr_below_the_minimum_stays_eligible() -> None:
    after = adapt(adapt(RECORD, 1, 2), 1)
    assert (after.leader, after.isr, after.elr) == (1, (1,), (2,))
    # Replica 3 left while there were enough: records may have been committed without it.
    alone = adapt(after)
    assert (alone.leader, alone.isr, alone.elr) == (NO_LEADER, (), (1, 2))
    assert alone.last_known_elr == (1,)


def test_eligible_replica_leads_before_the_last_leader_returns() -> None:
    leaderless = adapt(adapt(adapt(RECORD, 1, 2), 1))
    assert adapt(leaderless, 3) is leaderless
    after = adapt(leaderless, 2, 3)
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (2, (2,), (1,), ())
    assert kind_of(leaderless, after) is Election.CLEAN


def test_isr_at_the_minimum_clears_the_elr() -> None:
    record = PartitionRecord(replicas=(1, 2, 3), leader=1, isr=(1,), elr=(2,))
    after = leader_elections.with_isr(record, (3, 1), 2)
    assert after is not None
    assert (after.isr, after.elr) == ((1, 3), ())
    assert (after.leader_epoch, after.partition_epoch) == (0, 1)


def test_lowered_minimum_clears_the_elr() -> None:
    record = PartitionRecord(replicas=(1, 2, 3), leader=1, isr=(1,), elr=(2,))
    after = adapt(record, 1, 2, 3, rules=Rules(min_isr=1))
    assert (after.isr, after.elr) == ((1,), ())


def test_leader_that_shrinks_below_the_minimum_keeps_the_rest_eligible() -> None:
    after = leader_elections.with_isr(RECORD, (1,), 2)
    assert after is not None
    assert (after.isr, after.elr) == ((1,), (2, 3))
    assert leader_elections.with_isr(RECORD, (3, 2, 1), 2) is None


def test_leader_that_reaches_no_follower_is_replaced_and_leaves_the_isr() -> None:
    after = connect(RECORD, cut((1, 2), (1, 3)))
    assert after is not None
    assert (after.leader, after.isr, after.elr) == (2, (2, 3), ())
    assert (after.leader_epoch, after.partition_epoch) == (1, 1)
    assert kind_of(RECORD, after) is Election.CLEAN
    assert connect(after, cut((1, 2), (1, 3))) is None
    assert connect(after, {}) is None, "a repaired cut moves no leader"


def test_leader_that_reaches_enough_replicas_stays() -> None:
    assert connect(RECORD, cut((1, 2))) is None
    assert connect(RECORD, cut((2, 3))) is None
    five = initial_record((1, 2, 3, 4, 5))
    assert connect(five, cut((1, 2), (1, 3)), Rules(min_isr=3)) is None
    assert connect(initial_record((1, 2)), cut((1, 2))) is None, "no other replica could do more"
    assert connect(RECORD, cut((1, 2), (1, 3), (2, 3))) is None


def test_replica_that_reaches_most_in_sync_replicas_leads() -> None:
    five = initial_record((1, 2, 3, 4, 5))
    cuts = cut((1, 2), (1, 3), (1, 4), (2, 3))
    after = connect(five, cuts, Rules(min_isr=3))
    assert after is not None
    assert (after.leader, after.isr) == (5, (1, 2, 3, 4, 5))
    after = connect(replace(five, isr=(1, 2, 3)), cut((1, 2), (1, 3), (1, 4)), Rules(min_isr=3))
    assert after is not None
    assert (after.leader, after.isr, after.elr) == (2, (2, 3), (1,)), "the rest catch up with it"


def test_majority_is_required_even_if_min_insync_replicas_is_lower() -> None:
    alone = Rules(min_isr=1)
    after = connect(RECORD, cut((1, 2), (1, 3)), alone)
    assert after is not None
    assert (after.leader, after.isr) == (2, (2, 3))
    four = initial_record((1, 2, 3, 4))
    assert connect(four, cut((1, 3), (1, 4), (2, 3), (2, 4)), Rules(min_isr=2)) is None


def test_successor_of_a_dead_leader_reaches_most_and_drops_the_rest() -> None:
    five = initial_record((1, 2, 3, 4, 5))
    after = leader_elections.adapt(
        five, up(2, 3, 4, 5), Rules(min_isr=3), cut((2, 3), (3, 4), (2, 5))
    )
    assert after is not None
    assert (after.leader, after.isr) == (4, (2, 4, 5))
    assert kind_of(five, after) is Election.CLEAN


def test_eligible_replica_succeeds_a_leader_that_reaches_no_follower() -> None:
    record = PartitionRecord(replicas=(1, 2, 3), leader=1, isr=(1,), elr=(2, 3))
    after = connect(record, cut((1, 2), (1, 3)))
    assert after is not None
    assert (after.leader, after.isr, after.elr) == (2, (2,), (1, 3))


def test_replica_without_committed_records_or_draining_does_not_succeed() -> None:
    cuts = cut((1, 2), (1, 3))
    assert connect(replace(RECORD, isr=(1,)), cuts) is None
    after = leader_elections.adapt(RECORD, up(1, 2, 3, draining=(2,)), RULES, cuts)
    assert after is not None
    assert after.leader == 3
    assert leader_elections.adapt(RECORD, up(1, 2, 3, draining=(2, 3)), RULES, cuts) is None


def test_isr_proposal_without_the_leader_is_an_assertion_error() -> None:
    with pytest.raises(AssertionError):
        leader_elections.with_isr(RECORD, (2, 3), 2)


def test_effective_min_isr_is_bounded_by_the_replica_count() -> None:
    assert leader_elections.effective_min_isr(3, initial_record((1, 2))) == 2
    assert leader_elections.effective_min_isr(1, RECORD) == 1
    moving = PartitionRecord(replicas=(2, 1), leader=1, isr=(1,), adding=(2,), removing=(1,))
    assert leader_elections.effective_min_isr(2, moving) == 1


# Draining.


def test_draining_leader_hands_over_and_stays_in_sync() -> None:
    after = leader_elections.adapt(RECORD, up(1, 2, 3, draining=(1,)), RULES)
    assert after is not None
    assert (after.leader, after.isr) == (2, (1, 2, 3))


def test_draining_leader_stays_when_no_other_replica_is_in_sync() -> None:
    record = replace(RECORD, isr=(1,), elr=(2,))
    assert leader_elections.adapt(record, up(1, 2, 3, draining=(1,)), RULES) is None


# Unclean.


def test_out_of_sync_replica_leads_only_if_unclean_elections_are_allowed() -> None:
    leaderless = adapt(replace(RECORD, isr=(1,)), 2, 3)
    assert leaderless.leader == NO_LEADER
    after = adapt(leaderless, 2, 3, rules=Rules(min_isr=1, unclean=True))
    assert (after.leader, after.isr, after.elr, after.is_recovering) == (2, (2,), (), True)
    assert kind_of(leaderless, after) is Election.UNCLEAN


def test_recovering_partition_is_whole_once_all_replicas_are_in_sync() -> None:
    record = replace(RECORD, isr=(1,), is_recovering=True)
    two = leader_elections.with_isr(record, (1, 2), 2)
    assert two is not None
    assert two.is_recovering
    all_three = leader_elections.with_isr(two, (1, 2, 3), 2)
    assert all_three is not None
    assert not all_three.is_recovering


def test_only_last_known_leader_leads_when_no_better_replica_can_return() -> None:
    lost = PartitionRecord(replicas=(1, 2), leader=NO_LEADER, isr=(), last_known_elr=(1,))
    assert adapt(lost, 2) is lost
    after = adapt(lost, 1, 2)
    assert (after.leader, after.isr, after.is_recovering) == (1, (1,), True)
    assert kind_of(lost, after) is Election.LAST_KNOWN


# Preferred.


def test_preferred_replica_leads_when_in_sync_and_not_draining() -> None:
    away = replace(RECORD, leader=2)
    after = leader_elections.prefer(away, up(1, 2, 3))
    assert after is not None
    assert (after.leader, after.leader_epoch) == (1, 1)
    assert leader_elections.prefer(RECORD, up(1, 2, 3)) is None
    assert leader_elections.prefer(replace(away, isr=(2, 3)), up(1, 2, 3)) is None
    assert leader_elections.prefer(away, up(2, 3)) is None
    assert leader_elections.prefer(away, up(1, 2, 3, draining=(1,))) is None


# Coming back.


def after_unclean_restart(
    record: PartitionRecord, *others: int, is_durable: bool = True, is_empty: bool = False
) -> PartitionRecord | None:
    rules = Rules(2, is_durable=is_durable)
    return leader_elections.after_unclean_restart(record, 1, up(*others), rules, is_empty=is_empty)


def test_unclean_restart_leaves_the_isr_and_leadership() -> None:
    after = after_unclean_restart(RECORD, 2, 3)
    assert after is not None
    assert (after.leader, after.isr, after.elr) == (2, (2, 3), ())
    eligible = replace(RECORD, leader=2, isr=(2,), elr=(1, 3))
    after = after_unclean_restart(eligible, 2, 3, is_durable=False)
    assert after is not None
    assert (after.isr, after.elr) == ((2,), (3,))


def test_synced_replica_stays_eligible_below_the_minimum() -> None:
    eligible = replace(RECORD, leader=2, isr=(2,), elr=(1, 3))
    assert after_unclean_restart(eligible, 2, 3) is None
    pair = replace(RECORD, leader=2, isr=(1, 2))
    after = after_unclean_restart(pair, 2)
    assert after is not None
    assert (after.leader, after.isr, after.elr) == (2, (2,), (1,))


def test_only_synced_replica_leads_again_after_an_unclean_restart() -> None:
    assert after_unclean_restart(initial_record((1,))) is None
    alone = adapt(initial_record((1, 2)))
    assert (alone.isr, alone.elr) == ((), (1, 2))
    assert after_unclean_restart(alone) is None
    # But a leader does not go on in an epoch whose last records it may have lost.
    unseen = after_unclean_restart(initial_record((1, 2)))
    assert unseen is not None
    assert (unseen.leader, unseen.leader_epoch, unseen.isr) == (NO_LEADER, 1, (1, 2))


def test_page_cache_replica_becomes_last_known_leader_after_an_unclean_restart() -> None:
    after = after_unclean_restart(initial_record((1,)), is_durable=False)
    assert after is not None
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (NO_LEADER, (), (), (1,))
    again = leader_elections.adapt(after, up(1), Rules(1, is_durable=False))
    assert again is not None
    assert (again.leader, again.leader_epoch, again.is_recovering) == (1, 2, False)


def test_last_eligible_replica_becomes_the_last_known_leader() -> None:
    """The one that led last was moved away meanwhile."""
    last = PartitionRecord((1,), NO_LEADER, (), elr=(1,))
    after = after_unclean_restart(last, 2, is_durable=False)
    assert after is not None
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (NO_LEADER, (), (), (1,))


def test_empty_disk_does_not_make_a_last_known_leader() -> None:
    after = after_unclean_restart(initial_record((1,)), is_empty=True)
    assert after is not None
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (NO_LEADER, (), (), ())
    assert leader_elections.adapt(after, up(1), RULES) is None


def test_damaged_replica_leaves_isr_and_elr() -> None:
    after = leader_elections.without(RECORD, 1, up(1, 2, 3), RULES)
    assert after is not None
    assert (after.leader, after.isr, after.elr) == (2, (2, 3), ())
    follower = leader_elections.without(
        replace(RECORD, isr=(1, 2), elr=(3,)), 3, up(1, 2, 3), Rules(3)
    )
    assert follower is not None
    assert (follower.isr, follower.elr) == ((1, 2), ())


def test_election_rules_come_from_the_topic_config() -> None:
    configs = BrokerConfigs({"min.insync.replicas": "2"})
    assert leader_elections.rules_from(resolve_topic({}, configs)) == Rules(2, False, True)
    own = {"unclean.leader.election.enable": "true", "flush.policy": "page-cache"}
    assert leader_elections.rules_from(resolve_topic(own, configs)) == Rules(2, True, False)
