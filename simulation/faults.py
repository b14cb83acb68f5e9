"""Faults of machines, disks, clocks and the network, by the seed.

A `FaultPlan` draws the kinds of faults of a run and their frequency (a run with few kinds reaches
states that a run with all of them never does), injects them one after another until `heal`, and
restarts machines that are down. Kinds are functions in `KINDS`; those of clusters are in
`cluster_faults`. Several concurrent `run` calls make faults overlap.
"""

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from simulation.disk import Fault
from simulation.host import SimHost

if TYPE_CHECKING:
    from simulation.world import World

DOWN_S = (0.0, 4.0)
START_TRIES_MAX = 20
PAUSE_S = (1.0, 12.0)
LATENCY_S = (0.0001, 0.001)
"""Latency of a healthy network."""

REQUESTS = (
    "EndTxn",
    "EndTxn",
    "TxnOffsetCommit",
    "InitProducerId",
    "Produce",
    "OffsetCommit",
    "JoinGroup",
    "SyncGroup",
    "ConsumerGroupHeartbeat",
)
"""Requests that can trigger a fault; frequent draws are listed twice."""

Cause = Callable[["FaultPlan", SimHost, random.Random], Awaitable[None]]


class FaultPlan:
    """Faults of one run."""

    def __init__(
        self,
        world: "World",
        kinds: Mapping[str, Cause] | None = None,
        *,
        pause_s: float | None = None,
        down_max: int = 1,
    ) -> None:
        self.world = world
        self.rng = world.rng("faults")
        self.is_healed = False
        kinds = KINDS if kinds is None else kinds
        names = sorted(kinds)
        chosen = self.rng.sample(names, self.rng.randint(1, len(names)))
        self.kinds = {name: kinds[name] for name in sorted(chosen)}
        self.pause_s = self.rng.uniform(*PAUSE_S) if pause_s is None else pause_s
        self._down_max = down_max

    async def run(self) -> None:
        """Injects one fault after another until healed, with at most `down_max` machines down."""
        while not self.is_healed:
            await asyncio.sleep(self.rng.expovariate(1 / self.pause_s))
            if self.is_healed:
                return
            hosts = [host for host in self.world.cluster.hosts.values() if host.is_up]
            down = len(self.world.cluster.hosts) - len(hosts)
            if not hosts or down >= self._down_max:
                continue
            name = self.rng.choice(list(self.kinds))
            self.world.fault(name)
            await self.kinds[name](self, self.rng.choice(hosts), self.rng)

    async def watch(self, host: SimHost) -> None:
        """Restarts a machine whenever it is down, as a supervisor does."""
        tries = 0
        rng = self.world.rng(f"supervisor/{host.name}")
        while True:
            await host.down()
            if host.failed is not None:
                self.world.reached(f"node failed: {type(host.failed).__name__}")
            await asyncio.sleep(rng.uniform(*DOWN_S))
            cut_after = 0
            if not self.is_healed and host.is_powered_off and rng.random() < 0.2:
                # Interrupts the recovery as well.
                self.world.fault("power cut while starting")
                cut_after = rng.randint(1, 60)
            if await host.start(cut_after=cut_after):
                tries = 0
                self.world.reached("node started again")
                continue
            tries += 1
            if tries > START_TRIES_MAX:
                self.world.violate("stuck", f"{host.name} does not start: {host.failed}")
                return

    def on_next_request(self, rng: random.Random, cause: Callable[[], object]) -> None:
        """Calls `cause` when a client next sends a request of a randomly drawn kind."""
        name = rng.choice(REQUESTS)

        def trigger() -> None:
            if not self.is_healed:
                self.world.note("fault", f"triggered by {name}")
                cause()

        self.world.request_triggers[name] = trigger

    def heal(self) -> None:
        """Ends all faults."""
        self.is_healed = True
        self.world.request_triggers.clear()
        self.world.loop.net.heal()
        self.world.loop.net.latency_s = LATENCY_S
        calm_store(self)
        for host in self.world.cluster.hosts.values():
            host.resume()
            host.disk.heal()
            host.disk.cancel_crash()
            host.set_sync_time()
            restart_if_impaired(host)


def calm_store(plan: FaultPlan) -> None:
    etcd = plan.world.cluster.etcd
    etcd.delay_s, etcd.unknown_ratio = (0.0, 0.0), 0.0
    etcd.watch_delay_s, etcd.down = (0.0, 0.0), False
    etcd.cut_off.clear()


def restart_if_impaired(host: SimHost) -> None:
    """Kills a node with an offline partition, as an operator would restart it."""
    if host.is_impaired:
        host.kill()


# -- kinds ------------------------------------------------------------------------------------


async def cut_power(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    host.cut_power()


async def cut_power_at_operation(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    host.disk.crash_after(rng.choice((1, 2, 3, 5, 8, 13, 34)))


async def cut_power_in_a_request(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Cuts the power during the next request of a random kind."""
    operations = rng.randint(1, 6)
    plan.on_next_request(rng, lambda: host.disk.crash_after(operations) if host.is_up else None)


async def fail_append_in_a_request(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Fails an append caused by the next request of a random kind."""
    fault = _append_fault(rng)
    plan.on_next_request(rng, lambda: host.disk.inject(fault))
    await asyncio.sleep(rng.uniform(1, 6))
    restart_if_impaired(host)


async def kill(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    host.kill()


async def stop(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    await host.stop()


async def fail_append(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    host.disk.inject(_append_fault(rng))
    await asyncio.sleep(rng.uniform(0.5, 5))
    restart_if_impaired(host)


def _append_fault(rng: random.Random) -> Fault:
    code = rng.choice((errno.ENOSPC, errno.ENOSPC, errno.EIO))
    path = rng.choice(("__consumer_offsets", "__transaction_state", "output", "/logs/"))
    return Fault("append", code, path=path, times=rng.randint(1, 3))


async def fail_sync(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    host.disk.inject(Fault("sync", errno.EIO, path=".log"))


async def reset_connections(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    for client in list(plan.world.clients.values()):
        if rng.random() < 0.5:
            plan.world.loop.net.reset(client.name, host.name)


async def slow_network(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    net = plan.world.loop.net
    net.latency_s = (0.001, rng.uniform(0.05, 1.5))
    await asyncio.sleep(rng.uniform(1, 8))
    net.latency_s = LATENCY_S


async def slow_disk(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Slows down syncs, so that many appended records are committed late."""
    host.set_sync_time((0.001, rng.uniform(0.02, 0.8)))
    await asyncio.sleep(rng.uniform(1, 10))
    host.set_sync_time()


async def jump_clock(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    host.clock.jump(rng.choice((-30_000, -1_000, 1_000, 30_000)))


KINDS: Mapping[str, Cause] = {
    "power cut": cut_power,
    "power cut at a disk operation": cut_power_at_operation,
    "power cut in a request": cut_power_in_a_request,
    "process killed": kill,
    "node stopped": stop,
    "append fails": fail_append,
    "append fails in a request": fail_append_in_a_request,
    "sync fails": fail_sync,
    "connections reset": reset_connections,
    "network slow": slow_network,
    "disk slow": slow_disk,
    "clock jumps": jump_clock,
}
