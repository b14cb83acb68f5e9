"""`penstock.state.transactions.shard`: routing, bad input, markers, time, bounds."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_scheduler import run_to_end
from penstock.base.state_machine import NOTHING, Decision
from penstock.state.transactions import shard as shard_module
from penstock.state.transactions.records import (
    EPOCH_MAX,
    ProducerEpoch,
    TxnRecord,
    TxnState,
    encode_record,
)
from penstock.state.transactions.shard import TxnConfig
from penstock.wire.messages.transactions import ListTransactionsRequest
from tests.unit.state.transactions.building import (
    NOW_MS,
    OFFSETS_PARTITION,
    Host,
    add,
    add_offsets,
    end,
    init,
)

P0, P1 = ("t", 0), ("t", 1)
WEEK_MS = 7 * 24 * 3_600_000
NEVER = ProducerEpoch(1, 1)


def producer_of(host: Host, name: str = "t", timeout_ms: int = 60_000) -> ProducerEpoch:
    reply = host.ask("InitProducerId", init(name, timeout_ms=timeout_ms), 5)
    return ProducerEpoch(reply.producer_id, reply.producer_epoch)


def open_txn(host: Host, *partitions: tuple[str, int], name: str = "t") -> ProducerEpoch:
    producer = producer_of(host, name)
    host.ask("AddPartitionsToTxn", add(producer, partitions, name), 5)
    return producer


BAD_INPUT: list[tuple[str, Any, ErrorCode]] = [
    ("InitProducerId", init(""), ErrorCode.INVALID_REQUEST),
    ("InitProducerId", init(timeout_ms=0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ("InitProducerId", init(timeout_ms=-1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ("InitProducerId", init(timeout_ms=900_001), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ("InitProducerId", init(expected=ProducerEpoch(1, -1)), ErrorCode.INVALID_REQUEST),
    ("InitProducerId", init(expected=ProducerEpoch(-1, 1)), ErrorCode.INVALID_REQUEST),
    ("InitProducerId", init(expected=NEVER), ErrorCode.PRODUCER_FENCED),
    ("AddPartitionsToTxn", add(NEVER, [P0], ""), ErrorCode.INVALID_REQUEST),
    ("AddPartitionsToTxn", add(NEVER, [P0], "no"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ("AddPartitionsToTxn", add(NEVER, [P0]), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    (
        "AddPartitionsToTxn",
        add(NEVER, [P0], "no", verify_only=True),
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ),
    ("AddOffsetsToTxn", add_offsets(NEVER, ""), ErrorCode.INVALID_REQUEST),
    ("AddOffsetsToTxn", add_offsets(NEVER, "no"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ("EndTxn", end(NEVER, committed=True, name=""), ErrorCode.INVALID_REQUEST),
    ("EndTxn", end(NEVER, committed=True, name="no"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ("EndTxn", end(NEVER, committed=True), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ("EndTxn", end(ProducerEpoch(1000, 0), committed=True), ErrorCode.INVALID_TXN_STATE),
    ("EndTxn", end(ProducerEpoch(1000, 1), committed=True), ErrorCode.PRODUCER_FENCED),
]


@pytest.mark.parametrize(("api", "request_", "code"), BAD_INPUT)
def test_bad_input_gets_kafkas_code_and_changes_nothing(
    api: str, request_: Any, code: ErrorCode
) -> None:
    host = Host()
    producer_of(host)
    before = host.shard.durable_state()
    with pytest.raises(Refused) as refused:
        host.call(api, request_, 5)
    assert refused.value.code is code
    assert host.shard.durable_state() == before


def test_request_without_records_is_answered_behind_earlier_ones() -> None:
    host = Host(commits=False)
    first = host.call("InitProducerId", init(), 5)
    assert not host.replies
    host.commit()
    reply = host.replies.pop(first)
    producer = ProducerEpoch(reply.producer_id, reply.producer_epoch)
    host.call("AddPartitionsToTxn", add(producer, [P0]), 5)
    check = host.call("AddPartitionsToTxn", add(producer, [P0], verify_only=True), 5)
    assert check not in host.replies
    host.commit()
    assert host.replies[check].topic_results[0].results_by_partition[0].partition_error_code == 0


def test_verify_only_answers_for_each_partition_and_enters_none() -> None:
    host = Host()
    producer = open_txn(host, P0)
    reply = host.ask("AddPartitionsToTxn", add(producer, [P0, P1], verify_only=True), 4)
    codes = [row.partition_error_code for row in reply.topic_results[0].results_by_partition]
    assert codes == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert host.record().partitions == (("t", (0,)),)
    stale = ProducerEpoch(producer.id, producer.epoch - 1)
    reply = host.ask("AddPartitionsToTxn", add(stale, [P0], verify_only=True), 4)
    row = reply.topic_results[0].results_by_partition[0]
    assert row.partition_error_code == ErrorCode.PRODUCER_FENCED


def test_groups_offsets_enter_with_their_partition() -> None:
    host = Host()
    producer = producer_of(host)
    host.ask("AddOffsetsToTxn", add_offsets(producer), 4)
    assert host.record().partitions == (("__consumer_offsets", (OFFSETS_PARTITION,)),)


def test_markers_wait_for_the_commit_of_the_outcome() -> None:
    host = Host()
    producer = open_txn(host, P0, P1)
    host.commits = False
    token = host.call("EndTxn", end(producer, committed=True), 5)
    assert (host.markers, host.replies) == ([], {})
    host.commit()
    (write,) = host.markers
    assert (write.committed, write.partitions, write.transaction_version) == (True, (P0, P1), 2)
    assert (write.producer_id, write.producer_epoch) == (producer.id, producer.epoch + 1)
    assert host.replies[token].producer_epoch == producer.epoch + 1


def test_lost_outcome_leaves_the_transaction_open() -> None:
    host = Host()
    producer = open_txn(host, P0)
    host.commits = False
    host.call("EndTxn", end(producer, committed=True), 5)
    host.crash()
    assert host.record().state is TxnState.ONGOING
    assert host.markers == []


def test_pending_markers_are_those_not_reported() -> None:
    host = Host()
    producer = open_txn(host, P0, P1)
    host.ask("EndTxn", end(producer, committed=False), 5)
    (write,) = host.shard.pending_markers()
    assert write == host.markers[0]
    host.run(host.shard.marker_written(write, [P1], NOW_MS))
    assert [w.partitions for w in host.shard.pending_markers()] == [(P0,)]
    host.run(host.shard.marker_written(write, [P0], NOW_MS))
    assert host.shard.pending_markers() == ()
    assert host.record().state is TxnState.COMPLETE_ABORT
    assert host.shard.marker_written(write, [P0], NOW_MS) == NOTHING


def test_report_for_a_forgotten_id_is_ignored() -> None:
    host = Host()
    producer = open_txn(host, P0)
    host.ask("EndTxn", end(producer, committed=False), 5)
    (write,) = host.markers
    other = write._replace(transactional_id="no")
    assert host.shard.marker_written(other, [P0], NOW_MS) == NOTHING
    assert host.shard.marker_written(write._replace(number=9), [P0], NOW_MS) == NOTHING


def test_deadline_is_that_of_the_first_open_transaction() -> None:
    host = Host()
    hour = NOW_MS + 3_600_000
    assert host.shard.deadline() == hour
    producer = producer_of(host, timeout_ms=500)
    assert host.shard.deadline() == hour
    host.ask("AddPartitionsToTxn", add(producer, [P0]), 5)
    assert host.shard.deadline() == NOW_MS + 500
    host.wait(500)
    assert host.record().state is TxnState.PREPARE_ABORT
    host.write_all()
    assert host.shard.deadline() == hour


def test_timeout_without_producer_ids_in_stock_is_tried_again() -> None:
    host = Host()
    producer = ProducerEpoch(7, EPOCH_MAX - 1)
    record = TxnRecord(TxnState.EMPTY, producer.id, producer.epoch, 500, NOW_MS)
    host.run(Decision(records=(encode_record("t", record),)))
    host.ask("AddPartitionsToTxn", add(producer, [P0]), 5)
    host.has_ids = False
    host.wait(500)
    assert host.record().state is TxnState.ONGOING
    assert host.shard.deadline() == host.now_ms + 1_000
    host.has_ids = True
    host.wait(1_000)
    assert host.record().state is TxnState.PREPARE_ABORT
    host.write_all()
    assert host.record().producer.epoch == 0


def test_open_transactions_do_not_expire() -> None:
    host = Host(TxnConfig(timeout_ms_max=2**31 - 1))
    producer = producer_of(host, timeout_ms=2**31 - 1)
    producer_of(host, "idle")
    host.ask("AddPartitionsToTxn", add(producer, [P0]), 5)
    host.wait(WEEK_MS)
    assert list(host.shard.durable_state()) == ["t"]
    assert host.replayed() == host.shard.durable_state()


def test_tick_ends_so_many_and_the_next_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_module, "TICK_MAX", 2)
    host = Host()
    for at in range(5):
        open_txn(host, P0, name=f"t{at}")
    host.now_ms += 60_000
    assert len(host.shard.tick(host.now_ms).records) == 2
    host.tick()
    states = {record.state for record in host.shard.durable_state().values()}
    assert states == {TxnState.PREPARE_ABORT}
    host.write_all()
    host.wait(WEEK_MS + 3_600_000)
    assert host.shard.durable_state() == {}


def test_ids_and_partitions_are_bounded() -> None:
    host = Host(TxnConfig(ids_max=1, partitions_max=2))
    producer = producer_of(host)
    with pytest.raises(Refused) as refused:
        host.call("InitProducerId", init("more"), 5)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    host.ask("AddPartitionsToTxn", add(producer, [P0, P1]), 5)
    with pytest.raises(Refused) as refused:
        host.call("AddPartitionsToTxn", add(producer, [("t", 2)]), 5)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    host.ask("AddPartitionsToTxn", add(producer, [P0]), 5)


def test_records_of_unknown_kinds_are_skipped_when_loading() -> None:
    host = Host()
    host.shard.apply(b"\x93\x02\x00\xa1t", b"anything")
    host.shard.apply(b"\x93\x01\x01\xa1t", b"anything")
    host.shard.apply(b"", None)
    assert host.shard.durable_state() == {}


def test_dropped_caller_changes_nothing() -> None:
    host = Host()
    open_txn(host, P0)
    before = host.shard.durable_state()
    host.shard.dropped(1)
    assert host.shard.durable_state() == before


def test_listing_and_describing_read_the_live_state() -> None:
    host = Host()
    open_txn(host, P0)
    rows = run_to_end(host.shard.list_transactions(ListTransactionsRequest(), NOW_MS))
    assert [row.transactional_id for row in rows] == ["t"]
    assert host.shard.describe_transaction("t").transaction_state == "Ongoing"
