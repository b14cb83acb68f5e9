"""Merging replies: partial ones add, full ones replace, late ones do not turn the clock back."""

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId
from penstock.client.metadata import Metadata, TopicPartition
from penstock.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def row(name: str, leader: int, epoch: int, topic_id: bytes = bytes(16)) -> MetadataResponseTopic:
    partition = MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=leader, leader_epoch=epoch
    )
    return MetadataResponseTopic(
        error_code=0, name=name, topic_id=TopicId(topic_id), partitions=[partition]
    )


def gone(name: str) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=3, name=name, partitions=[])


def reply(*topics: MetadataResponseTopic, brokers: tuple[int, ...] = (1, 2)) -> MetadataResponse:
    rows = [MetadataResponseBroker(node_id=n, host=f"b{n}", port=9092) for n in brokers]
    return MetadataResponse(brokers=rows, topics=topics)


def merge(known: Metadata, new: MetadataResponse, *, is_full: bool = False) -> Metadata:
    return known.merge(new, is_full=is_full, at=1.0)


def test_partial_reply_adds_and_full_reply_replaces() -> None:
    known = merge(Metadata(), reply(row("a", 1, 0)))
    known = merge(known, reply(row("b", 2, 0)))
    assert sorted(known.topics) == ["a", "b"]
    assert sorted(merge(known, reply(row("b", 2, 0)), is_full=True).topics) == ["b"]


def test_deleted_topic_is_removed_with_its_error() -> None:
    known = merge(Metadata(), reply(row("a", 1, 0)))
    known = merge(known, reply(gone("a")))
    assert not known.topics
    assert known.errors == {"a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not merge(known, reply(row("a", 1, 0))).errors


def test_older_leader_epoch_is_ignored() -> None:
    known = merge(Metadata(), reply(row("a", 2, 5)))
    where = TopicPartition("a", 0)
    assert merge(known, reply(row("a", 1, 4))).leader_of(where) == 2
    assert merge(known, reply(row("a", 1, 6))).leader_of(where) == 1


def test_recreated_topic_starts_its_epochs_over() -> None:
    known = merge(Metadata(), reply(row("a", 2, 5, b"1" * 16)))
    assert merge(known, reply(row("a", 1, 0, b"2" * 16))).leader_of(TopicPartition("a", 0)) == 1


def test_leader_unknown_to_the_brokers_is_none() -> None:
    known = merge(Metadata(), reply(row("a", 7, 0)))
    assert known.leader_of(TopicPartition("a", 0)) == -1
    assert known.leader_of(TopicPartition("a", 1)) == -1
    assert known.leader_of(TopicPartition("b", 0)) == -1
