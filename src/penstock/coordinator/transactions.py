"""Transactions on this node: the shards of `__transaction_state`, and their actions.

A producer's coordinator may be on another node than the partition it writes to: `enter` asks the
right node.

Provides the state machines with settings and producer ids, and has markers written once the record
that decided on them is committed; after a restart, all that are still missing. The handling of
requests is in `penstock.state.transactions`.

Verification of transactions by coordinators on other nodes: AddPartitionsToTxn (KIP-890). A
partition's leader does not write the first batch of a transaction before the coordinator has
added the partition, or has confirmed that it was added. Questions of many producers to one
coordinator share a request (`batched_rpc`), each as a row of its own.

A coordinator that cannot be reached confirms nothing: then the batch is refused with a retriable
code.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.ports import UnknownResult
from penstock.base.retry import Retry
from penstock.base.state_machine import Decision, Token
from penstock.client.errors import check, code_of
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata.producer_ids import ProducerIds
from penstock.cluster.replication.peer_connections import PEER_ERRORS
from penstock.coordinator.groups import GroupCoordinator
from penstock.coordinator.runtime.batched_rpc import BatchedRpc, check_count
from penstock.coordinator.runtime.internal_topics import TRANSACTIONS, InternalTopics
from penstock.coordinator.runtime.shard_host import HostContext, ShardHost
from penstock.coordinator.runtime.shard_runtime import Effect, ShardRuntime
from penstock.coordinator.txn_markers import MarkerWriter
from penstock.coordinator.txn_verification import Guards
from penstock.state.transactions.records import Partition, ProducerEpoch
from penstock.state.transactions.shard import TransactionCaller, TxnConfig, TxnShard
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
            question.refuse(
                _not_now(f"too many checks of transactions wait for node {node_id}: retry later")
            )
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


STOCK_RETRY_SECONDS = (0.1, 1.0)
PAUSE_SECONDS = 0.001
"""Upper bound of the first pause while the last transaction is being ended."""


def txn_config(configs: BrokerConfigs) -> TxnConfig:
    """Returns the settings of the state machines, by Kafka's config names."""
    return TxnConfig(
        timeout_ms_max=configs.integer("transaction.max.timeout.ms"),
        expiration_ms=configs.integer("transactional.id.expiration.ms"),
        expiration_check_interval_ms=configs.integer(
            "transaction.remove.expired.transaction.cleanup.interval.ms"
        ),
    )


