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


def make_queue(
    *, is_idempotent: bool = True, linger_s: float = 0.0, batch_bytes: int = 1
) -> PartitionQueue:
    """A queue whose every record is its own batch, unless the test sets other options."""
    queue = PartitionQueue(
        WHERE,
        is_idempotent=is_idempotent,
        in_flight_max=5,
        batch_bytes=batch_bytes,
        linger_s=linger_s,
        delivery_timeout_s=100.0,
    )
    if is_idempotent:
        queue.set_identity(ME)
        queue._is_confirmed = True  # As if the broker had confirmed a batch already.
    return queue


def add(queue: PartitionQueue, count: int, at: float = 0.0) -> None:
    for number in range(count):
        record = Record(0, 0, None, b"%d" % number)
        queue.add(record, record_bytes(record), at)


def take(queue: PartitionQueue, count: int, now: float = 0.0) -> list[Batch]:
    taken = [queue.take(1, now) for _ in range(count)]
    assert all(batch is not None for batch in taken)
    return [batch for batch in taken if batch is not None]


def refused(code: ErrorCode) -> Refused:
    return Refused(code, code.name)


def fail(queue: PartitionQueue, batch: Batch, error: Exception, retry_at: float = 0.0) -> None:
    queue.failed(batch, error, was_sent=True, retry_at=retry_at)


def outcome(batch: Batch) -> object:
    return batch.future.result() if batch.future.done() else None


@on_a_loop
def test_batches_are_numbered_in_order_with_five_in_flight() -> None:
    queue = make_queue()
    add(queue, 7)
    taken = take(queue, 5)
    assert [batch.sequence for batch in taken] == [0, 1, 2, 3, 4]
    assert queue.take(1, 0.0) is None
    queue.succeeded(taken[0], Acked(100, -1))
    assert [batch.sequence for batch in take(queue, 1)] == [5]


@on_a_loop
def test_one_batch_is_in_flight_until_the_broker_knows_the_producer() -> None:
    queue = make_queue()
    queue._drop_identity()
    queue.set_identity(ProducerIdentity(8, 0))
    add(queue, 3)
    (first,) = take(queue, 1)
    assert queue.take(1, 0.0) is None
    queue.succeeded(first, Acked(0, -1))
    assert len(take(queue, 2)) == 2


@on_a_loop
def test_sequences_wrap_as_in_kafka() -> None:
    queue = make_queue()
    queue.sequence = 0x7FFFFFFF
    add(queue, 2)
    assert [batch.sequence for batch in take(queue, 2)] == [0x7FFFFFFF, 0]


@on_a_loop
def test_one_batch_is_in_flight_without_idempotence() -> None:
    queue = make_queue(is_idempotent=False)
    add(queue, 2)
    (first,) = take(queue, 1)
    assert first.sequence == -1
    assert queue.take(1, 0.0) is None


@on_a_loop
def test_batch_lingers_until_it_is_full_or_flushed() -> None:
    queue = make_queue(linger_s=1.0, batch_bytes=1000)
    add(queue, 1, at=10.0)
    assert queue.due_at() == 11.0
    assert queue.take(1, 10.5) is None
    queue.close_open_batch()
    (batch,) = take(queue, 1, 10.5)
    assert batch.is_closed
    add(queue, 60, at=20.0)
    assert len(queue.batches) >= 2
    assert queue.due_at() == 0.0


