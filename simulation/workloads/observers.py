"""Read-only clients: consumers, and queries of committed offsets and log ends.

They continue during faults: replies during faults must be as correct as later ones.
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
from simulation.client import NO_REPLY, SimClient
from simulation.workloads.members import GROUP, GroupContext

if TYPE_CHECKING:
    from simulation.world import World

PAUSE_S = 0.5
FOREVER_MS = 10**9


async def read_committed(
    client: SimClient, places: list[TopicPartition], checker: CopyChecker
) -> None:
    """Follows the logs from their start, once; does not read records again."""
    config = ConsumerConfig(isolation_level=READ_COMMITTED, retry_timeout_ms=FOREVER_MS)
    await _bootstrap(client, places)
    async with Consumer(client.cluster, config) as consumer:
        consumer.assign(dict.fromkeys(places, 0))
        while True:
            for message in await consumer.poll(1_000):
                assert message.value is not None
                checker.note_read((message.topic, message.partition), message.offset, message.value)
            await asyncio.sleep(PAUSE_S)


async def watch_positions(client: SimClient, parties: list[GroupContext]) -> None:
    """Queries all committed offsets of all groups repeatedly."""
    world: World = client.world
    rng = world.rng(f"observer/{client.name}")
    while True:
        for context in parties:
            try:
                await read_positions(client, context)
            except NO_REPLY:
                await asyncio.sleep(PAUSE_S)
        await asyncio.sleep(rng.uniform(0.2, 1.5))


async def read_positions(client: SimClient, context: GroupContext) -> bool:
    """Queries a group's committed offsets; False after an error code."""
    asked_at = client.world.now()
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=context.group, topics=None)], require_stable=False
    )
    reply = await client.ask_coordinator(
        GROUP, context.group, request, OffsetFetchResponse, version=9
    )
    group = reply.groups[0]
    code = client.note_reply("OffsetFetch", group.error_code, GROUP, context.group)
    if code is not ErrorCode.NONE:
        assert code in RETRIABLE, code
        return False
    found = {
        (topic.name, row.partition_index): row.committed_offset
        for topic in group.topics
        for row in topic.partitions
    }
    for topic, count in sorted(context.topics.items()):
        for index in range(count):
            context.offsets.read((topic, index), found.get((topic, index), -1), asked_at)
    return True


async def follow_logs(
    client: SimClient, places: list[TopicPartition], checker: ReadsChecker, pause_s: float
) -> None:
    """Reads all committed records of logs from their start, in order."""
    config = ConsumerConfig(retry_timeout_ms=FOREVER_MS)
    await _bootstrap(client, places)
    async with Consumer(client.cluster, config) as consumer:
        consumer.assign(dict.fromkeys(places, 0))
        while True:
            for message in await consumer.poll(1_000):
                assert message.value is not None
                place = (message.topic, message.partition)
                client.world.results.operations["read"] += 1
                checker.note_read(client.name, place, message.offset, message.value)
            await asyncio.sleep(pause_s)


async def watch_ends(
    client: SimClient, places: list[TopicPartition], checker: ReadsChecker, pause_s: float
) -> None:
    """Queries end offsets of logs from their leaders repeatedly."""
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
        except NO_REPLY:
            await asyncio.sleep(PAUSE_S)
            continue
        row = reply.topics[0].partitions[0]
        if client.note_reply("ListOffsets", row.error_code) is ErrorCode.NONE:
            checker.note_end(place, row.leader_epoch, row.offset, floor)
        await asyncio.sleep(rng.uniform(0, 2 * pause_s))


async def _bootstrap(client: SimClient, places: list[TopicPartition]) -> None:
    while not client.cluster.metadata.brokers:
        try:
            await client.cluster.refresh({where.topic for where in places})
        except NO_REPLY:
            await asyncio.sleep(PAUSE_S)
