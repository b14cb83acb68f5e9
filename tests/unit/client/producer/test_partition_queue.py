"""One partition's batches: order, numbers and retries, without any I/O."""

import asyncio
from collections.abc import Callable

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.errors import ConnectionLost, DeliveryTimeout
from penstock.client.metadata import TopicPartition
from penstock.client.producer.batch import Acked, Batch, ProducerIdentity, Sent, record_bytes
from penstock.client.producer.partition_queue import PartitionQueue
from penstock.wire.records import Record
from tests.run_with import in_new_loop, run_with

WHERE = TopicPartition("t", 0)
ME = ProducerIdentity(7, 0)
LOST = ConnectionLost("gone")


def on_a_loop(test: Callable[[], None]) -> Callable[[], None]:
    """Batches hold futures, which belong to a loop; the test itself waits for nothing."""

    def wrapped() -> None:
        async def main() -> None:
            test()

        asyncio.run(main())

    wrapped.__name__ = test.__name__
    wrapped.__doc__ = test.__doc__
    return wrapped


def make_lane(
    *, is_idempotent: bool = True, linger_s: float = 0.0, batch_bytes: int = 1
) -> PartitionQueue:
    """A lane whose every record is a batch of its own, unless told otherwise."""
    lane = PartitionQueue(
        WHERE,
        is_idempotent=is_idempotent,
        in_flight_max=5,
        batch_bytes=batch_bytes,
        linger_s=linger_s,
        delivery_timeout_s=100.0,
    )
    if is_idempotent:
        lane.identify(ME)
        lane._is_known = True  # As if the broker had confirmed a batch already.
    return lane


def add(lane: PartitionQueue, count: int, at: float = 0.0) -> None:
    for number in range(count):
        record = Record(0, 0, None, b"%d" % number)
        lane.add(record, record_bytes(record), at)


def take(lane: PartitionQueue, count: int, now: float = 0.0) -> list[Batch]:
    taken = [lane.take(1, now) for _ in range(count)]
    assert all(batch is not None for batch in taken)
    return [batch for batch in taken if batch is not None]


def refused(code: ErrorCode) -> Refused:
    return Refused(code, code.name)


def fail(lane: PartitionQueue, batch: Batch, error: Exception, retry_at: float = 0.0) -> None:
    lane.failed(batch, error, was_sent=True, retry_at=retry_at)


def outcome(batch: Batch) -> object:
    return batch.future.result() if batch.future.done() else None


@on_a_loop
def test_batches_are_numbered_in_order_and_five_may_be_in_flight() -> None:
    lane = make_lane()
    add(lane, 7)
    taken = take(lane, 5)
    assert [batch.sequence for batch in taken] == [0, 1, 2, 3, 4]
    assert lane.take(1, 0.0) is None
    lane.succeeded(taken[0], Acked(100, -1))
    assert [batch.sequence for batch in take(lane, 1)] == [5]


@on_a_loop
def test_until_the_broker_knows_the_producer_only_one_is_in_flight() -> None:
    lane = make_lane()
    lane._forget_identity()
    lane.identify(ProducerIdentity(8, 0))
    add(lane, 3)
    (first,) = take(lane, 1)
    assert lane.take(1, 0.0) is None
    lane.succeeded(first, Acked(0, -1))
    assert len(take(lane, 2)) == 2


@on_a_loop
def test_sequences_wrap_as_kafkas_do() -> None:
    lane = make_lane()
    lane.sequence = 0x7FFFFFFF
    add(lane, 2)
    assert [batch.sequence for batch in take(lane, 2)] == [0x7FFFFFFF, 0]


@on_a_loop
def test_without_idempotence_only_one_is_in_flight() -> None:
    lane = make_lane(is_idempotent=False)
    add(lane, 2)
    (first,) = take(lane, 1)
    assert first.sequence == -1
    assert lane.take(1, 0.0) is None


@on_a_loop
def test_a_batch_lingers_until_it_is_full_or_flushed() -> None:
    lane = make_lane(linger_s=1.0, batch_bytes=1000)
    add(lane, 1, at=10.0)
    assert lane.due_at() == 11.0
    assert lane.take(1, 10.5) is None
    lane.close_open()
    (batch,) = take(lane, 1, 10.5)
    assert batch.is_closed
    add(lane, 60, at=20.0)
    assert len(lane.batches) >= 2
    assert lane.due_at() == 0.0


