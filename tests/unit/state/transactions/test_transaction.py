"""`state.transactions.transaction`: every request in every state, with Kafka's own codes."""

import pytest
from msgspec.structs import replace

from penstock.base.errors import ErrorCode, Refused
from penstock.state.transactions.records import (
    EPOCH_MAX,
    NO_PRODUCER,
    TRANSACTIONS_V0,
    TRANSACTIONS_V2,
    ProducerEpoch,
    TxnRecord,
    TxnState,
)
from penstock.state.transactions.transaction import Txn, begin

NOW_MS = 5_000
P0 = ("t", 0)
ME = ProducerEpoch(1, 5)
BEFORE = ProducerEpoch(1, 4)
UNKNOWN = ProducerEpoch(9, 5)
FUTURE = ProducerEpoch(1, 6)

ISTATE = ErrorCode.INVALID_TXN_STATE
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
OK = ErrorCode.NONE


def take_id() -> int:
    return 77


def no_id() -> int:
    raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def txn(state: TxnState, version: int = TRANSACTIONS_V2, **changes: object) -> Txn:
    """A state machine whose producer is ME, and was BEFORE at its last request."""
    is_open = state in (TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
    record = TxnRecord(
        state=state,
        producer_id=ME.id,
        producer_epoch=ME.epoch,
        timeout_ms=1_000,
        updated_ms=NOW_MS,
        previous_id=BEFORE.id,
        previous_epoch=BEFORE.epoch,
        start_ms=NOW_MS,
        number=3,
        version=version,
        partitions=(("t", (0,)),) if is_open else (),
    )
    return Txn(replace(record, **changes))


def code_of(call: object, *arguments: object) -> ErrorCode:
    try:
        call(*arguments)  # type: ignore[operator]
    except Refused as refused:
        return refused.code
    return OK


S = TxnState

ENDS_V2 = [
    # state, who, commit, abort
    (S.EMPTY, ME, ISTATE, OK),
    (S.EMPTY, BEFORE, FENCED, FENCED),
    (S.EMPTY, FUTURE, FENCED, FENCED),
    (S.EMPTY, UNKNOWN, MAPPING, MAPPING),
    (S.ONGOING, ME, OK, OK),
    (S.ONGOING, BEFORE, FENCED, FENCED),
    (S.ONGOING, FUTURE, FENCED, FENCED),
    (S.ONGOING, UNKNOWN, MAPPING, MAPPING),
    (S.PREPARE_COMMIT, BEFORE, CONCURRENT, ISTATE),
    (S.PREPARE_COMMIT, ME, CONCURRENT, CONCURRENT),
    (S.PREPARE_COMMIT, FUTURE, FENCED, FENCED),
    (S.PREPARE_COMMIT, UNKNOWN, MAPPING, MAPPING),
    (S.PREPARE_ABORT, BEFORE, ISTATE, CONCURRENT),
    (S.PREPARE_ABORT, ME, CONCURRENT, CONCURRENT),
    (S.COMPLETE_COMMIT, BEFORE, OK, ISTATE),
    (S.COMPLETE_COMMIT, ME, ISTATE, OK),
    (S.COMPLETE_COMMIT, FUTURE, FENCED, FENCED),
    (S.COMPLETE_ABORT, BEFORE, ISTATE, OK),
    (S.COMPLETE_ABORT, ME, ISTATE, OK),
    (S.COMPLETE_ABORT, UNKNOWN, MAPPING, MAPPING),
]


@pytest.mark.parametrize(("state", "who", "commit", "abort"), ENDS_V2)
def test_end_txn_under_transactions_v2(
    state: TxnState, who: ProducerEpoch, commit: ErrorCode, abort: ErrorCode
) -> None:
    end = txn(state).end
    assert code_of(end, who, True, TRANSACTIONS_V2, NOW_MS, take_id) is commit
    assert code_of(end, who, False, TRANSACTIONS_V2, NOW_MS, take_id) is abort


ENDS_V0 = [
    (S.EMPTY, ME, ISTATE, ISTATE),
    (S.EMPTY, BEFORE, FENCED, FENCED),
    (S.ONGOING, ME, OK, OK),
    (S.ONGOING, BEFORE, FENCED, FENCED),
    (S.ONGOING, FUTURE, FENCED, FENCED),
    (S.ONGOING, UNKNOWN, MAPPING, MAPPING),
    (S.PREPARE_COMMIT, ME, CONCURRENT, ISTATE),
    (S.PREPARE_COMMIT, BEFORE, FENCED, FENCED),
    (S.PREPARE_ABORT, ME, ISTATE, CONCURRENT),
    (S.COMPLETE_COMMIT, ME, OK, ISTATE),
    (S.COMPLETE_COMMIT, BEFORE, FENCED, FENCED),
    (S.COMPLETE_ABORT, ME, ISTATE, OK),
    (S.COMPLETE_ABORT, UNKNOWN, MAPPING, MAPPING),
]


@pytest.mark.parametrize(("state", "who", "commit", "abort"), ENDS_V0)
def test_end_txn_of_clients_before_transactions_v2(
    state: TxnState, who: ProducerEpoch, commit: ErrorCode, abort: ErrorCode
) -> None:
    end = txn(state, TRANSACTIONS_V0).end
    assert code_of(end, who, True, TRANSACTIONS_V0, NOW_MS, take_id) is commit
    assert code_of(end, who, False, TRANSACTIONS_V0, NOW_MS, take_id) is abort


ADDS = [
    # state, who, add, verify
    (S.EMPTY, ME, OK, ABORTABLE),
    (S.EMPTY, BEFORE, FENCED, FENCED),
    (S.EMPTY, UNKNOWN, MAPPING, MAPPING),
    (S.ONGOING, ME, OK, OK),
    (S.ONGOING, BEFORE, FENCED, FENCED),
    (S.ONGOING, FUTURE, FENCED, FENCED),
    (S.ONGOING, UNKNOWN, MAPPING, MAPPING),
    (S.PREPARE_COMMIT, ME, CONCURRENT, CONCURRENT),
    (S.PREPARE_COMMIT, BEFORE, FENCED, FENCED),
    (S.PREPARE_ABORT, ME, CONCURRENT, CONCURRENT),
    (S.PREPARE_ABORT, UNKNOWN, MAPPING, MAPPING),
    (S.COMPLETE_COMMIT, ME, OK, ABORTABLE),
    (S.COMPLETE_ABORT, ME, OK, ABORTABLE),
    (S.COMPLETE_ABORT, BEFORE, FENCED, FENCED),
]


@pytest.mark.parametrize(("state", "who", "add", "verify"), ADDS)
def test_partitions_are_added_and_verified_for_the_current_producer_only(
    state: TxnState, who: ProducerEpoch, add: ErrorCode, verify: ErrorCode
) -> None:
    machine = txn(state)
    assert code_of(machine.add, who, [P0], NOW_MS) is add
    assert code_of(machine.verify, who, P0) is verify


INITS = [
    # state, expected, code, next producer, who may repeat it
    (S.EMPTY, NO_PRODUCER, OK, FUTURE, NO_PRODUCER),
    (S.EMPTY, ME, OK, FUTURE, ME),
    (S.EMPTY, BEFORE, OK, ME, BEFORE),
    (S.EMPTY, FUTURE, FENCED, None, None),
    (S.EMPTY, UNKNOWN, FENCED, None, None),
    (S.COMPLETE_COMMIT, NO_PRODUCER, OK, FUTURE, NO_PRODUCER),
    (S.COMPLETE_COMMIT, BEFORE, OK, ME, BEFORE),
    (S.COMPLETE_ABORT, ME, OK, FUTURE, ME),
    (S.COMPLETE_ABORT, UNKNOWN, FENCED, None, None),
    (S.ONGOING, NO_PRODUCER, OK, FUTURE, NO_PRODUCER),
    (S.ONGOING, ME, OK, FUTURE, ME),
    (S.ONGOING, BEFORE, FENCED, None, None),
    (S.ONGOING, UNKNOWN, FENCED, None, None),
    (S.PREPARE_COMMIT, NO_PRODUCER, CONCURRENT, None, None),
    (S.PREPARE_COMMIT, ME, CONCURRENT, None, None),
    (S.PREPARE_ABORT, UNKNOWN, CONCURRENT, None, None),
]


@pytest.mark.parametrize(("state", "expected", "code", "producer", "previous"), INITS)
def test_init_producer_id(
    state: TxnState,
    expected: ProducerEpoch,
    code: ErrorCode,
    producer: ProducerEpoch | None,
    previous: ProducerEpoch | None,
) -> None:
    machine = txn(state)
    assert code_of(machine.initialise, 2_000, expected, NOW_MS, take_id) is code
    if code is not OK:
        return
    record = machine.initialise(2_000, expected, NOW_MS, take_id)
    assert (record.producer, record.previous) == (producer, previous)
    if state is S.ONGOING:
        assert record.state is S.PREPARE_ABORT
        assert record.timeout_ms == 1_000
    else:
        assert (record.state, record.partitions, record.start_ms) == (S.EMPTY, (), -1)
        assert record.timeout_ms == 2_000


def test_first_init_starts_at_epoch_zero() -> None:
    record = begin(7, 1_000, NOW_MS)
    assert record.producer == ProducerEpoch(7, 0)
    assert record.previous == NO_PRODUCER


def test_state_changes_only_by_apply() -> None:
    machine = txn(S.ONGOING)
    before = machine.record
    machine.end(ME, True, TRANSACTIONS_V2, NOW_MS, take_id)
    machine.add(ME, [("u", 1)], NOW_MS)
    machine.initialise(1_000, NO_PRODUCER, NOW_MS, take_id)
    assert machine.record is before
    assert list(machine.partitions) == [P0]


def test_transaction_keeps_its_start_and_its_number() -> None:
    machine = txn(S.COMPLETE_COMMIT)
    first = machine.add(ME, [("u", 1)], NOW_MS + 10)
    assert first is not None
    machine.apply(first)
    assert (first.number, first.start_ms) == (4, NOW_MS + 10)
    second = machine.add(ME, [P0, ("u", 1)], NOW_MS + 20)
    assert second is not None
    assert (second.number, second.start_ms, second.updated_ms) == (4, NOW_MS + 10, NOW_MS + 20)
    assert second.partitions == (("t", (0,)), ("u", (1,)))
    machine.apply(second)
    assert machine.add(ME, [("u", 1)], NOW_MS + 30) is None


def test_markers_of_v2_carry_the_bumped_epoch_and_of_v1_the_same() -> None:
    machine = txn(S.ONGOING)
    v2 = machine.end(ME, True, TRANSACTIONS_V2, NOW_MS, take_id)
    v0 = machine.end(ME, True, TRANSACTIONS_V0, NOW_MS, take_id)
    assert v2 is not None
    assert v0 is not None
    assert (v2.producer, v2.previous, v2.version) == (FUTURE, ME, 2)
    assert (v0.producer, v0.previous, v0.version) == (ME, BEFORE, 0)


def test_transaction_without_partitions_completes_at_once() -> None:
    machine = txn(S.ONGOING, partitions=())
    record = machine.end(ME, True, TRANSACTIONS_V2, NOW_MS, take_id)
    assert record is not None
    assert record.state is S.COMPLETE_COMMIT
    fenced = machine.fence(NOW_MS, take_id, previous=ME)
    assert fenced.state is S.COMPLETE_ABORT


def test_v1_end_is_not_a_repetition_for_a_v2_client() -> None:
    """The epoch before is only a v2 producer's if its last transaction ended under v2."""
    machine = txn(S.COMPLETE_COMMIT, TRANSACTIONS_V0)
    assert code_of(machine.end, BEFORE, True, TRANSACTIONS_V2, NOW_MS, take_id) is FENCED


# The last epochs.

LAST = ProducerEpoch(1, EPOCH_MAX - 1)


def test_used_up_epochs_bring_a_new_producer_id_with_the_end_of_a_transaction() -> None:
    machine = txn(S.ONGOING, producer_epoch=LAST.epoch)
    prepared = machine.end(LAST, True, TRANSACTIONS_V2, NOW_MS, take_id)
    assert prepared is not None
    assert prepared.producer == ProducerEpoch(1, EPOCH_MAX)
    assert prepared.successor == ProducerEpoch(77, 0)
    machine.apply(prepared)
    # A request that claims the epoch of the markers, or the next id too early, waits or is refused.
    for who in (ProducerEpoch(77, 0), ProducerEpoch(1, EPOCH_MAX)):
        assert code_of(machine.add, who, [P0], NOW_MS) is CONCURRENT
        assert code_of(machine.end, who, False, TRANSACTIONS_V2, NOW_MS, take_id) is CONCURRENT
    assert code_of(machine.end, LAST, True, TRANSACTIONS_V2, NOW_MS, take_id) is CONCURRENT
    machine.apply(machine.complete(NOW_MS))
    assert machine.record.producer == ProducerEpoch(77, 0)
    assert machine.end(LAST, True, TRANSACTIONS_V2, NOW_MS, take_id) is None
    assert code_of(machine.end, LAST, False, TRANSACTIONS_V2, NOW_MS, take_id) is ISTATE
    assert code_of(machine.add, LAST, [P0], NOW_MS) is MAPPING


def test_used_up_epochs_bring_a_new_producer_id_with_init() -> None:
    machine = txn(S.EMPTY, producer_epoch=LAST.epoch)
    record = machine.initialise(1_000, LAST, NOW_MS, take_id)
    assert (record.producer, record.previous) == (ProducerEpoch(77, 0), LAST)
    machine.apply(record)
    again = machine.initialise(1_000, LAST, NOW_MS, take_id)
    assert again.producer == ProducerEpoch(77, 0)


def test_used_up_epochs_bring_a_new_producer_id_with_a_timeout() -> None:
    machine = txn(S.ONGOING, producer_epoch=LAST.epoch)
    machine.apply(machine.fence(NOW_MS, take_id, previous=LAST))
    machine.apply(machine.complete(NOW_MS))
    assert machine.record.producer == ProducerEpoch(77, 0)
    assert machine.end(LAST, False, TRANSACTIONS_V2, NOW_MS, take_id) is None


def test_end_without_a_producer_id_in_stock_decides_nothing() -> None:
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    machine = txn(S.ONGOING, producer_epoch=LAST.epoch)
    assert code_of(machine.end, LAST, True, TRANSACTIONS_V2, NOW_MS, no_id) is code
    assert code_of(machine.end, LAST, True, TRANSACTIONS_V0, NOW_MS, no_id) is OK


# Time.


def test_open_transactions_time_out_and_idle_ids_expire() -> None:
    for state in TxnState:
        machine = txn(state)
        is_open = state is S.ONGOING
        assert machine.times_out_ms == (NOW_MS + 1_000 if is_open else None)
        is_idle = state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
        assert machine.is_expired(NOW_MS + 10, 10) == is_idle
        assert not machine.is_expired(NOW_MS + 9, 10)


def test_clock_that_goes_back_does_not_move_a_transaction_back() -> None:
    record = txn(S.EMPTY).add(ME, [P0], NOW_MS - 500)
    assert record is not None
    assert (record.start_ms, record.updated_ms) == (NOW_MS, NOW_MS)
