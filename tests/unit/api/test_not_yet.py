"""Every API of groups, transactions and share groups carries its error where clients look."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.api.not_yet import ANSWERS, CODE, OFF, not_yet
from penstock.wire.messages import committed, consumer_groups, groups, share, share_offsets, txns
from tests.unit.api.harness import Node, on_node

EXAMPLES: tuple[Any, ...] = (
    committed.OffsetCommitRequest(
        group_id="g",
        member_id="",
        topics=[
            committed.OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    committed.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=5, committed_metadata=None
                    )
                ],
            )
        ],
    ),
    committed.OffsetDeleteRequest(group_id="g", topics=[]),
    committed.OffsetFetchRequest(
        group_id="g",
        topics=[committed.OffsetFetchRequestTopic(name="t", partition_indexes=[0])],
        groups=[committed.OffsetFetchRequestGroup(group_id="g", topics=None)],
    ),
    consumer_groups.ConsumerGroupDescribeRequest(
        group_ids=["g"], include_authorized_operations=False
    ),
    consumer_groups.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, topic_partitions=None
    ),
    groups.DeleteGroupsRequest(groups_names=["g"]),
    groups.DescribeGroupsRequest(groups=["g"]),
    groups.FindCoordinatorRequest(key="g", coordinator_keys=["g"]),
    groups.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
    groups.JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="m", protocol_type="consumer", protocols=[]
    ),
    groups.LeaveGroupRequest(group_id="g", member_id="m"),
    groups.ListGroupsRequest(),
    groups.SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[]),
    share.ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=0, topics=[]),
    share.ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=0,
        max_wait_ms=1,
        min_bytes=1,
        max_records=1,
        batch_size=1,
        topics=[],
        forgotten_topics_data=[],
    ),
    share.ShareGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False),
    share.ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0),
    share_offsets.AlterShareGroupOffsetsRequest(group_id="g", topics=[]),
    share_offsets.DeleteShareGroupOffsetsRequest(
        group_id="g", topics=[share_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
    ),
    share_offsets.DescribeShareGroupOffsetsRequest(
        groups=[share_offsets.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
    ),
    txns.AddOffsetsToTxnRequest(
        transactional_id="x", producer_id=1, producer_epoch=0, group_id="g"
    ),
    txns.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_topics=[txns.AddPartitionsToTxnTopic(name="t", partitions=[0])],
    ),
    txns.DescribeTransactionsRequest(transactional_ids=["x"]),
    txns.EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True),
    txns.ListTransactionsRequest(),
    txns.TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        topics=[
            txns.TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    txns.TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=1, committed_metadata=None
                    )
                ],
            )
        ],
    ),
)


def error_codes(message: Any) -> Iterator[int]:
    """Every error code in a response, however deep."""
    for field in type(message).WIRE.fields:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield value
        elif field.kind == "array" and isinstance(field.of, type):
            for item in value or ():
                yield from error_codes(item)


def test_every_answer_has_an_example() -> None:
    assert {type(example) for example in EXAMPLES} == set(ANSWERS)


CASES = [
    pytest.param(example, version, id=f"{type(example).__name__}-v{version}")
    for example in EXAMPLES
    for version in range(type(example).WIRE.versions[0], type(example).WIRE.versions[1] + 1)
]


@pytest.mark.parametrize(("request_", "version"), CASES)
def test_the_error_is_where_the_version_carries_it(request_: Any, version: int) -> None:
    async def test(node: Node) -> None:
        answer = await node.ask(not_yet, version, request_)
        codes = set(error_codes(answer)) - {0}
        off = isinstance(request_, share.ShareFetchRequest | share.ShareAcknowledgeRequest)
        assert codes == {OFF if off else CODE}

    on_node(test)