@on_a_loop
def test_failed_batches_are_retried_in_order_with_their_sequences() -> None:
    queue = make_queue()
    add(queue, 3)
    first, second, third = take(queue, 3)
    fail(queue, second, LOST, retry_at=5.0)
    assert queue.take(1, 9.0) is None  # Two are still out there.
    fail(queue, first, LOST)
    fail(queue, third, refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert queue.take(1, 4.0) is None
    add(queue, 1, at=5.0)
    for number, batch in enumerate([first, second, third]):
        assert take(queue, 1, 5.0) == [batch]
        assert batch.sequence == number
        assert queue.take(1, 5.0) is None  # A retry goes alone.
        queue.succeeded(batch, Acked(number, -1))
    assert len(take(queue, 1, 5.0)) == 1


@on_a_loop
def test_out_of_order_is_retried_while_an_earlier_batch_is_pending() -> None:
    queue = make_queue()
    add(queue, 2)
    first, second = take(queue, 2)
    fail(queue, second, refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    queue.succeeded(first, Acked(0, -1))
    assert queue.identity == ME
    assert take(queue, 1) == [second]
    assert second.sequence == 1


@on_a_loop
def test_sequence_gap_requests_a_new_identity() -> None:
    queue = make_queue()
    add(queue, 3)
    first, second, third = take(queue, 3)
    fail(queue, first, refused(ErrorCode.INVALID_RECORD))
    assert isinstance(outcome(first), Refused)
    assert not queue.needs_identity  # Not while the rest are in flight under the old one.
    for batch in (second, third):
        fail(queue, batch, refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert queue.needs_identity
    assert queue.spent_identity == ME
    assert queue.take(1, 0.0) is None
    queue.set_identity(ProducerIdentity(8, 0))
    assert take(queue, 1) == [second]
    queue.succeeded(second, Acked(0, -1))
    assert take(queue, 1) == [third]
    assert [(b.identity, b.sequence) for b in (second, third)] == [
        (ProducerIdentity(8, 0), 0),
        (ProducerIdentity(8, 0), 1),
    ]


@on_a_loop
def test_possibly_written_batch_never_gets_a_new_sequence() -> None:
    queue = make_queue()
    add(queue, 2)
    first, second = take(queue, 2)
    fail(queue, second, LOST)
    fail(queue, first, refused(ErrorCode.INVALID_RECORD))
    assert isinstance(outcome(first), Refused)
    assert outcome(second) is LOST
    assert not queue.batches


@on_a_loop
def test_unknown_producer_gets_a_new_identity() -> None:
    queue = make_queue()
    add(queue, 1)
    (batch,) = take(queue, 1)
    fail(queue, batch, refused(ErrorCode.UNKNOWN_PRODUCER_ID))
    queue.set_identity(ProducerIdentity(9, 0))
    assert take(queue, 1) == [batch]
    assert (batch.identity, batch.sequence) == (ProducerIdentity(9, 0), 0)


@on_a_loop
def test_identity_with_a_gap_is_not_reused() -> None:
    queue = make_queue()
    add(queue, 1)
    (batch,) = take(queue, 1)
    fail(queue, batch, refused(ErrorCode.UNKNOWN_PRODUCER_ID))
    with pytest.raises(AssertionError):
        queue.set_identity(ME)


@on_a_loop
def test_oversized_batch_is_split() -> None:
    queue = make_queue(batch_bytes=10_000)
    add(queue, 5)
    (whole,) = take(queue, 1, 1.0)
    add(queue, 1, at=1.0)
    (later,) = take(queue, 1, 2.0)
    size = queue.size_bytes
    fail(queue, whole, refused(ErrorCode.MESSAGE_TOO_LARGE))
    fail(queue, later, refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert queue.size_bytes == size
    sizes = []
    for _ in range(3):
        (batch,) = take(queue, 1, 3.0)
        sizes.append((len(batch.records), batch.sequence))
        queue.succeeded(batch, Acked(0, -1))
    assert sizes == [(2, 0), (3, 2), (1, 5)]
    assert batch is later
    assert queue.size_bytes == 0


@on_a_loop
def test_oversized_record_fails() -> None:
    queue = make_queue()
    add(queue, 1)
    (batch,) = take(queue, 1)
    fail(queue, batch, refused(ErrorCode.MESSAGE_TOO_LARGE))
    assert isinstance(outcome(batch), Refused)
    assert queue.size_bytes == 0


@on_a_loop
def test_timeout_applies_to_waiting_batches_not_to_those_in_flight() -> None:
    queue = make_queue()
    add(queue, 2)
    (first,) = take(queue, 1)
    second = queue.batches[1]
    queue.expire(1000.0)
    assert outcome(first) is None
    fail(queue, first, LOST, retry_at=2000.0)
    assert queue.deadline() == 100.0
    queue.expire(1000.0)
    for batch in (first, second):
        assert isinstance(outcome(batch), DeliveryTimeout)
    assert "gone" in str(outcome(first))
    assert queue.identity is None


@on_a_loop
def test_new_leader_gets_nothing_while_the_old_one_owes_a_reply() -> None:
    queue = make_queue()
    add(queue, 2)
    (first,) = take(queue, 1)
    assert queue.take(2, 0.0) is None
    fail(queue, first, refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert queue.take(2, 0.0) is first


@run_with(in_new_loop)
async def test_deliveries_follow_a_split_batch() -> None:
    queue = make_queue(batch_bytes=10_000)
    record = Record(0, 5, None, b"x")
    deliveries = [queue.add(record, record_bytes(record), 0.0) for _ in range(3)]
    waiting = asyncio.gather(*(asyncio.ensure_future(_await(d)) for d in deliveries))
    await asyncio.sleep(0)
    (whole,) = take(queue, 1)
    fail(queue, whole, refused(ErrorCode.MESSAGE_TOO_LARGE))
    (first,) = take(queue, 1)
    queue.succeeded(first, Acked(10, -1))
    (second,) = take(queue, 1)
    queue.succeeded(second, Acked(50, 99))
    assert [(s.offset, s.timestamp) for s in await waiting] == [(10, 5), (50, 99), (51, 99)]


async def _await(delivery: object) -> Sent:
    result = await delivery  # type: ignore[misc]
    assert isinstance(result, Sent)
    return result
