"""Leader's state of a partition: progress of the followers, high watermark, and the wanted ISR.

Pure: inputs are offsets and the time; outputs are offsets and ISRs.

Invariants:
- the high watermark never exceeds the durable end of a member of the *maximal* ISR: the recorded
  ISR, and every replica that an unresolved proposal would add. A proposal without a known outcome
  counts as long as it may still take effect;
- it stands still while the ISR has fewer than `min.insync.replicas` members (or all replicas, if
  those are fewer), and while there is an ELR: its members hold all committed records only because
  nothing more is committed (KIP-966);
- a copy counts only for fetches made after this leader's epoch began, and after the replica last
  left the ISR;
- a replica joins when its durable end has reached the high watermark and the start of this leader's
  epoch, under the registration that the brokers' keys show now. It leaves when it has not reached
  the leader's end for `replica.lag.time.max.ms`, as Kafka measures it: it was at the end at a fetch
  if that fetch, or the next, starts where the leader's log ended then. A replica on an unreachable
  node (`peer_reachability`) has less time; twice that if no majority would be left, for then
  another node may be about to become leader.

Elsewhere: proposals (`isr`), the meaning of ISR and ELR for elections (`leader_elections`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.cluster.controller.leader_elections import effective_min_isr, majority
from penstock.cluster.metadata.store_keys import BrokerRecord, PartitionRecord

UNKNOWN = -1
NEVER = float("-inf")
JOIN_SECONDS = 0.2
"""The high watermark waits this long for a replica that is about to join: otherwise it could stay
ahead of the replica for ever."""


@dataclass(frozen=True, slots=True)
class UnreachableNodes:
    """Unreachable nodes, and the lag that their replicas are allowed."""

    nodes: frozenset[int] = frozenset()
    lag_seconds: float = NEVER


ALL_REACHABLE = UnreachableNodes()


@dataclass(slots=True)
class FollowerProgress:
    """Progress of another replica, as reported by its fetches."""

    broker_epoch: int = UNKNOWN
    """Broker epoch of the process that fetched last."""
    end_offset: int = UNKNOWN
    """All records below it are on the replica's disk."""
    start_offset: int = UNKNOWN
    caught_up_s: float = NEVER
    """Time at which the replica was last known to be at the leader's end."""
    fetched_s: float = NEVER
    leader_end: int = UNKNOWN
    """End of the leader's log at the latest fetch."""

    def fetched(self, broker_epoch: int, offset: int, leader_end: int, now_s: float) -> None:
        if offset >= leader_end:
            self.caught_up_s = now_s
        elif offset >= self.leader_end and self.leader_end != UNKNOWN:
            self.caught_up_s = max(self.caught_up_s, self.fetched_s)
        self.broker_epoch = broker_epoch
        self.end_offset = offset
        self.fetched_s = now_s
        self.leader_end = leader_end

    def forget(self) -> None:
        """Forgets a replica that left the ISR: it counts again from its next fetch on."""
        self.end_offset = self.leader_end = UNKNOWN
        self.caught_up_s = self.fetched_s = NEVER


