"""Transactional ids of one partition of `__transaction_state`, as the host's single entry point.

Routes requests to the state machine of their id, encodes its decisions as records, decodes
records, and tracks the deadlines of all ids. No request is parked: every call is answered by its
decision, once that decision's records are committed.

Invariants: only `apply` changes durable state; replayed state equals live state.
Bounds: `ids_max` ids, `partitions_max` partitions each, `TICK_MAX` records per tick.

Left to the host: committing records before it sends replies and markers, writing markers,
reserving producer ids, mapping ids to shards, and authorization.

Transaction markers as data: the host writes them to partitions and reports back. The host takes
`WriteMarkers` from the shard right after it applied a decision's records. It writes them once
these records are committed, never before: an outcome that may still be lost must not be visible
anywhere. It may write them late, twice, or again after a crash; the log accepts a repeated marker
of the same epoch. Partitions whose marker is committed in their log (or that no longer exist) are
reported back with the same `WriteMarkers`.

Descriptions of transactions: ListTransactions v0-2, DescribeTransactions v0. Reads only.
ListTransactions spans every shard of a broker: this returns the rows of one, and the handler
joins them. The pattern of v2 (KIP-1152) is RE2 syntax; the handler compiles it and passes the
matcher.

Timeouts of open transactions: nearly every transaction ends long before its deadline.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_scheduler import Steps
from penstock.base.state_machine import NOTHING, Decision, Token
from penstock.state.transactions import add_partitions
from penstock.state.transactions.records import (
    NO_EPOCH,
    NO_ID,
    NO_PRODUCER,
    NO_TIME,
    PREPARED,
    STATE_NAMES,
    TRANSACTIONS_V0,
    TRANSACTIONS_V2,
    Partition,
    ProducerEpoch,
    TxnRecord,
    TxnState,
    decode_key,
    decode_value,
    encode_record,
)
from penstock.state.transactions.transaction import TakeId, Txn, begin
from penstock.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsTopicData,
    DescribeTransactionsTransactionState,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsTransactionState,
)


class Timeouts:
    """Deadlines by transactional id.

    Invariant: `floor_ms` is never later than the earliest deadline, and may be earlier. Starting
    and ending a transaction costs a dict write each; the true minimum is searched for when the
    floor is reached.
    """

    __slots__ = ("at_ms", "floor_ms")

    def __init__(self) -> None:
        self.at_ms: dict[str, int] = {}
        self.floor_ms: int | None = None

    def set(self, transactional_id: str, at_ms: int | None) -> None:
        """Moves the deadline, or removes it."""
        if at_ms is None:
            self.at_ms.pop(transactional_id, None)
            return
        self.at_ms[transactional_id] = at_ms
        if self.floor_ms is None or at_ms < self.floor_ms:
            self.floor_ms = at_ms

    def due(self, now_ms: int, count_max: int) -> list[str]:
        """Transactions whose deadline has passed, earliest first. They stay until moved."""
        if self.floor_ms is None or self.floor_ms > now_ms:
            return []
        found = sorted((at_ms, name) for name, at_ms in self.at_ms.items() if at_ms <= now_ms)
        if not found:
            self.floor_ms = min(self.at_ms.values(), default=None)
        return [name for _, name in found[:count_max]]


_PASSING_STATES = ("Dead", "PrepareEpochFence")
"""Kafka's names for states that never occur here: accepted in filters, never found."""


def unknown_states(request: ListTransactionsRequest) -> list[str]:
    """State filters that name an unknown state, in request order."""
    known = (*STATE_NAMES.values(), *_PASSING_STATES)
    return [name for name in dict.fromkeys(request.state_filters) if name not in known]


def list_rows(
    txns: Iterable[tuple[str, Txn]],
    request: ListTransactionsRequest,
    now_ms: int,
    matches: Callable[[str], bool] | None,
) -> Steps[list[ListTransactionsTransactionState]]:
    states = frozenset(request.state_filters)
    producer_ids = frozenset(request.producer_id_filters)
    duration_ms = request.duration_filter
    rows = []
    for transactional_id, txn in txns:
        yield
        record = txn.record
        state = STATE_NAMES[record.state]
        if states and state not in states:
            continue
        if producer_ids and record.producer_id not in producer_ids:
            continue
        if duration_ms >= 0 and now_ms - record.start_ms <= duration_ms:
            continue
        if matches is not None and not matches(transactional_id):
            continue
        rows.append(
            ListTransactionsTransactionState(
                transactional_id=transactional_id,
                producer_id=record.producer_id,
                transaction_state=state,
            )
        )
    return rows


