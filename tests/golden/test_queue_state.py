"""Records of `__share_group_state`: what is kept of the delivery of queues.

The shard's records are taken from the shard itself, operations and snapshots from their encoders.
"""

import typing
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest

from penstock.state.queues import delivery_state, state_shard
from penstock.state.queues.delivery_state import Snapshot
from penstock.state.queues.state_shard import QueueKey, StateShard
from tests.golden.book import Book, Sample
from tests.golden.filling import full, minimal
from tests.golden.structs import structs_of

OPS: Final[dict[str, type[Any]]] = {
    "leased": delivery_state.LeasedRange,
    "renewed": delivery_state.Renewed,
    "finished": delivery_state.Finished,
    "released": delivery_state.Released,
    "archived": delivery_state.ArchivedRecord,
    "returned": delivery_state.Returned,
    "planned": delivery_state.DeadLettersPlanned,
    "buried": delivery_state.DeadLettersWritten,
    "identified": delivery_state.DedupMarker,
    "moved": delivery_state.Moved,
    "reset": delivery_state.Reset,
}
PARTS: Final = {
    delivery_state.LeaseState,
    delivery_state.DeliveryFailure,
    delivery_state.DeadLetterBatch,
}
"""Nested structs: they are in the full samples."""
QUEUE: Final = QueueKey("sales", bytes(range(16)), 300)


def _samples() -> Iterator[Sample]:
    for name, kind in OPS.items():
        for size, op in (("full", full(kind)), ("minimal", minimal(kind))):
            data = delivery_state.encode_ops((op,))
            yield Sample(f"operation: {name} {size}", data, (op,), delivery_state.decode_ops)
    for part in ("lease", "failure", "burial"):
        yield Sample(f"part: {part}", *_of_part(part))
    for size, snapshot in (("full", full(Snapshot)), ("minimal", minimal(Snapshot))):
        data = delivery_state.encode_snapshot(snapshot)
        yield Sample(f"snapshot: {size}", data, snapshot, delivery_state.decode_snapshot)
    yield Sample("snapshot: packed intervals", _finished_apart())
    yield from _of_the_shard()


def _of_part(part: str) -> tuple[bytes, Any, Any]:
    """A minimal part, in the smallest thing that holds it."""
    ops: dict[str, Any] = {
        "lease": delivery_state.LeasedRange((minimal(delivery_state.LeaseState),)),
        "failure": delivery_state.ArchivedRecord(0, minimal(delivery_state.DeliveryFailure)),
        "burial": delivery_state.DeadLettersPlanned(minimal(delivery_state.DeadLetterBatch)),
    }
    return delivery_state.encode_ops((ops[part],)), (ops[part],), delivery_state.decode_ops


def _finished_apart() -> bytes:
    kept = delivery_state.QueueState(Snapshot(5))
    for offset in (7, 8, 300, 70_000):
        kept.apply(delivery_state.Finished(offset, offset))
    return delivery_state.encode_snapshot(kept.snapshot())


def _of_the_shard() -> Iterator[Sample]:
    shard = StateShard()
    steps = {
        "snapshot": shard.write(QUEUE, 3, 0, b"state", True, None, 0).records,
        "delta": (),
        "fence": (),
        "forgotten": (),
    }
    _apply(shard, steps["snapshot"])
    steps["delta"] = shard.write(QUEUE, 3, 1, b"more", False, None, 0).records
    _apply(shard, steps["delta"])
    steps["fence"] = shard.read(QUEUE, 4, None, 0).records
    _apply(shard, steps["fence"])
    steps["forgotten"] = shard.forget(QUEUE, None, 0).records
    for step, found in steps.items():
        assert found, step
        for number, (key, value) in enumerate(found):
            yield Sample(f"record: {step} {number} key", key)
            yield Sample(f"record: {step} {number} value", value or b"")


def _apply(shard: StateShard, found: Any) -> None:
    for key, value in found:
        shard.apply(key, value)


