"""Checker of a cluster's replicas, which inspects the nodes' internals after every callback.

The invariants come from the TLA+ specifications of Kafka's replication (RELIABILITY, 1.2).
Violations:

- two-leaders: two nodes considered themselves leader in one leader epoch;
- undurable: a committed record is not on the disks of all members of ISR and ELR
  (LeaderCandidateCompleteness), or on fewer disks than `min.insync.replicas`;
- truncated: a replica in ISR or ELR no longer has a committed record on disk;
- went-back: a replica was truncated below its own high watermark, or copied anew while in ISR or
  ELR, without an unclean election that allows it: there was none, or the replica has been in sync
  since, in the same process;
- log-matching: two replicas have different batches below their high watermarks;
- diverged: the replicas differ at the end.

A record is committed if it is, or ever was, below the high watermark of a leader. Nodes that are
down are not inspected: their disks are checked after their restart.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.base.ids import show_topic_id
from penstock.cluster.controller.leader_elections import effective_min_isr
from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.cluster.replication.leader_state import LeaderState
from penstock.cluster.replication.partition import Partition
from penstock.log.log import Log
from penstock.log.segment import Segment
from penstock.wire.records import ENCRYPTED, read_header
from simulation.checkers.context import CheckerContext
from simulation.checkers.metadata import MetadataChecker
from simulation.cluster import SimCluster
from simulation.host import SimHost

Place = tuple[str, int]


class Batch(NamedTuple):
    """Identity of a batch."""

    last_offset: int
    leader_epoch: int
    crc: int


class Seen(NamedTuple):
    """State of a replica at its last inspection."""

    partition: Partition
    high_watermark: int
    durable_offset: int
    leader_state: LeaderState | None
    log: Log
    record: PartitionRecord
    followed: int
    """Epoch of the newest unclean election since which this process was in sync."""


class ReplicaChecker:
    """Inspects all nodes of a cluster; `min_isr` is the setting of every topic."""

    def __init__(
        self,
        world: CheckerContext,
        cluster: SimCluster,
        metadata: MetadataChecker,
        min_isr: int,
        compacted: frozenset[str] = frozenset({"__consumer_offsets", "__transaction_state"}),
    ) -> None:
        self._world = world
        self._cluster = cluster
        self._metadata = metadata
        self._min_isr = min_isr
        self._compacted = compacted
        """Topics whose batches change below the high watermark by compaction."""
        self._seen: dict[int, dict[Place, Seen]] = {node: {} for node in cluster.hosts}
        self._cursors: dict[int, dict[tuple[str, int], Cursor]] = {n: {} for n in cluster.hosts}
        self._leaders: dict[tuple[str, int, int], int] = {}
        self._ends: dict[tuple[str, int], int] = {}
        """Highest committed offset ever, by topic id and partition."""
        self._batches: dict[tuple[str, int], dict[int, Batch]] = {}
        """Committed batches by first offset."""

    def step(self) -> None:
        """Inspects changed replicas; called after each callback of the loop."""
        changed = self._metadata.step()
        for host in self._cluster.hosts.values():
            node = host.node
            if node is None or not host.is_up:
                continue
            seen = self._seen[host.node_id]
            for place, one in node.partitions._partitions.items():
                known = seen.get(place)
                if (
                    known is None
                    or known.partition is not one
                    or known.high_watermark != one.high_watermark
                    or known.leader_state is not one.leader_state
                    or known.record is not one.record
                    or known.durable_offset > one.log.durable_offset
                ):
                    seen[place] = self._look(host, place, one, known)
                elif known.durable_offset != one.log.durable_offset:
                    seen[place] = known._replace(durable_offset=one.log.durable_offset)
        for topic_id, index in changed:
            self._check_candidates(topic_id, index)

    # -- one replica ------------------------------------------------------------------------

    def _look(self, host: SimHost, place: Place, one: Partition, known: Seen | None) -> Seen:
        key = (show_topic_id(one.topic_id), one.index)
        followed = -1
        if known is not None and known.partition is one:
            self._check_kept(host.node_id, one, known)
            followed = known.followed
        if host.node_id in one.record.isr:
            followed = max(followed, one.record.unclean_epoch)
        now = Seen(
            partition=one,
            high_watermark=one.high_watermark,
            durable_offset=one.log.durable_offset,
            leader_state=one.leader_state,
            log=one.log,
            record=one.record,
            followed=followed,
        )
        if one.log.offline is not None:
            return now
        if one.leader_state is not None and (
            known is None or known.leader_state is not one.leader_state
        ):
            self._check_new_leader(host.node_id, key, one)
        start = known.high_watermark if known is not None and known.partition is one else 0
        if one.is_under_repair:
            return now
        if one.leader_state is not None and now.high_watermark > self._ends.get(key, 0):
            self._commit(host.node_id, key, one)
        self._match(host, key, one, min(start, now.high_watermark))
        if known is None or now.durable_offset < known.durable_offset:
            if known is not None and known.partition is one:
                self._world.reached("log cut")
            record = self._metadata.record_of(*place)
            if record is not None and host.node_id in record.isr + record.elr:
                self._check_durable(host.node_id, key, one, "truncated")
        return now

    def _check_kept(self, node_id: int, one: Partition, known: Seen) -> None:
        """Checks that committed records stay, except after an unclean election, and in a log
        outside ISR and ELR that is copied anew."""
        record = one.record
        if one.high_watermark >= known.high_watermark or record.unclean_epoch > known.followed:
            return
        if known.log is not one.log and node_id not in record.isr + record.elr:
            return
        text = f"node {node_id} went from {known.high_watermark} to {one.high_watermark}"
        self._world.violate("went-back", f"{_name(one)}: {text}; {record}")

    def _check_new_leader(self, node_id: int, key: tuple[str, int], one: Partition) -> None:
        first = self._leaders.setdefault((*key, one.leader_epoch), node_id)
        if first != node_id:
            text = f"nodes {first} and {node_id} lead in epoch {one.leader_epoch}"
            self._world.violate("two-leaders", f"{_name(one)}: {text}")

    def _commit(self, node_id: int, key: tuple[str, int], one: Partition) -> None:
        """Checks a leader's high watermark above any previous one."""
        self._ends[key] = end = one.high_watermark
        leader_state = one.leader_state
        assert leader_state is not None
        record = leader_state.record
        holders = [node for node in record.replicas if self._holds(node, one, end)]
        unknown = [node for node in record.isr + record.elr if self._replica(node, one) is None]
        needed = effective_min_isr(self._min_isr, record)
        if len({*holders, *unknown}) < needed:
            text = f"{end} is committed by node {node_id} but only on the disks of {holders}"
            self._world.violate("undurable", f"{_name(one)}: {text}")
        self._check_candidates(*key)

    def _check_candidates(self, topic_id: str, index: int) -> None:
        """Checks that all members of ISR and ELR have all committed records."""
        name = next((n for n, found in self._metadata.names.items() if found == topic_id), None)
        if name is None or (topic_id, index) not in self._ends:
            return
        record = self._metadata.record_of(name, index)
        if record is None:
            return
        for node_id in record.isr + record.elr:
            host = self._cluster.hosts[node_id]
            node = host.node if host.is_up else None
            one = node.partitions.replica(name, index) if node is not None else None
            if one is not None and _is_whole(one) and show_topic_id(one.topic_id) == topic_id:
                self._check_durable(node_id, (topic_id, index), one, "undurable", record)

    def _check_durable(
        self,
        node_id: int,
        key: tuple[str, int],
        one: Partition,
        name: str,
        record: PartitionRecord | None = None,
    ) -> None:
        end = self._ends.get(key, 0)
        if one.log.durable_offset < end:
            text = f"node {node_id} is durable to {one.log.durable_offset}, committed is {end}"
            self._world.violate(name, f"{_name(one)}: {text}; {record or one.record}")

    def _holds(self, node_id: int, like: Partition, end: int) -> bool:
        one = self._replica(node_id, like)
        return one is not None and one.log.durable_offset >= end

    def _replica(self, node_id: int, like: Partition) -> Partition | None:
        """Replica of the same partition on another node; None if it cannot be inspected."""
        host = self._cluster.hosts[node_id]
        if host.node is None or not host.is_up:
            return None
        one = host.node.partitions.replica(like.topic, like.index)
        if one is None or one.topic_id != like.topic_id or not _is_whole(one):
            return None
        return one

    # -- batches ----------------------------------------------------------------------------

    def _match(self, host: SimHost, key: tuple[str, int], one: Partition, start: int) -> None:
        """Checks that batches from `start` to the high watermark equal those of other replicas."""
        if one.topic in self._compacted or start >= one.high_watermark:
            return
        committed = self._batches.setdefault(key, {})
        cursors = self._cursors[host.node_id]
        for offset, batch, cursor in read_batches(
            one.log, start, one.high_watermark, cursors.get(key)
        ):
            cursors[key] = cursor
            first = committed.setdefault(offset, batch)
            if first != batch:
                text = f"at {offset} node {host.node_id} has {batch}, another {first}"
                self._world.violate("log-matching", f"{_name(one)}: {text}")
                return

    # -- final check ------------------------------------------------------------------------

    def unsettled(self) -> str | None:
        """Reason why not all replicas are in sync and fully committed; None if they are."""
        for host in self._cluster.hosts.values():
            if host.node is None:
                return f"{host.name} is down"
            for one in host.node.partitions.replicas():
                record = self._metadata.record_of(one.topic, one.index)
                if record is None or one.record != record:
                    return f"{_name(one)} at {host.name} knows an old record"
                if len(record.isr) < len(record.replicas) or record.adding or record.removing:
                    return f"{_name(one)}: {record}"
                end = one.log.end_offset
                if one.log.offline or not end == one.log.durable_offset == one.high_watermark:
                    return f"{_name(one)} at {host.name}: {end}, {one.high_watermark} committed"
        return None

    def check_equal(self) -> None:
        """Checks that all replicas are equal, batch by batch. The cluster must be at rest."""
        logs: dict[Place, tuple[str, dict[int, Batch]]] = {}
        for host in self._cluster.hosts.values():
            assert host.node is not None
            for one in host.node.partitions.replicas():
                if one.topic in self._compacted:
                    continue
                found = read_batches(one.log, one.log.start_offset, one.log.end_offset)
                rows = {offset: batch for offset, batch, _ in found}
                name, first = logs.setdefault((one.topic, one.index), (host.name, rows))
                if first != rows:
                    self._world.violate("diverged", f"{_name(one)} on {name} and {host.name}")


