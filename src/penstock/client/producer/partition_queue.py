"""Queue of batches for one partition: order, sequences and retries. Pure: no I/O, no clock.

The first batches of the queue are in flight or wait for a retry, the rest were never sent. These
rules keep delivery exactly once with an idempotent producer (KIP-98, KIP-360, KIP-679):

- A batch gets its sequence when it is first sent, and keeps it through every retry.
- When a batch fails temporarily, the queue awaits the replies to later batches in flight. Then it
  sends all that are left again, in order and one by one: brokers remember five batches, so no new
  batch may overtake. Meanwhile the broker may answer OUT_OF_ORDER_SEQUENCE_NUMBER to later
  batches; this is not final while an earlier batch is unresolved.
- A batch that fails permanently leaves a gap in the sequence. The queue then asks for a new
  identity and restarts at sequence 0. A batch that the broker may have written cannot get a new
  sequence, since it could be written twice; it fails too.
- Until the broker has confirmed a batch of an identity, it accepts any first sequence. Only one
  batch is in flight until then.
- A batch goes to a new leader only when no batch is in flight to the old one.
"""

from collections import deque
from collections.abc import Iterator

from penstock.base.errors import ErrorCode, Refused
from penstock.client.errors import (
    RETRIABLE,
    DeliveryTimeout,
)
from penstock.client.metadata import TopicPartition
from penstock.client.producer.batch import Acked, Batch, BatchState, PendingRecord, ProducerIdentity
from penstock.wire.records import BATCH_OVERHEAD, Record

_LOST_STATE = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
# The leader appended the batch, or may have, although the reply is an error.
_MAYBE_WRITTEN = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
_SEQUENCE_MASK = 0x7FFFFFFF


