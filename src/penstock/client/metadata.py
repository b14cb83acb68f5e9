"""Metadata of a cluster in a client: brokers, topics, leaders. Immutable, replaced as a whole.

A reply may cover some topics only, so it is merged into the cached metadata. Topics that the reply
calls unknown are removed. A partition never goes back to an older leader epoch (KIP-320), so a late
reply of a lagging broker cannot undo a newer one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId
from penstock.client.connection import Address
from penstock.client.errors import code_of
from penstock.wire.messages.metadata import MetadataResponse, MetadataResponseTopic


class TopicPartition(NamedTuple):
    """Partition of a topic by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


@dataclass(frozen=True, slots=True)
class Broker:
    """Broker of the cluster."""

    node_id: int
    address: Address
    rack: str | None = None


Row = TypeVar("Row")


def by_topic(rows: Iterable[tuple[TopicPartition, Row]]) -> dict[str, list[Row]]:
    """Groups request rows by topic, in the order in which topics first appear."""
    grouped: dict[str, list[Row]] = {}
    for where, row in rows:
        grouped.setdefault(where.topic, []).append(row)
    return grouped


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Metadata of a partition."""

    index: int
    leader_id: int
    """-1 while the partition has no leader."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """Metadata of a topic."""

    name: str
    topic_id: TopicId
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]

    @property
    def is_hidden(self) -> bool:
        """True for topics of brokers and of Penstock's tools."""
        return self.is_internal or self.name.startswith("__")


@dataclass(frozen=True, slots=True)
class Metadata:
    """Metadata of a cluster."""

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    errors: Mapping[str, ErrorCode] = field(default_factory=dict)
    """Error codes of requested topics that the broker refused."""
    at: float = float("-inf")
    """Loop time of the newest reply."""

    def merge(self, reply: MetadataResponse, *, is_full: bool, at: float) -> "Metadata":
        topics = {} if is_full else dict(self.topics)
        errors: dict[str, ErrorCode] = {} if is_full else dict(self.errors)
        for row in reply.topics:
            if row.name is None:
                continue
            if row.error_code:
                topics.pop(row.name, None)
                errors[row.name] = code_of(row.error_code)
            else:
                errors.pop(row.name, None)
                topics[row.name] = _topic(row, self.topics.get(row.name))
        brokers = {
            b.node_id: Broker(b.node_id, Address(b.host, b.port), b.rack) for b in reply.brokers
        }
        return Metadata(reply.cluster_id, reply.controller_id, brokers, topics, errors, at)

    def leader_of(self, where: TopicPartition) -> int:
        """Returns the leader's node id; -1 if there is none or the partition is unknown."""
        topic = self.topics.get(where.topic)
        partition = topic.partitions.get(where.partition) if topic else None
        if partition is None or partition.leader_id not in self.brokers:
            return -1
        return partition.leader_id


def _topic(row: MetadataResponseTopic, known: TopicInfo | None) -> TopicInfo:
    assert row.name is not None
    # Epochs of a topic that was deleted and created again are not comparable.
    older = known.partitions if known and known.topic_id == row.topic_id else {}
    partitions: dict[int, PartitionInfo] = {}
    for p in sorted(row.partitions, key=lambda p: p.partition_index):
        before = older.get(p.partition_index)
        if before is not None and 0 <= p.leader_epoch < before.leader_epoch:
            partitions[p.partition_index] = before
            continue
        partitions[p.partition_index] = PartitionInfo(
            index=p.partition_index,
            leader_id=p.leader_id,
            leader_epoch=p.leader_epoch,
            replicas=tuple(p.replica_nodes),
            isr=tuple(p.isr_nodes),
            offline=tuple(p.offline_replicas),
            error=code_of(p.error_code),
        )
    return TopicInfo(row.name, TopicId(bytes(row.topic_id)), row.is_internal, partitions)
