"""What a group has not read: from where it stands, or from the start, to the last stable offset."""

import asyncio

from penstock.client.cluster import Cluster, parse_brokers
from penstock.client.committed_offsets import commit_offsets
from penstock.client.consumer.backlog import count_unread
from penstock.client.metadata import TopicPartition
from penstock.runtime.random import SystemRandom
from penstock.testing import Broker


def test_unread_counts_from_the_position_or_the_start() -> None:
    async def counted(bootstrap: str) -> list[int]:
        async with Cluster(SystemRandom(), parse_brokers(bootstrap)) as cluster:
            before = await count_unread(cluster, "g", ["t"])
            await commit_offsets(cluster, "g", {TopicPartition("t", 0): 3})
            return [before, await count_unread(cluster, "g", ["t"])]

    with Broker() as broker:
        broker.create_topic("t", 2)
        for number in range(10):
            broker.publish("t", f"v{number}", partition=number % 2)
        assert asyncio.run(counted(broker.bootstrap)) == [10, 7]
