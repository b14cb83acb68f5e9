"""One transactional id: its producer and the state of its transaction.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
                    \\-> PrepareAbort  -> CompleteAbort  -> Ongoing ...

Each method reads the state and returns the next state, or raises `Refused`; only `apply` changes
the state. Rules:

- Requests of any but the current producer id and epoch are refused: INVALID_PRODUCER_ID_MAPPING
  for another id, PRODUCER_FENCED for another epoch. While markers are being written, the producer
  that continues afterwards gets CONCURRENT_TRANSACTIONS, which makes clients wait.
- InitProducerId bumps the epoch, which fences the previous producer; an open transaction is
  aborted first. A producer that sends its id and epoch (KIP-360) must be the current one, or the
  one that sent the same request before and missed the response.
- EndTxn of clients with transactions v2 (KIP-890) bumps the epoch every time, so that a late
  Produce or EndTxn of the finished transaction meets a newer epoch everywhere. The producer that
  ended the last transaction may repeat the request and gets the same outcome and next epoch.
- A timeout, and an InitProducerId that finds an open transaction, abort it under a bumped epoch.
  After a timeout the producer may abort or initialise and continue; after another producer's
  InitProducerId it is fenced.
- The last epoch is for markers only: a producer that would get it gets a new producer id instead.

A transaction without partitions has no markers to wait for and completes at once. The set of
written markers is soft state: after a crash all of them are written again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from penstock.base.errors import ErrorCode, Refused
from penstock.state.transactions.records import (
    EPOCH_MAX,
    NO_ID,
    NO_PRODUCER,
    PREPARED,
    TRANSACTIONS_V2,
    Partition,
    ProducerEpoch,
    TxnRecord,
    TxnState,
    each_partition,
    group_partitions,
)

TakeId: TypeAlias = Callable[[], int]
"""Takes an unused producer id from the host's reserved ones; refuses if there is none."""


_NONE: Final[Mapping[Partition, None]] = {}
"""Shared by all ids without an open transaction."""