class LeaderState:
    """State of one leadership: from the record that began the leader epoch to its end."""

    __slots__ = (
        "_counted",
        "_node_id",
        "_outside",
        "_proposed",
        "copies",
        "epoch_start",
        "is_alone",
        "is_frozen",
        "is_under_min",
        "min_isr",
        "record",
    )

    def __init__(
        self, node_id: int, record: PartitionRecord, min_isr: int, epoch_start: int, now_s: float
    ) -> None:
        assert record.leader == node_id
        self._node_id = node_id
        self.min_isr = min_isr
        self.epoch_start = epoch_start
        """End of this node's log when it became the leader."""
        self.record = record
        # In sync until shown otherwise: every follower has the full time to fetch.
        self.copies: dict[int, FollowerProgress] = {
            node: FollowerProgress(caught_up_s=now_s if node in record.isr else NEVER)
            for node in record.replicas
            if node != node_id
        }
        self._proposed: tuple[int, ...] = ()
        """Not in the recorded ISR, but perhaps in the ISR of a proposal."""
        self.is_under_min = False
        """True while the ISR is too small for acks=all."""
        self.is_frozen = False
        """True while no record may be committed."""
        self.is_alone = False
        """True while durable records are committed at once: no other replica counts."""
        self._count()

    # -- records ----------------------------------------------------------------------------

    def adopt(self, record: PartitionRecord, min_isr: int, now_s: float) -> bool:
        """Applies a newer record of this epoch, or another `min.insync.replicas`.

        True when a replica has left the ISR: it counts again after its next fetch.
        """
        before = self.record
        has_left = False
        self.min_isr = min_isr
        if record.partition_epoch > before.partition_epoch:
            # Proposals were guarded by the record before: each took effect, or never will.
            self._proposed = ()
            self.record = record
            known = self.copies
            self.copies = {
                node: known.get(node)
                or FollowerProgress(caught_up_s=now_s if node in record.isr else NEVER)
                for node in record.replicas
                if node != self._node_id
            }
            for node, copy in self.copies.items():
                if node in before.isr and node not in record.isr:
                    copy.forget()
                    has_left = True
        self._count()
        return has_left

    def is_unheard(self, node_id: int) -> bool:
        """True for a replica that has not reported its end offset, or must report it again."""
        copy = self.copies.get(node_id)
        return copy is not None and copy.end_offset == UNKNOWN

    def propose(self, isr: tuple[int, ...]) -> None:
        """Counts the members of an ISR that is about to be proposed."""
        more = [node for node in isr if node not in self.record.isr and node not in self._proposed]
        self._proposed = (*self._proposed, *more)
        self._count()

    def refused(self) -> None:
        """Drops the proposals: none is unresolved, and none took effect."""
        self._proposed = ()
        self._count()

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self.record.isr + self._proposed

    def _count(self) -> None:
        """Divides the other replicas into those that count and those that may join."""
        record, maximal = self.record, self.maximal_isr
        self._counted = tuple(c for node, c in self.copies.items() if node in maximal)
        self._outside = tuple(c for node, c in self.copies.items() if node not in maximal)
        self.is_under_min = len(record.isr) < effective_min_isr(self.min_isr, record)
        self.is_frozen = self.is_under_min or bool(record.elr)
        self.is_alone = not self.copies and not self.is_frozen

    # -- fetches ----------------------------------------------------------------------------

    def fetched(
        self, node_id: int, broker_epoch: int, offset: int, leader_end: int, now_s: float
    ) -> FollowerProgress | None:
        """Records that everything below `offset` is on the replica's disk. None: not a replica."""
        copy = self.copies.get(node_id)
        if copy is not None:
            copy.fetched(broker_epoch, offset, leader_end, now_s)
        return copy

    def high_watermark(self, durable_end: int, now_s: float) -> int:
        """Highest offset known to be committed; the caller never moves it back."""
        if self.is_frozen:
            return UNKNOWN
        reached = durable_end
        for copy in self._counted:
            if copy.end_offset < reached:
                reached = copy.end_offset
        for copy in self._outside:
            if UNKNOWN < copy.end_offset < reached and now_s - copy.caught_up_s < JOIN_SECONDS:
                reached = copy.end_offset
        return reached

    def low_watermark(self, start_offset: int, brokers: Mapping[int, BrokerRecord]) -> int:
        """Lowest start offset of all replicas on registered brokers (DeleteRecords)."""
        starts = [copy.start_offset for node, copy in self.copies.items() if node in brokers]
        return min(start_offset, *starts) if starts else start_offset

    # -- wanted ISR -------------------------------------------------------------------------

    def note_time(self, leader_end: int, now_s: float) -> None:
        """Marks replicas at the end as caught up; to be called periodically."""
        for copy in self.copies.values():
            if copy.end_offset >= leader_end:
                copy.caught_up_s = now_s

    def may_join(self, node_id: int, high_watermark: int) -> bool:
        """True if a replica outside the ISR has caught up far enough to join."""
        if node_id in self.record.isr or node_id in self._proposed:
            return False
        copy = self.copies.get(node_id)
        return copy is not None and copy.end_offset >= max(high_watermark, self.epoch_start)

    def is_isr_due(
        self,
        high_watermark: int,
        leader_end: int,
        now_s: float,
        lag_seconds: float,
        unreachable: UnreachableNodes = ALL_REACHABLE,
    ) -> bool:
        """True if the ISR needs a check: a member lags, a replica may join, or the ELR is due."""
        isr = self.record.isr
        if self.record.elr and not self.is_under_min:
            return True
        return any(
            self._lags(node, leader_end, now_s, lag_seconds, unreachable)
            if node in isr
            else self.may_join(node, high_watermark)
            for node in self.copies
        )

    @property
    def has_candidates(self) -> bool:
        return bool(self._outside)

    def _lags(
        self,
        node_id: int,
        leader_end: int,
        now_s: float,
        lag_seconds: float,
        unreachable: UnreachableNodes,
    ) -> bool:
        copy = self.copies.get(node_id)
        if copy is None or copy.end_offset >= leader_end:
            return False
        if node_id in unreachable.nodes:
            record = self.record
            left = sum(node not in unreachable.nodes for node in record.isr)
            is_enough = left >= max(majority(record), effective_min_isr(self.min_isr, record))
            # A replica that never fetched from this leader has been silent for that long already.
            times = 2 if not is_enough else int(copy.end_offset != UNKNOWN)
            lag_seconds = min(lag_seconds, unreachable.lag_seconds * times)
        return now_s - copy.caught_up_s > lag_seconds

    def wanted_isr(
        self,
        high_watermark: int,
        leader_end: int,
        now_s: float,
        lag_seconds: float,
        brokers: Mapping[int, BrokerRecord],
        unreachable: UnreachableNodes = ALL_REACHABLE,
    ) -> tuple[int, ...]:
        """The ISR that the leader wants."""
        return tuple(
            node
            for node in self.record.replicas
            if node == self._node_id
            or (
                not self._lags(node, leader_end, now_s, lag_seconds, unreachable)
                if node in self.record.isr
                else self._joins(node, high_watermark, brokers)
            )
        )

    def _joins(
        self, node_id: int, high_watermark: int, brokers: Mapping[int, BrokerRecord]
    ) -> bool:
        broker = brokers.get(node_id)
        copy = self.copies[node_id]
        return (
            broker is not None
            and not broker.is_draining
            and broker.epoch == copy.broker_epoch
            and copy.end_offset >= max(high_watermark, self.epoch_start)
        )
