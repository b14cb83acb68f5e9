"""Produce requests built from encoded batches, and their replies by partition (api 0).

Used by every sender of batches: the producer, transactional writers, Spark tasks, and brokers that
write to partitions of other leaders. The senders decide about timing, batches in flight and errors.
"""

from collections.abc import Callable, Iterable, Mapping

from penstock.base.ids import NO_TOPIC_ID, TopicId
from penstock.client.metadata import TopicPartition, by_topic
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ACKS_ALL = -1
EXPLICIT_TXN_MAX = 11
"""Last version in which a separate request adds partitions to a transaction (KIP-890)."""


def _no_id(name: str) -> TopicId:
    return NO_TOPIC_ID


def produce_request(
    batches: Iterable[tuple[TopicPartition, memoryview]],
    *,
    timeout_ms: int,
    acks: int = ACKS_ALL,
    transactional_id: str | None = None,
    topic_id_of: Callable[[str], TopicId] = _no_id,
) -> ProduceRequest:
    """Builds a request with at most one batch for each partition, as brokers require."""
    rows = by_topic(
        (where, PartitionProduceData(index=where.partition, records=batch))
        for where, batch in batches
    )
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(name=name, topic_id=topic_id_of(name), partition_data=partitions)
            for name, partitions in rows.items()
        ],
    )


def produced_rows(
    reply: ProduceResponse, names: Mapping[TopicId, str] | None = None
) -> dict[TopicPartition, PartitionProduceResponse]:
    """Returns the replies by partition. `names` maps ids to topics, for replies without names."""
    return {
        TopicPartition(
            topic.name or (names or {}).get(TopicId(bytes(topic.topic_id)), ""), row.index
        ): row
        for topic in reply.responses
        for row in topic.partition_responses
    }
