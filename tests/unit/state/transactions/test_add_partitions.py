"""`state.transactions.add_partitions`: AddPartitionsToTxn in its two forms, and codes by
version."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.state.transactions.add_partitions import (
    for_produce,
    for_version,
    partitions_of,
    refused_result,
    response_of,
    result_of,
    transactions_of,
)
from penstock.state.transactions.records import ProducerEpoch
from penstock.wire.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from tests.unit.state.transactions.building import add

E = ErrorCode


@pytest.mark.parametrize(
    ("api", "since"),
    [("InitProducerId", 4), ("AddPartitionsToTxn", 2), ("AddOffsetsToTxn", 2), ("EndTxn", 2)],
)
def test_older_versions_know_no_producer_fenced(api: str, since: int) -> None:
    refused = Refused(E.PRODUCER_FENCED, "why")
    assert for_version(refused, api, since).code is E.PRODUCER_FENCED
    assert for_version(refused, api, since - 1).code is E.INVALID_PRODUCER_EPOCH
    assert for_version(refused, api, since - 1).message == "why"
    other = Refused(E.CONCURRENT_TRANSACTIONS)
    assert for_version(other, api, 0) is other


@pytest.mark.parametrize(
    ("code", "v10", "v11", "v12"),
    [
        (E.PRODUCER_FENCED, *[E.INVALID_PRODUCER_EPOCH] * 3),
        (E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE, *[E.TRANSACTION_ABORTABLE] * 2),
        (E.CONCURRENT_TRANSACTIONS, *[E.NOT_ENOUGH_REPLICAS] * 2, E.CONCURRENT_TRANSACTIONS),
        (E.NOT_COORDINATOR, *[E.NOT_ENOUGH_REPLICAS] * 3),
        (E.COORDINATOR_LOAD_IN_PROGRESS, *[E.NOT_ENOUGH_REPLICAS] * 3),
        (E.COORDINATOR_NOT_AVAILABLE, *[E.NOT_ENOUGH_REPLICAS] * 3),
        (E.NETWORK_EXCEPTION, *[E.NOT_ENOUGH_REPLICAS] * 3),
        (E.INVALID_PRODUCER_ID_MAPPING, *[E.INVALID_PRODUCER_ID_MAPPING] * 3),
    ],
)
def test_produce_answers_with_codes_its_version_knows(
    code: ErrorCode, v10: ErrorCode, v11: ErrorCode, v12: ErrorCode
) -> None:
    assert [for_produce(code, version) for version in (10, 11, 12)] == [v10, v11, v12]


TOPICS = [
    AddPartitionsToTxnTopic(name="x", partitions=[1, 0, 1]),
    AddPartitionsToTxnTopic(name="y", partitions=[2]),
]


def test_old_request_is_one_transaction() -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=1,
        v3_and_below_topics=TOPICS,
    )
    (transaction,) = transactions_of(request, 3)
    assert (transaction.transactional_id, transaction.producer_id) == ("t", 7)
    assert not transaction.verify_only
    assert partitions_of(transaction) == [("x", 1), ("x", 0), ("y", 2)]
    response = response_of([refused_result(transaction, E.PRODUCER_FENCED)], 3)
    rows = response.results_by_topic_v3_and_below
    assert [topic.name for topic in rows] == ["x", "y"]
    codes = [row.partition_error_code for topic in rows for row in topic.results_by_partition]
    assert codes == [E.PRODUCER_FENCED] * 3


def test_batch_keeps_its_transactions_apart() -> None:
    batch = [add(ProducerEpoch(1, 0), [("x", 0), ("x", 1)], name) for name in ("a", "b")]
    request = AddPartitionsToTxnRequest(transactions=batch)
    assert list(transactions_of(request, 4)) == batch
    results = [result_of(batch[0], {("x", 1): E.TRANSACTION_ABORTABLE}), result_of(batch[1], {})]
    response = response_of(results, 4)
    found = {
        result.transactional_id: [
            row.partition_error_code
            for topic in result.topic_results
            for row in topic.results_by_partition
        ]
        for result in response.results_by_transaction
    }
    assert found == {"a": [E.NONE, E.TRANSACTION_ABORTABLE], "b": [E.NONE, E.NONE]}
