"""Shared parts of administrative handlers: permissions, waits, and errors as response rows.

A handler raises `Refused` for a topic or partition; its row gets the code and message.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import TypeVar

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.broker.api.call import Call
from penstock.broker.api.context import ApiFamily, PartitionFamily
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.store_keys import EVERYWHERE, BrokerRecord
from penstock.cluster.replication.partition import Partition
from penstock.wire.messages.fetch import LeaderIdAndEpoch, NodeEndpoint

CLUSTER_NAME = "kafka-cluster"
ROWS_MAX = 2_000
"""Limits topics or resources that one request may change or describe in detail."""
WAIT_MS_MAX = 60_000

TOPIC_OPERATIONS = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)

T = TypeVar("T")


def may(ctx: ApiFamily, call: Call, operation: Operation, topic: str) -> bool:
    return ctx.authorize(call, operation, ResourceType.TOPIC, topic)


def may_cluster(ctx: ApiFamily, call: Call, operation: Operation) -> bool:
    return ctx.authorize(call, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def may_write_some(ctx: ApiFamily, call: Call) -> bool:
    """True if the caller may write to any topic, which permits idempotence (KIP-679)."""
    return ctx.authorizer.allows_some(
        call.principal, Operation.WRITE, ResourceType.TOPIC, call.caller.peer
    )


def topic_operations(ctx: ApiFamily, call: Call, name: str) -> int:
    """Returns the caller's permissions on a topic, as bits (KIP-430)."""
    return sum(1 << operation for operation in TOPIC_OPERATIONS if may(ctx, call, operation, name))


def cluster_operations(ctx: ApiFamily, call: Call) -> int:
    return sum(
        1 << operation for operation in CLUSTER_OPERATIONS if may_cluster(ctx, call, operation)
    )


def led_partition(ctx: PartitionFamily, topic: str, index: int) -> Partition:
    """Returns a partition that this node leads; otherwise raises Refused for the client."""
    partition = ctx.partitions.get(topic, index)
    if partition is not None:
        return partition
    if ctx.image.partition(topic, index) is not None:
        # Not on this node, or not open yet: the client refreshes its metadata and retries.
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def leader_elsewhere(
    ctx: PartitionFamily, topic: str, index: int, listener: str, endpoints: dict[int, NodeEndpoint]
) -> LeaderIdAndEpoch | None:
    """Returns the leader of a partition that another node leads, which saves a Metadata request.

    Adds the leader's endpoint on the client's listener to `endpoints` (KIP-951).
    """
    record = ctx.image.partition(topic, index)
    if record is None or record.leader == ctx.node_id:
        return None
    broker = ctx.image.brokers.get(record.leader)
    if broker is None:
        return None
    host, port = broker.at(listener)
    endpoints[broker.node_id] = NodeEndpoint(
        node_id=broker.node_id, host=host, port=port, rack=broker.rack
    )
    return LeaderIdAndEpoch(leader_id=broker.node_id, leader_epoch=record.leader_epoch)


def endpoints(image: Image, call: Call) -> Iterator[tuple[BrokerRecord, tuple[str, int]]]:
    """Yields the brokers with their addresses on this client's listener."""
    for broker in image.brokers.values():
        yield broker, reached_at(call, broker)


def reached_at(call: Call, broker: BrokerRecord) -> tuple[str, int]:
    """Returns the address of a broker for this client.

    A broker that listens on all addresses and advertises none is a single node, so the client has
    its address already.
    """
    host, port = broker.at(call.caller.listener)
    return (call.caller.local_host or host, port) if host in EVERYWHERE else (host, port)


def storage_failure(
    ctx: PartitionFamily, partition: Partition, error: Corrupt | OSError
) -> ErrorCode:
    """Takes a partition offline after a failed read; returns the error code for the client."""
    ctx.partitions.read_failed(partition, error)
    return ErrorCode.KAFKA_STORAGE_ERROR


async def settled(ctx: PartitionFamily, revision: int, timeout_ms: int) -> bool:
    """Waits until this node has applied a change; False after the client's timeout."""
    timeout_ms = max(1, min(timeout_ms, WAIT_MS_MAX))
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await ctx.reached(revision)
    except TimeoutError:
        return False
    return True


def duplicates(items: Iterable[T]) -> set[T]:
    """Returns the items that occur more than once."""
    seen: set[T] = set()
    twice: set[T] = set()
    for item in items:
        (twice if item in seen else seen).add(item)
    return twice
