"""Every promise is watched: bugs planted in the coordinator are found within 200 histories."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.base.state_machine import Decision
from penstock.state.transactions import shard, transaction
from penstock.state.transactions.records import (
    EPOCH_MAX,
    NO_PRODUCER,
    TRANSACTIONS_V0,
    TxnRecord,
    TxnState,
    encode_record,
)
from penstock.state.transactions.shard import Timeouts, TxnShard
from penstock.state.transactions.transaction import Txn
from tests.unit.state.transactions.building import Host, Waiting
from tests.unit.state.transactions.walk import walk

SEEDS = 200

Plant = Callable[[pytest.MonkeyPatch], None]


def end_txn_does_not_bump_the_epoch(patch: pytest.MonkeyPatch) -> None:
    prepare = Txn._prepare

    def planted(self: Txn, outcome: TxnState, version: int, *rest: Any) -> TxnRecord:
        record = prepare(self, outcome, TRANSACTIONS_V0, *rest)
        return replace(record, version=version)

    patch.setattr(Txn, "_prepare", planted)


def a_timeout_does_not_bump_the_epoch(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Txn, now_ms: int, take_id: Any, previous: Any) -> TxnRecord:
        return self._prepare(TxnState.PREPARE_ABORT, TRANSACTIONS_V0, previous, now_ms, take_id)

    patch.setattr(Txn, "fence", planted)


def init_does_not_bump_the_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transaction, "_bumped", lambda producer, take_id: producer)


def init_forgets_the_open_transaction(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Txn, now_ms: int, take_id: Any, previous: Any) -> TxnRecord:
        record = self.record
        epoch = record.producer_epoch + 1
        return replace(record, state=TxnState.EMPTY, producer_epoch=epoch, partitions=())

    patch.setattr(Txn, "fence", planted)


def the_last_epoch_is_given_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transaction, "_is_exhausted", lambda epoch: epoch >= EPOCH_MAX)


def a_transaction_never_times_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timeouts, "due", lambda self, now_ms, count_max: [])
    patch.setattr(TxnShard, "deadline", lambda self: None)


def partitions_are_added_while_it_ends(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Txn, producer: Any) -> None:
        if producer != self.record.producer:
            raise transaction._fenced(producer, self.record)

    patch.setattr(Txn, "_check_current", planted)


def writes_are_not_verified(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Txn, "verify", lambda self, producer, partition: None)


def a_repetition_may_change_the_outcome(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Txn, "_check_outcome", lambda self, committed: None)


def a_late_report_counts_for_the_next_transaction(patch: pytest.MonkeyPatch) -> None:
    written = TxnShard.marker_written

    def planted(self: TxnShard, write: Any, partitions: Any, now_ms: int) -> Decision:
        record = self._txns[write.transactional_id].record
        write = write._replace(number=record.number)
        return written(self, write, partitions, now_ms)

    patch.setattr(TxnShard, "marker_written", planted)


def the_first_marker_completes_it(patch: pytest.MonkeyPatch) -> None:
    written = TxnShard.marker_written

    def planted(self: TxnShard, write: Any, partitions: Any, now_ms: int) -> Decision:
        owed = tuple(self._txns[write.transactional_id].owed)
        return written(self, write, owed, now_ms)

    patch.setattr(TxnShard, "marker_written", planted)


def markers_are_not_resent_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    loaded = TxnShard.loaded

    def planted(self: TxnShard, now_ms: int) -> None:
        loaded(self, now_ms)
        self._newly_prepared.clear()

    patch.setattr(TxnShard, "loaded", planted)


def markers_go_out_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    run = Host.run

    def planted(self: Host, decision: Decision) -> None:
        run(self, decision)
        self.markers += [write for waiting in self.waiting for write in waiting.markers]

    patch.setattr(Host, "run", planted)


def replies_go_out_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    run = Host.run

    def planted(self: Host, decision: Decision) -> None:
        run(self, decision)
        self.replies.update(decision.replies)
        self.waiting = type(self.waiting)(Waiting(w.end, (), w.markers) for w in self.waiting)

    patch.setattr(Host, "run", planted)


def a_decision_changes_the_state(patch: pytest.MonkeyPatch) -> None:
    complete = Txn.complete

    def planted(self: Txn, now_ms: int) -> TxnRecord:
        self.record = complete(self, now_ms)
        return replace(self.record, updated_ms=self.record.updated_ms - 1)

    patch.setattr(Txn, "complete", planted)


def the_previous_producer_is_never_fenced(patch: pytest.MonkeyPatch) -> None:
    initialise = Txn.initialise

    def planted(self: Txn, timeout_ms: int, expected: Any, *rest: Any) -> TxnRecord:
        known = expected if expected.id == self.record.producer_id else NO_PRODUCER
        return initialise(
            self, timeout_ms, self.record.producer if known != NO_PRODUCER else known, *rest
        )

    patch.setattr(Txn, "initialise", planted)


def a_record_forgets_partitions(patch: pytest.MonkeyPatch) -> None:
    def planted(name: str, record: TxnRecord | None) -> Any:
        if record is not None and record.state is TxnState.PREPARE_COMMIT:
            record = replace(record, partitions=record.partitions[:1])
        return encode_record(name, record)

    patch.setattr(shard, "encode_record", planted)


PLANTS: list[Plant] = [
    end_txn_does_not_bump_the_epoch,
    a_timeout_does_not_bump_the_epoch,
    init_does_not_bump_the_epoch,
    init_forgets_the_open_transaction,
    the_last_epoch_is_given_away,
    a_transaction_never_times_out,
    partitions_are_added_while_it_ends,
    writes_are_not_verified,
    a_repetition_may_change_the_outcome,
    a_late_report_counts_for_the_next_transaction,
    the_first_marker_completes_it,
    markers_are_not_resent_after_a_crash,
    markers_go_out_before_the_commit,
    replies_go_out_before_the_commit,
    a_decision_changes_the_state,
    the_previous_producer_is_never_fenced,
    a_record_forgets_partitions,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS):
        try:
            walk(seed)
        except AssertionError as found:
            print(f"seed {seed}: {found}")
            return
    raise AssertionError(f"not found in {SEEDS} histories")
