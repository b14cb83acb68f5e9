"""Replication throttles: whom they name, how fast they let through, and who is exempt."""

import asyncio
from dataclasses import replace

import pytest

from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata.image import EMPTY, TopicImage
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.replication.throttle import Throttle
from simulation.loop import SimLoop, run
from simulation.store import SimEtcd, SimStore
from tests.run_with import in_new_loop, run_with
from tests.unit.cluster.replicas import ModelLeader, Node, content, replicate, topic_id, until

RATE = {"follower.replication.throttled.rate": "1000000"}


def limited(rate: str) -> Throttle:
    configs = BrokerConfigs({"leader.replication.throttled.rate": rate})
    return Throttle("leader", 9, configs, MetadataWatcher(SimStore(SimEtcd(1))))


def test_throttle_passes_its_rate() -> None:
    async def main(loop: SimLoop) -> int:
        throttle, taken, end_s = limited("1000"), 0, loop.time() + 10
        while loop.time() < end_s:
            wait_s = throttle.wait_s()
            await asyncio.sleep(wait_s or 0.001)
            if not wait_s:
                throttle.record(300)
                taken += 300
        return taken

    taken, _ = run(main)
    assert taken == pytest.approx(11_000, rel=0.05), "ten seconds' worth, and what it held"


@run_with(run)
async def test_rate_of_zero_passes_nothing(loop: SimLoop) -> None:
    throttle = limited("0")
    assert throttle.wait_s() == 0.0
    throttle.record(1)
    await asyncio.sleep(1e6)
    assert throttle.wait_s() == 1.0


@pytest.mark.parametrize(
    ("text", "named"),
    [("0:9,1:8", {0}), ("*", {0, 1}), ("", set()), (" 1:9 , 0:9", {0, 1}), ("1:7", set())],
)
@run_with(in_new_loop)
async def test_throttle_list_names_replicas_of_this_node(*, text: str, named: set[int]) -> None:
    watcher = MetadataWatcher(SimStore(SimEtcd(1)))
    configs = {"leader.replication.throttled.replicas": text}
    topic = TopicImage("t", topic_id("t"), configs, (), {}, (), 1)
    watcher.image = replace(EMPTY, topics={"t": topic})
    limited = BrokerConfigs({"leader.replication.throttled.rate": "5"})
    throttle = Throttle("leader", 9, limited, watcher)
    assert {index for index in (0, 1) if throttle.names("t", index)} == named
    assert not throttle.names("unknown", 0)
    free = Throttle("leader", 9, BrokerConfigs({}), watcher)
    assert not any(free.names("t", index) for index in (0, 1)), "no rate, no throttle"


def throttled(node: Node) -> None:
    configs = {"follower.replication.throttled.replicas": "0:9"}
    topic = TopicImage("t", topic_id("t"), configs, (), {}, (), 1)
    node.watcher.image = replace(node.watcher.image, topics={"t": topic})


@run_with(replicate, configs=RATE)
async def test_replica_catching_up_is_throttled(node: Node, leader: ModelLeader) -> None:
    throttled(node)
    led, other = leader.lead("t"), leader.lead("t", 1)
    for _ in range(100):
        led.append(b"x" * 100_000)
        other.append(b"x" * 100_000)
    copy = node.open("t", 1, in_sync=False)
    free = node.open("t", 1, 1, in_sync=False)
    began_s = node.loop.time()
    node.follow()
    await until(lambda: free.log.durable_offset == 100, seconds=2)
    assert copy.log.durable_offset < 40
    await until(lambda: copy.log.durable_offset == 100, seconds=20)
    assert 8.0 < node.loop.time() - began_s < 11.0
    assert content(copy.log) == content(led.log)


@run_with(replicate, configs=RATE)
async def test_replica_in_sync_is_never_throttled(node: Node, leader: ModelLeader) -> None:
    throttled(node)
    led = leader.lead("t")
    for _ in range(100):
        led.append(b"x" * 100_000)
    copy = node.open("t", 1)
    node.follow()
    await until(lambda: copy.log.durable_offset == 100, seconds=2)
