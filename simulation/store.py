"""Simulated etcd and its connections: the semantics of the real stores, plus faults.

`SimEtcd` is the service: the keys, and the leases on its own clock. `SimStore` is one node's
connection to it (`penstock.base.ports.Store`). By default it is correct and fast. Controls for
tests:

- `delay_s`: latency of a request and of its reply;
- `watch_delay_s`: delay of watch events, per connection, never out of order;
- `unknown_ratio`: fraction of changes that end in `UnknownResult`: some were applied, some were
  not, and some will be applied later, perhaps after the caller has read again;
- `down`: no replies; reads time out, changes have an unknown result;
- `cut_off`: the same for the connections of these hosts only, whose watches get no events;
- `clock_rate`: rate of the leases' clock relative to the loop's;
- `backup()` and `restore()`: restores an earlier state while nodes use the store;
- `compact()`: watches that are behind get `WatchLost`; `expire(lease)` ends a lease early.

Leases expire at any request and by a timer, so watches see an expiry without a request.
"""

import asyncio
import contextvars
import copy
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from penstock.base.errors import Corrupt
from penstock.base.ports import Change, Delete, Expect, Put, StoreEntry, UnknownResult, WatchLost
from penstock.base.store_model import StoreModel
from simulation.network import HOST
from simulation.random import SimRandom

T = TypeVar("T")

SILENT_S = 0.1

LATE_S = (0.0, 5.0)  # Delay of a change applied after its unknown result was reported.


class SimEtcd:
    def __init__(self, seed: int = 0, *, history_max: int = 10_000) -> None:
        self.space = StoreModel(history_max=history_max)
        self.rng = random.Random(seed)
        self.seed = seed
        self.connections = 0
        self.delay_s = (0.0, 0.0)
        self.watch_delay_s = (0.0, 0.0)
        self.unknown_ratio = 0.0
        self.timeout_s = 5.0
        self.down = False
        self.cut_off: dict[str, None] = {}
        self.clock_rate = 1.0
        self.changed = asyncio.Event()
        self._next_lease = 1
        self._timer: asyncio.TimerHandle | None = None
        # The service outlives the nodes: its timers belong to none of their processes.
        self.context = contextvars.copy_context()

    def now_s(self) -> float:
        return asyncio.get_running_loop().time() * self.clock_rate

    def compact(self) -> None:
        self.space.compact(self.space.revision)

    def backup(self) -> StoreModel:
        return copy.deepcopy(self.space)

    def restore(self, backup: StoreModel, *, bump: int = 0) -> None:
        """Restores a backup; `bump` is added to its revision."""
        old = copy.deepcopy(backup)
        old.restart(old.revision + bump)
        for lease in old.leases.values():
            lease.deadline_s = self.now_s() + lease.ttl_s
        vars(self.space).update(vars(old))
        self._next_lease += 1_000  # Never reuses the lease of a running node.
        self._arm()
        self.changed.set()
        self.changed.clear()

    def commit(self, expects: Sequence[Expect], changes: Sequence[Put | Delete]) -> int | None:
        self._end_expired()
        effective = self.space.plan(expects, changes)
        return None if effective is None else self._apply(effective)

    def grant(self, ttl_ms: int) -> int:
        lease, self._next_lease = self._next_lease, self._next_lease + 1
        self.space.grant(lease, ttl_ms / 1000, self.now_s())
        self._arm()
        return lease

    def renew(self, lease: int) -> bool:
        self._end_expired()
        return self.space.renew(lease, self.now_s())

    def expire(self, lease: int) -> None:
        self._apply(self.space.keys_of(lease))
        self.space.end(lease)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _apply(self, changes: Sequence[Put | Delete]) -> int:
        revision = self.space.apply(changes)
        self.changed.set()
        self.changed.clear()
        return revision

    def _end_expired(self) -> None:
        for lease in self.space.expired(self.now_s()):
            self.expire(lease)

    def _arm(self) -> None:
        deadline_s = self.space.next_deadline_s()
        if self._timer is not None:
            self._timer.cancel()
        if deadline_s is not None:
            # Never 0: a rounding error must not fire the timer forever at the same instant.
            wait_s = max((deadline_s - self.now_s()) / self.clock_rate, 0.001)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_s, self._on_timer, context=self.context)

    def _on_timer(self) -> None:
        self._end_expired()
        self._arm()


