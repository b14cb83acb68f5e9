"""Those who only look: readers, and those who ask for positions and for the ends of logs.

They never stop, whatever happens to the cluster: what they are told in the middle of trouble must
be as true as what they are told in peace.
"""

import asyncio
from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode
from penstock.client.consumer.consumer import Consumer, ConsumerConfig
from penstock.client.consumer.fetched import READ_COMMITTED
from penstock.client.errors import RETRIABLE
from penstock.client.list_offsets import LATEST
from penstock.client.metadata import TopicPartition
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.wire.messages.offset_commit import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from simulation.checkers.copies import CopyChecker
from simulation.checkers.reads import ReadsChecker
from simulation.client import LOST, SimClient
from simulation.workloads.members import GROUP, Party

if TYPE_CHECKING:
    from simulation.world import World

PAUSE_S = 0.5
FOREVER_MS = 10**9


async def read_committed(
    client: SimClient, places: list[TopicPartition], checker: CopyChecker
) -> None:
    """Follows the logs from their start, once; what was seen is not asked for again."""
    config = ConsumerConfig(isolation_level=READ_COMMITTED, retry_timeout_ms=FOREVER_MS)
    await _bootstrap(client, places)
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


async def follow_logs(
    client: SimClient, places: list[TopicPartition], checker: ReadsChecker, pause_s: float
) -> None:
    """Reads logs from their start, everything that is committed, in order."""
    config = ConsumerConfig(retry_timeout_ms=FOREVER_MS)
    await _bootstrap(client, places)
    async with Consumer(client.cluster, config) as consumer:
        consumer.assign(dict.fromkeys(places, 0))
        while True:
            for message in await consumer.poll(1_000):
                assert message.value is not None
                place = (message.topic, message.partition)
                client.world.tally.operations["read"] += 1
                checker.saw(client.name, place, message.offset, message.value)
            await asyncio.sleep(pause_s)


async def watch_ends(
    client: SimClient, places: list[TopicPartition], checker: ReadsChecker, pause_s: float
) -> None:
    """Asks leaders again and again where their logs end."""
    rng = client.world.rng(f"observer/{client.name}")
    while True:
        where = rng.choice(places)
        place = (where.topic, where.partition)
        cell = ListOffsetsPartition(partition_index=where.partition, timestamp=LATEST)
        topic = ListOffsetsTopic(name=where.topic, partitions=[cell])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])
        floor = checker.floor(place)
        try:
            reply = await client.ask_leader(where, request, ListOffsetsResponse)
        except LOST:
            await asyncio.sleep(PAUSE_S)
            continue
        row = reply.topics[0].partitions[0]
        if client.told("ListOffsets", row.error_code) is ErrorCode.NONE:
            checker.told(place, row.leader_epoch, row.offset, floor)
        await asyncio.sleep(rng.uniform(0, 2 * pause_s))


async def _bootstrap(client: SimClient, places: list[TopicPartition]) -> None:
    while not client.cluster.metadata.brokers:
        try:
            await client.cluster.refresh({where.topic for where in places})
        except LOST:
            await asyncio.sleep(PAUSE_S)
