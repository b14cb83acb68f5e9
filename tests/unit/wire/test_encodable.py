"""Requests that no client could have sent are refused before a handler sees them."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.wire.encodable import INT64_MAX, STRING_BYTES_MAX, check_speakable
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

VERSION = 9


def commit(group: str = "g", offset: int = 0, partition: int = 0) -> OffsetCommitRequest:
    row = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=None
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="t", partitions=[row])],
    )


def test_largest_passes() -> None:
    check_speakable(commit("x" * STRING_BYTES_MAX, INT64_MAX, 2**31 - 1), VERSION)


@pytest.mark.parametrize(
    "request_",
    [
        commit("x" * (STRING_BYTES_MAX + 1)),
        commit("é" * (STRING_BYTES_MAX // 2 + 1)),
        commit(offset=2**63),
        commit(offset=2**64),
        commit(partition=2**31),
    ],
    ids=["name", "bytes", "offset", "more", "partition"],
)
def test_values_above_the_protocol_limits_are_refused(request_: OffsetCommitRequest) -> None:
    with pytest.raises(Refused) as refused:
        check_speakable(request_, VERSION)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