class TxnCoordinator:
    """Coordinator of this node's transactions."""

    def __init__(
        self,
        around: HostContext,
        configs: BrokerConfigs,
        topics: InternalTopics,
        producer_ids: ProducerIds,
        groups: GroupCoordinator,
    ) -> None:
        self._around = around
        self._configs = configs
        self._topics = topics
        self._producer_ids = producer_ids
        self._groups = groups
        self._out_of_ids = asyncio.Event()
        self.guards = Guards()
        self.markers = MarkerWriter(around, groups, self.guards)
        self._remote = RemoteTxns(around)
        self.host: ShardHost[TxnShard] = ShardHost(
            TRANSACTIONS.name,
            around,
            self._make,
            codec=0,
            chunk_bytes=configs.integer("transaction.state.log.load.buffer.size"),
            effects=self._effects,
        )

    async def ensure(self) -> None:
        """Creates the internal topic if it does not exist."""
        await self._topics.ensure(TRANSACTIONS)

    async def ask(
        self, transactional_id: str, decide: Callable[[TxnShard, Token, int], Decision]
    ) -> Any:
        """Returns the shard's reply to a call of a transactional id; raises its refusal.

        While the last transaction is being ended this waits a little: markers take a moment, and a
        client that gets CONCURRENT_TRANSACTIONS pauses for much longer. Kafka does so for
        partitions that Produce adds; here it applies to every request.
        """
        loop = asyncio.get_running_loop()
        patience_ms = self._configs.integer("add.partitions.to.txn.retry.backoff.max.ms")
        pause_ms_max = self._configs.integer("add.partitions.to.txn.retry.backoff.ms")
        deadline = loop.time() + patience_ms / 1000
        retry = Retry(self._around.random, PAUSE_SECONDS, pause_ms_max / 1000)
        while True:
            try:
                return await self.host.ask(transactional_id, decide)
            except Refused as refusal:
                is_ending = refusal.code is ErrorCode.CONCURRENT_TRANSACTIONS
                if not is_ending or loop.time() >= deadline:
                    raise
            await retry.pause()

    async def handle(
        self, transactional_id: str, name: str, request: Any, caller: TransactionCaller
    ) -> Any:
        """Returns the shard's response to a request; raises its refusal."""

        def decide(shard: TxnShard, token: Token, now_ms: int) -> Decision:
            return shard.handle(name, request, token, caller, now_ms)

        return await self.ask(transactional_id, decide)

    async def enter(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        places: Sequence[Partition],
        adds: bool,
    ) -> dict[Partition, Refused]:
        """Checks that partitions about to be written belong to the producer's transaction.

        `adds`: missing partitions are added (KIP-890), else only checked. Returns the errors of
        those that must not be written. The coordinator may be on another node.
        """
        try:
            node_id = self._coordinator_of(transactional_id)
        except Refused as refusal:
            return dict.fromkeys(places, refusal)
        if node_id != self._around.peers.node_id:
            return await self._remote.enter(node_id, transactional_id, producer, places, adds)

        def add(shard: TxnShard, token: Token, now_ms: int) -> Decision:
            return shard.add_partitions_from_produce(
                transactional_id, producer.id, producer.epoch, places, token, now_ms
            )

        def verify(shard: TxnShard, token: Token, now_ms: int) -> Decision:
            refused: dict[Partition, Refused] = {}
            for topic, index in places:
                try:
                    shard.verify(transactional_id, *producer, topic, index)
                except Refused as refusal:
                    refused[topic, index] = refusal
            return Decision(replies=((token, refused),))

        try:
            if adds:
                await self.ask(transactional_id, add)
                return {}
            found: dict[Partition, Refused] = await self.ask(transactional_id, verify)
        except Refused as refusal:
            return dict.fromkeys(places, refusal)
        return found

    def is_verified(
        self, transactional_id: str, producer: ProducerEpoch, places: Sequence[Partition]
    ) -> bool:
        """True if the shard is here and confirms at once that all of these are in the transaction.

        If not, call `enter`, which takes time: the shard may be elsewhere, or have to commit
        something before it may answer.
        """
        said: list[object] = []

        def verify(shard: TxnShard, token: Token, now_ms: int) -> Decision:
            for topic, index in places:
                shard.verify(transactional_id, *producer, topic, index)
            return Decision(replies=((token, True),))

        try:
            runtime = self.host.runtime_of(transactional_id)
            token = runtime.call(verify, said.append)
        except Refused:
            return False
        if not said:
            runtime.dropped(token)
        return said == [True]

    def _coordinator_of(self, transactional_id: str) -> int:
        """Returns the node that leads the transactional id's shard."""
        image = self._around.watcher.image
        record = image.partition(self.host.topic, self.host.index_of(transactional_id))
        if record is None or record.leader not in image.brokers:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return record.leader

    async def run(self) -> None:
        """Loads shards, sends to other nodes and reserves producer ids, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.host.run())
            tasks.create_task(self.markers.run())
            tasks.create_task(self._remote.run())
            tasks.create_task(self._keep_stock())

    # -- services for the state machines -----------------------------------------------------

    def _make(self) -> TxnShard:
        return TxnShard(txn_config(self._configs), self._take_id, self._groups.host.index_of)

    def _take_id(self) -> int:
        producer_id = self._producer_ids.take()
        if producer_id is None:
            self._out_of_ids.set()
            raise Refused(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                "no producer id is available at the moment: retry later",
            )
        return producer_id

    async def _keep_stock(self) -> None:
        retry = Retry(self._around.random, *STOCK_RETRY_SECONDS)
        while True:
            await self._out_of_ids.wait()
            self._out_of_ids.clear()
            try:
                await self._producer_ids.ensure_available()
                retry.succeeded()
            except (Refused, UnknownResult, TimeoutError, ConnectionError):
                await retry.pause()
                self._out_of_ids.set()

    def _effects(self, runtime: ShardRuntime[TxnShard]) -> Effect | None:
        writes = runtime.require().take_markers()
        if not writes:
            return None

        def write_all() -> None:
            for write in writes:
                self.markers.end(runtime, write)

        return write_all

    # -- metrics ----------------------------------------------------------------------------

    @property
    def open_count(self) -> int:
        """Number of open transactions."""
        return sum(shard.open_count for _, shard in self.host.active())
