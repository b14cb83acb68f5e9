"""Membership of this node in the cluster: its registration, the lease under it, and its end.

Owns: the key `/brokers/<own id>`, its lease, this process's epoch, and `valid_until`.

Invariants:
- an epoch is the store's revision just before the registration, so every process of a node has a
  higher epoch than all before it;
- `valid_until` lies before the moment at which the store may end the lease, by any clock that runs
  as fast as ours: it counts from the start of the last successful renewal. Past it this node leads
  nothing (`is_fenced`), whatever its image says: the image may be old;
- another data directory's registration is never overwritten. This directory's own earlier one may
  always be: its lock ensures that one process at a time serves it;
- a lost registration is made again under a new epoch, and counts once the image shows it: until
  then this node may still believe that it leads partitions which other nodes lead by now;
- if another process takes over the registration, this node stops (`NodeIdTaken`).

A lease is a hint, not a lock: what must not happen twice is guarded by epochs and revisions in the
store. On the embedded store there is no other node, no lease, and no end to `valid_until`.

Elsewhere: fencing dead nodes (`controller`), evidence of death (`peer_liveness`), moving leadership
away (`controller`; `leads_what_others_could` tells if some is left).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from penstock.base.errors import Refused
from penstock.base.ports import Delete, Expect, Put, Store, UnknownResult
from penstock.base.retry import Retry
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.store_keys import BrokerRecord, LifeRecord

log = logging.getLogger("penstock.membership")

RETRY_SECONDS = (0.1, 1.0)
RENEW_AGAIN_SECONDS = 1.0
"""Pause after a failed renewal. Without jitter: a session has time for `RENEWALS_PER_SESSION`, and
one that is sent sooner, to a store that still does not answer, is wasted."""
CHECK_SECONDS = 0.25
"""Interval of checks while the node id is taken."""
RENEWALS_PER_SESSION = 3
"""Attempts of a renewal without an answer before the lease can end."""
AVOIDED_SECONDS = 30.0
"""Time for which a fenced node sends clients to other nodes. By then they have found another one,
if there is one; if there is none, this node's knowledge is better than nothing."""
LEAVE_SECONDS = 2.0
"""Time for the store to accept the end of a registration; otherwise the lease ends it."""
STORE_ERRORS = (UnknownResult, TimeoutError, ConnectionError, Refused)
"""Errors of a store that does not answer: the request is repeated."""
NEVER = float("-inf")
ALWAYS = float("inf")


async def no_wait(revision: int) -> None:
    pass


class NodeIdTaken(Exception):
    """Another process uses this node's id; the message names it."""


