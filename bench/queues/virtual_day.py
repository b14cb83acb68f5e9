"""A day of delayed messages in virtual time: the real node in the simulator, killed at noon.

Measures the lateness caused by the broker's timers, scheduling, syncs, and its restart after
`DOWN_S`. Virtual time excludes CPU time, which the run with a real process measures.
"""

import asyncio
import random
from array import array
from dataclasses import dataclass, field

from rich.console import Console

from penstock.base.errors import Refused
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.connection import ConnectionConfig
from penstock.gateway.core.gateway import Gateway, SettleAction, Settlement
from penstock.gateway.core.messages import OutgoingMessage, ReceivedMessage
from penstock.gateway.core.permissions import Principal
from simulation.clock import SimClock
from simulation.cluster import SimCluster
from simulation.host import SimHost
from simulation.loop import SimLoop
from simulation.random import SimRandom

DAY_S = 86_400
DOWN_S = 5.0
"""Time from the kill until the next process serves: more than a real one needs to start and to load
a million delays, which takes no virtual time."""
TOPIC, GROUP = "delays", "delayed"
PUBLISHED_AT_ONCE = 1_000
TAKEN_AT_ONCE = 100
TAKERS = 4
WAIT_MS = 60_000
PAUSE_S = 0.05
SEED = 6
OVERRIDES = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
}


@dataclass
class Day:
    """Result of the day."""

    late_ms: list[float] = field(default_factory=list)
    lost: int = 0
    repeated: int = 0


class _Consumers:
    """Consumers that acknowledge messages and record the first receipt of each."""

    def __init__(self, clock: SimClock, count: int) -> None:
        self._clock = clock
        self.came_ms = array("q", bytes(8 * count))
        self.repeated = 0
        self.left = count
        self.done = asyncio.Event()

    async def run(self, gateway: Gateway) -> None:
        while not self.done.is_set():
            try:
                found = await gateway.receive(
                    Principal(), TOPIC, GROUP, records_max=TAKEN_AT_ONCE, wait_ms=WAIT_MS
                )
                self._note(found)
                rulings = [Settlement(one.receipt, SettleAction.ACCEPT) for one in found]
                await gateway.settle(Principal(), rulings)
            except Refused:
                await asyncio.sleep(PAUSE_S)  # The node is still starting.

    def _note(self, found: list[ReceivedMessage]) -> None:
        now_ms = self._clock.now_ms()
        for message in found:
            number = int(message.payload or b"")
            if self.came_ms[number]:
                self.repeated += 1
                continue
            self.came_ms[number] = now_ms
            self.left -= 1
        if not self.left:
            self.done.set()


def run_day(count: int, partitions: int, console: Console) -> Day:
    day = Day()
    loop = SimLoop(SEED, time_max=3 * DAY_S, callbacks_max=1 << 60)
    loop.run(_live(loop, day, count, partitions, console))
    return day


async def _live(loop: SimLoop, day: Day, count: int, partitions: int, console: Console) -> None:
    cluster = SimCluster(loop, SEED, (1,), OVERRIDES)
    await cluster.start()
    host, clock = cluster.hosts[1], SimClock(loop)
    config = ConnectionConfig(connect_timeout_ms=500, request_timeout_ms=3_000)
    async with Cluster(SimRandom(SEED), cluster.addresses, config) as client:
        await Admin(client).create_topic(TOPIC, partitions, 1)
    assert host.node is not None
    began_ms = clock.now_ms() + 60_000
    rng = random.Random(SEED)
    due_ms = array("q", (began_ms + int(rng.random() * DAY_S * 1000) for _ in range(count)))
    for start in range(0, count, PUBLISHED_AT_ONCE):
        some = [
            OutgoingMessage(b"%d" % number, deliver_at_ms=due_ms[number])
            for number in range(start, min(start + PUBLISHED_AT_ONCE, count))
        ]
        placed = await host.node.gateway.publish(Principal(), TOPIC, some)
        assert not any(isinstance(one, Refused) for one in placed)
    assert clock.now_ms() < began_ms, "publishing took longer than the first delay"
    takers = _Consumers(clock, count)
    showing = asyncio.ensure_future(_show(takers, count, console))
    tasks = _start(takers, host)
    await asyncio.sleep((began_ms - clock.now_ms()) / 1000 + DAY_S / 2)
    host.kill()
    await _end(tasks)
    await asyncio.sleep(DOWN_S)
    assert await host.start()
    tasks = _start(takers, host)
    await takers.done.wait()
    await _end([*tasks, showing])
    day.repeated, day.lost = takers.repeated, takers.left
    day.late_ms = [came - due for came, due in zip(takers.came_ms, due_ms, strict=True)]
    cluster.close()


def _start(takers: _Consumers, host: SimHost) -> list[asyncio.Task[None]]:
    assert host.node is not None
    return [asyncio.ensure_future(takers.run(host.node.gateway)) for _ in range(TAKERS)]


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _show(takers: _Consumers, count: int, console: Console) -> None:
    while True:
        await asyncio.sleep(DAY_S / 24)
        console.print(f"[dim]{count - takers.left:,} of {count:,} came[/dim]")
