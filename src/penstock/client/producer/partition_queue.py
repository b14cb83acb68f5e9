"""One partition's batches on their way out: order, sequences and retries. Pure: no I/O, no clock.

A lane is a queue whose first batches are in flight or failed for now, the rest waiting. The rules
that keep an idempotent producer exact (KIP-98, KIP-360, KIP-679):

- Batches are numbered when they are first taken, and keep their number through every retry.
- When one fails for now, those in flight behind it are awaited, then all that are left go again,
  in order and one by one: brokers remember five batches, so nothing new may overtake. Meanwhile
  the broker answers OUT_OF_ORDER_SEQUENCE_NUMBER to the later ones: that is no verdict while an
  earlier batch is unresolved.
- A batch that fails for good leaves a hole in the sequence. The lane then asks for a new
  identity and numbers from 0. A batch that the broker may have already cannot take a new number
  (it would be written twice), so it fails too.
- Until the broker has confirmed a batch of this identity it accepts any number as the first one,
  so until then only one batch is in flight.
- A batch goes to a new leader only when nothing is in flight to the old one.
"""

from collections import deque
from collections.abc import Iterator

from penstock.base.errors import ErrorCode, Refused
from penstock.client.errors import RETRIABLE, DeliveryTimeout
from penstock.client.metadata import TopicPartition
from penstock.client.producer.batch import Acked, Batch, BatchState, PendingRecord, ProducerIdentity
from penstock.wire.records import BATCH_OVERHEAD, Record

# The broker no longer has this producer's state, or never got the batch before.
_LOST_STATE = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
# The batch was or may have been appended by the leader although the answer is an error.
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
        # Without sequences the broker cannot restore the order, so only one may be on its way.
        self.in_flight_max = in_flight_max if is_idempotent else 1
        self.batch_bytes = batch_bytes
        self.linger_s = linger_s
        self.delivery_timeout_s = delivery_timeout_s
        self.batches: deque[Batch] = deque()
        self.size_bytes = 0
        """What the records of all batches take."""
        self.identity: ProducerIdentity | None = None
        self.spent: ProducerIdentity | None = None
        """The identity whose numbering has a hole here; it must not be given again."""
        self.sequence = 0
        self.retry_at = 0.0
        self.failures = 0
        """Tries that failed since the last success; what the backoff grows with."""
        self._in_flight = 0
        self._is_known = not is_idempotent
        """Whether the broker has confirmed a batch of this identity."""

    # Filling.

    def has_room(self, size_bytes: int) -> bool:
        """Whether a record of this size would join a batch that is already begun."""
        if not self.batches:
            return False
        last = self.batches[-1]
        return not last.is_closed and last.size_bytes + size_bytes <= self.batch_bytes

    def add(self, record: Record, size_bytes: int, now: float) -> PendingRecord:
        """Puts a record into the last batch, or into a new one."""
        if not self.has_room(size_bytes):
            self.close_open()
            self.batches.append(Batch(self.where, now))
        batch = self.batches[-1]
        delivery = batch.add(record, size_bytes)
        batch.is_closed = batch.size_bytes >= self.batch_bytes
        self.size_bytes += size_bytes
        return delivery

    def close_open(self) -> None:
        """What is there is complete: the last batch does not linger (flush)."""
        if self.batches:
            self.batches[-1].is_closed = True

    # Sending.

    @property
    def needs_identity(self) -> bool:
        """A new one may be set once nothing is in flight under the old one."""
        return self.is_idempotent and self.identity is None and not self._in_flight

    def identify(self, identity: ProducerIdentity) -> None:
        assert self.needs_identity
        assert identity != self.spent
        self.identity = identity
        self.sequence = 0
        self._is_known = False

    def due_at(self) -> float | None:
        """When `take` will have something; None while only an answer can change that."""
        batch = self._next_waiting()
        if batch is None:
            return None
        if batch.is_closed:
            return self.retry_at
        return max(self.retry_at, batch.created_at + self.linger_s)

    def take(self, node_id: int, now: float) -> Batch | None:
        """The next batch to send to the partition's leader, numbered and now in flight."""
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
        """The first batch not in flight, if another one may be."""
        must_be_alone = not self._is_known or (self.batches and self.batches[0].tries > 1)
        if self._in_flight >= (1 if must_be_alone else self.in_flight_max):
            return None
        for batch in self.batches:
            if batch.state is BatchState.FAILED:
                return None
            if batch.state is BatchState.WAITING:
                return batch
        return None

    # Answers.

    def succeeded(self, batch: Batch, acked: Acked) -> None:
        self._in_flight -= 1
        self._is_known = True
        self.failures = 0
        self._resolve(batch, acked)
        self._settle(0.0)

    def failed(self, batch: Batch, error: Exception, *, was_sent: bool, retry_at: float) -> None:
        """A try did not succeed. `was_sent` with an OSError means: the broker may have it."""
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
                self._forget_identity()
        elif code is not None and code not in RETRIABLE:
            self._give_up(batch, error)
        self._settle(retry_at)

    def expire(self, now: float) -> None:
        """Fails what could not be delivered in time; what is in flight gets its answer first."""
        while self.batches and not self._in_flight:
            batch = self.batches[0]
            if batch.created_at + self.delivery_timeout_s > now:
                return
            cause = f": {batch.last_error}" if batch.last_error else ""
            error = DeliveryTimeout(
                f"{len(batch.records)} records for {self.where} could not be delivered "
                f"within {self.delivery_timeout_s:g} s{cause}"
            )
            self._give_up(batch, error)
            self._settle(0.0)

    def deadline(self) -> float | None:
        """When `expire` has something to do."""
        if not self.batches or self._in_flight:
            return None
        return self.batches[0].created_at + self.delivery_timeout_s

    def fail_all(self, error: Exception) -> None:
        while self.batches:
            self._resolve(self.batches[0], error)
        self._in_flight = 0

    # Inside.

    def _settle(self, retry_at: float) -> None:
        """Once nothing is in flight, what failed for now waits again, in its old order."""
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
        """The batches that were sent at least once: always the first ones."""
        for batch in self.batches:
            if batch.tries == 0:
                return
            yield batch

    def _split(self, batch: Batch) -> None:
        """Two halves take the place of a batch that the broker calls too large."""
        at = self.batches.index(batch)
        self.batches.remove(batch)
        for half in reversed(batch.split()):
            half.state = BatchState.FAILED
            half.tries = batch.tries
            half.may_be_written = batch.may_be_written
            half.last_error = batch.last_error
            self.batches.insert(at, half)

    def _give_up(self, batch: Batch, error: Exception) -> None:
        self._resolve(batch, error)
        if batch.identity is not None:
            self._forget_identity()

    def _forget_identity(self) -> None:
        """Numbers start over with a new identity; `_settle` sees to the batches left."""
        self.spent = self.identity or self.spent
        self.identity = None
