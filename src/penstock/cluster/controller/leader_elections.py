"""Election rules: leader, ISR and ELR of a partition, as pure functions on one `PartitionRecord`.

Owns: every rule by which leader, ISR and ELR follow from each other (KIP-966) and from the live
brokers. The controller, a partition's leader and a restarted node all build the next record here,
so they cannot disagree. Each function returns the next record, or None if nothing changes; writing
it is one compare-and-swap on the record that it was made from.

Invariants of every record made here:
- a leader comes from the ISR, else from the ELR. If both are empty and exactly one last known
  leader is left, it is that one. Any other replica may lead only if unclean elections are allowed;
- `isr` and `elr` are disjoint subsets of `replicas`; a leader is in the ISR;
- `elr` is empty while the ISR has `min.insync.replicas` members (or all replicas, if those are
  fewer). Below that, a replica that leaves the ISR joins the ELR: it has all committed records,
  because the leader commits nothing while `elr` is not empty or the ISR is too small;
- `partition_epoch` grows by one, and so does `leader_epoch` if and only if the leader changes;
- after an unclean election every replica but the new leader is in `unreconciled` until it is in
  sync. Only those may truncate below their high watermark: a replica that never returns keeps only
  its own entry there.

A live broker that is draining stays in the ISR, and leads only if no other replica can. A live
broker that cannot reach other replicas leads only if no better connected replica leads.
Elsewhere: moving replicas (`reassignment`), the time of an election (`controller`).
"""

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from penstock.cluster.configs.effective_configs import BrokerConfigs, TopicConfig, resolve_topic
from penstock.cluster.metadata.image import TopicImage
from penstock.cluster.metadata.store_keys import NO_LEADER, BrokerRecord, PartitionRecord

Brokers = Mapping[int, BrokerRecord]
"""Live brokers, as the image has them."""

BrokenLinks = Mapping[int, frozenset[int]]
"""Nodes without a round trip, by node, whichever direction fails; see `peer_reachability`."""
NO_BROKEN_LINKS: BrokenLinks = {}


@dataclass(frozen=True, slots=True)
class Rules:
    """Election rules from a topic's config."""

    min_isr: int
    unclean: bool = False
    """True if a replica that may lack committed records may lead when no other is left."""
    is_durable: bool = True
    """True if acknowledged records are on disk; a page-cache topic loses them with its machine."""


class Election(enum.Enum):
    """Kind of an election: by the way that the leader was found."""

    NONE = "none"
    CLEAN = "clean"
    LAST_KNOWN = "last-known"
    UNCLEAN = "unclean"


def rules_of(topic: TopicImage, configs: BrokerConfigs) -> Rules:
    return rules_from(resolve_topic(topic.configs, configs))


def rules_from(config: TopicConfig) -> Rules:
    return Rules(
        config.min_insync_replicas, config.unclean_leader_election, not config.log.page_cache
    )


def effective_min_isr(min_isr: int, record: PartitionRecord) -> int:
    """Effective `min.insync.replicas` of a partition: with fewer replicas, all of them.

    Replicas that a move is still adding do not count; otherwise starting one would stop all writes.
    """
    return min(min_isr, len(record.replicas) - len(record.adding))


# -- requests of the leader -----------------------------------------------------------------------


def with_isr(record: PartitionRecord, isr: Collection[int], min_isr: int) -> PartitionRecord | None:
    """The leader's proposal: `isr`, which includes the leader, is in sync now."""
    assert record.leader in isr
    assert set(isr) <= set(record.replicas)
    return _next(record, _with_isr(record, _ordered(record.replicas, isr), min_isr))


def without(
    record: PartitionRecord, node_id: int, brokers: Brokers, rules: Rules
) -> PartitionRecord | None:
    """Returns the record after `node_id` lost records: its log is damaged, or its disk is gone.

    It leaves ISR and ELR, and is not a last known leader either; another replica leads, if any can.
    """
    others = {node: broker for node, broker in brokers.items() if node != node_id}
    draft = _with_isr(record, _but(record.isr, node_id), rules.min_isr, lost=(node_id,))
    draft = _elect(record, draft, others, rules)
    return _next(record, replace(draft, last_known_elr=_but(draft.last_known_elr, node_id)))


def must_leave(record: PartitionRecord, node_id: int) -> bool:
    """True if a replica that has lost records is one that the partition counts on.

    An only replica stays: its directory may be restored, or its loss accepted. So does a replica
    that an unclean election chose: it was elected with what it has left.
    """
    if len(record.replicas) == 1 or is_last_choice(record, node_id):
        return False
    return node_id in record.isr + record.elr + record.last_known_elr


def is_last_choice(record: PartitionRecord, node_id: int) -> bool:
    """True for the choice of the present leader's unclean election, while no other replica has
    followed it and could lead instead."""
    unreconciled = unreconciled_in(record)
    others = [node for node in record.isr + record.elr if node not in (node_id, *unreconciled)]
    return record.unclean_epoch == record.leader_epoch and not others


# -- requests of the controller -------------------------------------------------------------------


