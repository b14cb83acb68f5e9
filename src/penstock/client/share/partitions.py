"""The partitions that a member of a share group reads or still has to answer for (KIP-932). Pure.

Knows who leads each, keeps the verdicts that wait for it, and decides what an answer to them means:
done, again at another node, one by one, or lost. Requests about several partitions are put together
here as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId
from penstock.client.errors import RETRIABLE, code_of, refusal
from penstock.client.metadata import Metadata, TopicPartition
from penstock.client.share.acknowledgements import Ack, AcknowledgementType, Acks, batches_of
from penstock.wire.messages.share import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgementBatch,
    ShareFetchAcknowledgementBatch,
    ShareFetchForgottenTopic,
    ShareFetchPartition,
    ShareFetchTopic,
)

Place: TypeAlias = tuple[TopicId, int]
Groups: TypeAlias = dict[Place, list[Ack]]


@dataclass(slots=True, eq=False)
class SharePartition:
    where: TopicPartition
    acks: Acks = field(default_factory=Acks)
    is_assigned: bool = False
    node_id: int = -1
    """Who leads it, as last known; -1: nobody."""


@dataclass(slots=True)
class Heard:
    """What an answer to verdicts came to."""

    lost: list[Ack] = field(default_factory=list)
    """About records that are not ours any more."""
    is_stale: bool = False
    """The partition is led elsewhere."""
    is_renewal_refused: bool = False


class SharePartitions:
    """By topic id and index, as requests name them."""

    def __init__(self) -> None:
        self._partitions: dict[Place, SharePartition] = {}
        self._places: dict[TopicPartition, Place] = {}

    def assign(self, assigned: Iterable[Place], names: Mapping[TopicId, str]) -> None:
        """These are to be read from now on; others are kept while there is something to say."""
        for partition in self._partitions.values():
            partition.is_assigned = False
        for place in assigned:
            name = names.get(place[0])
            if name is None:
                continue
            where = TopicPartition(name, place[1])
            self._partitions.setdefault(place, SharePartition(where)).is_assigned = True
            self._places[where] = place

    def where(self, place: Place) -> TopicPartition | None:
        partition = self._partitions.get(place)
        return None if partition is None else partition.where

    def find(self, where: TopicPartition) -> SharePartition | None:
        place = self._places.get(where)
        return None if place is None else self._partitions[place]

    def route(self, metadata: Metadata) -> tuple[dict[int, set[Place]], bool]:
        """What to read at which node, and whether some partition has no leader."""
        wanted: dict[int, set[Place]] = {}
        is_lost = False
        for place, partition in self._partitions.items():
            partition.node_id = metadata.leader_of(partition.where)
            if not partition.is_assigned and not partition.acks:
                continue
            if partition.node_id < 0:
                is_lost = True
                continue
            places = wanted.setdefault(partition.node_id, set())
            if partition.is_assigned:
                places.add(place)
        return wanted, is_lost

    # Verdicts.

    def has_acks(self, node_id: int) -> bool:
        return any(one.acks and one.node_id == node_id for one in self._partitions.values())

    def take_acks(self, node_id: int) -> Groups:
        """One group of each partition that the node leads."""
        return {
            place: partition.acks.take()
            for place, partition in self._partitions.items()
            if partition.acks and partition.node_id == node_id
        }

    def drain(self) -> list[Ack]:
        return [ack for partition in self._partitions.values() for ack in partition.acks.drain()]

    def put_back(self, place: Place, acks: list[Ack], now: float) -> list[Ack]:
        """For another try; answers those that come too late for one."""
        alive: list[Ack] = []
        late: list[Ack] = []
        for ack in acks:
            is_alive = ack.lease is None or ack.lease.deadline > now
            (alive if is_alive else late).append(ack)
        if alive:
            self._partitions[place].acks.put_back(alive)
        return late

    def heard(
        self,
        place: Place,
        acks: list[Ack],
        code: int,
        message: str | None,
        lock_ms: int,
        now: float,
    ) -> Heard:
        """The broker's answer to verdicts about one partition."""
        partition = self._partitions[place]
        error = code_of(code)
        heard = Heard()
        if error is ErrorCode.NONE:
            _confirm(acks, lock_ms, now)
        elif error is ErrorCode.INVALID_RECORD_STATE:
            if len(acks) > 1:
                partition.acks.halve(acks)
            else:
                heard.lost = acks
        elif error in RETRIABLE:
            heard.is_stale = True
            heard.lost = self.put_back(place, acks, now)
        else:
            renewals = [ack for ack in acks if ack.verdict is AcknowledgementType.RENEW]
            others = [ack for ack in acks if ack.verdict is not AcknowledgementType.RENEW]
            refused = refusal(code, message, about=str(partition.where))
            for ack in renewals or others:
                ack.fail(type(refused)(refused.code, refused.message))
            if renewals:
                # The group's config does not allow it; the other verdicts are none the worse.
                heard.is_renewal_refused = True
                heard.lost = self.put_back(place, others, now)
        return heard


def _confirm(acks: list[Ack], lock_ms: int, now: float) -> None:
    for ack in acks:
        if ack.verdict is AcknowledgementType.RENEW and ack.lease is not None:
            held_ms = ack.note.lock_ms if ack.note.lock_ms >= 0 else lock_ms
            ack.lease.deadline = now + (held_ms / 1000 if held_ms > 0 else ack.lease.lock_s)
            ack.lease.is_renewing = False
        ack.succeed()


# Requests.


def _by_topic(places: Iterable[Place]) -> dict[TopicId, list[int]]:
    found: dict[TopicId, list[int]] = {}
    for topic_id, index in sorted(places):
        found.setdefault(topic_id, []).append(index)
    return found


def fetch_topics(groups: Mapping[Place, Sequence[Ack]]) -> list[ShareFetchTopic]:
    return [
        ShareFetchTopic(
            topic_id=topic_id,
            partitions=[
                ShareFetchPartition(
                    partition_index=index,
                    acknowledgement_batches=batches_of(
                        groups[topic_id, index], ShareFetchAcknowledgementBatch
                    ),
                )
                for index in indexes
            ],
        )
        for topic_id, indexes in _by_topic(groups).items()
    ]


def ack_topics(groups: Groups) -> list[AcknowledgeTopic]:
    return [
        AcknowledgeTopic(
            topic_id=topic_id,
            partitions=[
                AcknowledgePartition(
                    partition_index=index,
                    acknowledgement_batches=batches_of(
                        groups[topic_id, index], ShareAcknowledgementBatch
                    ),
                )
                for index in indexes
            ],
        )
        for topic_id, indexes in _by_topic(groups).items()
    ]


def forgotten_topics(places: frozenset[Place]) -> list[ShareFetchForgottenTopic]:
    return [
        ShareFetchForgottenTopic(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in _by_topic(places).items()
    ]
