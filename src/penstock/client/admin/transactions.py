"""Administration of transactions: list, describe, abort, and find hanging ones.

Every broker lists only the transactions it coordinates. A transaction that its coordinator knows is
aborted there: a new producer with the same transactional id fences the old one, and the coordinator
aborts the open transaction (InitProducerId). A transaction that hangs in a partition and that no
coordinator knows (KIP-664) is aborted in that partition alone, by an abort marker
(WriteTxnMarkers). An abort marker would break the atomicity of a coordinated transaction, so
callers check with `coordinated` first.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.client.cluster import Cluster
from penstock.client.coordinators import TRANSACTION, at_coordinator, at_every_broker
from penstock.client.errors import check, refusal
from penstock.client.metadata import TopicPartition, by_topic
from penstock.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ONGOING = "Ongoing"
PREPARING = ("PrepareCommit", "PrepareAbort")

_DURATION_SINCE = 1
"""First version of ListTransactions with a filter by duration."""


@dataclass(frozen=True, slots=True)
class TxnListing:
    """Entry of a listing of transactions."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class TxnInfo:
    """State of a transactional id at its coordinator."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    """Start of the open transaction; None if there is none."""
    coordinator_id: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class HangingCandidate:
    """Producer with an open transaction in a partition, as its leader knows it."""

    where: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_written_ms: int


async def list_transactions(
    cluster: Cluster,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    older_ms: int | None = None,
) -> list[TxnListing]:
    """Returns the transactions that match every filter, sorted by transactional id."""
    request = ListTransactionsRequest(
        state_filters=states,
        producer_id_filters=producer_ids,
        duration_filter=-1 if older_ms is None else older_ms,
    )

    async def ask(node_id: int) -> list[TxnListing]:
        connection = await cluster.connection(node_id)
        version = connection.version_of(ListTransactionsRequest)
        if older_ms is not None and version < _DURATION_SINCE:
            # The field would be omitted, and every transaction would match.
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{connection.address} is too old to list transactions by their age",
            )
        reply = await cluster.call(request, ListTransactionsResponse, node_id=node_id)
        check(reply.error_code, about=f"transactions of broker {node_id}")
        return [
            TxnListing(row.transactional_id, row.producer_id, row.transaction_state, node_id)
            for row in reply.transaction_states
        ]

    return sorted(await at_every_broker(cluster, ask), key=lambda txn: txn.transactional_id)


async def describe_transaction(cluster: Cluster, transactional_id: str) -> TxnInfo:
    """Describes a transactional id. Raises Refused(TRANSACTIONAL_ID_NOT_FOUND) if unknown."""

    async def ask(node_id: int) -> TxnInfo:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        reply = await cluster.call(request, DescribeTransactionsResponse, node_id=node_id)
        for row in reply.transaction_states:
            if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise Refused(
                    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                    f"transactional id {transactional_id!r} does not exist",
                )
            check(row.error_code, about=f"transactional id {transactional_id!r}")
            started = row.transaction_start_time_ms
            places = [TopicPartition(t.topic, index) for t in row.topics for index in t.partitions]
            return TxnInfo(
                transactional_id=row.transactional_id,
                state=row.transaction_state,
                producer_id=row.producer_id,
                producer_epoch=row.producer_epoch,
                timeout_ms=row.transaction_timeout_ms,
                started_ms=started if started > 0 and places else None,
                coordinator_id=node_id,
                partitions=tuple(sorted(places)),
            )
        raise refusal(-1, about=f"transactional id {transactional_id!r}")

    return await at_coordinator(cluster, TRANSACTION, transactional_id, ask)


async def open_transactions(
    cluster: Cluster, places: Collection[TopicPartition]
) -> list[HangingCandidate]:
    """Returns the open transactions of these partitions from their leaders, sorted."""
    found: dict[TopicPartition, list[HangingCandidate]] = {}

    async def ask(node_id: int, asked: list[TopicPartition]) -> None:
        rows = by_topic((where, where.partition) for where in asked)
        request = DescribeProducersRequest(
            topics=[
                DescribeProducersTopicRequest(name=name, partition_indexes=rows[name])
                for name in rows
            ]
        )
        reply = await cluster.call(request, DescribeProducersResponse, node_id=node_id)
        for topic in reply.topics:
            for row in topic.partitions:
                where = TopicPartition(topic.name, row.partition_index)
                check(row.error_code, row.error_message, about=str(where))
                found[where] = [
                    HangingCandidate(
                        where=where,
                        producer_id=producer.producer_id,
                        producer_epoch=producer.producer_epoch,
                        coordinator_epoch=producer.coordinator_epoch,
                        start_offset=producer.current_txn_start_offset,
                        last_written_ms=producer.last_timestamp,
                    )
                    for producer in row.active_producers
                    if producer.current_txn_start_offset >= 0
                ]

    async def attempt() -> None:
        missing = [where for where in places if where not in found]
        for node_id, asked in (await cluster.by_leader(missing)).items():
            await ask(node_id, asked)

    await cluster.retrying(attempt, topics={where.topic for where in places})
    rows = [txn for where in sorted(found) for txn in found[where]]
    return sorted(rows, key=lambda txn: (txn.where, txn.start_offset))


async def coordinated(
    cluster: Cluster, txns: Sequence[HangingCandidate]
) -> dict[HangingCandidate, str]:
    """Returns those transactions that a coordinator will end, with their transactional ids.

    The rest are hanging: no coordinator will end them.
    """
    owners: dict[HangingCandidate, str] = {}
    producer_ids = sorted({txn.producer_id for txn in txns})
    if not producer_ids:
        return owners
    for listing in await list_transactions(cluster, producer_ids=producer_ids):
        try:
            info = await describe_transaction(cluster, listing.transactional_id)
        except Refused as refused:
            if refused.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                continue  # It has expired since it was listed.
            raise
        for txn in txns:
            is_same = txn.producer_id in (info.producer_id, listing.producer_id)
            if is_same and txn.where in info.partitions:
                owners[txn] = listing.transactional_id
    return owners


async def hanging_transactions(
    cluster: Cluster, places: Collection[TopicPartition], *, now_ms: int, older_ms: int
) -> list[HangingCandidate]:
    """Returns transactions that no coordinator will end, without writes for `older_ms`.

    If `older_ms` exceeds the largest transaction timeout, a transaction that is just starting or
    ending is never reported as hanging.
    """
    candidates = [
        txn
        for txn in await open_transactions(cluster, places)
        if now_ms - txn.last_written_ms > older_ms
    ]
    owners = await coordinated(cluster, candidates)
    return [txn for txn in candidates if txn not in owners]


async def fence(cluster: Cluster, info: TxnInfo) -> None:
    """Fences the producer and waits until its coordinator has aborted the open transaction."""
    request = InitProducerIdRequest(
        transactional_id=info.transactional_id, transaction_timeout_ms=max(1, info.timeout_ms)
    )

    async def ask(node_id: int) -> None:
        # During the abort the broker answers CONCURRENT_TRANSACTIONS, which is retried.
        reply = await cluster.call(request, InitProducerIdResponse, node_id=node_id)
        check(reply.error_code, about=f"transactional id {info.transactional_id!r}")

    # Fencing is idempotent: the returned epoch is not used.
    await at_coordinator(cluster, TRANSACTION, info.transactional_id, ask)


async def write_abort(cluster: Cluster, txn: HangingCandidate) -> None:
    """Aborts a hanging transaction in its partition with an abort marker."""
    topic = WritableTxnMarkerTopic(name=txn.where.topic, partition_indexes=[txn.where.partition])
    marker = WritableTxnMarker(
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        transaction_result=False,
        topics=[topic],
        # A partition without any marker of this producer has no coordinator epoch.
        coordinator_epoch=max(0, txn.coordinator_epoch),
    )

    async def attempt() -> None:
        node_id = await cluster.leader(txn.where)
        request = WriteTxnMarkersRequest(markers=[marker])
        reply = await cluster.call(request, WriteTxnMarkersResponse, node_id=node_id)
        for row in reply.markers:
            for answered in row.topics:
                for partition in answered.partitions:
                    check(partition.error_code, about=str(txn.where))

    # Not retried: a second marker could abort a new transaction of the same producer.
    await cluster.retrying(attempt, is_repeatable=False, topics={txn.where.topic})
