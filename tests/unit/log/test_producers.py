"""`penstock.log.producers`: Kafka's rules for idempotent and transactional producers."""

import dataclasses

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.log import producers as producers_module
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.log.producers import SEQUENCE_MAX, Producers, decode
from penstock.wire.records import read_header
from tests.unit.log.building import (
    NOW_MS,
    append,
    batch,
    fill,
    make_disk,
    marker,
    open_log,
)


def send(log: Log, sequence: int, *, count: int = 1, epoch: int = 0, pid: int = 7) -> int:
    return append(log, batch([b"v"] * count, producer=(pid, epoch, sequence))).base_offset


def new_log() -> Log:
    return open_log(make_disk(), LogConfig())


def refusal(log: Log, sequence: int, *, count: int = 1, epoch: int = 0) -> ErrorCode:
    end_offset = log.end_offset
    with pytest.raises(Refused) as refused:
        send(log, sequence, count=count, epoch=epoch)
    assert log.end_offset == end_offset
    return refused.value.code


def test_sequences_go_on_where_they_stopped() -> None:
    log = new_log()
    assert [send(log, 0, count=3), send(log, 3), send(log, 4)] == [0, 3, 4]


def test_gap_is_refused() -> None:
    log = new_log()
    send(log, 0)
    assert refusal(log, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_repeated_batch_is_answered_with_its_first_offsets() -> None:
    log = new_log()
    for sequence in range(0, 15, 3):
        send(log, sequence, count=3)
    for sequence in range(0, 15, 3):
        made = batch([b"v"] * 3, producer=(7, 0, sequence))
        newest_ms = read_header(made).max_timestamp
        assert append(log, made) == (sequence, sequence + 2, True, newest_ms)
    assert log.end_offset == 15


def test_last_five_batches_are_recognized_as_duplicates() -> None:
    log = new_log()
    for sequence in range(6):
        send(log, sequence)
    assert refusal(log, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, batch(producer=(7, 0, 1))).duplicate


def test_batch_that_repeats_half_of_another_is_refused() -> None:
    log = new_log()
    send(log, 0, count=3)
    assert refusal(log, 0, count=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_older_epoch_is_fenced() -> None:
    log = new_log()
    send(log, 0, epoch=3)
    assert refusal(log, 1, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_new_epoch_starts_at_sequence_zero() -> None:
    log = new_log()
    send(log, 0)
    send(log, 1)
    assert refusal(log, 2, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=1) == 2
    assert send(log, 1, epoch=1) == 3


def test_unknown_producer_may_start_anywhere() -> None:
    log = new_log()
    assert send(log, 41) == 0
    assert send(log, 42) == 1
    assert refusal(log, 40) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap() -> None:
    log = new_log()
    send(log, SEQUENCE_MAX - 1, count=2)
    assert send(log, 0) == 2
    assert append(log, batch([b"v"] * 2, producer=(7, 0, SEQUENCE_MAX - 1))).duplicate


def test_batch_may_wrap_in_the_middle() -> None:
    log = new_log()
    send(log, SEQUENCE_MAX, count=3)
    assert send(log, 2) == 3
    assert append(log, batch([b"v"] * 3, producer=(7, 0, SEQUENCE_MAX))).duplicate


def test_batch_without_a_sequence_is_checked_for_its_epoch_only() -> None:
    log = new_log()
    for _ in range(2):
        append(log, batch(producer=(7, 2, -1), transactional=True))
    with pytest.raises(Refused) as refused:
        append(log, batch(producer=(7, 1, -1), transactional=True))
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_plain_batch_inside_a_transaction_is_refused() -> None:
    log = new_log()
    append(log, batch(producer=(7, 0, 0), transactional=True))
    assert refusal(log, 1) is ErrorCode.INVALID_TXN_STATE


def test_producer_starts_at_zero_after_a_marker_alone() -> None:
    log = new_log()
    append(log, marker(7, 1, committed=True))
    assert refusal(log, 5, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=1) == 1


def test_marker_of_an_older_epoch_or_coordinator_is_fenced() -> None:
    log = new_log()
    append(log, batch(producer=(7, 3, 0), transactional=True))
    append(log, marker(7, 3, committed=True, coordinator_epoch=5))
    for epoch, coordinator_epoch, code in (
        (2, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (3, 4, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ):
        with pytest.raises(Refused) as refused:
            append(log, marker(7, epoch, committed=True, coordinator_epoch=coordinator_epoch))
        assert refused.value.code is code


def test_marker_must_raise_the_epoch_in_transactions_v2() -> None:
    log = new_log()
    append(log, batch(producer=(7, 3, 0), transactional=True))
    with pytest.raises(Refused) as refused:
        append(log, marker(7, 3, committed=True), version=2)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    append(log, marker(7, 4, committed=True), version=2)
    append(log, marker(7, 4, committed=True), version=2)  # The coordinator may say it again.
    assert log.last_stable_offset(log.end_offset) == log.end_offset


def test_last_stable_offset_waits_for_the_oldest_open_transaction() -> None:
    log = new_log()
    fill(log, 2)
    append(log, batch(producer=(1, 0, 0), transactional=True))
    append(log, batch(producer=(2, 0, 0), transactional=True))
    fill(log, 1)
    assert log.last_stable_offset(5) == 2
    append(log, marker(1, 0, committed=True))
    assert log.last_stable_offset(6) == 3
    append(log, marker(2, 0, committed=False))
    assert log.last_stable_offset(7) == 7
    assert log.first_unstable_offset(7) == -1


def test_ended_transaction_is_unstable_until_its_marker_is_committed() -> None:
    log = new_log()
    append(log, batch(producer=(1, 0, 0), transactional=True))
    append(log, marker(1, 0, committed=True))
    assert log.last_stable_offset(1) == 0
    assert log.last_stable_offset(2) == 2


def test_aborted_transactions_are_found_by_range() -> None:
    log = new_log()
    append(log, batch(producer=(1, 0, 0), transactional=True))  # 0
    append(log, batch(producer=(2, 0, 0), transactional=True))  # 1
    append(log, marker(2, 0, committed=False))  # 2
    append(log, marker(1, 0, committed=False))  # 3
    append(log, batch(producer=(2, 0, 1), transactional=True))  # 4
    append(log, marker(2, 0, committed=True))  # 5
    assert log.aborted(0, 6) == [(2, 1, 2, 0), (1, 0, 3, 4)]
    assert log.aborted(3, 6) == [(1, 0, 3, 4)]
    assert log.aborted(4, 6) == []
    assert log.aborted(0, 1) == [(1, 0, 3, 4)]


def test_silent_producer_is_forgotten_unless_its_transaction_is_open() -> None:
    disk = make_disk()
    config = LogConfig(producer_expiration_ms=1000)
    log = open_log(disk, config)
    send(log, 0, pid=1)
    append(log, batch(producer=(2, 0, 0), transactional=True))
    clean = log.close()
    assert sorted(open_log(disk, config, clean, now_ms=NOW_MS + 999).producers.by_id) == [1, 2]
    assert sorted(open_log(disk, config, clean, now_ms=NOW_MS + 1000).producers.by_id) == [2]


def test_producers_are_bounded_and_the_longest_silent_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producers_module, "PRODUCERS_MAX", 32)
    log = new_log()
    append(log, batch(producer=(0, 0, 0), transactional=True, timestamp=1))
    for pid in range(1, 40):
        append(log, batch(producer=(pid, 0, 0), timestamp=NOW_MS + pid))
    known = log.producers.by_id
    assert len(known) <= 32
    assert 0 in known, "a producer with an open transaction stays"
    assert 1 not in known
    assert 39 in known


def test_snapshot_brings_everything_back() -> None:
    log = new_log()
    send(log, 0, pid=1)
    append(log, batch(producer=(2, 3, 0), transactional=True))
    append(log, batch(producer=(1, 1, 0), transactional=True))
    append(log, marker(2, 3, committed=True, coordinator_epoch=9))
    back = decode(log.producers.encode(), 1000)
    assert isinstance(back, Producers)
    assert back.end_offset == 4
    assert back.first_open_offset == 2
    assert back.by_id[2].coordinator_epoch == 9
    for pid, producer in log.producers.by_id.items():
        assert list(back.by_id[pid].batches) == list(producer.batches)
    assert decode(b"\x00", 1000) is None


def test_retry_is_recognised_after_a_config_change() -> None:
    log = new_log()
    send(log, 0)
    log.config = dataclasses.replace(log.config, segment_bytes=100)
    send(log, 1)
    assert append(log, batch(producer=(7, 0, 0))).duplicate
