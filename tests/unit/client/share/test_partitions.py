"""Partitions of a share group's member: who leads them, and what answers mean."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.client.connection import Address
from penstock.client.consumer.fetched import FetchedRecord
from penstock.client.metadata import (
    Broker,
    Metadata,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)
from penstock.client.share.acknowledgements import Ack, AcknowledgementType, AckOptions
from penstock.client.share.leases import HeldLease
from penstock.client.share.partitions import SharePartitions, fetch_topics, forgotten_topics
from tests.run_with import in_new_loop, run_with

TOPIC = TopicId(b"t" * 16)
NAMES = {TOPIC: "jobs"}
PLACE = (TOPIC, 0)


def metadata(*leaders: int) -> Metadata:
    partitions = {
        index: PartitionInfo(index, leader, 0, (leader,), (leader,), (), ErrorCode.NONE)
        for index, leader in enumerate(leaders)
    }
    brokers = {node_id: Broker(node_id, Address("h", node_id)) for node_id in (1, 2)}
    return Metadata("c", 1, brokers, {"jobs": TopicInfo("jobs", TOPIC, False, partitions)})


def lease(offset: int = 0, deadline: float = 10.0) -> HeldLease:
    return HeldLease(FetchedRecord("jobs", 0, offset, 0, None, b"", ()), 1, deadline, 10.0)


def ack(
    offset: int = 0,
    kind: AcknowledgementType = AcknowledgementType.ACCEPT,
    deadline: float = 10.0,
) -> Ack:
    done = asyncio.get_running_loop().create_future()
    return Ack(offset, kind, lease=lease(offset, deadline), done=done)


def assigned(*indexes: int, leaders: tuple[int, ...] = (1, 2)) -> SharePartitions:
    partitions = SharePartitions()
    partitions.assign([(TOPIC, index) for index in indexes], NAMES)
    partitions.route(metadata(*leaders))
    return partitions


def add(partitions: SharePartitions, ack: Ack) -> None:
    found = partitions.find(TopicPartition("jobs", 0))
    assert found is not None
    found.acks.add(ack)


def test_partitions_are_fetched_from_their_leaders() -> None:
    partitions = assigned(0, 1)
    assert partitions.route(metadata(1, 2)) == ({1: {(TOPIC, 0)}, 2: {(TOPIC, 1)}}, False)
    assert partitions.route(metadata(2, 2)) == ({2: {(TOPIC, 0), (TOPIC, 1)}}, False)
    assert partitions.route(metadata(-1, 2)) == ({2: {(TOPIC, 1)}}, True)
    assert partitions.where((TOPIC, 1)) == TopicPartition("jobs", 1)
    assert partitions.where((TOPIC, 9)) is None


@run_with(in_new_loop)
async def test_revoked_partition_is_kept_while_it_has_acknowledgements() -> None:
    partitions = assigned(0, 1)
    add(partitions, ack())
    partitions.assign([(TOPIC, 1)], NAMES)
    assert partitions.route(metadata(1, 2)) == ({1: set(), 2: {(TOPIC, 1)}}, False)
    assert partitions.has_acks(1)
    assert list(partitions.take_acks(1)) == [PLACE]
    assert partitions.route(metadata(1, 2)) == ({2: {(TOPIC, 1)}}, False)


@run_with(in_new_loop)
async def test_acknowledgements_follow_the_leader() -> None:
    partitions = assigned(0)
    one = ack()
    outcome = partitions.handle_ack_reply(
        PLACE, [one], ErrorCode.NOT_LEADER_OR_FOLLOWER, None, 0, now=1.0
    )
    assert outcome.is_stale
    assert not outcome.lost
    partitions.route(metadata(2))
    assert not partitions.has_acks(1)
    assert partitions.take_acks(2) == {PLACE: [one]}


@run_with(in_new_loop)
async def test_acknowledgements_of_expired_leases_are_not_retried() -> None:
    partitions = assigned(0)
    alive, late = ack(0, deadline=10.0), ack(1, deadline=0.5)
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    outcome = partitions.handle_ack_reply(PLACE, [alive, late], code, None, 0, now=1.0)
    assert outcome.lost == [late]
    assert partitions.take_acks(1) == {PLACE: [alive]}


@run_with(in_new_loop)
async def test_renewed_lease_starts_over() -> None:
    partitions = assigned(0)
    one, other = ack(0, AcknowledgementType.RENEW), ack(1, AcknowledgementType.RENEW)
    other.options = AckOptions(lock_ms=60_000)
    partitions.handle_ack_reply(PLACE, [one, other], 0, None, 30_000, now=5.0)
    assert one.lease is not None
    assert other.lease is not None
    assert (one.lease.deadline, other.lease.deadline) == (35.0, 65.0)


@run_with(in_new_loop)
async def test_refused_renewal_affects_no_other_acknowledgement() -> None:
    partitions = assigned(0)
    renewal, accept = ack(0, AcknowledgementType.RENEW), ack(1)
    outcome = partitions.handle_ack_reply(
        PLACE, [renewal, accept], ErrorCode.INVALID_REQUEST, "no", 0, now=1.0
    )
    assert outcome.is_renewal_refused
    assert partitions.take_acks(1) == {PLACE: [accept]}
    assert renewal.done is not None
    with pytest.raises(Refused, match="no"):
        await renewal.done


@run_with(in_new_loop)
async def test_only_the_unheld_record_of_a_group_is_lost() -> None:
    partitions = assigned(0)
    group = [ack(0), ack(1)]
    code = ErrorCode.INVALID_RECORD_STATE
    assert partitions.handle_ack_reply(PLACE, group, code, None, 0, now=1.0).lost == []
    first = partitions.take_acks(1)[PLACE]
    assert first == group[:1]
    assert partitions.handle_ack_reply(PLACE, first, code, None, 0, now=1.0).lost == first
    assert partitions.take_acks(1) == {PLACE: group[1:]}


def test_requests_are_grouped_by_topic() -> None:
    other = TopicId(b"u" * 16)
    rows = fetch_topics(
        {(TOPIC, 1): [], (other, 0): [], (TOPIC, 0): [Ack(4, AcknowledgementType.GAP)]}
    )
    assert [(row.topic_id, [p.partition_index for p in row.partitions]) for row in rows] == [
        (TOPIC, [0, 1]),
        (other, [0]),
    ]
    assert rows[0].partitions[0].acknowledgement_batches[0].first_offset == 4
    (forgotten,) = forgotten_topics(frozenset({(TOPIC, 1), (TOPIC, 0)}))
    assert list(forgotten.partitions) == [0, 1]
