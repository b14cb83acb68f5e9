"""Moving replicas: beginning, finishing, cancelling (KIP-455)."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.controller import reassignment
from penstock.cluster.controller.leader_elections import Rules
from penstock.cluster.controller.placement import initial_record
from penstock.cluster.metadata.store_keys import BrokerRecord, PartitionRecord

UP = {node: BrokerRecord(node, "h", node) for node in (1, 2, 3, 4, 5)}
RULES = Rules(min_isr=2)
RECORD = initial_record((1, 2, 3))


def begin(record: PartitionRecord, *target: int, keep_factor: bool = False) -> PartitionRecord:
    after = reassignment.begin(record, target, UP, RULES, keep_factor=keep_factor)
    return record if after is None else after


def code_of(work: Callable[[], object]) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        work()
    return refused.value.code


def test_reassignment_lists_new_replicas_beside_the_old() -> None:
    moving = begin(RECORD, 4, 2, 5)
    assert moving.replicas == (4, 2, 5, 1, 3)
    assert (moving.adding, moving.removing) == ((4, 5), (1, 3))
    assert (moving.leader, moving.isr) == (1, (1, 2, 3))
    assert (moving.leader_epoch, moving.partition_epoch) == (0, 1)
    assert reassignment.is_moving(moving)
    assert reassignment.target_of(moving) == (4, 2, 5)
    assert set(reassignment.origin_of(moving)) == {1, 2, 3}


def test_reassignment_to_the_current_replicas_changes_nothing() -> None:
    assert begin(RECORD, 1, 2, 3) is RECORD
    moving = begin(RECORD, 4, 2, 5)
    assert begin(moving, 4, 2, 5) is moving


def test_reassignment_ends_when_every_new_replica_is_in_sync() -> None:
    moving = begin(RECORD, 4, 2, 5)
    assert reassignment.finish(moving, UP, RULES) is None
    one = replace(moving, isr=(1, 2, 3, 4))
    assert reassignment.finish(one, UP, RULES) is None
    both = replace(moving, isr=(1, 2, 3, 4, 5), partition_epoch=7)
    after = reassignment.finish(both, UP, RULES)
    assert after is not None
    assert (after.replicas, after.isr, after.adding, after.removing) == (
        (4, 2, 5),
        (2, 4, 5),
        (),
        (),
    )
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (4, 1, 8)


def test_leader_that_stays_a_replica_keeps_its_epoch() -> None:
    moving = begin(RECORD, 1, 2, 4)
    after = reassignment.finish(replace(moving, isr=(1, 2, 3, 4)), UP, RULES)
    assert after is not None
    assert (after.leader, after.leader_epoch) == (1, 0)


def test_replicas_stay_while_the_target_has_too_few_in_sync() -> None:
    moving = begin(RECORD, 4, 5)
    moving = begin(replace(moving, isr=(1, 2, 3)), 4, 2)
    # The new one is in sync, but the one that stays has fallen behind.
    behind = replace(moving, isr=(1, 3, 4))
    assert reassignment.finish(behind, UP, RULES) is None
    assert reassignment.finish(behind, UP, Rules(min_isr=1)) is not None


def test_offline_replica_may_stay_but_not_be_added() -> None:
    without_three = {node: UP[node] for node in (1, 2, 4)}
    after = reassignment.begin(RECORD, (1, 3, 4), without_three, RULES)
    assert after is not None
    assert after.adding == (4,)
    assert (
        code_of(lambda: reassignment.begin(initial_record((1, 2)), (1, 3), without_three, RULES))
        is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    )


def test_smaller_replica_set_applies_at_once() -> None:
    after = begin(RECORD, 2)
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((2,), (2,), 2, 1)
    assert not reassignment.is_moving(after)
    assert after.partition_epoch == 1


def test_reordered_replicas_apply_at_once_without_moving_the_leader() -> None:
    after = begin(RECORD, 3, 1, 2)
    assert (after.replicas, after.leader, after.adding, after.removing) == ((3, 1, 2), 1, (), ())


def test_larger_replica_set_waits_for_the_new_replicas() -> None:
    moving = begin(initial_record((1,)), 1, 2, 3)
    assert (moving.replicas, moving.adding, moving.removing) == ((1, 2, 3), (2, 3), ())
    # Replicas that do not exist yet do not block writes.
    assert moving.elr == ()


def test_new_target_replaces_the_previous_one() -> None:
    moving = replace(begin(RECORD, 4, 2, 3), isr=(1, 2, 3, 4), elr=())
    other = begin(moving, 5, 2, 3)
    assert other.replicas == (5, 2, 3, 1)
    assert (other.adding, other.removing) == ((5,), (1,))
    assert other.isr == (1, 2, 3)


def test_cancellation_restores_the_original_replicas() -> None:
    moving = replace(begin(RECORD, 4, 2, 5), isr=(1, 2, 3, 4))
    after = reassignment.cancel(moving, UP, RULES)
    assert set(after.replicas) == {1, 2, 3}
    assert (after.isr, after.adding, after.removing) == ((1, 2, 3), (), ())
    assert after.partition_epoch == 2
    code = code_of(lambda: reassignment.cancel(after, UP, RULES))
    assert code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_cancellation_that_would_remove_the_only_leader_is_refused() -> None:
    moving = PartitionRecord(replicas=(2, 1), leader=2, isr=(2,), adding=(2,), removing=(1,))
    code = code_of(lambda: reassignment.cancel(moving, UP, RULES))
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    code = code_of(lambda: reassignment.begin(moving, (3,), UP, RULES))
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("target", [(), (1, 1), (1, 9), (-1,)])
def test_invalid_target_is_refused(target: tuple[int, ...]) -> None:
    code = code_of(lambda: reassignment.begin(RECORD, target, UP, RULES))
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_replication_factor_is_kept_on_request() -> None:
    code = code_of(lambda: begin(RECORD, 1, 2, keep_factor=True))
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    begin(RECORD, 1, 2, 4, keep_factor=True)
    # It counts what the partition had before the move under way.
    moving = begin(RECORD, 1, 2, 4)
    begin(moving, 1, 2, 5, keep_factor=True)