@on_a_loop
def test_what_fails_for_now_goes_again_in_order_with_its_numbers() -> None:
    lane = make_lane()
    add(lane, 3)
    first, second, third = take(lane, 3)
    fail(lane, second, LOST, retry_at=5.0)
    assert lane.take(1, 9.0) is None  # Two are still out there.
    fail(lane, first, LOST)
    fail(lane, third, refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert lane.take(1, 4.0) is None
    add(lane, 1, at=5.0)
    for number, batch in enumerate([first, second, third]):
        assert take(lane, 1, 5.0) == [batch]
        assert batch.sequence == number
        assert lane.take(1, 5.0) is None  # A retry goes alone.
        lane.succeeded(batch, Acked(number, -1))
    assert len(take(lane, 1, 5.0)) == 1


@on_a_loop
def test_out_of_order_is_no_verdict_while_an_earlier_batch_is_open() -> None:
    lane = make_lane()
    add(lane, 2)
    first, second = take(lane, 2)
    fail(lane, second, refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    lane.succeeded(first, Acked(0, -1))
    assert lane.identity == ME
    assert take(lane, 1) == [second]
    assert second.sequence == 1


@on_a_loop
def test_a_hole_in_the_numbers_asks_for_a_new_identity() -> None:
    lane = make_lane()
    add(lane, 3)
    first, second, third = take(lane, 3)
    fail(lane, first, refused(ErrorCode.INVALID_RECORD))
    assert isinstance(outcome(first), Refused)
    assert not lane.needs_identity  # Not while the others are in flight under the old one.
    for batch in (second, third):
        fail(lane, batch, refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert lane.needs_identity
    assert lane.spent == ME
    assert lane.take(1, 0.0) is None
    lane.identify(ProducerIdentity(8, 0))
    assert take(lane, 1) == [second]
    lane.succeeded(second, Acked(0, -1))
    assert take(lane, 1) == [third]
    assert [(b.identity, b.sequence) for b in (second, third)] == [
        (ProducerIdentity(8, 0), 0),
        (ProducerIdentity(8, 0), 1),
    ]


@on_a_loop
def test_what_may_be_written_already_never_takes_a_new_number() -> None:
    lane = make_lane()
    add(lane, 2)
    first, second = take(lane, 2)
    fail(lane, second, LOST)
    fail(lane, first, refused(ErrorCode.INVALID_RECORD))
    assert isinstance(outcome(first), Refused)
    assert outcome(second) is LOST
    assert not lane.batches


@on_a_loop
def test_a_broker_that_forgot_the_producer_gets_a_new_identity() -> None:
    lane = make_lane()
    add(lane, 1)
    (batch,) = take(lane, 1)
    fail(lane, batch, refused(ErrorCode.UNKNOWN_PRODUCER_ID))
    lane.identify(ProducerIdentity(9, 0))
    assert take(lane, 1) == [batch]
    assert (batch.identity, batch.sequence) == (ProducerIdentity(9, 0), 0)


@on_a_loop
def test_an_identity_with_a_hole_is_not_taken_back() -> None:
    lane = make_lane()
    add(lane, 1)
    (batch,) = take(lane, 1)
    fail(lane, batch, refused(ErrorCode.UNKNOWN_PRODUCER_ID))
    with pytest.raises(AssertionError):
        lane.identify(ME)


@on_a_loop
def test_a_batch_that_is_too_large_goes_in_halves() -> None:
    lane = make_lane(batch_bytes=10_000)
    add(lane, 5)
    (whole,) = take(lane, 1, 1.0)
    add(lane, 1, at=1.0)
    (later,) = take(lane, 1, 2.0)
    size = lane.size_bytes
    fail(lane, whole, refused(ErrorCode.MESSAGE_TOO_LARGE))
    fail(lane, later, refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert lane.size_bytes == size
    sizes = []
    for _ in range(3):
        (batch,) = take(lane, 1, 3.0)
        sizes.append((len(batch.records), batch.sequence))
        lane.succeeded(batch, Acked(0, -1))
    assert sizes == [(2, 0), (3, 2), (1, 5)]
    assert batch is later
    assert lane.size_bytes == 0


@on_a_loop
def test_one_record_that_is_too_large_fails() -> None:
    lane = make_lane()
    add(lane, 1)
    (batch,) = take(lane, 1)
    fail(lane, batch, refused(ErrorCode.MESSAGE_TOO_LARGE))
    assert isinstance(outcome(batch), Refused)
    assert lane.size_bytes == 0


@on_a_loop
def test_time_is_up_for_what_waits_but_not_for_what_is_in_flight() -> None:
    lane = make_lane()
    add(lane, 2)
    (first,) = take(lane, 1)
    second = lane.batches[1]
    lane.expire(1000.0)
    assert outcome(first) is None
    fail(lane, first, LOST, retry_at=2000.0)
    assert lane.deadline() == 100.0
    lane.expire(1000.0)
    for batch in (first, second):
        assert isinstance(outcome(batch), DeliveryTimeout)
    assert "gone" in str(outcome(first))
    assert lane.identity is None


@on_a_loop
def test_a_new_leader_gets_nothing_while_the_old_one_owes_an_answer() -> None:
    lane = make_lane()
    add(lane, 2)
    (first,) = take(lane, 1)
    assert lane.take(2, 0.0) is None
    fail(lane, first, refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert lane.take(2, 0.0) is first


@run_with(in_new_loop)
async def test_deliveries_follow_the_halves() -> None:
    lane = make_lane(batch_bytes=10_000)
    record = Record(0, 5, None, b"x")
    deliveries = [lane.add(record, record_bytes(record), 0.0) for _ in range(3)]
    waiting = asyncio.gather(*(asyncio.ensure_future(_await(d)) for d in deliveries))
    await asyncio.sleep(0)
    (whole,) = take(lane, 1)
    fail(lane, whole, refused(ErrorCode.MESSAGE_TOO_LARGE))
    (first,) = take(lane, 1)
    lane.succeeded(first, Acked(10, -1))
    (second,) = take(lane, 1)
    lane.succeeded(second, Acked(50, 99))
    assert [(s.offset, s.timestamp) for s in await waiting] == [(10, 5), (50, 99), (51, 99)]


async def _await(delivery: object) -> Sent:
    result = await delivery  # type: ignore[misc]
    assert isinstance(result, Sent)
    return result