def describe_row(
    txns: Mapping[str, Txn], transactional_id: str
) -> DescribeTransactionsTransactionState:
    txn = txns.get(transactional_id)
    if txn is None:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return refused_row(
            transactional_id, code if transactional_id else ErrorCode.INVALID_REQUEST
        )
    record = txn.record
    return DescribeTransactionsTransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=STATE_NAMES[record.state],
        transaction_timeout_ms=record.timeout_ms,
        transaction_start_time_ms=record.start_ms,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        topics=[
            DescribeTransactionsTopicData(topic=topic, partitions=list(partitions))
            for topic, partitions in record.partitions
        ],
    )


def refused_row(transactional_id: str, code: ErrorCode) -> DescribeTransactionsTransactionState:
    """Row of a transactional id that cannot be described."""
    return DescribeTransactionsTransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=NO_TIME,
        producer_id=NO_ID,
        producer_epoch=NO_EPOCH,
        topics=(),
    )


class WriteMarkers(NamedTuple):
    """Order to end one transaction on these partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    number: int
    """Number of the transaction within its id: clients before KIP-890 keep their epoch from one
    to the next, so a late report could otherwise be attributed to the next transaction."""
    committed: bool
    transaction_version: int
    """For WriteTxnMarkers v2 and the log's check: 2 needs an epoch above the data's (KIP-1228)."""
    partitions: tuple[Partition, ...]


def markers_for(
    transactional_id: str, record: TxnRecord, partitions: tuple[Partition, ...]
) -> WriteMarkers:
    return WriteMarkers(
        transactional_id,
        record.producer_id,
        record.producer_epoch,
        record.number,
        record.state is TxnState.PREPARE_COMMIT,
        record.version,
        partitions,
    )


@dataclass(frozen=True, slots=True)
class TxnConfig:
    """Kafka's transaction settings, named by their meaning."""

    timeout_ms_max: int = 900_000
    """transaction.max.timeout.ms: upper bound for producers."""
    expiration_ms: int = 7 * 24 * 3_600_000
    """transactional.id.expiration.ms: an id that is idle for this time is deleted."""
    expiration_check_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms."""
    ids_max: int = 1_000_000
    """Maximum transactional ids in one shard; further ones are refused with POLICY_VIOLATION."""
    partitions_max: int = 20_000
    """Maximum partitions in one transaction; further ones are refused with INVALID_REQUEST.

    Every record of a transaction contains the whole list, and must fit one batch.
    """


class TransactionCaller(Protocol):
    """The caller; only its API version matters here."""

    @property
    def api_version(self) -> int: ...


OFFSETS_TOPIC: Final = "__consumer_offsets"
TICK_MAX: Final = 1_000
"""Maximum transactions aborted, and ids expired, per tick; the rest is due at once."""
RETRY_MS: Final = 1_000
"""Retry interval of a transaction timeout that finds no reserved producer id."""
_END_TXN_V2_SINCE: Final = 5


class TxnShard:
    """State machines of one partition of the internal topic."""

    def __init__(
        self,
        config: TxnConfig,
        take_producer_id: TakeId,
        offsets_partition_of: Callable[[str], int],
    ) -> None:
        self.config = config
        self._take_producer_id = take_producer_id
        self._offsets_partition_of = offsets_partition_of
        self._txns: dict[str, Txn] = {}
        self._timeouts = Timeouts()
        self._expiry_check_ms: int | None = None
        self._newly_prepared: dict[str, None] = {}
        self._calls: dict[str, Callable[[Any, Token, int, int], Decision]] = {
            "InitProducerId": self._init_producer_id,
            "AddPartitionsToTxn": self._add_partitions,
            "AddOffsetsToTxn": self._add_offsets,
            "EndTxn": self._end_txn,
        }

    # Requests.

    def handle(
        self, request_name: str, request: Any, token: Token, caller: TransactionCaller, now_ms: int
    ) -> Decision:
        """Handles a request by its API's name; the reply is that API's response.

        AddPartitionsToTxn takes one `AddPartitionsToTxnTransaction` and replies with its
        `AddPartitionsToTxnResult`; see `add_partitions` for the enclosing request.
        """
        version = caller.api_version
        try:
            return self._calls[request_name](request, token, version, now_ms)
        except Refused as refused:
            raise add_partitions.for_version(refused, request_name, version) from None

    def add_partitions_from_produce(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[Partition],
        token: Token,
        now_ms: int,
    ) -> Decision:
        """Adds partitions that a Produce (v12+) or TxnOffsetCommit (v5+) will write (KIP-890)."""
        producer = ProducerEpoch(producer_id, epoch)
        return self._add(transactional_id, producer, partitions, token, ErrorCode.NONE, now_ms)

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, topic: str, partition: int
    ) -> None:
        """Refuses an older Produce or TxnOffsetCommit to a partition outside the transaction.

        A read: the host answers once all records appended before it are committed.
        """
        txn = self._find(transactional_id)
        txn.verify(ProducerEpoch(producer_id, epoch), (topic, partition))

    def _init_producer_id(
        self, request: InitProducerIdRequest, token: Token, _: int, now_ms: int
    ) -> Decision:
        transactional_id = request.transactional_id
        expected = ProducerEpoch(request.producer_id, request.producer_epoch)
        is_half_given = (expected.id == NO_PRODUCER.id) != (expected.epoch == NO_PRODUCER.epoch)
        if not transactional_id or is_half_given:
            raise Refused(ErrorCode.INVALID_REQUEST)
        timeout_ms = request.transaction_timeout_ms
        if not 0 < timeout_ms <= self.config.timeout_ms_max:
            raise Refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        txn = self._txns.get(transactional_id)
        if txn is not None:
            record = txn.initialise(timeout_ms, expected, now_ms, self._take_producer_id)
        elif len(self._txns) < self.config.ids_max:
            record = begin(self._take_producer_id(), timeout_ms, now_ms)
        else:
            raise Refused(
                ErrorCode.POLICY_VIOLATION,
                f"too many transactional ids: this shard already has {self.config.ids_max}",
            )
        if record.state is TxnState.EMPTY:
            reply = InitProducerIdResponse(
                error_code=ErrorCode.NONE,
                producer_id=record.producer_id,
                producer_epoch=record.producer_epoch,
            )
        else:
            # The open transaction is aborted first. The producer retries until that is done.
            reply = InitProducerIdResponse(
                error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_epoch=NO_PRODUCER.epoch
            )
        return _decision(transactional_id, record, token, reply)

    def _add_partitions(
        self, request: AddPartitionsToTxnTransaction, token: Token, _: int, now_ms: int
    ) -> Decision:
        transactional_id = request.transactional_id
        producer = ProducerEpoch(request.producer_id, request.producer_epoch)
        partitions = add_partitions.partitions_of(request)
        if request.verify_only:
            txn, codes = self._find(transactional_id), {}
            for partition in partitions:
                try:
                    txn.verify(producer, partition)
                except Refused as refused:
                    codes[partition] = refused.code
            return Decision(replies=((token, add_partitions.result_of(request, codes)),))
        reply = add_partitions.result_of(request, {})
        return self._add(transactional_id, producer, partitions, token, reply, now_ms)

    def _add_offsets(
        self, request: AddOffsetsToTxnRequest, token: Token, _: int, now_ms: int
    ) -> Decision:
        partition = (OFFSETS_TOPIC, self._offsets_partition_of(request.group_id))
        producer = ProducerEpoch(request.producer_id, request.producer_epoch)
        reply = AddOffsetsToTxnResponse(error_code=ErrorCode.NONE)
        return self._add(request.transactional_id, producer, [partition], token, reply, now_ms)

    def _add(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Sequence[Partition],
        token: Token,
        reply: object,
        now_ms: int,
    ) -> Decision:
        txn = self._find(transactional_id)
        record = txn.add(producer, partitions, now_ms)
        if (
            record
            and sum(len(indexes) for _, indexes in record.partitions) > self.config.partitions_max
        ):
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"too many partitions in one transaction: at most {self.config.partitions_max}",
            )
        return _decision(transactional_id, record, token, reply)

    def _end_txn(
        self, request: EndTxnRequest, token: Token, api_version: int, now_ms: int
    ) -> Decision:
        transactional_id = request.transactional_id
        txn = self._find(transactional_id)
        producer = ProducerEpoch(request.producer_id, request.producer_epoch)
        version = TRANSACTIONS_V2 if api_version >= _END_TXN_V2_SINCE else TRANSACTIONS_V0
        record = txn.end(producer, request.committed, version, now_ms, self._take_producer_id)
        successor = (record or txn.record).successor
        reply = EndTxnResponse(
            error_code=ErrorCode.NONE,
            producer_id=successor.id,
            producer_epoch=successor.epoch,
        )
        return _decision(transactional_id, record, token, reply)

    def _find(self, transactional_id: str) -> Txn:
        if not transactional_id:
            raise Refused(ErrorCode.INVALID_REQUEST, "the transactional id must not be empty")
        txn = self._txns.get(transactional_id)
        if txn is None:
            raise Refused(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"transactional id {transactional_id} has no producer id (it may have expired): "
                "call InitProducerId first",
            )
        return txn

    # Markers.

    def take_markers(self) -> tuple[WriteMarkers, ...]:
        """Markers of transactions prepared by the records applied since the last call.

        The host calls this right after it applied a decision's records (or has loaded everything),
        and writes the markers once these records are committed.
        """
        prepared, self._newly_prepared = self._newly_prepared, {}
        return self._markers_of(list(prepared))

    def pending_markers(self) -> tuple[WriteMarkers, ...]:
        """Every marker not yet reported as written, of committed and uncommitted records."""
        return self._markers_of(list(self._txns))

    def _markers_of(self, transactional_ids: list[str]) -> tuple[WriteMarkers, ...]:
        found = ((name, self._txns.get(name)) for name in transactional_ids)
        return tuple(
            markers_for(name, txn.record, tuple(txn.owed))
            for name, txn in found
            if txn and txn.owed
        )

    def marker_written(
        self, write: WriteMarkers, partitions: Sequence[Partition], now_ms: int
    ) -> Decision:
        """Handles a report that these partitions have their marker or are gone; the last report
        completes the transaction.

        A late report, about another transaction than the prepared one, changes nothing.
        """
        txn = self._txns.get(write.transactional_id)
        if txn is None or txn.record.state not in PREPARED:
            return NOTHING
        record = txn.record
        if (write.producer_id, write.producer_epoch, write.number) != (
            record.producer_id,
            record.producer_epoch,
            record.number,
        ):
            return NOTHING
        written = frozenset(partitions)
        owed = {partition: None for partition in txn.owed if partition not in written}
        if owed:
            txn.owed = owed
            return NOTHING
        # The owed markers stay: if the record is lost with this coordinator, the next one writes
        # the markers again.
        completed = txn.complete(now_ms)
        return Decision(records=(encode_record(write.transactional_id, completed),))

    # State and time.

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Applies one record; the only method that changes durable state."""
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        if value is None:
            self._txns.pop(transactional_id, None)
            self._timeouts.set(transactional_id, None)
            return
        record = decode_value(value)
        txn = self._txns.get(transactional_id)
        if txn is None:
            txn = self._txns[transactional_id] = Txn(record)
        else:
            txn.apply(record)
        self._timeouts.set(transactional_id, txn.times_out_ms)
        if record.state in PREPARED:
            self._newly_prepared[transactional_id] = None

    def loaded(self, now_ms: int) -> None:
        """Completes replay; `take_markers` then returns all markers still to be written."""
        self._expiry_check_ms = now_ms + self.config.expiration_check_interval_ms

    def deadline(self) -> int | None:
        """Time of the next `tick`; None before replay is complete."""
        check_ms, floor_ms = self._expiry_check_ms, self._timeouts.floor_ms
        if check_ms is None or floor_ms is None:
            return check_ms
        return min(check_ms, floor_ms)

    def tick(self, now_ms: int) -> Decision:
        """Aborts transactions that timed out, and deletes expired ids."""
        records = []
        for name in self._timeouts.due(now_ms, TICK_MAX):
            txn = self._txns[name]
            try:
                fenced = txn.fence(now_ms, self._take_producer_id, previous=txn.record.producer)
            except Refused:
                self._timeouts.set(name, now_ms + RETRY_MS)
                continue
            records.append(encode_record(name, fenced))
        if self._expiry_check_ms is not None and self._expiry_check_ms <= now_ms:
            expired = self._expired(now_ms)
            records += [encode_record(name, None) for name in expired[:TICK_MAX]]
            if len(expired) <= TICK_MAX:
                self._expiry_check_ms = now_ms + self.config.expiration_check_interval_ms
        return Decision(records=tuple(records))

    def _expired(self, now_ms: int) -> list[str]:
        expiration_ms = self.config.expiration_ms
        return [name for name, txn in self._txns.items() if txn.is_expired(now_ms, expiration_ms)]

    def dropped(self, token: Token) -> None:
        """Does nothing: no call is parked, so a client that stops waiting leaves no state."""

    # Reads.

    def list_transactions(
        self,
        request: ListTransactionsRequest,
        now_ms: int,
        matches: Callable[[str], bool] | None = None,
    ) -> Steps[list[ListTransactionsTransactionState]]:
        """Returns the transactions that there are now, in steps that may run later."""
        return list_rows(list(self._txns.items()), request, now_ms, matches)

    def describe_transaction(self, transactional_id: str) -> DescribeTransactionsTransactionState:
        return describe_row(self._txns, transactional_id)

    @property
    def open_count(self) -> int:
        """Number of open transactions: each of them has a timeout."""
        return len(self._timeouts.at_ms)

    def durable_state(self) -> dict[str, TxnRecord]:
        """State that a replay must restore exactly."""
        return {name: txn.record for name, txn in self._txns.items()}


def _decision(
    transactional_id: str, record: TxnRecord | None, token: Token, reply: object
) -> Decision:
    records = () if record is None else (encode_record(transactional_id, record),)
    return Decision(records, ((token, reply),))
