"""Power cuts at every disk operation, one after the other, while a queue is used.

After each: no accepted record returns, nothing is lost, and every rejected record has exactly one
dead letter, whether the power went before, within or after any step of writing it.
"""

import asyncio

import pytest

from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.connection import ConnectionConfig
from penstock.client.producer.producer import Producer
from simulation.clock import SimClock
from simulation.cluster import SimCluster
from simulation.loop import SimLoop, run
from simulation.random import SimRandom
from tests.sim.sharing import GROUP, GROUP_KIND, Ledger, Member, dead_letters

OVERRIDES = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "2000",
}
VALUES = [b"bad 0", b"good 1", b"bad 2", b"good 3", b"good 4", b"bad 5"]
BAD = sorted(value for value in VALUES if value.startswith(b"bad"))
STEPS = 60
CHUNK = 20


def play(cut_after: int, seed: int) -> bool:
    """One life, one death at that operation, one more life; False if it was over before."""
    is_cut = False

    async def main(loop: SimLoop) -> None:
        nonlocal is_cut
        cluster = SimCluster(loop, seed, (1,), OVERRIDES)
        await cluster.start()
        host = cluster.hosts[1]
        config = ConnectionConfig(connect_timeout_ms=500, request_timeout_ms=3_000)
        ledger = Ledger()
        async with Cluster(SimRandom(seed), cluster.addresses, config) as client:
            admin = Admin(client)
            await admin.create_topic("t", 1, 1)
            await admin.alter_configs(GROUP_KIND, GROUP, {"share.auto.offset.reset": "earliest"})
            async with Producer(SimClock(loop), SimRandom(seed), client) as producer:
                for value in VALUES:
                    await (await producer.send("t", value, partition=0))
            topic = await client.topic("t")
            host.disk.crash_after(cut_after)
            member = Member("member", topic.topic_id, 1, client, ledger)
            task = asyncio.ensure_future(member.run())
            await asyncio.sleep(10)
            is_cut = host.is_powered_off
            if is_cut:
                assert await host.start()
            else:
                host.disk.cancel_crash()
            await asyncio.sleep(60)
            task.cancel()
            (result,) = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(result, asyncio.CancelledError), result
        assert sorted(dead_letters(cluster)) == BAD
        assert sorted(ledger.values.values()) == sorted(VALUES)
        for index, offset in ledger.accepted:
            assert VALUES[offset] not in BAD
            last = max(count for (i, o, count) in ledger.delivered if (i, o) == (index, offset))
            assert ledger.delivered[index, offset, last] == 1
        (queue,) = cluster.nodes()[0].queues.queues()
        assert queue.machine.kept.start == len(VALUES)
        await cluster.stop()
        cluster.close()

    run(main, seed=seed, time_max=500.0)
    return is_cut


@pytest.mark.parametrize("first", range(1, STEPS, CHUNK))
def test_power_cut_leaves_one_dead_letter_for_each_rejected_record(first: int) -> None:
    for cut_after in range(first, first + CHUNK):
        play(cut_after, seed=cut_after)


def test_most_runs_reach_their_power_cut() -> None:
    assert [play(cut_after, seed=1) for cut_after in (2, 15, 30)] == [True] * 3
