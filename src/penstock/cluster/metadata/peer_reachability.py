"""Whom this node reaches, and what it says about that to everybody.

A network may be cut between two nodes, one way or both, while each still reaches the metadata
store: then no lease ends, and a leader that nobody can copy from would stay one for ever. So every
node counts the round trips to each other node (`links` makes them), and one that has not answered
for most of a session is told of in the store, under this node's lease: `/reach/<own id>`
names it by the epoch of its life. When it answers again, and has for a while, it is taken out.

Owns: the key `/reach/<own id>`, and who counts as unreached, here and now.

Invariants:
- silence is counted in ticks of this node's own: after a pause one tick has passed, whatever the
  clock says, so who was stopped does not take all the others for gone;
- it is written when it changes, and never while all is well. What was written is what the image
  shows, so a commit that was lost, or a lease that ended, makes it be written again;
- a report counts for the two lives that it names, and for as long as the lease of its author.

Leaves to others: what follows from it for leaders (`elections`) and for who is in sync (`isr`).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.base.errors import Refused
from penstock.base.ports import Delete, Expect, Put, Random, Store, UnknownResult
from penstock.base.retry import Backoff
from penstock.cluster.configs.configs import BrokerConfigs
from penstock.cluster.controller.elections import BrokenLinks, Brokers
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.membership import ClusterMembership
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.store_keys import BrokerRecord, ReachRecord

log = logging.getLogger("penstock.reach")

PROBES_PER_SESSION = 8
TICKS_PER_PROBE = 2
SILENT_TICKS = 10
"""Ticks without an answer after which a node counts as unreached: 3.75 s of a session of 6 s."""
STEADY_TICKS = 6
"""Ticks with answers after which it counts as reached again: more than one answer makes."""
LAPSE_TICKS = 4
"""Ticks without an answer that end a row of answers."""
COMMIT_SECONDS = 5.0
SEEN_SECONDS = 1.0
STORE_ERRORS = (UnknownResult, TimeoutError, ConnectionError, Refused)

Reports = Mapping[int, ReachRecord]
"""By the broker that says so."""


def probe_seconds(configs: BrokerConfigs) -> float:
    """Interval at which every other node is asked whether it is there, in seconds."""
    return configs.integer("broker.session.timeout.ms") / 1000 / PROBES_PER_SESSION


def silence_seconds(configs: BrokerConfigs) -> float:
    """After how long a node that does not answer counts as unreached."""
    return probe_seconds(configs) * SILENT_TICKS / TICKS_PER_PROBE


def broken_links_of(reports: Reports, brokers: Brokers) -> BrokenLinks:
    """Broken links by the reports of both nodes. Reports about ended incarnations do not count."""
    cuts: dict[int, set[int]] = {}
    for node_id, report in reports.items():
        if not _is_life(brokers.get(node_id), report.broker_epoch):
            continue
        for other, epoch in report.unreached.items():
            if other != node_id and _is_life(brokers.get(other), epoch):
                cuts.setdefault(node_id, set()).add(other)
                cuts.setdefault(other, set()).add(node_id)
    return {node_id: frozenset(others) for node_id, others in cuts.items()}


def _is_life(broker: BrokerRecord | None, epoch: int) -> bool:
    return broker is not None and broker.epoch == epoch


@dataclass(slots=True)
class _Known:
    """One life of another node, as far as its answers tell."""

    epoch: int
    has_answered: bool = False
    """Since the last tick."""
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
    """One node's knowledge of its way to the other nodes. Everything runs on the event loop."""

    def __init__(
        self,
        store: Store,
        follower: MetadataWatcher,
        membership: ClusterMembership,
        configs: BrokerConfigs,
        random: Random,
        give_up: Callable[[int], None],
    ) -> None:
        """`give_up` is told of a node that is unreached from now on: nobody need wait for it."""
        self.node_id = membership.node_id
        self._give_up = give_up
        self._store = store
        self._follower = follower
        self._membership = membership
        self._configs = configs
        self._backoff = Backoff(random, base_s=0.2, cap_s=4.0)
        self._known: dict[int, _Known] = {}
        self._news = asyncio.Event()

    def answered(self, node_id: int, broker_epoch: int) -> None:
        """That life of that node has answered a question just now."""
        known = self._known.get(node_id)
        if known is not None and known.epoch == broker_epoch:
            known.has_answered = True

    def hears(self, node_id: int) -> bool:
        """True while that node answers: sooner false than `away` tells."""
        known = self._known.get(node_id)
        return known is not None and known.silent_ticks < LAPSE_TICKS

    def probe_seconds(self) -> float:
        return probe_seconds(self._configs)

    def away(self) -> frozenset[int]:
        """The nodes with which this one has no round trip, as either side says."""
        own = {node_id for node_id, known in self._known.items() if known.is_unreached}
        image = self._follower.image
        return broken_links_of(image.reach, image.brokers).get(self.node_id, frozenset()) | own

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_time())
            group.create_task(self._tell())

    # -- counting ---------------------------------------------------------------------------

    async def _watch_time(self) -> None:
        while True:
            await asyncio.sleep(probe_seconds(self._configs) / TICKS_PER_PROBE)
            self.tick()

    def tick(self) -> None:
        """To be called `TICKS_PER_PROBE` times between two questions."""
        brokers = self._follower.image.brokers
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
                self._give_up(node_id)
            elif was_unreached and not known.is_unreached:
                log.info("node %d answers again", node_id)
        if not self._is_told:
            self._news.set()

    # -- telling ----------------------------------------------------------------------------

    def _report(self) -> ReachRecord | None:
        unreached = {n: known.epoch for n, known in self._known.items() if known.is_unreached}
        return ReachRecord(self._membership.epoch, unreached) if unreached else None

    @property
    def _is_told(self) -> bool:
        return self._follower.image.reach.get(self.node_id) == self._report()

    async def _tell(self) -> None:
        attempt = 0
        while True:
            await self._news.wait()
            self._news.clear()
            if self._is_told or self._membership.is_fenced:
                attempt = 0
                continue
            try:
                await self._commit()
                attempt = 0
            except STORE_ERRORS:
                # The image will say what became of it. Not all at once when the store is back.
                await self._backoff.wait(attempt)
                attempt += 1

    async def _commit(self) -> None:
        report, key = self._report(), store_keys.reach_key(self.node_id)
        own = store_keys.broker_key(self.node_id)
        revision = self._follower.image.broker_revisions.get(self.node_id, 0)
        change = (
            Put(key, store_keys.encode(report), self._membership.lease) if report else Delete(key)
        )
        async with asyncio.timeout(COMMIT_SECONDS):
            done = await self._store.commit([Expect(own, revision)], [change])
        if done is None:
            raise ConnectionError("this node's registration is another by now")
        try:
            async with asyncio.timeout(SEEN_SECONDS):
                await self._follower.reached(done)
        except TimeoutError:
            pass
