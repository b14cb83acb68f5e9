"""Those who only look: a reader of committed records, and one who asks for positions.

They never stop, whatever happens to the cluster: what they are told in the middle of trouble must
be as true as what they are told in peace.
"""

import asyncio
from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode
from penstock.client.consumer import Consumer, ConsumerConfig
from penstock.client.errors import RETRIABLE
from penstock.client.fetching import READ_COMMITTED
from penstock.client.metadata import TopicPartition
from penstock.sim.checkers.copies import CopyChecker
from penstock.sim.client import LOST, SimClient
from penstock.sim.workloads.members import GROUP, Party
from penstock.wire.messages.committed import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from penstock.sim.world import World

PAUSE_S = 0.5
FOREVER_MS = 10**9


async def read_committed(
    client: SimClient, places: list[TopicPartition], checker: CopyChecker
) -> None:
    """Follows the logs from their start, once; what was seen is not asked for again."""
    config = ConsumerConfig(isolation_level=READ_COMMITTED, retry_timeout_ms=FOREVER_MS)
    while not client.cluster.metadata.brokers:
        try:
            await client.cluster.refresh({where.topic for where in places})
        except LOST:
            await asyncio.sleep(PAUSE_S)
    async with Consumer(client.cluster, config) as consumer:
        consumer.assign(dict.fromkeys(places, 0))
        while True:
            for message in await consumer.poll(1_000):
                assert message.value is not None
                checker.saw((message.topic, message.partition), message.offset, message.value)
            await asyncio.sleep(PAUSE_S)


async def watch_positions(client: SimClient, parties: list[Party]) -> None:
    """Asks for all positions of all groups again and again."""
    world: World = client.world
    rng = world.rng(f"observer/{client.name}")
    while True:
        for party in parties:
            try:
                await read_positions(client, party)
            except LOST:
                await asyncio.sleep(PAUSE_S)
        await asyncio.sleep(rng.uniform(0.2, 1.5))


async def read_positions(client: SimClient, party: Party) -> bool:
    """One look at a group's positions; False if the coordinator could not tell."""
    asked_at = client.world.now()
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=party.group, topics=None)], require_stable=False
    )
    reply = await client.ask_coordinator(
        GROUP, party.group, request, OffsetFetchResponse, version=9
    )
    group = reply.groups[0]
    code = client.told("OffsetFetch", group.error_code, GROUP, party.group)
    if code is not ErrorCode.NONE:
        assert code in RETRIABLE, code
        return False
    found = {
        (topic.name, row.partition_index): row.committed_offset
        for topic in group.topics
        for row in topic.partitions
    }
    for topic, count in sorted(party.topics.items()):
        for index in range(count):
            party.offsets.read((topic, index), found.get((topic, index), -1), asked_at)
    return True