class Cursor(NamedTuple):
    """Position of the next batch at or after `offset`, to resume reading a log."""

    segment: Segment
    generation: int
    position: int
    offset: int


def read_batches(
    log: Log, start: int, end: int, cursor: Cursor | None = None
) -> Iterator[tuple[int, Batch, Cursor]]:
    """First offset, identity and position of each batch with offsets in [start, end).

    `cursor` resumes an earlier read if the segment is unchanged. Does not load indexes: that would
    change the inspected node.
    """
    for segment in log.segments.since(start):
        position, offset = 0, segment.base_offset
        if (
            cursor is not None
            and cursor.segment is segment
            and cursor.generation == segment.generation
            and cursor.offset <= start
        ):
            position, offset = cursor.position, cursor.offset
        for at, header in segment.headers(position, offset):
            if header.base_offset >= end:
                return
            if header.last_offset >= start:
                # Each node encrypts with its own keys: the plaintext must be equal.
                plain = header
                if header.attributes & ENCRYPTED:
                    plain = read_header(segment.read_batch(at, header))
                batch = Batch(header.last_offset, header.leader_epoch, plain.crc)
                place = Cursor(segment, segment.generation, at, header.base_offset)
                yield header.base_offset, batch, place


def _is_whole(one: Partition) -> bool:
    return one.log.offline is None and not one.is_under_repair


def _name(one: Partition) -> str:
    return f"{one.topic}-{one.index}"
