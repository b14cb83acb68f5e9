"""A transactional producer, request by request, in the versions a test chooses."""

from dataclasses import dataclass
from typing import Any

from penstock.broker.api.data.produce import produce
from penstock.broker.api.data.producers import init_producer_id
from penstock.broker.api.groups.transactions import add_partitions_to_txn, end_txn
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from penstock.wire.records import Record, encode
from tests.unit.broker.api.harness import Node

CONFIGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
OLD = {"init": 4, "produce": 11, "add": 3, "end": 4}
"""Before transactions v2: partitions are added by request, the epoch stays."""
NEW = {"init": 5, "produce": 12, "add": 3, "end": 5}
"""KIP-890: Produce adds partitions, EndTxn bumps the epoch."""


@dataclass
class Transacting:
    """State of one producer."""

    node: Node
    versions: dict[str, int]
    name: str = "tx"
    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0

    async def begin(self) -> "Transacting":
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        answer = await self.node.ask(init_producer_id, self.versions["init"], request)
        assert answer.error_code == 0, answer
        self.producer_id, self.epoch, self.sequence = (
            answer.producer_id,
            answer.producer_epoch,
            0,
        )
        return self

    async def add(self, topic: str, *indexes: int) -> dict[int, int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
        )
        answer = await self.node.ask(add_partitions_to_txn, self.versions["add"], request)
        return {
            row.partition_index: row.partition_error_code
            for result in answer.results_by_topic_v3_and_below
            for row in result.results_by_partition
        }

    def request(self, topic: str, index: int = 0, *, named: bool = True) -> ProduceRequest:
        batch = encode(
            [Record(0, 1, None, b"v", ())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        self.sequence += 1
        data = PartitionProduceData(index=index, records=memoryview(batch))
        return ProduceRequest(
            transactional_id=self.name if named else None,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )

    async def send(self, topic: str, index: int = 0) -> int:
        """Produces one record; the code that comes back."""
        return await self.produce(self.request(topic, index))

    async def produce(self, request: ProduceRequest) -> int:
        answer = await self.node.ask(produce, self.versions["produce"], request)
        code: int = answer.responses[0].partition_responses[0].error_code
        if code:
            self.sequence -= 1
        return code

    async def end(self, committed: bool = True) -> int:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        answer = await self.node.ask(end_txn, self.versions["end"], request)
        if not answer.error_code and self.versions["end"] >= 5:
            self.producer_id, self.epoch, self.sequence = (
                answer.producer_id,
                answer.producer_epoch,
                0,
            )
        code: int = answer.error_code
        return code


async def ready(node: Node, **topics: int) -> None:
    """Coordinators, and topics by name and number of partitions."""
    await node.ctx.group.groups.ensure()
    await node.ctx.transaction.txns.ensure()
    for name, partitions in topics.items():
        await node.create(name, partitions)


def open_at(node: Node, topic: str, index: int = 0) -> int:
    """First offset of the oldest open transaction of a partition, or -1."""
    partition: Any = node.ctx.partitions.get(topic, index)
    offset: int = partition.log.producers.first_open_offset
    return offset
