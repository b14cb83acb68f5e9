"""Persisted delivery state: every operation has the same effect live and in replay."""

import random

from penstock.state.queues.delivery_state import (
    ArchivedRecord,
    DeadLetterBatch,
    DeadLettersPlanned,
    DeadLettersWritten,
    DedupMarker,
    DeliveryFailure,
    Finished,
    LeasedRange,
    LeaseState,
    Moved,
    Op,
    QueueState,
    Released,
    Renewed,
    Reset,
    Returned,
    Snapshot,
    decode_ops,
    decode_snapshot,
    encode_ops,
    encode_snapshot,
)

FAILURE = DeliveryFailure(1, 50, 10, 20, "Oops", "no")
BATCH = DeadLetterBatch(7, b"t" * 16, 1, 5, (3, 4), 99)


def leased(first: int, last: int, member: str = "a", deadline_ms: int = 100, count: int = 1) -> Op:
    return LeasedRange((LeaseState(first, last, member, deadline_ms, count),))


def kept(*ops: Op, start: int = 0) -> QueueState:
    made = QueueState(Snapshot(start))
    for op in ops:
        made.apply(op)
    return made


def runs(state: QueueState) -> list[tuple[int, int]]:
    return [(lease.first, lease.last) for lease in state.snapshot().leases]


def test_start_is_the_first_offset_that_is_not_finished() -> None:
    state = kept(leased(0, 9), Finished(3, 5))
    assert (state.start, list(state.finished)) == (0, [(3, 5)])
    state.apply(Finished(0, 2))
    assert (state.start, list(state.finished)) == (6, [])
    assert state.leased == 4


def test_finishing_a_part_cuts_the_lease() -> None:
    state = kept(leased(0, 9), Finished(4, 5))
    assert runs(state) == [(0, 3), (6, 9)]
    assert state.leased == 8
    assert [lease.first for lease in state.leases_within(3, 6)] == [0, 6]


def test_released_record_keeps_its_failure() -> None:
    state = kept(leased(0, 2), Released(1, 1, FAILURE))
    assert runs(state) == [(0, 0), (2, 2)]
    assert state.failures == {1: FAILURE}
    state.apply(leased(1, 1, count=2))
    assert state.failures == {1: FAILURE}
    state.apply(Finished(1, 1))
    assert state.failures == {}


def test_returned_lease_leaves_no_trace() -> None:
    before = kept(Released(0, 0, FAILURE)).snapshot()
    assert kept(Released(0, 0, FAILURE), leased(0, 4), Returned(0, 4)).snapshot() == before


def test_renewed_part_has_a_deadline_of_its_own() -> None:
    state = kept(leased(0, 4), Renewed(1, 2, 900))
    assert [(x.first, x.last, x.deadline_ms) for x in state.snapshot().leases] == [
        (0, 0, 100),
        (1, 2, 900),
        (3, 4, 100),
    ]


def test_archived_records_are_finished_when_their_batch_is_dead_lettered() -> None:
    state = kept(leased(3, 5), ArchivedRecord(3, FAILURE), ArchivedRecord(4, FAILURE), start=3)
    assert state.is_settled(3)
    assert state.start == 3
    state.apply(DeadLettersPlanned(BATCH))
    state.apply(DeadLettersWritten())
    assert state.archived == {}
    assert state.start == 5
    assert state.dead_letter_batch == DeadLetterBatch(7, b"t" * 16, 1, 7)


def test_dead_letter_of_a_deleted_record_is_finished() -> None:
    state = kept(leased(3, 4), ArchivedRecord(3, FAILURE), ArchivedRecord(4, FAILURE), start=3)
    state.apply(DeadLettersPlanned(BATCH))
    state.apply(Moved(10))
    state.apply(DeadLettersWritten())
    assert (state.start, state.archived, list(state.finished)) == (10, {}, [])


def test_moved_start_finishes_records_below() -> None:
    state = kept(leased(0, 9), Released(2, 2, FAILURE), ArchivedRecord(3, FAILURE), Moved(5))
    assert (state.start, runs(state)) == (5, [(5, 9)])
    assert (state.failures, state.archived) == ({}, {})
    state.apply(Moved(4))
    assert state.start == 5


def test_beginning_anew_keeps_only_what_is_on_its_way_to_the_dead_letters() -> None:
    state = kept(
        leased(0, 9),
        ArchivedRecord(3, FAILURE),
        DeadLettersPlanned(BATCH),
        DedupMarker(),
        Reset(2),
    )
    assert state.snapshot() == Snapshot(
        2, archived=((3, FAILURE),), dead_letter_batch=BATCH, has_ids=True
    )


def test_every_operation_survives_its_encoding() -> None:
    ops: list[Op] = [
        leased(0, 1),
        Renewed(0, 1, 5),
        Finished(0, 1),
        Released(0, 1, FAILURE),
        ArchivedRecord(1, FAILURE),
        Returned(0, 1),
        DeadLettersPlanned(BATCH),
        DeadLettersWritten(),
        DedupMarker(),
        Moved(3),
        Reset(4),
    ]
    assert list(decode_ops(encode_ops(ops))) == ops


def test_snapshot_and_the_operations_after_it_bring_the_same_state() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        live = QueueState(Snapshot(0))
        base, ops = encode_snapshot(live.snapshot()), list[Op]()
        for _ in range(80):
            first = live.start + rng.randrange(30)
            last = first + rng.randrange(4)
            free = not any(live.leases_within(first, last))
            settled = any(live.is_settled(offset) for offset in range(first, last + 1))
            op: Op
            if free and not settled:
                op = leased(first, last, rng.choice("ab"), rng.randrange(99), rng.randrange(1, 5))
            else:
                ops_now: list[Op] = [Finished(first, last), Renewed(first, last, 7), Moved(first)]
                op = rng.choice(ops_now)
                if isinstance(op, Renewed) and free:
                    continue
            live.apply(op)
            ops.append(op)
            if rng.random() < 0.1:
                base, ops = encode_snapshot(live.snapshot()), []
            again = QueueState(decode_snapshot(base))
            for one in decode_ops(encode_ops(ops)):
                again.apply(one)
            assert again.snapshot() == live.snapshot()
            assert again.entries == live.entries
