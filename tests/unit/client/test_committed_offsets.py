"""Committed offsets are read, set and forgotten by name, in every version of the requests."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import commit_offsets, committed_offsets, delete_offsets
from penstock.client.metadata import TopicPartition
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from simulation.loop import SimLoop
from tests.run_with import run_with
from tests.unit.client.group_answers import Committing
from tests.unit.client.model import ModelBroker, with_model

ONE = TopicPartition("t", 0)
OTHER = TopicPartition("u", 3)
FETCH = 9
SUBSCRIBED = int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)


@pytest.mark.parametrize("version", [2, 7, 8, 10])
@run_with(with_model)
async def test_committed_offsets_are_read_sorted(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster, *, version: int
) -> None:
    model = Committing(broker)
    broker.versions[FETCH] = (1, version)
    await commit_offsets(cluster, "g", {OTHER: 7, ONE: 5})
    model.offsets["g"]["gone", 0] = -1  # The answer of a broker without a committed offset.
    model.not_coordinator_times = 2
    found = await committed_offsets(cluster, "g")
    assert [(where, row.offset) for where, row in found.items()] == [(ONE, 5), (OTHER, 7)]
    assert await committed_offsets(cluster, "unknown") == {}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
    ],
)
@run_with(with_model)
async def test_group_with_members_is_refused_as_not_empty(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster, *, code: ErrorCode
) -> None:
    model = Committing(broker, commit_code=code)
    with pytest.raises(Refused, match="group 'g' has members") as caught:
        await commit_offsets(cluster, "g", {ONE: 5})
    assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
    assert broker.count(OffsetCommitRequest) == 1
    assert not model.offsets


@run_with(with_model)
async def test_offsets_of_a_subscribed_topic_are_not_deleted(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    Committing(broker)

    def answer(request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        rows = [
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=row.partition_index,
                        error_code=SUBSCRIBED if topic.name == "u" else 0,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return OffsetDeleteResponse(error_code=0, topics=rows)

    broker.answers[OffsetDeleteRequest] = answer
    await delete_offsets(cluster, "g", [ONE])
    with pytest.raises(Refused, match=r"u\[3\]: the group's members are subscribed"):
        await delete_offsets(cluster, "g", [ONE, OTHER])
