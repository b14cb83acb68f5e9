"""Queues on one node: a partition with records, a receiver, and the persisted state."""

import asyncio
from collections.abc import Callable

import pytest

from penstock.base.errors import Refused
from penstock.base.ports import Delete, Put
from penstock.cluster.metadata import store_keys
from penstock.coordinator.queues.open_queue import OpenQueue, Taker
from penstock.coordinator.queues.record_reader import read_leased, records_of
from penstock.state.queues.delivery import Delivery, DeliveryOutcome
from penstock.state.queues.delivery_state import LeaseState
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.records import Codec, Record, encode, read_header
from tests.unit.broker.api.harness import Node, on_node

CONFIGS = {
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
}
EAGER = {"share.auto.offset.reset": "earliest", "share.retry.backoff.ms": "0"}
Headers = tuple[tuple[str, bytes | None], ...]


class Taking:
    """Takes up to so many records, once, and remembers what came of it."""

    def __init__(self, member: str = "a", count: int = 10, lock_ms: int | None = None) -> None:
        self.member = member
        self.lock_ms = lock_ms
        self.share_min = 1
        self.with_followers = False
        self.count = count
        self.given: list[LeaseState] = []
        self.is_kept = False
        self.refused: Refused | None = None

    def capacity(self, queue: OpenQueue) -> int:
        return self.count

    def taken(self, queue: OpenQueue, leases: tuple[LeaseState, ...]) -> None:
        self.given += leases

    def kept(
        self, queue: OpenQueue, leases: tuple[LeaseState, ...], refused: Refused | None
    ) -> None:
        self.is_kept = refused is None
        self.refused = refused

    def turned_away(self, queue: OpenQueue, why: Refused) -> None:
        self.refused = why

    @property
    def offsets(self) -> list[int]:
        return [o for lease in self.given for o in range(lease.first, lease.last + 1)]


async def configure(node: Node, group: str, **configs: str) -> None:
    values = EAGER | {name.replace("_", "."): value for name, value in configs.items()}
    await node.put(store_keys.group_configs_key(group), store_keys.ConfigsRecord(values=values))


async def unconfigure(node: Node, group: str) -> None:
    revision = await node.store.commit([], [Delete(store_keys.group_configs_key(group))])
    assert revision is not None
    await node.ctx.reached(revision)


async def key_of(node: Node, group: str = "g", topic: str = "t", index: int = 0) -> QueueKey:
    return QueueKey(group, node.ctx.image.topics[topic].id, index)


async def opened(node: Node, count: int = 0, *, group: str = "g", **configs: str) -> OpenQueue:
    """The queue of a topic with so many records, each a batch of its own."""
    if "t" not in node.ctx.image.topics:
        await node.create("t", 1)
        if count:
            await node.produce("t", count)
    await configure(node, group, **configs)
    return await node.ctx.queue.queues.open(await key_of(node, group))


async def append(node: Node, *rows: Headers, topic: str = "t", key: bytes | None = None) -> None:
    """One batch with a record for each row of headers; returns when it is committed."""
    partition = node.ctx.partitions.get(topic, 0)
    assert partition is not None
    now_ms = node.ctx.clock.now_ms()
    base = partition.log.end_offset
    records = [Record(0, now_ms, key, b"v%d" % (base + n), row) for n, row in enumerate(rows)]
    batch = memoryview(encode(records))
    partition.append(batch, read_header(batch), now_ms)
    while partition.high_watermark < partition.log.end_offset:
        await asyncio.sleep(0.001)


async def change(
    queue: OpenQueue, decide: Callable[[Delivery, int], DeliveryOutcome]
) -> Refused | None:
    """Has something changed, and returns when it is kept."""
    done: asyncio.Future[Refused | None] = asyncio.get_running_loop().create_future()
    queue.change(decide, done.set_result)
    return await done


async def take(queue: OpenQueue, member: str = "a", count: int = 10) -> Taking:
    """Records given to a receiver that asks now, once the leases are persisted."""
    taking = Taking(member, count)
    queue.take(taking)
    for _ in range(1_000):
        if taking.is_kept or taking.refused is not None:
            break
        await asyncio.sleep(0.001)
    return taking


async def values(node: Node, queue: OpenQueue, taking: Taking) -> list[bytes | None]:
    leased = await read_leased(queue.partition, node.workers, taking.given, 1 << 20)
    return [record.value for record, _ in records_of(leased)]


__all__ = ["CONFIGS", "Node", "Put", "Taking", "on_node"]


async def pack(node: Node, *sizes: int, topic: str = "t") -> list[int]:
    """A batch of one record for each size, of zeros, which zstd makes next to nothing of; how
    large they are in the log."""
    partition = node.ctx.partitions.get(topic, 0)
    assert partition is not None
    stored = []
    for size in sizes:
        record = Record(0, node.ctx.clock.now_ms(), None, bytes(size), ())
        batch = memoryview(encode([record], codec=Codec.ZSTD))
        partition.append(batch, read_header(batch), node.ctx.clock.now_ms())
        stored.append(len(batch))
    while partition.high_watermark < partition.log.end_offset:
        await asyncio.sleep(0.001)
    return stored


def counted_looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The group of each request for records that a queue was given."""
    looks: list[str] = []
    take = OpenQueue.take

    def counted(queue: OpenQueue, taker: Taker) -> None:
        looks.append(queue.key.group)
        take(queue, taker)

    monkeypatch.setattr(OpenQueue, "take", counted)
    return looks