def adapt(
    record: PartitionRecord,
    brokers: Brokers,
    rules: Rules,
    broken_links: BrokenLinks = NO_BROKEN_LINKS,
) -> PartitionRecord | None:
    """Adapts a partition to the live brokers and their links: replicas on dead brokers leave the
    ISR, and a replica leads if any can, from where enough replicas are reachable."""
    isr = tuple(node for node in record.isr if node in brokers)
    draft = _with_isr(record, isr, rules.min_isr)
    draft = _elect(record, draft, brokers, rules)
    return _next(record, _prefer_connected(record, draft, brokers, rules, broken_links))


def prefer(record: PartitionRecord, brokers: Brokers) -> PartitionRecord | None:
    """Makes the preferred replica, the first one, the leader if it may lead and does not yet."""
    first = record.replicas[0]
    if first == record.leader or first not in record.isr or not _is_electable(first, brokers):
        return None
    return _next(record, replace(record, leader=first))


def may_go_back(record: PartitionRecord, node_id: int, last_epoch: int) -> bool:
    """True if this replica may truncate committed records: only to follow an unclean election that
    it has not followed yet. `last_epoch` is the epoch of its last batch.

    A replica in sync since that election has followed it, with or without a batch of its epoch.
    """
    if node_id not in unreconciled_in(record):
        return False
    return record.unclean_epoch < 0 or last_epoch < record.unclean_epoch


def unreconciled_in(record: PartitionRecord) -> tuple[int, ...]:
    """Replicas that have not followed the last unclean election."""
    if not record.is_recovering:
        return ()
        # Written by an older version: any replica that is not in sync now may be unreconciled.
    unknown = record.unreconciled or record.replicas
    return tuple(node for node in unknown if node in record.replicas and node not in record.isr)


def reconciled(record: PartitionRecord) -> PartitionRecord:
    """Removes replicas from `unreconciled` that are in sync, or no longer replicas."""
    nodes = unreconciled_in(record)
    return replace(record, is_recovering=bool(nodes), unreconciled=nodes)


def kind_of(before: PartitionRecord, after: PartitionRecord) -> Election:
    """Kind of the election that led from `before` to `after`, for metrics."""
    if after.leader in (before.leader, NO_LEADER):
        return Election.NONE
    if after.leader in before.isr or after.leader in before.elr:
        return Election.CLEAN
    is_last_known = after.leader in before.last_known_elr
    return Election.LAST_KNOWN if is_last_known else Election.UNCLEAN


# -- requests of a node before it registers again -------------------------------------------------


def after_unclean_restart(
    record: PartitionRecord, node_id: int, brokers: Brokers, rules: Rules, *, is_empty: bool
) -> PartitionRecord | None:
    """Returns the record after `node_id` restarted without a clean-shutdown marker.

    Records that were not synced may be lost, so it leaves ISR and ELR. On a topic that acknowledges
    only synced records it has lost nothing committed: there it leaves only the ISR, and only if
    another member is up to lead meanwhile. If it led, it needs a new epoch even then: followers may
    have copied records beyond its last sync, and other records must not take their offsets in the
    same epoch. With a new data directory (`is_empty`) it has no records at all, and is not even a
    last known leader. A directory restored from an older copy may predate an unclean election that
    this node has followed since.
    """
    if is_empty:
        after = without(record, node_id, brokers, rules) or record
        if record.unclean_epoch >= 0:
            nodes = _ordered(after.replicas, {*unreconciled_in(after), node_id})
            after = replace(after, is_recovering=True, unreconciled=nodes)
        return _next(record, after)
    if node_id not in record.isr and node_id not in record.elr:
        return None
    others = {node: broker for node, broker in brokers.items() if node != node_id}
    if rules.is_durable and not any(node in others for node in record.isr + record.elr):
        if record.leader != node_id or len(record.replicas) == 1:
            return None
        return _next(record, replace(record, leader=NO_LEADER, last_known_elr=(node_id,)))
    lost = () if rules.is_durable else (node_id,)
    draft = _with_isr(record, _but(record.isr, node_id), rules.min_isr, lost=lost)
    draft = _elect(record, draft, others, rules)
    if not draft.isr + draft.elr + draft.last_known_elr:
        # The last leader was moved away: no replica that is left has more than this one.
        draft = replace(draft, last_known_elr=(node_id,))
    return _next(record, draft)


# -- rules ----------------------------------------------------------------------------------------


def _with_isr(
    record: PartitionRecord, isr: tuple[int, ...], min_isr: int, lost: Collection[int] = ()
) -> PartitionRecord:
    """Sets the ISR, and the ELR that goes with it."""
    draft = reconciled(replace(record, isr=isr))
    if len(isr) >= effective_min_isr(min_isr, record):
        return replace(draft, elr=())
    elr = tuple(
        node
        for node in record.replicas
        if (node in record.isr or node in record.elr) and node not in isr and node not in lost
    )
    return replace(draft, elr=elr)


