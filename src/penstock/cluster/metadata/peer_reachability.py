"""Reachability of peers: the nodes that this node reaches, and its report of the others.

The network between two nodes may be broken, one way or both, while each still reaches the metadata
store. Then no lease ends, and a leader that no follower can copy from would stay leader for ever.
So every node counts the round trips to each other node (`peer_liveness` makes them). A node that
has not answered for most of a session is reported in the store, under this node's lease:
`/reach/<own id>` names it by the epoch of its incarnation. After it has answered again for a
while, it is removed.

Owns: the key `/reach/<own id>`, and the local list of unreachable nodes.

Invariants:
- silence is counted in ticks of this node: after a pause one tick has passed, whatever the clock
  says, so a process that was stopped does not take all other nodes for unreachable;
- the key is written when it changes, and never while all nodes are reachable. It is compared with
  the image, so after a lost commit, or a lease that ended, it is written again;
- a report counts for the two incarnations that it names, and as long as its author's lease.

Elsewhere: consequences for leaders (`leader_elections`) and for ISRs (`isr`).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.base.errors import Refused
from penstock.base.ports import Delete, Expect, Put, Random, Store, UnknownResult
from penstock.base.retry import Backoff
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.controller.leader_elections import BrokenLinks, Brokers
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.membership import ClusterMembership
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.store_keys import BrokerRecord, ReachRecord

log = logging.getLogger("penstock.reach")

PROBES_PER_SESSION = 8
TICKS_PER_PROBE = 2
SILENT_TICKS = 10
"""Ticks without an answer until a node is unreachable: 3.75 s of a session of 6 s."""
STEADY_TICKS = 6
"""Ticks with answers until it is reachable again: more than one answer covers."""
LAPSE_TICKS = 4
"""Ticks without an answer that end a series of answers."""
COMMIT_SECONDS = 5.0
SEEN_SECONDS = 1.0
STORE_ERRORS = (UnknownResult, TimeoutError, ConnectionError, Refused)

Reports = Mapping[int, ReachRecord]
"""Reports by the broker that made them."""


def probe_seconds(configs: BrokerConfigs) -> float:
    """Interval of the probes to every other node, in seconds."""
    return configs.integer("broker.session.timeout.ms") / 1000 / PROBES_PER_SESSION


def silence_seconds(configs: BrokerConfigs) -> float:
    """Time without an answer until a node counts as unreachable, in seconds."""
    return probe_seconds(configs) * SILENT_TICKS / TICKS_PER_PROBE


def broken_links_of(reports: Reports, brokers: Brokers) -> BrokenLinks:
    """Broken links by the reports of both nodes. Reports about ended incarnations do not count."""
    links: dict[int, set[int]] = {}
    for node_id, report in reports.items():
        if not _is_current(brokers.get(node_id), report.broker_epoch):
            continue
        for other, epoch in report.unreached.items():
            if other != node_id and _is_current(brokers.get(other), epoch):
                links.setdefault(node_id, set()).add(other)
                links.setdefault(other, set()).add(node_id)
    return {node_id: frozenset(others) for node_id, others in links.items()}


def _is_current(broker: BrokerRecord | None, epoch: int) -> bool:
    return broker is not None and broker.epoch == epoch


@dataclass(slots=True)
class _Known:
    """Answers of one incarnation of another node."""

    epoch: int
    has_answered: bool = False
    """True if it has answered since the last tick."""
    silent_ticks: int = 0
    steady_ticks: int = 0
    is_unreached: bool = False

    def tick(self) -> None:
        self.silent_ticks = 0 if self.has_answered else self.silent_ticks + 1
        self.steady_ticks = self.steady_ticks + 1 if self.silent_ticks < LAPSE_TICKS else 0
        self.has_answered = False
        if self.silent_ticks >= SILENT_TICKS:
            self.is_unreached = True
        elif self.steady_ticks >= STEADY_TICKS:
            self.is_unreached = False


class PeerReachability:
    """Reachability of the other nodes from this one. Runs on the event loop."""

    def __init__(
        self,
        store: Store,
        watcher: MetadataWatcher,
        membership: ClusterMembership,
        configs: BrokerConfigs,
        random: Random,
        on_unreachable: Callable[[int], None],
    ) -> None:
        """`on_unreachable` is called with a node that becomes unreachable, to end its requests."""
        self.node_id = membership.node_id
        self._on_unreachable = on_unreachable
        self._store = store
        self._watcher = watcher
        self._membership = membership
        self._configs = configs
        self._backoff = Backoff(random, base_s=0.2, cap_s=4.0)
        self._known: dict[int, _Known] = {}
        self._wake = asyncio.Event()

    def answered(self, node_id: int, broker_epoch: int) -> None:
        """Records that this incarnation of the node has just answered a probe."""
        known = self._known.get(node_id)
        if known is not None and known.epoch == broker_epoch:
            known.has_answered = True

    def is_reachable(self, node_id: int) -> bool:
        """True while that node answers: becomes False sooner than `unreachable` lists it."""
        known = self._known.get(node_id)
        return known is not None and known.silent_ticks < LAPSE_TICKS

    def probe_seconds(self) -> float:
        return probe_seconds(self._configs)

    def unreachable(self) -> frozenset[int]:
        """Nodes without a round trip to this one, as either node says."""
        own = {node_id for node_id, known in self._known.items() if known.is_unreached}
        image = self._watcher.image
        return broken_links_of(image.reach, image.brokers).get(self.node_id, frozenset()) | own

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_time())
            group.create_task(self._publish())

    # -- answers ----------------------------------------------------------------------------

    async def _watch_time(self) -> None:
        while True:
            await asyncio.sleep(probe_seconds(self._configs) / TICKS_PER_PROBE)
            self.tick()

    def tick(self) -> None:
        """Counts one tick; to be called `TICKS_PER_PROBE` times per probe interval."""
        brokers = self._watcher.image.brokers
        for node_id in [node_id for node_id in self._known if node_id not in brokers]:
            del self._known[node_id]
        for node_id, broker in brokers.items():
            if node_id == self.node_id:
                continue
            known = self._known.get(node_id)
            if known is None or known.epoch != broker.epoch:
                known = self._known[node_id] = _Known(broker.epoch)
            was_unreached = known.is_unreached
            known.tick()
            if known.is_unreached and not was_unreached:
                silence_s = silence_seconds(self._configs)
                log.warning("node %d has not answered for %.1f s", node_id, silence_s)
                self._on_unreachable(node_id)
            elif was_unreached and not known.is_unreached:
                log.info("node %d answers again", node_id)
        if not self._is_published:
            self._wake.set()

    # -- report -----------------------------------------------------------------------------

    def _report(self) -> ReachRecord | None:
        unreached = {n: known.epoch for n, known in self._known.items() if known.is_unreached}
        return ReachRecord(self._membership.epoch, unreached) if unreached else None

    @property
    def _is_published(self) -> bool:
        return self._watcher.image.reach.get(self.node_id) == self._report()

    async def _publish(self) -> None:
        attempt = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._is_published or self._membership.is_fenced:
                attempt = 0
                continue
            try:
                await self._commit()
                attempt = 0
            except STORE_ERRORS:
                # The image will show the outcome. With jitter, for a store that has just returned.
                await self._backoff.wait(attempt)
                attempt += 1

    async def _commit(self) -> None:
        report, key = self._report(), store_keys.reach_key(self.node_id)
        own = store_keys.broker_key(self.node_id)
        revision = self._watcher.image.broker_revisions.get(self.node_id, 0)
        change = (
            Put(key, store_keys.encode(report), self._membership.lease) if report else Delete(key)
        )
        async with asyncio.timeout(COMMIT_SECONDS):
            done = await self._store.commit([Expect(own, revision)], [change])
        if done is None:
            raise ConnectionError("this node has registered again meanwhile")
        try:
            async with asyncio.timeout(SEEN_SECONDS):
                await self._watcher.reached(done)
        except TimeoutError:
            pass
