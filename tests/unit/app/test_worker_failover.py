"""Worker failover: nodes crash and restart; nothing is lost and key order holds."""

import asyncio
import random

import pytest

from penstock.app.message import Message
from penstock.app.task import RetryBackoff
from penstock.app.worker import Worker
from simulation.workers import SimWorkers
from tests.run_with import run_with
from tests.unit.app.simulated import Sim, on_broker

KEYS, EACH = 12, 10


class Watch:
    """Records all handler calls: a message may be handled twice, but never before its turn."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.done: dict[str, int] = {}
        self.wrong: list[str] = []
        self.handled = 0

    async def handle(self, message: Message) -> None:
        assert message.key is not None
        key, number = message.key.decode(), message.json()
        if number > self.done.get(key, 0):
            self.wrong.append(f"{key}: {number} before {self.done.get(key, 0)}")
        await asyncio.sleep(self.rng.uniform(0, 0.3))
        if self.rng.random() < 0.05:
            raise ValueError("again")
        self.handled += 1
        self.done[key] = max(number + 1, self.done.get(key, 0))

    @property
    def is_over(self) -> bool:
        return all(self.done.get(f"k{key}") == EACH for key in range(KEYS))


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
@run_with(
    on_broker,
    nodes=3,
    overrides={
        "offsets.topic.replication.factor": "3",
        "share.coordinator.state.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
    },
    time_max=2_000,
    fixtures=["seed"],
)
async def test_worker_failover_loses_nothing_and_keeps_key_order(sim: Sim, *, seed: int) -> None:
    watch = Watch(seed)
    async with sim.client() as client:
        await client.create_topic("jobs", 3, 3, order="key")
        for number in range(EACH):
            for key in range(KEYS):
                await client.publish("jobs", number, key=f"k{key}")
    workers = []
    for _ in range(2):
        worker = Worker(sim.brokers, group="workers", threads=SimWorkers(1), **sim.options())
        backoff = RetryBackoff(0.1, 0.5)
        worker.task("jobs", concurrency=4, retries=15, backoff=backoff)(watch.handle)
        workers.append(worker)
    serving = [asyncio.ensure_future(worker.serve()) for worker in workers]
    for node_id in (1, 2, 3, 1):
        await asyncio.sleep(watch.rng.uniform(0.5, 3))
        host = sim.cluster.hosts[node_id]
        if watch.rng.random() < 0.5:
            host.cut_power()
        elif watch.rng.random() < 0.5:
            host.kill()
        else:
            await host.stop()
        await asyncio.sleep(watch.rng.uniform(1, 5))
        await host.start()
    for _ in range(600):
        if watch.is_over:
            break
        await asyncio.sleep(0.5)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*serving)
    assert watch.is_over, watch.done
    assert watch.wrong == []
