"""Consume-transform-produce: exactly once across crashes."""

import asyncio
import random
from collections import Counter

import pytest

from penstock.app.client import Client
from penstock.app.outgoing import Outgoing
from penstock.app.transaction import BYTES_MAX, Transaction
from penstock.base.errors import ErrorCode, Refused
from penstock.client.metadata import TopicPartition
from tests.run_with import run_with
from tests.unit.app.simulated import Sim, on_broker

COUNT = 120


async def abandon(client: Client) -> None:
    """Simulates a crashed client process: no further requests, closed connections."""
    for reader in list(client._readers):
        member = getattr(reader, "_member", None)
        if member is not None and member._heartbeats._task is not None:
            member._heartbeats._task.cancel()
        await reader._consumer.close()
        for cluster in (reader._cluster, reader._control):  # type: ignore[union-attr]
            await cluster.close()
    await client.cluster.close()


class Copier:
    """Copies `log` to `out`, with a crash at a random point of every run."""

    def __init__(self, sim: Sim, seed: int) -> None:
        self.sim = sim
        self.rng = random.Random(seed)
        self.deaths = 0

    async def run(self) -> None:
        while True:
            client = self.sim.client()
            await client.connect()
            living = asyncio.ensure_future(self._live(client))
            await asyncio.wait((living,), timeout=self.rng.uniform(0.3, 3))
            self.deaths += 1
            living.cancel()
            await asyncio.gather(living, return_exceptions=True)
            await abandon(client)

    async def _live(self, client: Client) -> None:
        async for message in (
            reader := client.consume("log", "copy", delivery="exactly-once", commit_every=0.2)
        ):
            await reader.publish("out", message.payload, key=message.payload)
            await asyncio.sleep(self.rng.uniform(0, 0.3))


@pytest.mark.parametrize("seed", [1, 2])
@run_with(
    on_broker,
    overrides={
        "group.consumer.min.session.timeout.ms": "3000",
        "group.consumer.session.timeout.ms": "3000",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.min.heartbeat.interval.ms": "500",
    },
    time_max=5_000,
    fixtures=["seed"],
)
async def test_messages_are_copied_exactly_once_across_crashes(sim: Sim, *, seed: int) -> None:
    async with sim.client() as client:
        await client.create_topic("log", 2)
        await client.create_topic("out", 2)
        await client.publish_many("log", range(COUNT))
        copiers = [Copier(sim, seed * 10 + number) for number in range(2)]
        tasks = [asyncio.ensure_future(copier.run()) for copier in copiers]
        seen: Counter[int] = Counter()
        async with client.consume("out") as out:
            async with asyncio.timeout(2_000):
                while len(seen) < COUNT:
                    seen[(await anext(out)).json()] += 1
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with pytest.raises(TimeoutError):
                seen[(await asyncio.wait_for(anext(out), 90)).json()] += 1
        assert seen == Counter(range(COUNT))
        assert sum(copier.deaths for copier in copiers) > 5


@run_with(on_broker)
async def test_outputs_of_a_message_are_bounded_and_checked(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("out", 2)
        transaction = Transaction(client.cluster, sim.clock, "copy", "copy-1")
        with pytest.raises(Refused, match="no partition 7"):
            await transaction.add("out", Outgoing(payload=b"x", partition=7))
        half = Outgoing(payload=b"x" * (BYTES_MAX // 2))
        await transaction.add("out", half)
        assert not transaction.is_due
        with pytest.raises(Refused) as refused:
            await transaction.add("out", half)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        transaction.drop_current()
        for _ in range(3):
            await transaction.add("out", half)
            transaction.handled()
        assert transaction.is_due
        transaction.forget()
        assert not transaction.is_due


@run_with(on_broker)
async def test_commit_by_unknown_member_writes_nothing(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("log", 1)
        await client.create_topic("out", 1)
        await client.publish("log", b"x")
        async with client.consume("log", "copy", delivery="exactly-once") as reader:
            await anext(reader)
            await reader.publish("out", b"lost")
            assert reader._member is not None
            unknown = reader._member.membership._replace(member_id="unknown")
            assert reader._transaction is not None
            reader._transaction.handled()
            with pytest.raises(Refused):
                await reader._transaction.commit({TopicPartition("log", 0): 1}, unknown)
            reader._transaction.forget()
            await reader._transaction.begin()
        async with client.consume("out") as out:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(out), 5)
