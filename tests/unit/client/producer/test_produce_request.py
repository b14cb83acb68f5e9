"""Produce requests: batches grouped by topic, and answers found again by partition."""

from penstock.base.errors import ErrorCode
from penstock.base.ids import NO_TOPIC_ID, TopicId
from penstock.client.metadata import TopicPartition
from penstock.client.producer.produce_request import ACKS_ALL, produce_request, produced_rows
from penstock.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

A, B = TopicId(b"a" * 16), TopicId(b"b" * 16)
IDS = {"a": A, "b": B}


def test_batches_are_grouped_by_topic_in_order() -> None:
    places = [TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 0)]
    request = produce_request(
        [(where, memoryview(str(where).encode())) for where in places],
        timeout_ms=7,
        transactional_id="me",
        topic_id_of=IDS.__getitem__,
    )
    assert (request.acks, request.timeout_ms, request.transactional_id) == (ACKS_ALL, 7, "me")
    found = {
        (topic.name, topic.topic_id, row.index): bytes(row.records or b"")
        for topic in request.topic_data
        for row in topic.partition_data
    }
    assert found == {
        ("b", B, 1): str(places[0]).encode(),
        ("b", B, 0): str(places[2]).encode(),
        ("a", A, 0): str(places[1]).encode(),
    }
    assert [topic.name for topic in request.topic_data] == ["b", "a"]


def test_responses_are_found_by_name_or_id() -> None:
    row = PartitionProduceResponse(0, ErrorCode.NONE, 5)
    by_name = ProduceResponse(responses=[TopicProduceResponse("a", NO_TOPIC_ID, [row])])
    assert produced_rows(by_name) == {TopicPartition("a", 0): row}
    by_id = ProduceResponse(responses=[TopicProduceResponse("", B, [row])])
    assert produced_rows(by_id, {A: "a", B: "b"}) == {TopicPartition("b", 0): row}
