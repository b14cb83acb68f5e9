"""Verification of transactions by coordinators on other nodes: AddPartitionsToTxn (KIP-890).

A partition's leader does not write the first batch of a transaction before the coordinator has
added the partition, or has confirmed that it was added. Questions of many producers to one
coordinator share a request (`batched_rpc`), each as a row of its own.

A coordinator that cannot be reached confirms nothing: then the batch is refused with a retriable
code.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.client.errors import check, code_of
from penstock.cluster.replication.peer_connections import PEER_ERRORS
from penstock.coordinator.runtime.batched_rpc import BatchedRpc, check_count
from penstock.coordinator.runtime.shard_host import HostContext
from penstock.state.transactions.records import Partition, ProducerEpoch
from penstock.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """Question whether a producer may write to partitions, and whether to add missing ones."""

    transactional_id: str
    producer: ProducerEpoch
    places: Sequence[Partition]
    adds: bool
    answer: "asyncio.Future[dict[Partition, Refused]]"

    def row(self) -> AddPartitionsToTxnTransaction:
        topics: dict[str, list[int]] = {}
        for topic, index in self.places:
            topics.setdefault(topic, []).append(index)
        return AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            verify_only=not self.adds,
            topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in topics.items()
            ],
        )

    def settle(self, result: AddPartitionsToTxnResult) -> None:
        if result.transactional_id != self.transactional_id:
            raise PeerError(f"an answer about {result.transactional_id!r} instead")
        codes = {
            (topic.name, cell.partition_index): code_of(cell.partition_error_code)
            for topic in result.topic_results
            for cell in topic.results_by_partition
        }
        if not self.answer.done():
            unsaid = ErrorCode.UNKNOWN_SERVER_ERROR
            found = {place: codes.get(place, unsaid) for place in self.places}
            self.answer.set_result({place: Refused(code) for place, code in found.items() if code})

    def refuse(self, refusal: Refused) -> None:
        if not self.answer.done():
            self.answer.set_result(dict.fromkeys(self.places, refusal))


class RemoteTxns:
    """Questions in flight to other nodes' coordinators."""

    def __init__(self, around: HostContext) -> None:
        self._around = around
        self._rpc: BatchedRpc[Question] = BatchedRpc("transactions", self._deliver)

    async def run(self) -> None:
        """Sends questions until cancelled."""
        await self._rpc.run()

    async def enter(
        self,
        node_id: int,
        transactional_id: str,
        producer: ProducerEpoch,
        places: Sequence[Partition],
        adds: bool,
    ) -> dict[Partition, Refused]:
        """Returns the errors of partitions that must not be written, from another node's
        coordinator."""
        answer: asyncio.Future[dict[Partition, Refused]]
        answer = asyncio.get_running_loop().create_future()
        question = Question(transactional_id, producer, places, adds, answer)
        if not self._rpc.send(node_id, question):
            question.refuse(_not_now("too many questions wait already"))
        return await answer

    async def _deliver(self, node_id: int, channel: str, questions: list[Question]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[one.row() for one in questions])
        try:
            response = await self._around.peers.ask(
                node_id, request, AddPartitionsToTxnResponse, channel=channel, timeout_ms=TIMEOUT_MS
            )
            check(response.error_code, about=f"node {node_id}")
            results = response.results_by_transaction
            check_count(results, questions)
            for question, result in zip(questions, results, strict=True):
                question.settle(result)
        except PEER_ERRORS as error:
            for question in questions:
                question.refuse(_not_now(str(error)))


def _not_now(why: str) -> Refused:
    return Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
