"""Bugs to put into the cluster's code on purpose, one at a time: see `test_cluster_planted_bugs`.

Each is a small change of the real code, of the kind that replicated logs have really had. `BUGS`
says for each the checker that names it and a seed that finds it.
"""

import errno
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from penstock.broker.api.data import replica_fetch
from penstock.cluster.controller import leader_elections, partition_updates, reassignment
from penstock.cluster.metadata.membership import ClusterMembership
from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.cluster.replication import isr, leader_state
from penstock.cluster.replication.fetcher import FollowerFetchSession
from penstock.cluster.replication.isr import IsrMaintenance
from penstock.cluster.replication.leader_state import LeaderState
from penstock.cluster.replication.partition import Partition
from penstock.cluster.replication.replica_follower import FollowerStatus, ReplicaFollower
from penstock.log.flusher import Flusher
from penstock.log.log import Log
from penstock.log.producers import Producers
from penstock.node import open_logs
from simulation import cluster_run
from simulation.cluster_run import ClusterRunOptions
from simulation.disk import Fault
from simulation.faults import FaultPlan
from simulation.host import SimHost

Patch = pytest.MonkeyPatch


class Bug(NamedTuple):
    """A change of the code, the promise it breaks, and a seed that shows it."""

    plant: Callable[[Patch], None]
    checker: str
    first: int
    options: Callable[[int], ClusterRunOptions] | None = None
    """Options of the run in which it shows, where others do not show it; None: those of
    `test_cluster_run`.
    """


def without_syncs(seed: int) -> ClusterRunOptions:
    """Topics are acknowledged from the page cache, as Kafka's are: then one machine at a time may
    lose its power, when all replicas are in sync."""
    options = cluster_run.options_of(seed)
    options.overrides = {**options.overrides, "flush.policy": "page-cache"}
    options.faults = {"power cut in peace": cut_power_in_peace}
    options.groups, options.has_copiers = 0, False
    options.chaos_s = 30.0
    return options


def with_failing_disks(seed: int) -> ClusterRunOptions:
    """Replicas lose their logs while their node goes on: it fetches them anew in the same life."""
    options = cluster_run.options_of(seed)
    options.faults = {"append to a log fails": fail_append_to_a_log}
    options.groups, options.has_copiers = 0, False
    options.chaos_s = 30.0
    return options


