"""State shard of queues: ordered writes, fencing of old leaders, replay."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.state_machine import Decision, Record
from penstock.state.queues.state_shard import SLOTS, QueueKey, StateShard, StoredQueueState

KEY = QueueKey("g", b"t" * 16, 0)
OTHER = QueueKey("g", b"t" * 16, 1)


class Keeping:
    """A shard and its log, compacted at every replay."""

    def __init__(self) -> None:
        self.shard = StateShard()
        self.log: list[Record] = []

    def take(self, decision: Decision) -> object:
        for key, value in decision.records:
            self.shard.apply(key, value)
            self.log.append((key, value))
        self.check_replay()
        return decision.replies[0][1] if decision.replies else None

    def check_replay(self) -> None:
        for compacts in (False, True):
            again = StateShard()
            records = dict(self.log).items() if compacts else self.log
            # Compaction keeps the last record of a key, in its place.
            ordered = sorted(records, key=lambda row: self.log.index(row)) if compacts else records
            for key, value in ordered:
                again.apply(key, value)
            for queue in self.shard.queues():
                live = self.shard.read(queue, 99, "t", 0).replies
                assert again.read(queue, 99, "t", 0).replies == live
            assert list(again.queues()) == list(self.shard.queues())

    def read(self, epoch: int, key: QueueKey = KEY) -> StoredQueueState:
        found = self.take(self.shard.read(key, epoch, "t", 0))
        assert isinstance(found, StoredQueueState)
        return found

    def write(
        self,
        epoch: int,
        number: int,
        payload: bytes,
        *,
        snapshot: bool = False,
        key: QueueKey = KEY,
    ) -> object:
        return self.take(self.shard.write(key, epoch, number, payload, snapshot, "t", 0))

    def refused(self, epoch: int, number: int, *, snapshot: bool = False) -> ErrorCode:
        with pytest.raises(Refused) as refused:
            self.write(epoch, number, b"", snapshot=snapshot)
        return refused.value.code


def test_written_state_is_read_in_order() -> None:
    kept = Keeping()
    assert kept.read(1) == StoredQueueState(0, None, ())
    kept.write(1, 0, b"S", snapshot=True)
    kept.write(1, 1, b"a")
    kept.write(1, 2, b"b")
    assert kept.read(1) == StoredQueueState(2, b"S", (b"a", b"b"))
    assert kept.read(1, OTHER) == StoredQueueState(0, None, ())


def test_snapshot_replaces_earlier_records() -> None:
    kept = Keeping()
    kept.write(1, 0, b"S", snapshot=True)
    kept.write(1, 1, b"a")
    kept.write(1, 1, b"T", snapshot=True)
    kept.write(1, 2, b"b")
    assert kept.read(1) == StoredQueueState(2, b"T", (b"b",))


def test_delta_must_be_the_next_one() -> None:
    kept = Keeping()
    kept.write(1, 0, b"S", snapshot=True)
    kept.write(1, 1, b"a")
    assert kept.refused(1, 1) is ErrorCode.FENCED_STATE_EPOCH
    assert kept.refused(1, 3) is ErrorCode.FENCED_STATE_EPOCH
    assert kept.refused(1, 0, snapshot=True) is ErrorCode.FENCED_STATE_EPOCH


def test_deltas_after_a_deletion_are_refused() -> None:
    kept = Keeping()
    kept.write(1, 0, b"S", snapshot=True)
    kept.take(kept.shard.forget(KEY, "t", 0))
    assert len(kept.shard) == 0
    assert kept.refused(1, 1) is ErrorCode.FENCED_STATE_EPOCH
    assert kept.take(kept.shard.forget(KEY, "t", 0)) is None


def test_compacted_rest_of_a_deleted_queue_is_ignored() -> None:
    kept = Keeping()
    kept.write(1, 0, b"S", snapshot=True)
    kept.write(1, 1, b"a")
    kept.write(1, 1, b"T", snapshot=True)
    kept.take(kept.shard.forget(KEY, "t", 0))
    later = Keeping()
    for key, value in dict(kept.log).items():
        if value is not None:  # Tombstones go after a while.
            later.shard.apply(key, value)
    assert later.read(1) == StoredQueueState(0, None, ())
    later.write(1, 0, b"S", snapshot=True)


def test_read_with_a_newer_epoch_fences_the_older_leader() -> None:
    kept = Keeping()
    kept.write(1, 0, b"S", snapshot=True)
    kept.read(2)
    assert kept.refused(1, 1) is ErrorCode.FENCED_LEADER_EPOCH
    kept.write(2, 1, b"a")
    kept.read(3)
    assert kept.read(3) == StoredQueueState(1, b"S", (b"a",))
    assert kept.refused(2, 2) is ErrorCode.FENCED_LEADER_EPOCH
    with pytest.raises(Refused):
        kept.read(2)


def test_snapshot_is_required_after_a_number_of_deltas() -> None:
    shard = StateShard()

    def write(number: int, is_snapshot: bool) -> None:
        for key, value in shard.write(KEY, 1, number, b"x", is_snapshot, "t", 0).records:
            shard.apply(key, value)

    write(0, True)
    for number in range(1, SLOTS + 1):
        write(number, False)
    with pytest.raises(Refused) as refused:
        write(SLOTS + 1, False)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    write(SLOTS, True)
    write(SLOTS + 1, False)


def test_state_shard_has_no_deadline() -> None:
    shard = StateShard()
    shard.loaded(0)
    shard.dropped("t")
    assert shard.deadline() is None
    assert shard.tick(0) == Decision()
