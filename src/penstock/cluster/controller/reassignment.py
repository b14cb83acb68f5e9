"""Reassignment of a partition's replicas to other brokers (KIP-455): pure rules on one record.

A move has two steps, each one compare-and-swap. `begin` adds the new replicas beside the old ones:
`replicas` becomes the target followed by the replicas to remove, `adding` and `removing` tell them
apart, and the new replicas start to copy. `finish` removes the old ones once every new one is in
sync and the target alone has enough in-sync members; a leader that is removed is replaced. `cancel`
returns to the replicas before the move.

Invariants: while a move is under way `adding` and `removing` are disjoint subsets of `replicas`; no
replica is removed before enough others have its records; a move that is started again with another
target replaces the first one, and copies that were started for it are removed.
Elsewhere: the leader (`leader_elections`), copying at a bounded rate (`fetchers`, `throttle`).
"""

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.controller.leader_elections import Brokers, Rules, adapt, reconciled
from penstock.cluster.metadata.store_keys import NO_LEADER, PartitionRecord


def is_moving(record: PartitionRecord) -> bool:
    return bool(record.adding or record.removing)


def target_of(record: PartitionRecord) -> tuple[int, ...]:
    """Replicas after the move."""
    return tuple(node for node in record.replicas if node not in record.removing)


def origin_of(record: PartitionRecord) -> tuple[int, ...]:
    """Replicas before the move, though not in their order."""
    return tuple(node for node in record.replicas if node not in record.adding)


def begin(
    record: PartitionRecord,
    target: Sequence[int],
    brokers: Brokers,
    rules: Rules,
    *,
    keep_factor: bool = False,
) -> PartitionRecord | None:
    """Returns the record with the move to `target` under way, or done if nothing needs copying.

    None if the partition has these replicas already. Raises Refused with Kafka's codes.
    """
    origin = origin_of(record)
    check_target(origin, target, brokers, keep_factor=keep_factor)
    if tuple(target) == record.replicas and not is_moving(record):
        return None
    draft = replace(
        record,
        replicas=(*target, *(node for node in origin if node not in target)),
        adding=tuple(node for node in target if node not in origin),
        removing=tuple(node for node in origin if node not in target),
    )
    if draft == record:
        return None
    # Replicas that an earlier move was adding, and this one does not name, are dropped.
    draft = _only(draft, draft.replicas)
    draft = adapt(draft, brokers, rules) or draft
    _check_leader(record, draft, brokers)
    return _counted(record, finish(draft, brokers, rules) or draft)


def check_target(
    origin: Sequence[int], target: Sequence[int], brokers: Brokers, *, keep_factor: bool
) -> None:
    """Raises Refused for an invalid list of replicas."""

    def refuse(reason: str) -> Refused:
        return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)

    if not target:
        raise refuse("The manual partition assignment includes an empty replica list.")
    for node in sorted(target):
        if node < 0:
            raise refuse(f"The manual partition assignment includes an invalid broker ID {node}.")
        if target.count(node) > 1:
            raise refuse(
                f"The manual partition assignment includes the broker {node} more than once."
            )
        # A replica that stays may be down: moving another replica must not wait for its return.
        if node not in brokers and node not in origin:
            raise refuse(
                f"The manual partition assignment includes broker {node}, but no such broker is "
                "registered."
            )
    if keep_factor and len(target) != len(origin):
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor would change from {len(origin)} to {len(target)}",
        )


def finish(record: PartitionRecord, brokers: Brokers, rules: Rules) -> PartitionRecord | None:
    """Removes the old replicas once the others have caught up; None until then."""
    if not is_moving(record):
        return None
    target = target_of(record)
    in_sync = [node for node in record.isr if node in target]
    if not all(node in in_sync for node in record.adding):
        return None
    if not any(node in brokers for node in in_sync):
        return None  # No replica of the target could lead.
    if len(in_sync) < min(rules.min_isr, len(target)):
        return None
    draft = _only(replace(record, replicas=target, adding=(), removing=()), target)
    return _counted(record, adapt(draft, brokers, rules) or draft)


def cancel(record: PartitionRecord, brokers: Brokers, rules: Rules) -> PartitionRecord:
    """Returns the record as before the move. Raises Refused if no move is under way."""
    if not is_moving(record):
        raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    origin = origin_of(record)
    draft = _only(replace(record, replicas=origin, adding=(), removing=()), origin)
    draft = adapt(draft, brokers, rules) or draft
    _check_leader(record, draft, brokers)
    return _counted(record, draft)


def _check_leader(record: PartitionRecord, draft: PartitionRecord, brokers: Brokers) -> None:
    """Refuses to drop the only copies that can lead."""
    if record.leader in brokers and draft.leader == NO_LEADER:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The partition would have no leader: none of the remaining replicas is up and in "
            "sync. Wait for one to return, or run an unclean election first.",
        )


def _only(record: PartitionRecord, replicas: Sequence[int]) -> PartitionRecord:
    """Limits the record to `replicas`, which are its replicas by now."""
    draft = replace(
        record,
        isr=tuple(node for node in record.isr if node in replicas),
        elr=tuple(node for node in record.elr if node in replicas),
        last_known_elr=tuple(node for node in record.last_known_elr if node in replicas),
    )
    return reconciled(draft)


def _counted(record: PartitionRecord, draft: PartitionRecord) -> PartitionRecord:
    """Counts several steps of one write as one change of epochs."""
    return replace(
        draft,
        partition_epoch=record.partition_epoch + 1,
        leader_epoch=record.leader_epoch + (draft.leader != record.leader),
    )