async def fail_append_to_a_log(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    host.disk.inject(Fault("append", errno.ENOSPC, path=f"/logs/{cluster_run.LOG}", times=1))


async def cut_power_in_peace(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    nodes = plan.world.cluster.nodes()
    is_in_sync = len(nodes) == len(plan.world.cluster.hosts) and all(
        len(record.isr) == len(record.replicas)
        and set(record.isr) <= set(one.watcher.image.brokers)
        for one in nodes
        for topic in one.watcher.image.topics.values()
        for record in topic.partitions
    )
    if is_in_sync:
        host.cut_power()


# -- what is durable --------------------------------------------------------------------------


def a_write_is_acknowledged_before_its_sync(patch: Patch) -> None:
    mark = Flusher.mark

    def planted(self: Flusher, log: Log) -> None:
        mark(self, log)
        log.durable_offset = log.end_offset
        if log.on_durable is not None:
            log.on_durable()

    patch.setattr(Flusher, "mark", planted)


def a_follower_asks_on_before_its_sync(patch: Patch) -> None:
    patch.setattr(
        ReplicaFollower, "_await_sync", lambda self: self._set_status(FollowerStatus.READY)
    )


def the_leader_commits_what_is_durable_here(patch: Patch) -> None:
    def planted(self: LeaderState, durable_end: int, now_s: float) -> int:
        return -1 if self.is_frozen else durable_end

    patch.setattr(LeaderState, "high_watermark", planted)


def a_lagging_replica_does_not_hold_up_commits(patch: Patch) -> None:
    """The leader leaves it out by itself, before the store says so."""
    real = LeaderState.high_watermark

    def planted(self: LeaderState, durable_end: int, now_s: float) -> int:
        counted = self._counted
        self._counted = tuple(copy for copy in counted if now_s - copy.fetched_s < 1.0)
        try:
            return real(self, durable_end, now_s)
        finally:
            self._counted = counted

    patch.setattr(LeaderState, "high_watermark", planted)


def commits_go_on_below_min_insync_replicas(patch: Patch) -> None:
    count = LeaderState._count

    def planted(self: LeaderState) -> None:
        count(self)
        self.is_under_min = self.is_frozen = False
        self.is_alone = not self.copies

    patch.setattr(LeaderState, "_count", planted)


def a_new_leader_takes_all_replicas_for_caught_up(patch: Patch) -> None:
    init = LeaderState.__init__

    def planted(self: LeaderState, *arguments: Any) -> None:
        init(self, *arguments)
        for node_id, copy in self.copies.items():
            if node_id in self.record.isr:
                copy.end_offset = self.epoch_start

    patch.setattr(LeaderState, "__init__", planted)


def acks_all_is_acks_one(patch: Patch) -> None:
    patch.setattr(Partition, "when_committed", Partition.when_written)


def a_high_watermark_is_known_before_it_was_told(patch: Patch) -> None:
    """After a restart everything on disk is taken for committed."""
    init = Partition.__init__

    def planted(self: Partition, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        self.high_watermark = self.log.end_offset

    patch.setattr(Partition, "__init__", planted)


# -- truncation -------------------------------------------------------------------------------


def a_follower_is_cut_to_its_high_watermark(patch: Patch) -> None:
    """As it was before KIP-101."""

    def planted(self: ReplicaFollower, before: ReplicaFollower | None = None) -> None:
        self._begin(self._repair._truncate_to(self.partition.high_watermark))

    patch.setattr(ReplicaFollower, "start", planted)


def departing_epochs_are_not_looked_at(patch: Patch) -> None:
    patch.setattr(replica_fetch, "_diverging", lambda partition, cursor: None)


def an_unclean_return_keeps_its_place(patch: Patch) -> None:
    """A node that lost unsynced records still counts as in sync (KIP-966)."""

    async def planted(*arguments: Any, **options: Any) -> int:
        return 0

    patch.setattr(open_logs, "withdraw_unclean", planted)


# -- who is in sync ---------------------------------------------------------------------------


def the_isr_is_written_without_compare_and_swap(patch: Patch) -> None:
    draft = IsrMaintenance._proposal_for

    def planted(self: IsrMaintenance, partition: Partition) -> Any:
        found = draft(self, partition)
        return found and isr.IsrProposal(found.partition, found.before, found.after, ())

    patch.setattr(IsrMaintenance, "_proposal_for", planted)


def a_replica_joins_at_the_high_watermark(patch: Patch) -> None:
    """Although the leader's own may be behind at the start of its epoch."""
    joins, may_join = LeaderState._joins, LeaderState.may_join

    def at_zero(real: Any) -> Any:
        def planted(self: LeaderState, *arguments: Any) -> bool:
            start, self.epoch_start = self.epoch_start, 0
            try:
                return bool(real(self, *arguments))
            finally:
                self.epoch_start = start

        return planted

    patch.setattr(LeaderState, "_joins", at_zero(joins))
    patch.setattr(LeaderState, "may_join", at_zero(may_join))


def a_replica_joins_when_it_fetches(patch: Patch) -> None:
    patch.setattr(
        LeaderState, "may_join", lambda self, node_id, end: node_id not in self.record.isr
    )
    patch.setattr(LeaderState, "_joins", lambda self, node_id, end, brokers: node_id in brokers)


def what_left_the_isr_still_counts(patch: Patch) -> None:
    patch.setattr(leader_state.FollowerProgress, "forget", lambda self: None)


def a_quiet_replica_never_returns(patch: Patch) -> None:
    """As it was: a node that registered anew named only what had changed to its leaders."""
    patch.setattr(FollowerFetchSession, "name_all_again", lambda self: None)


# -- who leads --------------------------------------------------------------------------------


def the_controller_takes_its_lease_for_a_lock(patch: Patch) -> None:
    """Nothing else guards its writes."""
    real = partition_updates.apply

    async def planted(store: Any, updates: Any, controller_guard: Any = ()) -> Any:
        return await real(store, updates, ())

    patch.setattr(partition_updates, "apply", planted)
    patch.setattr(partition_updates, "_guards", lambda *arguments: [])


def a_new_leader_gets_no_new_epoch(patch: Patch) -> None:
    real = leader_elections._next

    def planted(record: PartitionRecord, draft: PartitionRecord) -> PartitionRecord | None:
        found = real(record, draft)
        return found and replace(found, leader_epoch=record.leader_epoch)

    patch.setattr(leader_elections, "_next", planted)


def any_live_replica_may_lead(patch: Patch) -> None:
    real = leader_elections._clean_leader

    def planted(draft: PartitionRecord, brokers: Any) -> int | None:
        up = [one for one in draft.replicas if one in brokers]
        return real(draft, brokers) or (up[0] if up else None)

    patch.setattr(leader_elections, "_clean_leader", planted)


def eligible_leaders_are_forgotten(patch: Patch) -> None:
    """Without an in-sync replica, the first one to return leads (before KIP-966)."""
    real = leader_elections._with_isr

    def without_elr(record: PartitionRecord, *rest: Any, **options: Any) -> PartitionRecord:
        return replace(real(record, *rest, **options), elr=())

    def first_one_up(draft: PartitionRecord, brokers: Any, rules: Any) -> int | None:
        return next((one for one in draft.replicas if one in brokers), None)

    patch.setattr(leader_elections, "_with_isr", without_elr)
    patch.setattr(leader_elections, "_unclean_leader", first_one_up)


def a_move_is_over_before_the_copies_are_made(patch: Patch) -> None:
    def planted(record: PartitionRecord, brokers: Any, rules: Any) -> PartitionRecord | None:
        if not reassignment.is_moving(record):
            return None
        target = reassignment.target_of(record)
        if not any(node in brokers for node in target):
            return None
        draft = replace(record, replicas=target, adding=(), removing=(), isr=target, elr=())
        return reassignment._counted(record, leader_elections.adapt(draft, brokers, rules) or draft)

    patch.setattr(reassignment, "finish", planted)


def a_node_is_fenced_for_good(patch: Patch) -> None:
    """It notices that its registration is gone, and does not register again."""
    lose = ClusterMembership._lose

    def planted(self: ClusterMembership, reason: str) -> None:
        lose(self, reason)
        self._has_left = True

    patch.setattr(ClusterMembership, "_lose", planted)


# -- what clients see -------------------------------------------------------------------------


def readers_see_what_is_not_committed(patch: Patch) -> None:
    locate = Log.locate

    def planted(self: Log, offset: int, bytes_max: int, limit_offset: int) -> Any:
        return locate(self, offset, bytes_max, self.end_offset)

    patch.setattr(Log, "locate", planted)


def a_new_leader_says_at_once_where_its_log_ends(patch: Patch) -> None:
    patch.setattr(Partition, "is_settled", property(lambda self: True))


def producers_are_forgotten_by_a_new_leader(patch: Patch) -> None:
    lead = Partition.lead

    def planted(self: Partition, record: PartitionRecord, *rest: Any) -> None:
        if self.leader_state is None:
            self.log.producers = Producers(self.log.producers.expiration_ms)
        lead(self, record, *rest)

    patch.setattr(Partition, "lead", planted)


def followers_do_not_learn_of_producers(patch: Patch) -> None:
    patch.setattr(Log, "note_producer", lambda self, batch, header: None)


BUGS = [
    Bug(a_write_is_acknowledged_before_its_sync, "truncated", 12),
    Bug(a_follower_asks_on_before_its_sync, "undurable", 0),
    Bug(the_leader_commits_what_is_durable_here, "undurable", 0),
    Bug(a_lagging_replica_does_not_hold_up_commits, "undurable", 1),
    Bug(commits_go_on_below_min_insync_replicas, "undurable", 4),
    Bug(a_new_leader_takes_all_replicas_for_caught_up, "undurable", 34),
    Bug(acks_all_is_acks_one, "lost-write", 1),
    Bug(a_high_watermark_is_known_before_it_was_told, "log-matching", 2),
    Bug(a_follower_is_cut_to_its_high_watermark, "undurable", 10),
    Bug(departing_epochs_are_not_looked_at, "log-matching", 6),
    Bug(an_unclean_return_keeps_its_place, "truncated", 132, without_syncs),
    Bug(the_isr_is_written_without_compare_and_swap, "epochs", 40),
    Bug(a_replica_joins_at_the_high_watermark, "undurable", 12),
    Bug(a_replica_joins_when_it_fetches, "undurable", 2),
    Bug(what_left_the_isr_still_counts, "went-back", 50, with_failing_disks),
    Bug(a_quiet_replica_never_returns, "stuck", 3),
    Bug(the_controller_takes_its_lease_for_a_lock, "epochs", 2),
    Bug(a_new_leader_gets_no_new_epoch, "epochs", 1),
    Bug(any_live_replica_may_lead, "unclean", 10),
    Bug(eligible_leaders_are_forgotten, "unclean", 10),
    Bug(a_move_is_over_before_the_copies_are_made, "truncated", 10),
    Bug(a_node_is_fenced_for_good, "stuck", 1),
    Bug(readers_see_what_is_not_committed, "lost-write", 1),
    Bug(a_new_leader_says_at_once_where_its_log_ends, "watermark", 12),
    Bug(producers_are_forgotten_by_a_new_leader, "duplicate", 5),
    Bug(followers_do_not_learn_of_producers, "duplicate", 5),
]
