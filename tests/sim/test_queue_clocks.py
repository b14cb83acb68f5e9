"""Delays hold while the clocks of nodes and publishers are 300 s apart and leaders die (ADR 35).

Each message is published with the clock of one of the nodes, as that node's gateway does it.
"""

import asyncio
import random
from collections.abc import Sequence

import pytest

from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.connection import ConnectionConfig
from penstock.client.producer.producer import Producer
from penstock.client.producer.sender import ProducerConfig
from penstock.state.queues.delivery_headers import DELAY_MS
from simulation.cluster import SimCluster
from simulation.loop import SimLoop, run
from simulation.random import SimRandom
from tests.run_with import run_with
from tests.sim.sharing import GROUP, GROUP_KIND, Ledger, Member

SKEW_MS = {1: 300_000, 2: 0, 3: -300_000}
EARLY_S_MAX = 3.5
"""One step of append times, and what a publisher's clock may be behind without being corrected."""
LATE_S_MAX = 20.0
"""One step of append times, a failover, and leases of answers that were lost with a leader."""
CATCH_UP_S = 5.0
"""Until a replica that was restarted sees appends when they happen."""
OVERRIDES = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "5000",
    "group.share.delivery.count.limit": "10",
}
PARTITIONS = 2
ROUNDS = 6


class TimedMember(Member):
    """Member that notes when each message came first, and since when its leader sees appends."""

    def __init__(
        self, came: dict[bytes, tuple[float, float]], saw_from: dict[int, float], *given: object
    ) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._came = came
        self._saw_from = saw_from
        self._node_id = -1

    async def _visit(self, node_id: int, indexes: list[int]) -> None:
        self._node_id = node_id
        await super()._visit(node_id, indexes)

    def _note(self, index: int, data: object, acquired: Sequence[object]) -> list[int]:
        found = super()._note(index, data, acquired)  # type: ignore[arg-type]
        for offset in found:
            value = self._ledger.values[index, offset]
            now_s = asyncio.get_running_loop().time()
            self._came.setdefault(value, (now_s, self._saw_from[self._node_id]))
        return found


@pytest.mark.parametrize("seed", range(6))
@run_with(run, time_max=3000.0, fixtures=["seed"])
async def test_delays_are_kept_over_failovers_between_clocks_300_seconds_apart(
    loop: SimLoop, *, seed: int
) -> None:
    rng = random.Random(seed)
    cluster = SimCluster(loop, seed, (1, 2, 3), OVERRIDES)
    for node_id, skew_ms in SKEW_MS.items():
        cluster.hosts[node_id].clock.jump(skew_ms)
    await cluster.start()
    config = ConnectionConfig(connect_timeout_ms=1000, request_timeout_ms=6000)
    sent: dict[bytes, tuple[float, float]] = {}
    came: dict[bytes, tuple[float, float]] = {}
    saw_from = dict.fromkeys(SKEW_MS, 0.0)
    async with Cluster(SimRandom(seed), cluster.addresses, config) as client:
        admin = Admin(client)
        await admin.create_topic("t", PARTITIONS, 3)
        await admin.alter_configs(GROUP_KIND, GROUP, {"share.auto.offset.reset": "earliest"})
        topic = await client.topic("t")
        ledger = Ledger()
        members = [
            TimedMember(came, saw_from, f"member-{n}", topic.topic_id, PARTITIONS, client, ledger)
            for n in range(2)
        ]
        tasks = [asyncio.ensure_future(member.run()) for member in members]
        is_over = False

        async def publish(node_id: int) -> None:
            clock = cluster.hosts[node_id].clock
            producer_config = ProducerConfig(delivery_timeout_ms=600_000)
            pace = random.Random(f"{seed}/{node_id}")
            async with Producer(clock, SimRandom(seed), client, producer_config) as producer:
                number = 0
                while not is_over:
                    value = b"%d-%d" % (node_id, number)
                    number += 1
                    delay_s = pace.choice((5, 20, 60))
                    sent[value] = loop.time(), delay_s
                    header = (DELAY_MS, b"%d" % (delay_s * 1000))
                    await (
                        await producer.send(
                            "t", value, partition=number % PARTITIONS, headers=[header]
                        )
                    )
                    await asyncio.sleep(pace.choice((0.01, 0.3, 3.0, 15.0)))

        publishers = [asyncio.ensure_future(publish(node_id)) for node_id in SKEW_MS]
        for _ in range(ROUNDS):
            await asyncio.sleep(rng.uniform(15, 40))
            leaders = sorted(
                node.config.node_id
                for node in cluster.nodes()
                if any(one.topic == "t" for one in node.partitions.led())
            )
            victim = cluster.hosts[rng.choice(leaders)]
            victim.kill()
            await asyncio.sleep(rng.uniform(1, 15))
            assert await victim.start()
            saw_from[victim.node_id] = loop.time() + CATCH_UP_S
        is_over = True
        await asyncio.gather(*publishers)
        deadline_s = loop.time() + 900
        while len(came) < len(sent):
            assert loop.time() < deadline_s, f"{len(sent) - len(came)} never came"
            await asyncio.sleep(1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    early, late = {}, {}
    for value, (sent_s, delay_s) in sent.items():
        came_s, since_s = came[value]
        if sent_s >= since_s and came_s < sent_s + delay_s - EARLY_S_MAX:
            early[value] = round(sent_s + delay_s - came_s, 1)
        if came_s > max(sent_s, since_s) + delay_s + LATE_S_MAX:
            late[value] = round(came_s - sent_s - delay_s, 1)
    assert not early, f"{len(early)} of {len(sent)} messages came early: {early}"
    assert not late, f"{len(late)} of {len(sent)} messages came late: {late}"
    await cluster.stop()
    cluster.close()
