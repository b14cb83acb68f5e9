"""Every API of share groups carries its error where clients look."""

from typing import Any

import pytest

from penstock.api.not_yet import ANSWERS, CODE, OFF, not_yet
from penstock.wire.messages import share, share_offsets
from tests.unit.api.harness import Node, error_codes, on_node

EXAMPLES: tuple[Any, ...] = (
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
)


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
