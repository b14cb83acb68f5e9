"""Partitions that a share consumer reads, or has pending acknowledgements for (KIP-932). Pure.

Tracks the leader of each and its pending acknowledgements, and handles replies to them: confirmed,
retried at another node, retried in halves, or lost. Also builds the requests for several
partitions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId
from penstock.client.errors import RETRIABLE, code_of, refusal
from penstock.client.metadata import Metadata, TopicPartition
from penstock.client.share.acknowledgements import Ack, AcknowledgementType, PendingAcks, batches_of
from penstock.wire.messages.share import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareFetchForgottenTopic,
    ShareFetchPartition,
    ShareFetchTopic,
)

PartitionKey: TypeAlias = tuple[TopicId, int]
AckChunks: TypeAlias = dict[PartitionKey, list[Ack]]


@dataclass(slots=True, eq=False)
class SharePartition:
    """Partition of a share consumer."""

    where: TopicPartition
    acks: PendingAcks = field(default_factory=PendingAcks)
    is_assigned: bool = False
    node_id: int = -1
    """Last known leader; -1: none."""


@dataclass(slots=True)
class AckOutcome:
    """Outcome of a reply to acknowledgements."""

    lost: list[Ack] = field(default_factory=list)
    """Acknowledgements of records whose lease this member lost."""
    is_stale: bool = False
    """True if another node leads the partition."""
    is_renewal_refused: bool = False


class SharePartitions:
    """Partitions by topic id and index, as in requests."""

    def __init__(self) -> None:
        self._partitions: dict[PartitionKey, SharePartition] = {}
        self._keys: dict[TopicPartition, PartitionKey] = {}

    def assign(self, assigned: Iterable[PartitionKey], names: Mapping[TopicId, str]) -> None:
        """Sets the partitions to read; removed ones are kept while acknowledgements are pending."""
        for partition in self._partitions.values():
            partition.is_assigned = False
        for key in assigned:
            name = names.get(key[0])
            if name is None:
                continue
            where = TopicPartition(name, key[1])
            self._partitions.setdefault(key, SharePartition(where)).is_assigned = True
            self._keys[where] = key

    def where(self, key: PartitionKey) -> TopicPartition | None:
        partition = self._partitions.get(key)
        return None if partition is None else partition.where

    def find(self, where: TopicPartition) -> SharePartition | None:
        key = self._keys.get(where)
        return None if key is None else self._partitions[key]

    def route(self, metadata: Metadata) -> tuple[dict[int, set[PartitionKey]], bool]:
        """Returns the partitions to read at each node, and True if a partition has no leader."""
        wanted: dict[int, set[PartitionKey]] = {}
        is_lost = False
        for key, partition in self._partitions.items():
            partition.node_id = metadata.leader_of(partition.where)
            if not partition.is_assigned and not partition.acks:
                continue
            if partition.node_id < 0:
                is_lost = True
                continue
            keys = wanted.setdefault(partition.node_id, set())
            if partition.is_assigned:
                keys.add(key)
        return wanted, is_lost

    # Acknowledgements.

    def has_acks(self, node_id: int) -> bool:
        return any(one.acks and one.node_id == node_id for one in self._partitions.values())

    def take_acks(self, node_id: int) -> AckChunks:
        """Removes and returns one chunk for each partition that the node leads."""
        return {
            key: partition.acks.take()
            for key, partition in self._partitions.items()
            if partition.acks and partition.node_id == node_id
        }

    def drain(self) -> list[Ack]:
        return [ack for partition in self._partitions.values() for ack in partition.acks.drain()]

    def put_back(self, key: PartitionKey, acks: list[Ack], now: float) -> list[Ack]:
        """Puts back acknowledgements for a retry; returns those whose lease expired."""
        alive: list[Ack] = []
        late: list[Ack] = []
        for ack in acks:
            is_alive = ack.lease is None or ack.lease.deadline > now
            (alive if is_alive else late).append(ack)
        if alive:
            self._partitions[key].acks.put_back(alive)
        return late

    def handle_ack_reply(
        self,
        key: PartitionKey,
        acks: list[Ack],
        code: int,
        message: str | None,
        lock_ms: int,
        now: float,
    ) -> AckOutcome:
        """Handles the broker's reply to acknowledgements for one partition."""
        partition = self._partitions[key]
        error = code_of(code)
        outcome = AckOutcome()
        if error is ErrorCode.NONE:
            _confirm(acks, lock_ms, now)
        elif error is ErrorCode.INVALID_RECORD_STATE:
            if len(acks) > 1:
                partition.acks.halve(acks)
            else:
                outcome.lost = acks
        elif error in RETRIABLE:
            outcome.is_stale = True
            outcome.lost = self.put_back(key, acks, now)
        else:
            renewals = [ack for ack in acks if ack.kind is AcknowledgementType.RENEW]
            others = [ack for ack in acks if ack.kind is not AcknowledgementType.RENEW]
            refused = refusal(code, message, about=str(partition.where))
            for ack in renewals or others:
                ack.fail(type(refused)(refused.code, refused.message))
            if renewals:
                # The group's config does not allow renewal; the other acknowledgements are retried.
                outcome.is_renewal_refused = True
                outcome.lost = self.put_back(key, others, now)
        return outcome


def _confirm(acks: list[Ack], lock_ms: int, now: float) -> None:
    for ack in acks:
        if ack.kind is AcknowledgementType.RENEW and ack.lease is not None:
            held_ms = ack.options.lock_ms if ack.options.lock_ms >= 0 else lock_ms
            ack.lease.deadline = now + (held_ms / 1000 if held_ms > 0 else ack.lease.lock_s)
            ack.lease.is_renewing = False
        ack.succeed()


# Requests.


def _by_topic(keys: Iterable[PartitionKey]) -> dict[TopicId, list[int]]:
    found: dict[TopicId, list[int]] = {}
    for topic_id, index in sorted(keys):
        found.setdefault(topic_id, []).append(index)
    return found


def fetch_topics(chunks: Mapping[PartitionKey, Sequence[Ack]]) -> list[ShareFetchTopic]:
    return [
        ShareFetchTopic(
            topic_id=topic_id,
            partitions=[
                ShareFetchPartition(
                    partition_index=index,
                    acknowledgement_batches=batches_of(chunks[topic_id, index]),
                )
                for index in indexes
            ],
        )
        for topic_id, indexes in _by_topic(chunks).items()
    ]


def ack_topics(chunks: AckChunks) -> list[AcknowledgeTopic]:
    return [
        AcknowledgeTopic(
            topic_id=topic_id,
            partitions=[
                AcknowledgePartition(
                    partition_index=index,
                    acknowledgement_batches=batches_of(chunks[topic_id, index]),
                )
                for index in indexes
            ],
        )
        for topic_id, indexes in _by_topic(chunks).items()
    ]


def forgotten_topics(keys: frozenset[PartitionKey]) -> list[ShareFetchForgottenTopic]:
    return [
        ShareFetchForgottenTopic(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in _by_topic(keys).items()
    ]