class PartitionQueue:
    """Batches of one partition that are not delivered yet."""

    def __init__(
        self,
        where: TopicPartition,
        *,
        is_idempotent: bool,
        in_flight_max: int,
        batch_bytes: int,
        linger_s: float,
        delivery_timeout_s: float,
    ) -> None:
        self.where = where
        self.is_idempotent = is_idempotent
        # Without sequences the broker cannot restore the order, so only one may be in flight.
        self.in_flight_max = in_flight_max if is_idempotent else 1
        self.batch_bytes = batch_bytes
        self.linger_s = linger_s
        self.delivery_timeout_s = delivery_timeout_s
        self.batches: deque[Batch] = deque()
        self.size_bytes = 0
        """Bytes of the records of all batches."""
        self.identity: ProducerIdentity | None = None
        self.spent_identity: ProducerIdentity | None = None
        """Last identity whose sequences have a gap here; it must not be set again."""
        self.sequence = 0
        self.retry_at = 0.0
        self.failures = 0
        """Failed tries since the last success; the backoff grows with it."""
        self._in_flight = 0
        self._is_confirmed = not is_idempotent
        """True once the broker has confirmed a batch of this identity."""

    # Adding records.

    def fits_open_batch(self, size_bytes: int) -> bool:
        """True if a record of this size fits in the last batch, which is still open."""
        if not self.batches:
            return False
        last = self.batches[-1]
        return not last.is_closed and last.size_bytes + size_bytes <= self.batch_bytes

    def add(self, record: Record, size_bytes: int, now: float) -> PendingRecord:
        """Adds a record to the last batch, or to a new one."""
        if not self.fits_open_batch(size_bytes):
            self.close_open_batch()
            self.batches.append(Batch(self.where, now))
        batch = self.batches[-1]
        delivery = batch.add(record, size_bytes)
        batch.is_closed = batch.size_bytes >= self.batch_bytes
        self.size_bytes += size_bytes
        return delivery

    def close_open_batch(self) -> None:
        """Closes the last batch, so that it is sent without lingering (flush)."""
        if self.batches:
            self.batches[-1].is_closed = True

    # Sending.

    @property
    def needs_identity(self) -> bool:
        """True if an identity is missing and no batch is in flight under the old one."""
        return self.is_idempotent and self.identity is None and not self._in_flight

    def set_identity(self, identity: ProducerIdentity) -> None:
        assert self.needs_identity
        assert identity != self.spent_identity
        self.identity = identity
        self.sequence = 0
        self._is_confirmed = False

    def due_at(self) -> float | None:
        """Time at which `take` will return a batch; None while it depends on a reply."""
        batch = self._next_waiting()
        if batch is None:
            return None
        if batch.is_closed:
            return self.retry_at
        return max(self.retry_at, batch.created_at + self.linger_s)

    def take(self, node_id: int, now: float) -> Batch | None:
        """Returns the next batch for the leader with its sequence; it is in flight from now on."""
        due = self.due_at()
        if due is None or due > now or (self.is_idempotent and self.identity is None):
            return None
        if self._in_flight and self.batches[0].node_id != node_id:
            return None
        batch = self._next_waiting()
        assert batch is not None
        batch.is_closed = True
        if self.is_idempotent and batch.identity is None:
            batch.number(self.identity, self.sequence)
            self.sequence = self.sequence + len(batch.records) & _SEQUENCE_MASK
        batch.state = BatchState.IN_FLIGHT
        batch.node_id = node_id
        batch.tries += 1
        self._in_flight += 1
        return batch

    def _next_waiting(self) -> Batch | None:
        """Returns the first waiting batch if one more may be in flight."""
        must_be_alone = not self._is_confirmed or (self.batches and self.batches[0].tries > 1)
        if self._in_flight >= (1 if must_be_alone else self.in_flight_max):
            return None
        for batch in self.batches:
            if batch.state is BatchState.FAILED:
                return None
            if batch.state is BatchState.WAITING:
                return batch
        return None

    # Replies.

    def succeeded(self, batch: Batch, acked: Acked) -> None:
        self._in_flight -= 1
        self._is_confirmed = True
        self.failures = 0
        self._resolve(batch, acked)
        self._requeue_failed(0.0)

    def failed(self, batch: Batch, error: Exception, *, was_sent: bool, retry_at: float) -> None:
        """Handles a failed try. `was_sent` with an OSError: the broker may have written it."""
        self._in_flight -= 1
        self.failures += 1
        batch.state = BatchState.FAILED
        batch.last_error = error
        code = error.code if isinstance(error, Refused) else None
        if was_sent and (code is None or code in _MAYBE_WRITTEN):
            batch.may_be_written = True
        if code is ErrorCode.MESSAGE_TOO_LARGE and len(batch.records) > 1:
            self._split(batch)
            retry_at = 0.0
        elif code in _LOST_STATE and self.is_idempotent:
            if batch is self.batches[0]:
                self._drop_identity()
        elif code is not None and code not in RETRIABLE:
            self._fail_batch(batch, error)
        self._requeue_failed(retry_at)

    def expire(self, now: float) -> None:
        """Fails batches that exceed the delivery timeout, unless any batch is in flight."""
        while self.batches and not self._in_flight:
            batch = self.batches[0]
            if batch.created_at + self.delivery_timeout_s > now:
                return
            cause = f": {batch.last_error}" if batch.last_error else ""
            error = DeliveryTimeout(
                f"{len(batch.records)} records for {self.where} could not be delivered "
                f"within {self.delivery_timeout_s:g} s{cause}"
            )
            self._fail_batch(batch, error)
            self._requeue_failed(0.0)

    def deadline(self) -> float | None:
        """Time at which `expire` fails a batch; None: no batch can expire now."""
        if not self.batches or self._in_flight:
            return None
        return self.batches[0].created_at + self.delivery_timeout_s

    def fail_all(self, error: Exception) -> None:
        while self.batches:
            self._resolve(self.batches[0], error)
        self._in_flight = 0

    # Internals.

    def _requeue_failed(self, retry_at: float) -> None:
        """Makes failed batches wait again, in their old order, once none is in flight."""
        self.retry_at = max(self.retry_at, retry_at)
        if self._in_flight:
            return
        must_renumber = self.is_idempotent and self.identity is None
        for batch in list(self._tried()):
            if must_renumber and batch.may_be_written:
                assert batch.last_error is not None
                self._resolve(batch, batch.last_error)
                continue
            batch.state = BatchState.WAITING
            if must_renumber:
                batch.number(None, -1)

    def _resolve(self, batch: Batch, outcome: Acked | Exception) -> None:
        self.batches.remove(batch)
        self.size_bytes -= batch.size_bytes - BATCH_OVERHEAD
        batch.resolve(outcome)

    def _tried(self) -> Iterator[Batch]:
        """Yields batches that were sent at least once; they are always the first ones."""
        for batch in self.batches:
            if batch.tries == 0:
                return
            yield batch

    def _split(self, batch: Batch) -> None:
        """Replaces a batch that the broker refused as too large with two halves."""
        at = self.batches.index(batch)
        self.batches.remove(batch)
        for half in reversed(batch.split()):
            half.state = BatchState.FAILED
            half.tries = batch.tries
            half.may_be_written = batch.may_be_written
            half.last_error = batch.last_error
            self.batches.insert(at, half)

    def _fail_batch(self, batch: Batch, error: Exception) -> None:
        self._resolve(batch, error)
        if batch.identity is not None:
            self._drop_identity()

    def _drop_identity(self) -> None:
        """Drops the identity: sequences restart with a new one, see `_requeue_failed`."""
        self.spent_identity = self.identity or self.spent_identity
        self.identity = None