BOOK: Final = Book("queue_state", _samples)


@pytest.mark.parametrize("sample", BOOK.samples, ids=str)
def test_bytes_are_unchanged(sample: Sample) -> None:
    BOOK.check(sample)


def test_no_sample_is_lost() -> None:
    BOOK.check_names()


def test_stored_records_are_loaded() -> None:
    stored = BOOK.stored()
    shard = StateShard()
    for step in ("snapshot 0", "delta 0"):
        shard.apply(stored[f"record: {step} key"], stored[f"record: {step} value"])
    ((_, kept),) = shard.read(QUEUE, 3, None, 0).replies
    assert kept == state_shard.StoredQueueState(1, b"state", (b"more",))
    snapshot = delivery_state.decode_snapshot(stored["snapshot: packed intervals"])
    finished = delivery_state.QueueState(snapshot).finished
    assert [offset in finished for offset in (7, 8, 9, 300, 70_000)] == [True] * 2 + [
        False,
        True,
        True,
    ]


def test_every_struct_has_a_sample() -> None:
    assert set(typing.get_args(delivery_state.Op)) == set(OPS.values())
    base = next(iter(OPS.values())).__mro__[1]
    assert structs_of(delivery_state.__name__) == {*OPS.values(), *PARTS, Snapshot, base}
    # The two of the shard are private: their bytes are those of its records.
    assert len(structs_of(state_shard.__name__)) == 2


def test_append_times_are_ignored_by_the_version_before_and_missing_in_its_records() -> None:
    class Moved(msgspec.Struct, array_like=True, frozen=True, tag="s"):
        start: int

    class Kept(msgspec.Struct, array_like=True, frozen=True):
        start: int
        finished: bytes = b""
        leases: tuple[delivery_state.LeaseState, ...] = ()
        failures: tuple[tuple[int, delivery_state.DeliveryFailure], ...] = ()
        archived: tuple[tuple[int, delivery_state.DeliveryFailure], ...] = ()
        dead_letter_batch: delivery_state.DeadLetterBatch | None = None
        has_ids: bool = False

    noted = delivery_state.encode_ops((delivery_state.Moved(5, 9, 1_000),))
    assert msgspec.msgpack.decode(noted, type=tuple[Moved, ...]) == (Moved(5),)
    before = msgspec.msgpack.encode((Moved(5),))
    assert delivery_state.decode_ops(before) == (delivery_state.Moved(5),)
    snapshot = delivery_state.encode_snapshot(Snapshot(5, has_ids=True, appended=((9, 1_000),)))
    assert msgspec.msgpack.decode(snapshot, type=Kept) == Kept(5, has_ids=True)
    assert delivery_state.decode_snapshot(msgspec.msgpack.encode(Kept(5))) == Snapshot(5)


def test_tracebacks_are_ignored_by_the_version_before_and_missing_in_its_records() -> None:
    class DeliveryFailure(msgspec.Struct, array_like=True, frozen=True):
        delivery_count: int
        not_before_ms: int
        first_ms: int
        last_ms: int
        error_class: str = ""
        error_message: str = ""

    class ArchivedRecord(msgspec.Struct, array_like=True, frozen=True, tag="a"):
        offset: int
        failure: DeliveryFailure

    failure = delivery_state.DeliveryFailure(1, 0, 2, 3, "ValueError", "text", "Traceback ...")
    noted = delivery_state.encode_ops((delivery_state.ArchivedRecord(7, failure),))
    before = (ArchivedRecord(7, DeliveryFailure(1, 0, 2, 3, "ValueError", "text")),)
    assert msgspec.msgpack.decode(noted, type=tuple[ArchivedRecord, ...]) == before
    assert delivery_state.decode_ops(msgspec.msgpack.encode(before)) == (
        delivery_state.ArchivedRecord(7, msgspec.structs.replace(failure, traceback="")),
    )
