"""ISR maintenance for the partitions that this node leads.

Owns: the periodic check for lagging and caught-up replicas, and the proposals: one compare-and-swap
on each partition's record, many partitions in one transaction. `leader_state` decides the ISR, and
the replicas that count meanwhile; `leader_elections` derives the next ISR and ELR.

Invariants:
- the members of a proposal count for the high watermark before it is sent. They count until the
  record is known to have changed, or the store has refused and no other proposal is unresolved;
- a replica joins only under the registration that it fetches with: the transaction expects that
  broker's key unchanged;
- a commit without a reply may still take effect. So the record is read until it has changed, and
  this node changes it if no other node does: everything guarded by the old record is void then.

Further changes that this module makes: a replica whose log is offline leaves the ISR, and its
leadership, if another replica is left; one that has lost records leaves in any case
(`leader_elections.must_leave`). A replica that cannot be written for now, because its disk is
full, leaves if enough are left. A node that may not continue its own past leader epoch asks for a
new one (`partitions`).

Elsewhere: dead brokers (`controller`), which are removed from ISRs without this module.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from penstock.base.errors import Refused
from penstock.base.ports import Expect, Put, Store, UnknownResult
from penstock.base.retry import Retry
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.controller import leader_elections, partition_updates
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import TopicImage
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.peer_reachability import silence_seconds
from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.cluster.replication.leader_state import ALL_REACHABLE, UnreachableNodes
from penstock.cluster.replication.partition import Partition
from penstock.cluster.replication.partitions import Partitions

log = logging.getLogger("penstock.isr")

TICK_SECONDS_MAX = 1.0
TICK_SECONDS_MIN = 0.05
TICKS_PER_LAG = 10
CHUNK = 50
COMMIT_SECONDS = 5.0
IMAGE_SECONDS = 1.0
PAUSE_SECONDS = (0.1, 0.5)
STORE_ERRORS = (UnknownResult, TimeoutError, ConnectionError)


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """Next record of a partition, and the keys that the change depends on."""

    partition: Partition
    before: PartitionRecord
    after: PartitionRecord
    expects: tuple[Expect, ...]

    @property
    def put(self) -> Put:
        partition = self.partition
        key = store_keys.partition_key(partition.topic_id, partition.index)
        return Put(key, store_keys.encode(self.after))


class IsrMaintenance:
    """ISR maintenance of one node, for the life of the process."""

    def __init__(
        self,
        node_id: int,
        store: Store,
        watcher: MetadataWatcher,
        partitions: Partitions,
        configs: BrokerConfigs,
        unreachable: Callable[[], frozenset[int]] = frozenset,
    ) -> None:
        """`unreachable` returns the unreachable nodes; see `peer_reachability`."""
        self._unreachable = unreachable
        self._node_id = node_id
        self._store = store
        self._watcher = watcher
        self._partitions = partitions
        self._configs = configs
        # Dicts for their order.
        self._due: dict[Partition, None] = {}
        self._unresolved: dict[Partition, None] = {}
        """Partitions with a proposal whose outcome is unknown."""
        self._wake = asyncio.Event()
        self._revision = 0
        """Store revision of this node's last change."""
        self.shrinks = 0
        self.expands = 0
        partitions.isr_due = self.schedule

    def schedule(self, partition: Partition) -> None:
        """Schedules a check of this partition's ISR."""
        self._due[partition] = None
        self._wake.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_time())
            group.create_task(self._propose_all())

    # -- time -------------------------------------------------------------------------------

    @property
    def _lag_seconds(self) -> float:
        return self._configs.integer("replica.lag.time.max.ms") / 1000

    def _unreachable_nodes(self) -> UnreachableNodes:
        nodes = self._unreachable()
        return UnreachableNodes(nodes, silence_seconds(self._configs)) if nodes else ALL_REACHABLE

    async def _watch_time(self) -> None:
        while True:
            self.tick(asyncio.get_running_loop().time())
            lag_seconds = self._lag_seconds
            if self._unreachable():
                lag_seconds = min(lag_seconds, silence_seconds(self._configs))
            tick = min(max(lag_seconds / TICKS_PER_LAG, TICK_SECONDS_MIN), TICK_SECONDS_MAX)
            await asyncio.sleep(tick)

    def tick(self, now_s: float) -> None:
        """Checks every partition; to be called several times within the allowed lag."""
        lag_seconds, unreachable = self._lag_seconds, self._unreachable_nodes()
        for partition in tuple(self._partitions.replicas()):
            leader_state = partition.leader_state
            if self._should_withdraw(partition):
                self.schedule(partition)
            elif partition.log.offline is not None:
                continue
            elif leader_state is None:
                if self._should_reclaim(partition):
                    self.schedule(partition)
            elif leader_state.copies:
                end_offset = partition.log.end_offset
                leader_state.note_time(end_offset, now_s)
                if leader_state.has_candidates:
                    partition.advance()  # It may have waited for a replica that did not join.
                high_watermark = partition.high_watermark
                if leader_state.is_isr_due(
                    high_watermark, end_offset, now_s, lag_seconds, unreachable
                ):
                    self.schedule(partition)

    # -- decisions --------------------------------------------------------------------------

    def _should_withdraw(self, partition: Partition) -> bool:
        """True while this replica takes no records, for now or for good, and can be spared."""
        record, brokers = partition.record, self._watcher.image.brokers
        if partition.log.is_lost:
            return leader_elections.must_leave(record, self._node_id)
        is_offline = partition.log.offline is not None
        if self._node_id in record.isr:
            eligible = record.isr + record.elr if is_offline else record.isr
        elif self._node_id in record.elr and is_offline:
            eligible = record.isr  # As long as it is eligible, its log cannot be copied anew.
        else:
            return False
        others = sum(node in brokers for node in eligible if node != self._node_id)
        if is_offline:
            return others > 0
        if not partition.is_unwritable:
            return False
        # It has every record and can be read: it leaves only if writes can then continue.
        topic = self._topic_of(partition)
        if topic is None:
            return False
        rules = leader_elections.rules_of(topic, self._configs)
        return others >= leader_elections.effective_min_isr(rules.min_isr, record)

    def _should_reclaim(self, partition: Partition) -> bool:
        record = partition.record
        return (
            record.leader == self._node_id
            and self._node_id in record.isr
            and not partition.is_under_repair
            and self._node_id in self._watcher.image.brokers
        )

    def _topic_of(self, partition: Partition) -> TopicImage | None:
        topic = self._watcher.image.topics.get(partition.topic)
        return topic if topic is not None and topic.id == partition.topic_id else None

    def _proposal_for(self, partition: Partition) -> IsrProposal | None:
        """Proposal for a partition, by the image; None if nothing is to change."""
        topic = self._topic_of(partition)
        if topic is None:
            return None
        state = topic.state(partition.index)
        after = self._next(partition, state.record)
        if after is None:
            return None
        expects = partition_updates.guards(topic, partition.index)
        return IsrProposal(
            partition, state.record, after, (*expects, *self._guards(state.record, after))
        )

    def _next(self, partition: Partition, record: PartitionRecord) -> PartitionRecord | None:
        leader_state = partition.leader_state
        if record.partition_epoch < partition.record.partition_epoch:
            return None  # The image has not caught up with our own last change.
        if leader_state is None:
            if record != partition.record or not self._should_reclaim(partition):
                return None
            return _touched(record, leader_epochs=1)
        if record.leader_epoch != leader_state.record.leader_epoch:
            return None
        now_s = asyncio.get_running_loop().time()
        wanted = leader_state.wanted_isr(
            partition.high_watermark,
            partition.log.end_offset,
            now_s,
            self._lag_seconds,
            self._watcher.image.brokers,
            self._unreachable_nodes(),
        )
        return leader_elections.with_isr(record, wanted, leader_state.min_isr)

    def _guards(self, before: PartitionRecord, after: PartitionRecord) -> list[Expect]:
        """Guards a new ISR member, or the leader of a new epoch, by its present registration."""
        revisions = self._watcher.image.broker_revisions
        new = [node for node in after.isr if node not in before.isr]
        if after.leader_epoch != before.leader_epoch:
            new.append(after.leader)
        return [Expect(store_keys.broker_key(node), revisions.get(node, 0)) for node in new]

    # -- proposing --------------------------------------------------------------------------

    async def _propose_all(self) -> None:
        retry = Retry(self._store.random, *PAUSE_SECONDS)
        while True:
            await self._wake.wait()
            self._wake.clear()
            due, self._due = self._due, {}
            leaving = [p for p in due if self._should_withdraw(p)]
            for partition in dict.fromkeys([*self._unresolved, *leaving]):
                await self._one(partition)
            left = {*leaving, *self._unresolved}
            sound = [p for p in due if p.log.offline is None and p not in left]
            for start in range(0, len(sound), CHUNK):
                await self._propose(sound[start : start + CHUNK])
            await self._catch_up()
            if self._unresolved:
                await retry.pause()
                self._wake.set()
            else:
                retry.succeeded()

    async def _one(self, partition: Partition) -> None:
        if partition in self._unresolved:
            await self._resolve(partition)
        elif self._should_withdraw(partition):
            await self._withdraw(partition)

    async def _propose(self, partitions: Sequence[Partition]) -> None:
        # Deciding and counting are one step: a high watermark that advanced in between could pass
        # a replica that is about to join the ISR.
        chunk = [
            proposal for one in partitions if (proposal := self._proposal_for(one)) is not None
        ]
        if not chunk:
            return
        for proposal in chunk:
            if proposal.partition.leader_state is not None:
                proposal.partition.leader_state.propose(proposal.after.isr)
        expects = list(dict.fromkeys(expect for proposal in chunk for expect in proposal.expects))
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                revision = await self._store.commit(expects, [proposal.put for proposal in chunk])
        except STORE_ERRORS:
            self._unresolved.update((proposal.partition, None) for proposal in chunk)
            return
        if revision is not None:
            self._revision = max(self._revision, revision)
            for proposal in chunk:
                self._committed(proposal)
            return
        for proposal in chunk:
            if proposal.partition.leader_state is not None:
                proposal.partition.leader_state.refused()
        if len(chunk) > 1:
            # One of many guards has failed: the other proposals need not wait for the next check.
            for proposal in chunk:
                await self._propose([proposal.partition])

    def _committed(self, proposal: IsrProposal) -> None:
        partition, before, after = proposal.partition, proposal.before, proposal.after
        if len(after.isr) != len(before.isr):
            grows = len(after.isr) > len(before.isr)
            self.expands += grows
            self.shrinks += not grows
            log.info(
                "%s-%d: in sync are %s, after %s",
                partition.topic,
                partition.index,
                _show(after.isr),
                _show(before.isr),
            )
        self._partitions.learn(partition, after)

    async def _catch_up(self) -> None:
        """Waits until the image shows this node's changes: the next proposals are guarded by it."""
        try:
            async with asyncio.timeout(IMAGE_SECONDS):
                await self._watcher.reached(self._revision)
        except TimeoutError:
            pass

    # -- unknown outcomes -------------------------------------------------------------------

    async def _resolve(self, partition: Partition) -> None:
        """Finds the outcome of a proposal; changes the record if it has not changed."""
        topic = self._topic_of(partition)
        if topic is None:
            del self._unresolved[partition]
            return
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                present = await partition_updates.read(self._store, topic, partition.index)
                if present is None:
                    del self._unresolved[partition]
                    return
                if present.record.partition_epoch == partition.record.partition_epoch:
                    await self._move_on(partition, topic, present)
                    return
        except (*STORE_ERRORS, Refused):
            return
        del self._unresolved[partition]
        self._partitions.learn(partition, present.record)
        self.schedule(partition)

    async def _move_on(
        self, partition: Partition, topic: TopicImage, present: partition_updates.Present
    ) -> None:
        """Increments the partition epoch: proposals that expect the old record become void."""
        after = _touched(present.record)
        expects = partition_updates.guards_of(topic, partition.index, present)
        proposal = IsrProposal(partition, present.record, after, tuple(expects))
        revision = await self._store.commit(expects, [proposal.put])
        if revision is not None:
            del self._unresolved[partition]
            self._committed(proposal)
            self.schedule(partition)

    async def _withdraw(self, partition: Partition) -> None:
        try:
            await partition_updates.leave(
                self._store,
                self._watcher,
                self._configs,
                partition.topic,
                partition.index,
                self._node_id,
            )
        except Refused as refused:
            log.warning(
                "%s-%d cannot be written, but stays in the ISR: %s",
                partition.topic,
                partition.index,
                refused,
            )


def _touched(record: PartitionRecord, leader_epochs: int = 0) -> PartitionRecord:
    return replace(
        record,
        partition_epoch=record.partition_epoch + 1,
        leader_epoch=record.leader_epoch + leader_epochs,
    )


def _show(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes)) or "none"
