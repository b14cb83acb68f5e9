"""Transactions of one call each: all of it counts, or nothing; and who comes later takes over."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.committed_offsets import Committed, committed_offsets
from penstock.client.errors import ConnectionLost
from penstock.client.metadata import TopicPartition
from penstock.client.producer.transaction import FENCED
from penstock.client.producer.transactional import TransactionalWriter, is_retriable
from penstock.wire.records import Record
from tests.run_with import run_with
from tests.unit.client.on_cluster import Desk, on_cluster

T0, T1, SOURCE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("s", 0)


def records(*values: bytes) -> list[Record]:
    return [Record(0, 1_000, None, value) for value in values]


async def prepare(desk: Desk) -> TransactionalWriter:
    await desk.admin.create_topic("t", 2, 1)
    await desk.admin.create_topic("s", 1, 1)
    return TransactionalWriter(desk.cluster, "x")


@run_with(on_cluster)
async def test_records_and_offsets_commit_together(desk: Desk) -> None:
    writer = await prepare(desk)
    await writer.begin()
    for turn in range(3):
        batches = {T0: records(b"a%d" % turn, b"b%d" % turn), T1: records(b"c%d" % turn)}
        offsets = await writer.write(batches, "g", {SOURCE: Committed(turn, metadata="w")})
        # Each transaction leaves a marker in every partition.
        assert offsets == {T0: turn * 3, T1: turn * 2}
    found = sorted(message.value or b"" for message in await desk.read("t"))
    assert found == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2", b"c0", b"c1", b"c2"]
    kept = await committed_offsets(desk.cluster, "g", is_stable=True)
    assert kept[SOURCE][::2] == (2, "w")


@run_with(on_cluster)
async def test_later_producer_fences_the_earlier_one(desk: Desk) -> None:
    first = await prepare(desk)
    await first.begin()
    await first.write({T0: records(b"first")}, "g", {})
    second = TransactionalWriter(desk.cluster, "x")
    await second.begin()
    with pytest.raises(Refused) as fenced:
        await first.write({T0: records(b"late")}, "g", {})
    assert fenced.value.code in FENCED
    with pytest.raises(Refused) as fenced:
        await first.begin()
    assert fenced.value.code in FENCED
    await second.write({T0: records(b"second")}, "g", {})
    assert [message.value for message in await desk.read("t")] == [b"first", b"second"]


@run_with(on_cluster)
async def test_failed_transaction_does_not_commit(desk: Desk) -> None:
    writer = await prepare(desk)
    await writer.begin()
    beyond = TopicPartition("t", 9)
    with pytest.raises(Refused) as refused:
        await writer.write({T0: records(b"lost"), beyond: records(b"x")}, "g", {})
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await writer.begin()
    await writer.write({T0: records(b"kept")}, "g", {})
    assert [message.value for message in await desk.read("t")] == [b"kept"]


@pytest.mark.parametrize(
    ("error", "is_worth_it"),
    [
        (Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER), True),
        (Refused(ErrorCode.INVALID_TXN_STATE), True),
        (Refused(ErrorCode.INVALID_PRODUCER_EPOCH), False),
        (Refused(ErrorCode.MESSAGE_TOO_LARGE), False),
        (ConnectionLost("gone"), True),
    ],
)
def test_transient_errors_are_retriable(error: Exception, is_worth_it: bool) -> None:
    assert is_retriable(error) is is_worth_it