class ClusterMembership:
    """Registration of one node, for the life of the process. Runs on the event loop."""

    def __init__(
        self, node_id: int, store: Store, configs: BrokerConfigs, *, is_leased: bool
    ) -> None:
        self.node_id = node_id
        self.epoch = -1
        """Fences this node's earlier processes; -1 before the first registration."""
        self.revision = 0
        """Revision of this node's registration; 0 while there is none."""
        self.lease = 0
        """Lease for keys that live as long as this node does."""
        self.valid_until = NEVER
        self.life: LifeRecord | None = None
        """This process, as recorded in the data directory: registered together with the node."""
        self._store = store
        self._configs = configs
        self._is_leased = is_leased
        self._record: BrokerRecord | None = None
        self._wake = asyncio.Event()
        self._successor: BrokerRecord | None = None
        self._retry = Retry(store.random, *RETRY_SECONDS)
        self._is_failing = False
        self._has_left = False
        self._timer: asyncio.TimerHandle | None = None
        self._when_fenced: list[Callable[[], None]] = []
        self._fenced_s = asyncio.get_running_loop().time()
        self.reached: Callable[[int], Awaitable[None]] = no_wait
        """Waits until this node's image shows a revision; see `metadata_watcher`."""

    @property
    def is_fenced(self) -> bool:
        """True while this node must not act as a leader."""
        return asyncio.get_running_loop().time() >= self.valid_until

    @property
    def may_be_stale(self) -> bool:
        """True while clients should ask another node for leaders: this node's metadata may be out
        of date, and a client that trusts it would not ask another."""
        if not self._is_leased:
            return False
        now_s = asyncio.get_running_loop().time()
        since_s = self._fenced_s if self.valid_until == NEVER else self.valid_until
        return since_s <= now_s < since_s + AVOIDED_SECONDS

    @property
    def session_ms(self) -> int:
        return self._configs.integer("broker.session.timeout.ms")

    def on_fenced(self, listener: Callable[[], None]) -> None:
        """Registers `listener()`: runs on the loop when the node is fenced; must not wait."""
        self._when_fenced.append(listener)

    # -- registration -----------------------------------------------------------------------

    async def await_vacancy(self, directory_id: str, say: Callable[[str], None]) -> None:
        """Waits until no other data directory serves under this id, before anything is changed.

        A dead process keeps its registration until its lease ends, so this waits that long; if it
        is still there, the process is alive, and NodeIdTaken is raised.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self.session_ms / 1000 + 2 * CHECK_SECONDS
        has_said = False
        while True:
            entry = await self._store.get(store_keys.broker_key(self.node_id))
            if entry is None or not self._is_leased:
                return
            other = store_keys.decode(BrokerRecord, entry.value)
            if other.directory_id == directory_id:
                return
            if loop.time() >= deadline_s:
                raise _taken(other)
            if not has_said:
                say(
                    f"node id {self.node_id} is registered by {_show(other)} with another data "
                    f"directory; waiting up to {self.session_ms / 1000:g} s for its lease to end"
                )
                has_said = True
            await asyncio.sleep(CHECK_SECONDS)

    async def vacate(self, directory_id: str) -> None:
        """Removes the earlier process's registration, if it is still there. Raises NodeIdTaken.

        Retries while the store does not answer.
        """
        key = store_keys.broker_key(self.node_id)
        while self._is_leased:
            try:
                entry = await self._store.get(key)
                if entry is None:
                    return
                other = store_keys.decode(BrokerRecord, entry.value)
                if other.directory_id != directory_id:
                    raise _taken(other)
                # A commit that lands late deletes the intended registration, or nothing.
                await self._store.commit([Expect(key, entry.revision)], [Delete(key)])
            except STORE_ERRORS as error:
                self._note_error(error)
                await self._retry.pause()

    async def register(self, record: BrokerRecord) -> int:
        """Registers this node under a new epoch; returns the revision that shows it.

        Retries while the store does not answer. Raises NodeIdTaken.
        """
        while True:
            try:
                if await self._try_to_register(record):
                    return self.revision
            except STORE_ERRORS as error:
                self._note_error(error)
            await self._retry.pause()

    async def _try_to_register(self, record: BrokerRecord) -> bool:
        loop = asyncio.get_running_loop()
        key = store_keys.broker_key(self.node_id)
        began_s, session_ms = loop.time(), self.session_ms
        async with asyncio.timeout(session_ms / 1000):
            lease = await self._store.grant(session_ms) if self._is_leased else 0
            epoch, entries = await self._store.range(key)
            entry = next((e for e in entries if e.key == key), None)
            if entry is not None and self._is_leased:
                other = store_keys.decode(BrokerRecord, entry.value)
                if other.directory_id != record.directory_id:
                    raise _taken(other)
            record = replace(record, epoch=epoch)
            # After an unknown result it may be there already, or land later: either way the next
            # attempt replaces it under a higher epoch, or fails its guard and reads again.
            revision = await self._store.commit(
                [Expect(key, entry.revision if entry else 0)],
                [Put(key, store_keys.encode(record), lease), *self._life_put()],
            )
            if revision is None:
                return False
            self._record, self._successor = record, None
            self.epoch, self.revision, self.lease = epoch, revision, lease
            await self.reached(revision)
        if not self.revision:
            return False  # It was lost again.
        self._extend(began_s, session_ms)
        log.info("registered as node %d, epoch %d", self.node_id, epoch)
        return True

    def _life_put(self) -> list[Put]:
        """Not under a lease: the next process must find it, however late it starts."""
        if self.life is None:
            return []
        return [Put(store_keys.life_key(self.node_id), store_keys.encode(self.life))]

    # -- renewal ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Renews the lease until cancelled. Raises NodeIdTaken if another process takes over."""
        assert self._record is not None, "register comes first"
        while True:
            await self._pause()
            if self._successor is not None:
                raise _taken(self._successor)
            if self._has_left or not self._is_leased:
                continue
            if self.revision == 0:
                await self.register(self._record)
            else:
                await self._renew()

    async def _pause(self) -> None:
        """Waits until the next renewal is due, or `follow` has seen a change."""
        seconds = self._configs.integer("broker.heartbeat.interval.ms") / 1000
        if self._is_failing:
            seconds = min(seconds, RENEW_AGAIN_SECONDS)
        try:
            async with asyncio.timeout(seconds if self._is_leased else None):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _renew(self) -> None:
        lease, began_s, session_ms = self.lease, asyncio.get_running_loop().time(), self.session_ms
        try:
            async with asyncio.timeout(session_ms / 1000 / RENEWALS_PER_SESSION):
                is_kept = await self._store.renew(lease)
        except STORE_ERRORS as error:
            self._note_error(error)
            return
        if is_kept and self.revision:
            self._extend(began_s, session_ms)
        elif not is_kept:
            self._lose("its lease ended")

    def follow(self, before: Image, after: Image) -> None:
        """Checks that the registration is still there; called at every change of the image."""
        if not self.revision or after.revision < self.revision or self._has_left:
            return
        record = after.brokers.get(self.node_id)
        if record is None:
            self._lose("its registration was removed")
        elif record.epoch == self.epoch:
            self.revision = after.broker_revisions[self.node_id]
        elif record.epoch > self.epoch:
            self._successor = record
            self._lose("its registration was taken over")

    def _extend(self, began_s: float, session_ms: int) -> None:
        self._retry.succeeded()
        if self._is_failing:
            log.info("the metadata store answers again")
            self._is_failing = False
        if not self._is_leased:
            self.valid_until = ALWAYS
            return
        self.valid_until = began_s + session_ms / 1000
        if self._timer is None:
            self._set_timer()

    def _set_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(self.valid_until, self._lease_expired)

    def _lease_expired(self) -> None:
        self._timer = None
        if asyncio.get_running_loop().time() < self.valid_until:
            self._set_timer()
            return
        if self.revision and not self._has_left:
            log.warning(
                "node %d accepts no writes: its lease could not be renewed in time", self.node_id
            )
        self._fence()

    def _lose(self, reason: str) -> None:
        log.warning("node %d has lost its registration: %s", self.node_id, reason)
        self.revision = 0
        self._fence()
        self._wake.set()

    def _fence(self) -> None:
        if self.valid_until == NEVER:
            return
        self._fenced_s = min(self.valid_until, asyncio.get_running_loop().time())
        self.valid_until = NEVER
        for listener in self._when_fenced:
            listener()

    def _note_error(self, error: Exception) -> None:
        if not self._is_failing:
            self._is_failing = True
            log.warning("the metadata store does not answer: %s", _reason(error))

    # -- shutdown ---------------------------------------------------------------------------

    async def drain(self) -> bool:
        """Announces the shutdown, so that leadership moves away; True if the store has it.

        See `leads_what_others_could`.
        """
        if self._record is None or not self._is_leased:
            return False
        self._record = replace(self._record, is_draining=True)
        if not self.revision:
            return False
        key = store_keys.broker_key(self.node_id)
        record = replace(self._record, epoch=self.epoch)
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                revision = await self._store.commit(
                    [Expect(key, self.revision)], [Put(key, store_keys.encode(record), self.lease)]
                )
        except STORE_ERRORS as error:
            self._note_error(error)
            return False
        if revision is not None:
            self.revision = max(self.revision, revision)
        return revision is not None

    async def leave(self) -> None:
        """Removes the registration, and with it all other keys under the lease."""
        if self._has_left or not self._is_leased or not self.lease:
            return
        self._has_left = True
        self.valid_until = NEVER
        if self._timer is not None:
            self._timer.cancel()
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._store.revoke(self.lease)
        except STORE_ERRORS as error:
            log.warning("the registration ends with its lease: %s", _reason(error))


def leads_what_others_could(image: Image, node_id: int) -> bool:
    """True if a node leads a partition that another in-sync replica could lead instead."""
    able = {n for n, broker in image.brokers.items() if n != node_id and not broker.is_draining}
    return any(
        state.leader == node_id and not able.isdisjoint(state.isr)
        for topic in image.topics.values()
        for state in topic.partitions
    )


def _reason(error: Exception) -> str:
    return str(error) or "no answer in time"


def _taken(other: BrokerRecord) -> NodeIdTaken:
    return NodeIdTaken(
        f"node id {other.node_id} is taken: {_show(other)} uses it with another data directory; "
        "choose another node-id, or stop that process"
    )


def _show(other: BrokerRecord) -> str:
    host = f"[{other.host}]" if ":" in other.host else other.host
    return f"process {other.pid} at {host}:{other.port}"