class Txn:
    """State machine of one transactional id."""

    __slots__ = ("owed", "partitions", "record")

    partitions: Mapping[Partition, None]
    owed: Mapping[Partition, None]

    def __init__(self, record: TxnRecord) -> None:
        self.apply(record)

    def apply(self, record: TxnRecord) -> None:
        self.record = record
        self.partitions = dict.fromkeys(each_partition(record)) if record.partitions else _NONE
        self.owed = self.partitions if record.state in PREPARED else _NONE
        """Partitions whose marker is not known to be written; replaced, never mutated."""

    # InitProducerId.

    def initialise(
        self, timeout_ms: int, expected: ProducerEpoch, now_ms: int, take_id: TakeId
    ) -> TxnRecord:
        """Next state: Empty with the producer to return, or an abort to wait for."""
        record = self.record
        if record.state in PREPARED:
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is being ended")
        is_current = expected == record.producer
        if record.state is TxnState.ONGOING:
            if not is_current and expected != NO_PRODUCER:
                raise _fenced(expected, record)
            return self.fence(now_ms, take_id, previous=expected)
        producer, previous = record.producer, record.previous
        if is_current or expected == NO_PRODUCER:
            producer, previous = _bumped(producer, take_id), expected
        elif expected != previous:
            raise _fenced(expected, record)
        return TxnRecord(
            state=TxnState.EMPTY,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            timeout_ms=timeout_ms,
            updated_ms=self._later(now_ms),
            previous_id=previous.id,
            previous_epoch=previous.epoch,
            number=record.number,
        )

    # AddPartitionsToTxn, AddOffsetsToTxn, Produce.

    def add(
        self, producer: ProducerEpoch, added: Sequence[Partition], now_ms: int
    ) -> TxnRecord | None:
        """Next state with these partitions in the transaction; None if they are in already."""
        self._check_current(producer)
        record, now_ms = self.record, self._later(now_ms)
        is_open = record.state is TxnState.ONGOING
        partitions = dict(self.partitions) if is_open else {}
        partitions.update(dict.fromkeys(added))
        if is_open and len(partitions) == len(self.partitions):
            return None
        return replace(
            record,
            state=TxnState.ONGOING,
            start_ms=record.start_ms if is_open else now_ms,
            number=record.number if is_open else record.number + 1,
            updated_ms=now_ms,
            partitions=group_partitions(list(partitions)),
        )

    def verify(self, producer: ProducerEpoch, partition: Partition) -> None:
        """Refuses a write to a partition that is not in the open transaction."""
        self._check_current(producer)
        if partition not in self.partitions:
            raise Refused(
                ErrorCode.TRANSACTION_ABORTABLE,
                f"partition {partition[0]}-{partition[1]} is not in the transaction: abort it",
            )

    # EndTxn.

    def end(
        self, producer: ProducerEpoch, committed: bool, version: int, now_ms: int, take_id: TakeId
    ) -> TxnRecord | None:
        """Next state; None for a repeated request that was already executed."""
        record = self.record
        state = record.state
        outcome = TxnState.PREPARE_COMMIT if committed else TxnState.PREPARE_ABORT
        if self._is_repetition(producer, version):
            self._check_outcome(committed)
            return None
        self._check_current(producer)
        if state is TxnState.ONGOING:
            return self._prepare(outcome, version, producer, now_ms, take_id)
        if version >= TRANSACTIONS_V2 and not committed:
            # The client may have begun a transaction of which no request arrived. The epoch must be
            # bumped all the same: a delayed request may still arrive.
            return self._prepare(outcome, version, producer, now_ms, take_id)
        raise Refused(ErrorCode.INVALID_TXN_STATE, "no open transaction to end: begin one first")

    def fence(self, now_ms: int, take_id: TakeId, previous: ProducerEpoch) -> TxnRecord:
        """Aborts the open transaction without an EndTxn; only `previous` may continue."""
        assert self.record.state is TxnState.ONGOING
        return self._prepare(TxnState.PREPARE_ABORT, TRANSACTIONS_V2, previous, now_ms, take_id)

    def complete(self, now_ms: int) -> TxnRecord:
        """Next state once every marker is written."""
        return _completed(self.record, self._later(now_ms))

    # Time.

    @property
    def times_out_ms(self) -> int | None:
        record = self.record
        return record.start_ms + record.timeout_ms if record.state is TxnState.ONGOING else None

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        record = self.record
        is_idle = record.state is not TxnState.ONGOING and record.state not in PREPARED
        return is_idle and record.updated_ms + expiration_ms <= now_ms

    def _later(self, now_ms: int) -> int:
        """Current time, never earlier than the last update even if the wall clock goes back."""
        return max(now_ms, self.record.updated_ms)

    # Checks.

    def _check_current(self, producer: ProducerEpoch) -> None:
        record = self.record
        if record.state in PREPARED and producer in (record.successor, record.producer):
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is being ended")
        if producer.id != record.producer_id:
            raise Refused(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"producer id {producer.id} does not belong to this transactional id: "
                "call InitProducerId again",
            )
        if producer.epoch != record.producer_epoch:
            raise _fenced(producer, record)

    def _is_repetition(self, producer: ProducerEpoch, version: int) -> bool:
        """True if this producer, in this version, has already ended the last transaction.

        Before KIP-890 the epoch cannot tell: the request is a repetition if no transaction is open.
        """
        record = self.record
        if record.state in (TxnState.EMPTY, TxnState.ONGOING):
            return False
        if version >= TRANSACTIONS_V2:
            return record.version >= TRANSACTIONS_V2 and producer == record.previous
        return producer == record.producer

    def _check_outcome(self, committed: bool) -> None:
        """Refuses a repetition that wants another outcome, or that arrives before the end."""
        state = self.record.state
        if committed != (state in (TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT)):
            raise Refused(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction is in {state.name}: its outcome cannot be changed",
            )
        if state in PREPARED:
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is being ended")

    # Ending.

    def _prepare(
        self, outcome: TxnState, version: int, previous: ProducerEpoch, now_ms: int, take_id: TakeId
    ) -> TxnRecord:
        record, now_ms = self.record, self._later(now_ms)
        is_open = record.state is TxnState.ONGOING
        if version >= TRANSACTIONS_V2:
            next_id = take_id() if _is_exhausted(record.producer_epoch) else NO_ID
            epoch = record.producer_epoch + 1
        else:
            next_id, epoch, previous = NO_ID, record.producer_epoch, record.previous
        prepared = replace(
            record,
            state=outcome,
            producer_epoch=epoch,
            previous_id=previous.id,
            previous_epoch=previous.epoch,
            next_id=next_id,
            version=version,
            start_ms=record.start_ms if is_open else now_ms,
            number=record.number if is_open else record.number + 1,
            updated_ms=now_ms,
        )
        return prepared if prepared.partitions else _completed(prepared, now_ms)


def begin(producer_id: int, timeout_ms: int, now_ms: int) -> TxnRecord:
    """First state of a transactional id."""
    return TxnRecord(
        state=TxnState.EMPTY,
        producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=timeout_ms,
        updated_ms=now_ms,
    )


def _completed(prepared: TxnRecord, now_ms: int) -> TxnRecord:
    is_commit = prepared.state is TxnState.PREPARE_COMMIT
    producer = prepared.successor
    return replace(
        prepared,
        state=TxnState.COMPLETE_COMMIT if is_commit else TxnState.COMPLETE_ABORT,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        next_id=NO_ID,
        updated_ms=now_ms,
        partitions=(),
    )


def _is_exhausted(epoch: int) -> bool:
    return epoch >= EPOCH_MAX - 1


def _bumped(producer: ProducerEpoch, take_id: TakeId) -> ProducerEpoch:
    if _is_exhausted(producer.epoch):
        return ProducerEpoch(take_id(), 0)
    return ProducerEpoch(producer.id, producer.epoch + 1)


def _fenced(producer: ProducerEpoch, record: TxnRecord) -> Refused:
    return Refused(
        ErrorCode.PRODUCER_FENCED,
        f"producer {producer.id} at epoch {producer.epoch} is fenced: "
        f"the current epoch is {record.producer_epoch}",
    )