class SimStore:
    """Connection to the store; closing it ends its watches."""

    def __init__(self, etcd: SimEtcd) -> None:
        self._etcd = etcd
        etcd.connections += 1
        self.random = SimRandom(f"{etcd.seed}/connection/{etcd.connections}")
        self._host = HOST.get()
        self._closed = False
        self._seen = 0

    @property
    def _is_down(self) -> bool:
        return self._etcd.down or self._host in self._etcd.cut_off

    async def get(self, key: str) -> StoreEntry | None:
        return await self._read(lambda: self._etcd.space.get(key))

    async def range(self, prefix: str) -> tuple[int, list[StoreEntry]]:
        space = self._etcd.space
        return await self._read(lambda: (space.revision, space.range(prefix)))

    async def commit(
        self, expects: Sequence[Expect], changes: Sequence[Put | Delete]
    ) -> int | None:
        return await self._change(lambda: self._etcd.commit(expects, changes))

    async def watch(self, prefix: str, after: int) -> AsyncIterator[list[Change]]:
        etcd, space = self._etcd, self._etcd.space
        while not self._closed:
            while after < space.revision and not self._closed:
                await self._wait(etcd.watch_delay_s)
                while self._host in etcd.cut_off:  # noqa: ASYNC110 - no event: it may be cut again
                    await asyncio.sleep(SILENT_S)
                if after < space.compacted:
                    raise WatchLost(f"revision {after} is older than {space.compacted}")
                after += 1
                changes = space.changes_at(after, prefix)
                if changes:
                    yield changes
            await etcd.changed.wait()

    async def grant(self, ttl_ms: int) -> int:
        assert ttl_ms > 0
        return await self._change(lambda: self._etcd.grant(ttl_ms))

    async def renew(self, lease: int) -> bool:
        return await self._read(lambda: self._etcd.renew(lease))

    async def revoke(self, lease: int) -> None:
        await self._change(lambda: self._etcd.expire(lease))

    async def close(self) -> None:
        self._closed = True
        self._etcd.changed.set()
        self._etcd.changed.clear()

    async def _read(self, ask: Callable[[], T]) -> T:
        assert not self._closed, "the store is closed"
        await self._cross()
        if self._is_down:
            await asyncio.sleep(self._etcd.timeout_s)
            raise TimeoutError("the metadata store does not answer")
        self._check_revision()
        answer = ask()  # Executed at one instant between the two waits: linearizable.
        await self._cross()
        return answer

    async def _change(self, change: Callable[[], T]) -> T:
        assert not self._closed, "the store is closed"
        etcd = self._etcd
        await self._cross()
        if not self._is_down and etcd.rng.random() >= etcd.unknown_ratio:
            self._check_revision()
            answer = change()
            await self._cross()
            return answer
        fate = "lost" if self._is_down else etcd.rng.choice(("done", "lost", "late"))
        if fate == "done":
            change()
        elif fate == "late":
            late_s = etcd.timeout_s + etcd.rng.uniform(*LATE_S)
            asyncio.get_running_loop().call_later(late_s, change, context=etcd.context)
        await asyncio.sleep(etcd.timeout_s)
        raise UnknownResult("the metadata store did not answer")

    def _check_revision(self) -> None:
        """Raises Corrupt if the revision has decreased, as the real connection does."""
        revision = self._etcd.space.revision
        if revision < self._seen:
            raise Corrupt(f"etcd is at revision {revision} and was at {self._seen}")
        self._seen = revision

    async def _cross(self) -> None:
        await self._wait(self._etcd.delay_s)

    async def _wait(self, delay_s: tuple[float, float]) -> None:
        await asyncio.sleep(self._etcd.rng.uniform(*delay_s))  # Yields to the loop at least once.
