"""The controller: acts on the image for the whole cluster.

The node that holds `/controller` removes dead brokers, elects leaders, finishes moves of replicas,
moves leadership back to preferred replicas, and cleans up deleted topics. Pure functions decide
(`leader_elections`, `reassignment`); this module competes for the controller key, notices changes,
and commits.

Owns: the key `/controller`, and this node's evidence that other nodes are dead.
Invariants:
- every commit is guarded by the revision of the controller key, and by the revision of each record
  that it was decided from. So a controller that was replaced, or sees an old image, changes
  nothing. Two controllers at once are harmless;
- the controller key is bound to a registration: when that registration is gone, or another
  incarnation of the node has replaced it, the key is free, whatever the lease says;
- a broker is removed on evidence about its present incarnation only. The controller does so at
  once; other nodes if the dead broker was the controller, or the controller does nothing for a
  while;
- a change in the nodes' reports of their reachable peers is acted on a moment later, when the other
  nodes had time to report it, too: half of the reports would move leaders to the wrong nodes;
- a commit with an unknown result is decided again from a new image. Guards make that safe.

It runs on the embedded store, too, where this node is the only candidate.
Elsewhere: registrations (`membership`), evidence (`peer_liveness`), links between nodes
(`peer_reachability`), ISR changes of a partition that has a leader (`isr`).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from penstock.base.errors import Refused
from penstock.base.ports import Delete, Expect, Put, Store
from penstock.base.retry import Retry
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.controller import leader_elections, partition_updates, topic_deletion
from penstock.cluster.controller.controller_decisions import ControllerDecisions, balance
from penstock.cluster.controller.leader_elections import Election
from penstock.cluster.controller.partition_updates import (
    STORE_ERRORS,
    Changed,
    ControllerLost,
    PartitionUpdate,
    UpdateOutcome,
)
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.membership import ClusterMembership
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.peer_reachability import Reports, broken_links_of, probe_seconds
from penstock.cluster.metadata.store_keys import ControllerRecord

log = logging.getLogger("penstock.controller")

GRACE_SECONDS = 0.5
"""Time that the controller has to act on evidence before another node does."""
RETRY_SECONDS = (0.2, 1.0)
UNFINISHED_SECONDS = 0.2
"""Interval of checks while work has to wait for something."""
CATCH_UP_SECONDS = 5.0
"""Time for the image to show a commit, before it is used as it is."""

PICTURE_PROBES = 1.5
"""Probe intervals until every node that a broken link concerns has reported it."""

Count = Callable[[Election], None]


class Controller:
    """One node's part in the controller's work: most of the time, waiting."""

    def __init__(
        self,
        node_id: int,
        store: Store,
        watcher: MetadataWatcher,
        configs: BrokerConfigs,
        membership: ClusterMembership,
        count: Count = lambda kind: None,
    ) -> None:
        self.node_id = node_id
        self._store = store
        self._watcher = watcher
        self._configs = configs
        self._membership = membership
        self._count = count
        self._wake = asyncio.Event()
        self._dead: dict[int, tuple[int, float]] = {}
        """Dead incarnations: by node, its broker epoch, and the time it was noticed."""
        self._decisions = ControllerDecisions(configs)
        self._retry = Retry(store.random, *RETRY_SECONDS)
        self._is_controller = False
        self._balance_s = float("inf")
        self._reports: Reports = {}
        """Reachability reports that have been acted on."""
        self._reports_s = float("inf")
        """Time at which newer reports are to be acted on."""
        watcher.on_change(lambda before, after: self._wake.set())

    @property
    def is_active(self) -> bool:
        """True while this node is the controller, as far as it knows."""
        return not self._membership.is_fenced and self._holds_controller(self._watcher.image)

    def evidence(self, node_id: int, broker_epoch: int) -> None:
        """Records that an incarnation of a node is dead: its port refuses connections."""
        known = self._dead.get(node_id)
        if node_id == self.node_id or (known is not None and known[0] >= broker_epoch):
            return
        self._dead[node_id] = (broker_epoch, asyncio.get_running_loop().time())
        self._wake.set()

    async def run(self) -> None:
        """Acts on images until cancelled."""
        while True:
            await self._pause()
            try:
                await self._step()
                self._retry.succeeded()
            except (*STORE_ERRORS, ControllerLost) as error:
                if not self._retry.failures:
                    log.warning("the controller tries again: %r", error)
                self._decisions.forget()
                await self._retry.pause()
                self._wake.set()

    async def _pause(self) -> None:
        """Waits for a change, or until the next timer."""
        loop = asyncio.get_running_loop()
        wait_s = min(self._balance_s, self._reports_s) - loop.time()
        wait_s = min(GRACE_SECONDS if self._dead else float("inf"), wait_s)
        if self._decisions.is_unfinished:
            wait_s = min(wait_s, UNFINISHED_SECONDS)
        try:
            async with asyncio.timeout(wait_s if wait_s < float("inf") else None):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _step(self) -> None:
        """Does one thing: each ends with an image that shows it, which begins the next."""
        image = self._watcher.image
        self._note_reports(image)
        own = image.brokers.get(self.node_id)
        if self._membership.is_fenced or own is None or own.epoch != self._membership.epoch:
            self._set_controller(False)
            self._decisions.is_unfinished = True  # A lease renewed late causes no image of its own.
            return
        self._set_controller(self._holds_controller(image))
        if await self._fence(image):
            return
        if self._is_controller:
            await self._act(image)
        elif is_controller_missing(image):
            await self._campaign(image)

    def _note_reports(self, image: Image) -> None:
        now_s = asyncio.get_running_loop().time()
        if image.reach == self._reports:
            self._reports_s = float("inf")
        elif self._reports_s == float("inf"):
            self._reports_s = now_s + PICTURE_PROBES * probe_seconds(self._configs)
        elif now_s >= self._reports_s:
            self._reports, self._reports_s = image.reach, float("inf")

    # -- controller key -------------------------------------------------------------------------

    def _holds_controller(self, image: Image) -> bool:
        holder = image.controller
        return (
            holder is not None
            and holder.node_id == self.node_id
            and holder.broker_epoch == self._membership.epoch
        )

    def _claim(self, image: Image) -> tuple[list[Expect], Put]:
        """Expectations and change of a transaction that takes the controller key."""
        last = image.controller.epoch if image.controller else 0
        record = ControllerRecord(
            self.node_id, max(last + 1, image.revision), self._membership.epoch
        )
        expects = [
            Expect(store_keys.CONTROLLER, image.controller_revision),
            Expect(store_keys.broker_key(self.node_id), image.broker_revisions[self.node_id]),
        ]
        return expects, Put(
            store_keys.CONTROLLER, store_keys.encode(record), self._membership.lease
        )

    async def _campaign(self, image: Image) -> None:
        expects, put = self._claim(image)
        revision = await self._store.commit(expects, [put])
        if revision is not None:
            await self._reached(revision)

    def _set_controller(self, is_controller: bool) -> None:
        """Updates whether this node is the controller, however it gained or lost the key."""
        if is_controller and not self._is_controller:
            log.info("node %d is the controller", self.node_id)
            self._decisions.forget()
            self._set_balance_timer()
        elif not is_controller:
            self._balance_s = float("inf")
        self._is_controller = is_controller

    async def _reached(self, revision: int) -> None:
        async with asyncio.timeout(CATCH_UP_SECONDS):
            await self._watcher.reached(revision)

    # -- dead brokers -----------------------------------------------------------------------------

    async def _fence(self, image: Image) -> bool:
        """Removes one broker that is known to be dead, if this node should."""
        now_s = asyncio.get_running_loop().time()
        for node_id, (epoch, seen_s) in list(self._dead.items()):
            broker = image.brokers.get(node_id)
            if broker is None or broker.epoch > epoch:
                del self._dead[node_id]
            elif broker.epoch == epoch:
                was_controller = not is_controller_missing(image) and _holder(image) == node_id
                if (
                    self._holds_controller(image)
                    or was_controller
                    or now_s - seen_s >= GRACE_SECONDS
                ):
                    return await self._take_away(image, node_id, was_controller)
        return False

    async def _take_away(self, image: Image, node_id: int, was_controller: bool) -> bool:
        key = store_keys.broker_key(node_id)
        expects = [Expect(key, image.broker_revisions[node_id])]
        changes: list[Put | Delete] = [Delete(key)]
        if was_controller:
            more, put = self._claim(image)
            expects += more
            changes.append(put)
        revision = await self._store.commit(expects, changes)
        if revision is None:
            return False  # Another node was faster; the image will show it.
        log.warning("node %d is dead: its port refuses connections", node_id)
        self._dead.pop(node_id, None)
        await self._reached(revision)
        return True

    # -- updates ------------------------------------------------------------------------------

    async def _act(self, image: Image) -> None:
        broken_links = broken_links_of(self._reports, image.brokers)
        await self._change(image, self._decisions.updates(image, broken_links))
        for topic_id in self._decisions.finished_deletions(image):
            await topic_deletion.finish(self._store, topic_id)
        if asyncio.get_running_loop().time() >= self._balance_s:
            self._set_balance_timer()
            now = self._watcher.image
            if self._configs.flag("auto.leader.rebalance.enable") and self._holds_controller(now):
                await self._change(now, balance(now, broken_links))

    def _set_balance_timer(self) -> None:
        interval_s = self._configs.integer("leader.imbalance.check.interval.seconds")
        self._balance_s = asyncio.get_running_loop().time() + interval_s

    async def _change(self, image: Image, updates: Sequence[PartitionUpdate]) -> None:
        if not updates:
            return
        controller_guard = Expect(store_keys.CONTROLLER, image.controller_revision)
        outcomes = await partition_updates.apply(self._store, updates, [controller_guard])
        if any(isinstance(outcome, Refused) for outcome in outcomes):
            self._decisions.is_unfinished = True
        count_elections(updates, outcomes, self._count)
        done = [outcome.revision for outcome in outcomes if isinstance(outcome, Changed)]
        if done:
            await self._reached(max(done))


def is_controller_missing(image: Image) -> bool:
    """True if the controller key is free: never taken, or its incarnation has ended."""
    return image.controller is None or _holder(image) is None


def _holder(image: Image) -> int | None:
    record = image.controller
    if record is None:
        return None
    broker = image.brokers.get(record.node_id)
    return record.node_id if broker and broker.epoch == record.broker_epoch else None


def count_elections(
    updates: Sequence[PartitionUpdate], outcomes: Sequence[UpdateOutcome], count: Count
) -> None:
    """Counts elections, and logs each leader that may lack committed records."""
    for update, outcome in zip(updates, outcomes, strict=True):
        if not isinstance(outcome, Changed):
            continue
        kind = leader_elections.kind_of(outcome.before, outcome.after)
        if kind is Election.NONE:
            continue
        count(kind)
        if kind is not Election.CLEAN:
            log.warning(
                "%s-%d is led by node %d, which may lack committed records (%s election)",
                update.topic.name,
                update.index,
                outcome.after.leader,
                kind.value,
            )
