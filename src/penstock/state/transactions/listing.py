"""Descriptions of transactions: ListTransactions v0-2, DescribeTransactions v0.

Reads only. ListTransactions spans every shard of a broker: this returns the rows of one, and the
handler joins them. The pattern of v2 (KIP-1152) is RE2 syntax; the handler compiles it and passes
the matcher.
"""

from collections.abc import Callable, Iterable, Mapping

from penstock.base.errors import ErrorCode
from penstock.state.transactions.records import NO_EPOCH, NO_ID, NO_TIME, STATE_NAMES
from penstock.state.transactions.transaction import Txn
from penstock.wire.messages.transactions import (
    DescribeTransactionsTopicData,
    DescribeTransactionsTransactionState,
    ListTransactionsRequest,
    ListTransactionsTransactionState,
)

_PASSING_STATES = ("Dead", "PrepareEpochFence")
"""Kafka's names for states that never occur here: accepted in filters, never found."""


def unknown_states(request: ListTransactionsRequest) -> list[str]:
    """State filters that name an unknown state, in request order."""
    known = (*STATE_NAMES.values(), *_PASSING_STATES)
    return [name for name in dict.fromkeys(request.state_filters) if name not in known]


def list_rows(
    txns: Iterable[tuple[str, Txn]],
    request: ListTransactionsRequest,
    now_ms: int,
    matches: Callable[[str], bool] | None,
) -> list[ListTransactionsTransactionState]:
    states = frozenset(request.state_filters)
    producer_ids = frozenset(request.producer_id_filters)
    duration_ms = request.duration_filter
    rows = []
    for transactional_id, txn in txns:
        record = txn.record
        state = STATE_NAMES[record.state]
        if states and state not in states:
            continue
        if producer_ids and record.producer_id not in producer_ids:
            continue
        if duration_ms >= 0 and now_ms - record.start_ms <= duration_ms:
            continue
        if matches is not None and not matches(transactional_id):
            continue
        rows.append(
            ListTransactionsTransactionState(
                transactional_id=transactional_id,
                producer_id=record.producer_id,
                transaction_state=state,
            )
        )
    return rows


def describe_row(
    txns: Mapping[str, Txn], transactional_id: str
) -> DescribeTransactionsTransactionState:
    txn = txns.get(transactional_id)
    if txn is None:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return refused_row(
            transactional_id, code if transactional_id else ErrorCode.INVALID_REQUEST
        )
    record = txn.record
    return DescribeTransactionsTransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=STATE_NAMES[record.state],
        transaction_timeout_ms=record.timeout_ms,
        transaction_start_time_ms=record.start_ms,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        topics=[
            DescribeTransactionsTopicData(topic=topic, partitions=list(partitions))
            for topic, partitions in record.partitions
        ],
    )


def refused_row(transactional_id: str, code: ErrorCode) -> DescribeTransactionsTransactionState:
    """Row of a transactional id that cannot be described."""
    return DescribeTransactionsTransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=NO_TIME,
        producer_id=NO_ID,
        producer_epoch=NO_EPOCH,
        topics=(),
    )