def _elect(
    record: PartitionRecord, draft: PartitionRecord, brokers: Brokers, rules: Rules
) -> PartitionRecord:
    """Elects a leader for the draft; keeps the present one if it may continue."""
    clean = _clean_leader(draft, brokers)
    if clean is not None:
        isr = draft.isr if clean in draft.isr else _ordered(draft.replicas, (*draft.isr, clean))
        draft = _with_isr(replace(draft, leader=clean), isr, rules.min_isr)
        return replace(draft, last_known_elr=())
    unclean = _unclean_leader(draft, brokers, rules)
    if unclean is not None:
        draft = _with_isr(replace(draft, leader=unclean), (unclean,), rules.min_isr)
        draft = replace(draft, last_known_elr=())
        others = _but(draft.replicas, unclean)
        if not others:
            return draft
        epoch = record.leader_epoch + (unclean != record.leader)
        return replace(draft, is_recovering=True, unclean_epoch=epoch, unreconciled=others)
    if record.leader in draft.replicas:
        draft = replace(draft, last_known_elr=(record.leader,))
    return replace(draft, leader=NO_LEADER)


def _clean_leader(draft: PartitionRecord, brokers: Brokers) -> int | None:
    """A leader with all committed records: those not draining first, ISR before ELR."""
    in_sync = [node for node in draft.replicas if node in draft.isr and node in brokers]
    electable = [node for node in in_sync if _is_electable(node, brokers)]
    eligible = [node for node in draft.replicas if node in draft.elr and node in brokers]
    for candidates in (electable, in_sync, eligible):
        if draft.leader in candidates:
            return draft.leader
        if candidates:
            return candidates[0]
    return None


def _unclean_leader(draft: PartitionRecord, brokers: Brokers, rules: Rules) -> int | None:
    last = draft.last_known_elr
    if not draft.isr and not draft.elr and len(last) == 1 and last[0] in brokers:
        return last[0]
    if not rules.unclean:
        return None
    up = [node for node in draft.replicas if _is_electable(node, brokers)]
    # The last leader probably has the most records.
    return next((node for node in up if node in last), up[0] if up else None)


def _prefer_connected(
    record: PartitionRecord,
    draft: PartitionRecord,
    brokers: Brokers,
    rules: Rules,
    broken_links: BrokenLinks,
) -> PartitionRecord:
    """Elects another leader, if the present one reaches too few replicas and the other enough; if
    the leader changes anyway, the candidate that reaches the most.

    A new leader drops the ISR members that it cannot reach: the rest of the ISR has all committed
    records, as after a broker's death.
    """
    is_new = draft.leader not in (record.leader, NO_LEADER)
    if not broken_links or not (is_new or broken_links.get(draft.leader)):
        return draft
    candidates = [
        node
        for part in (draft.isr, draft.elr)
        for node in draft.replicas
        if node in part and _is_electable(node, brokers)
    ]
    ranks = {node: _leader_rank(node, draft, brokers, rules, broken_links) for node in candidates}
    if not candidates:
        return draft
    best = max(candidates, key=lambda node: ranks[node])
    present = _leader_rank(draft.leader, draft, brokers, rules, broken_links)
    if not is_new and ranks[best].level <= present.level:
        return draft
    isr = [node for node in draft.isr if node not in broken_links.get(best, ())]
    draft = replace(draft, leader=best)
    return _with_isr(draft, _ordered(draft.replicas, {*isr, best}), rules.min_isr)


class _LeaderRank(NamedTuple):
    """Rank of a leader by the replicas that it reaches; more is better."""

    level: int
    """3: can commit with a majority of the replicas; 2: can commit; 1: once others have caught up;
    0: cannot. Without a better level the leader is not changed."""
    complete: int
    reached: int


def _leader_rank(
    node_id: int, draft: PartitionRecord, brokers: Brokers, rules: Rules, broken_links: BrokenLinks
) -> _LeaderRank:
    away = broken_links.get(node_id, ())
    reached = [
        node for node in draft.replicas if node == node_id or (node in brokers and node not in away)
    ]
    complete = sum(node in draft.isr or node in draft.elr for node in reached)
    least = effective_min_isr(rules.min_isr, draft)
    most = max(least, majority(draft))
    level = (complete >= most) + (complete >= least) + (len(reached) >= least)
    return _LeaderRank(level, complete, len(reached))


def majority(record: PartitionRecord) -> int:
    """More than half of the replicas; replicas that a move is still adding do not count."""
    return (len(record.replicas) - len(record.adding)) // 2 + 1


def _is_electable(node: int, brokers: Brokers) -> bool:
    broker = brokers.get(node)
    return broker is not None and not broker.is_draining


def _next(record: PartitionRecord, draft: PartitionRecord) -> PartitionRecord | None:
    """Sets the draft's epochs; None if the draft changes nothing."""
    if draft == record:
        return None
    return replace(
        draft,
        partition_epoch=record.partition_epoch + 1,
        leader_epoch=record.leader_epoch + (draft.leader != record.leader),
    )


def _but(nodes: tuple[int, ...], node_id: int) -> tuple[int, ...]:
    return tuple(node for node in nodes if node != node_id)


def _ordered(replicas: tuple[int, ...], nodes: Collection[int]) -> tuple[int, ...]:
    return tuple(node for node in replicas if node in nodes)
