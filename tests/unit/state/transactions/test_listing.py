"""`penstock.state.transactions.shard`: ListTransactions v0-2 and DescribeTransactions."""

import re
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.fair_scheduler import run_to_end
from penstock.state.transactions.records import STATE_NAMES, TxnRecord, TxnState
from penstock.state.transactions.shard import describe_row, list_rows, unknown_states
from penstock.state.transactions.transaction import Txn
from penstock.wire.messages.transactions import ListTransactionsRequest

NOW_MS = 10_000


def txn(state: TxnState, producer_id: int, start_ms: int = -1) -> Txn:
    partitions = (("x", (0, 2)), ("y", (1,))) if state is TxnState.ONGOING else ()
    return Txn(
        TxnRecord(state, producer_id, 3, 60_000, 9_000, start_ms=start_ms, partitions=partitions)
    )


TXNS = {
    "pay-1": txn(TxnState.ONGOING, 1, start_ms=4_000),
    "pay-2": txn(TxnState.COMPLETE_COMMIT, 2, start_ms=9_500),
    "etl": txn(TxnState.EMPTY, 3),
}


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, ["pay-1", "pay-2", "etl"]),
        ({"state_filters": ["Ongoing", "Empty"]}, ["pay-1", "etl"]),
        ({"state_filters": ["Nonsense"]}, []),
        ({"state_filters": ["Dead"]}, []),
        ({"producer_id_filters": [2, 99]}, ["pay-2"]),
        ({"state_filters": ["Ongoing"], "producer_id_filters": [2]}, []),
        ({"duration_filter": 5_999}, ["pay-1", "etl"]),
        ({"duration_filter": 6_000}, ["etl"]),
        ({"duration_filter": 0}, ["pay-1", "pay-2", "etl"]),
    ],
)
def test_every_filter_must_fit(filters: dict[str, Any], found: list[str]) -> None:
    """An id without a transaction passes every duration filter, as in Kafka."""
    rows = run_to_end(list_rows(TXNS.items(), ListTransactionsRequest(**filters), NOW_MS, None))
    assert [row.transactional_id for row in rows] == found


def test_pattern_must_match() -> None:
    matches = re.compile("pay-.*").fullmatch
    rows = run_to_end(
        list_rows(TXNS.items(), ListTransactionsRequest(), NOW_MS, lambda name: bool(matches(name)))
    )
    assert [(row.transactional_id, row.producer_id) for row in rows] == [("pay-1", 1), ("pay-2", 2)]


def test_states_that_do_not_exist_are_named_once() -> None:
    request = ListTransactionsRequest(
        state_filters=["Huh", *STATE_NAMES.values(), "Dead", "PrepareEpochFence", "Huh", "ongoing"]
    )
    assert unknown_states(request) == ["Huh", "ongoing"]


def test_description_has_every_partition() -> None:
    row = describe_row(TXNS, "pay-1")
    assert row.error_code == ErrorCode.NONE
    assert (row.producer_id, row.producer_epoch) == (1, 3)
    assert (row.transaction_state, row.transaction_start_time_ms) == ("Ongoing", 4_000)
    assert [(t.topic, list(t.partitions)) for t in row.topics] == [("x", [0, 2]), ("y", [1])]


def test_id_that_is_not_there_gets_kafkas_code() -> None:
    assert describe_row(TXNS, "no").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert describe_row(TXNS, "").error_code == ErrorCode.INVALID_REQUEST
