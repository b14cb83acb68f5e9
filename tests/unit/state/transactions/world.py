"""Producers, a coordinator, partitions and a network that delays, reorders and repeats.

The real shard runs on the small host, and real partition state (`penstock.log.producers`) stands
behind it. Every action takes plain choices, so that hypothesis and seeded walks can both drive it;
what must always hold is asserted as it happens and by `check`.
"""

import itertools
from collections import Counter
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode, Refused
from penstock.log.producers import Producers
from penstock.state.transactions.records import (
    EPOCH_MAX,
    NO_PRODUCER,
    PREPARED,
    TRANSACTIONS_V2,
    Partition,
    ProducerEpoch,
    TxnRecord,
    TxnState,
    decode_key,
    decode_value,
    encode_record,
)
from penstock.state.transactions.shard import WriteMarkers
from penstock.wire.control_batches import ControlMarker
from penstock.wire.records import CONTROL, TRANSACTIONAL, BatchHeader
from tests.unit.state.transactions.building import NOW_MS, Host, add, end, init

PARTITIONS = (("x", 0), ("x", 1), ("y", 0))
TIMEOUT_MS = 1_000
CLIENTS = (("a", True), ("a", True), ("a", False), ("b", True), ("c", False))
"""Three fight over one id, two have theirs for themselves; whether each speaks KIP-890."""
NAMES = ("a", "b", "c")
IDLE = (TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)


class Client:
    """A producer that believes in an identity; `is_v2` for KIP-890."""

    def __init__(self, name: str, is_v2: bool) -> None:
        self.name = name
        self.is_v2 = is_v2
        self.producer: ProducerEpoch | None = None


class Sent(NamedTuple):
    """A request on its way to the coordinator; it may arrive more than once."""

    client: Client
    kind: str
    request: Any
    version: int
    partition: Partition = ("", -1)


class Write(NamedTuple):
    """A batch that the coordinator allowed, on its way into a partition."""

    name: str
    producer: ProducerEpoch
    number: int
    """The transaction in which the coordinator allowed it."""
    partition: Partition
    guard: int
    """Markers the partition had when the coordinator was asked."""
    is_v2: bool


class PartitionLog:
    """One partition's log as far as transactions go."""

    def __init__(self) -> None:
        self.producers = Producers(expiration_ms=10**12)
        self.open: dict[int, list[Write]] = {}
        self.markers = 0
        self.offset = 0

    def append(self, write: Write) -> None:
        # Before KIP-890 the epoch does not reveal a late write; the partition's guard does.
        if not write.is_v2 and write.guard != self.markers:
            raise Refused(ErrorCode.INVALID_TXN_STATE)
        header = _header(write.producer, TRANSACTIONAL)
        self.producers.check(header)
        self.producers.apply(header, self.offset)
        self.offset += 1
        self.open.setdefault(write.producer.id, []).append(write)

    def end(self, marker: WriteMarkers) -> list[Write]:
        """Takes a marker and returns the writes whose outcome it decided."""
        producer = ProducerEpoch(marker.producer_id, marker.producer_epoch)
        header, body = (
            _header(producer, TRANSACTIONAL | CONTROL),
            ControlMarker(marker.committed, 0),
        )
        self.producers.check_marker(header, body, marker.transaction_version)
        self.producers.apply_marker(header, body, self.offset)
        self.offset += 1
        self.markers += 1
        return self.open.pop(producer.id, [])


def _header(producer: ProducerEpoch, attributes: int) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=-1,
        count=1,
    )


class World:
    def __init__(self, epoch: int = 0) -> None:
        self.host = Host(commits=False)
        self.clients = [Client(name, is_v2) for name, is_v2 in CLIENTS]
        self.partitions = {partition: PartitionLog() for partition in PARTITIONS}
        self.network: list[Sent] = []
        self.calls: dict[int, tuple[Sent, int]] = {}
        """Token of a call that is not answered yet -> the call and its partition's guard."""
        self.writes: list[Write] = []
        self.reports: list[WriteMarkers] = []
        self.outcomes: dict[tuple[str, int], bool] = {}
        """Outcome in the markers of each transaction."""
        self.promised: dict[ProducerEpoch, bool] = {}
        """Outcome that a v2 producer was told of its transaction."""
        self.given: set[ProducerEpoch] = set()
        """Identities handed out by InitProducerId to producers that named none."""
        self.seen: Counter[str] = Counter()
        """Events, to see that the faults and the good cases happen."""
        for name in NAMES:
            record = TxnRecord(TxnState.EMPTY, self.host.take_id(), epoch, TIMEOUT_MS, NOW_MS)
            key, value = encode_record(name, record)
            self.host.log.append((key, value))
            self.host.shard.apply(key, value)
        self.host.commit()

    # Clients. With `at_once` the request arrives and is committed before anything else happens.

    def initialise(self, at: int, recover: bool, at_once: bool) -> None:
        client = self.clients[at]
        request = init(client.name, client.producer if recover else None, TIMEOUT_MS)
        self.send(Sent(client, "InitProducerId", request, 5), at_once)

    def produce(self, at: int, partition: Partition, at_once: bool) -> None:
        """A v2 client writes at once; an older one enters the partition first."""
        client = self.clients[at]
        if client.producer is not None:
            request = add(client.producer, [partition], client.name)
            kind, version = ("Produce", 5) if client.is_v2 else ("AddPartitionsToTxn", 3)
            self.send(Sent(client, kind, request, version, partition), at_once)

    def finish(self, at: int, committed: bool, at_once: bool) -> None:
        client = self.clients[at]
        if client.producer is not None:
            request = end(client.producer, committed=committed, name=client.name)
            self.send(Sent(client, "EndTxn", request, 5 if client.is_v2 else 4), at_once)

    def send(self, sent: Sent, at_once: bool) -> None:
        self.network.append(sent)
        if at_once:
            self.arrive(-1, again=False)
            self.commit()

    # The coordinator.

    def arrive(self, at: int, again: bool) -> None:
        sent = self.network[at]
        if not again:
            del self.network[at]
        name = sent.kind if sent.kind in ("EndTxn", "InitProducerId") else "AddPartitionsToTxn"
        log = self.partitions.get(sent.partition)
        guard = log.markers if log else 0
        before = self.host.shard.durable_state()
        try:
            token = self.host.call(name, sent.request, sent.version)
        except Refused as refused:
            self.seen[refused.code.name] += 1
            assert self.host.shard.durable_state() == before, "a refusal changed the state"
            return
        self.calls[token] = sent, guard
        self.answer()

    def commit(self, count: int | None = None) -> None:
        self.host.commit(count)
        self.answer()

    def answer(self) -> None:
        """Delivers the replies whose records are committed."""
        for token in list(self.host.replies):
            reply = self.host.replies.pop(token)
            sent, guard = self.calls.pop(token)
            if sent.kind == "InitProducerId":
                self.initialised(sent, reply)
            elif sent.kind == "EndTxn":
                self.ended(sent, ProducerEpoch(reply.producer_id, reply.producer_epoch))
            elif sent.kind == "AddPartitionsToTxn":
                request = add(_sender(sent), [sent.partition], sent.client.name, verify_only=True)
                self.send(Sent(sent.client, "Verify", request, 4, sent.partition), at_once=False)
            else:
                row = reply.topic_results[0].results_by_partition[0]
                if row.partition_error_code == ErrorCode.NONE:
                    self.allowed(sent, guard)

    def initialised(self, sent: Sent, reply: Any) -> None:
        if reply.error_code != ErrorCode.NONE:
            return
        producer = ProducerEpoch(reply.producer_id, reply.producer_epoch)
        if sent.request.producer_id == NO_PRODUCER.id:
            assert producer not in self.given, "two producers are the same"
            self.given.add(producer)
        else:
            asked = _sender(sent)
            later = [g for g in self.given if g.id == asked.id and g.epoch > asked.epoch]
            assert not later, "a fenced producer came back"
        sent.client.producer = producer

    def ended(self, sent: Sent, successor: ProducerEpoch) -> None:
        producer, committed = _sender(sent), sent.request.committed
        self.seen["committed" if committed else "aborted"] += 1
        if sent.client.is_v2:
            assert self.promised.setdefault(producer, committed) == committed, "two promises"
            assert successor != producer, "the epoch was not bumped"
            if sent.client.producer == producer:
                sent.client.producer = successor

    def allowed(self, sent: Sent, guard: int) -> None:
        # The reply may come after the transaction was ended, but it was given inside it.
        name, producer = sent.client.name, _sender(sent)
        history = [r for r in self.history(name) if r.state is TxnState.ONGOING]
        numbers = [r.number for r in history if r.producer == producer]
        assert numbers, "a write was allowed outside any transaction"
        is_v2 = sent.client.is_v2
        self.writes.append(Write(name, producer, numbers[-1], sent.partition, guard, is_v2))

    def history(self, name: str) -> list[TxnRecord]:
        log = self.host.log
        return [decode_value(v) for k, v in log if v is not None and decode_key(k) == name]

    # Partitions.

    def append(self, at: int) -> None:
        write = self.writes.pop(at)
        try:
            self.partitions[write.partition].append(write)
        except Refused:
            self.seen["late write refused"] += 1

    def write_markers(self, at: int, again: bool, only_first: bool) -> None:
        write = self.host.markers[at]
        if not again and not only_first:
            del self.host.markers[at]
        self.put(write, write.partitions[:1] if only_first else write.partitions)

    def put(self, write: WriteMarkers, partitions: tuple[Partition, ...]) -> None:
        self.check_committed(write)
        record = self.host.shard.durable_state()[write.transactional_id]
        is_due = record.number == write.number and record.state in PREPARED
        if not is_due and write.transaction_version < TRANSACTIONS_V2:
            return  # Before KIP-1228 a coordinator must not send a marker it has given up.
        done = []
        for partition in partitions:
            try:
                closed = self.partitions[partition].end(write)
            except Refused:
                assert not is_due, "a marker that is due was refused"
                self.seen["late marker refused"] += 1
                continue
            done.append(partition)
            for item in closed:
                self.closed(item, write)
        if done:
            self.reports.append(write._replace(partitions=tuple(done)))

    def check_committed(self, write: WriteMarkers) -> None:
        wanted = TxnState.PREPARE_COMMIT if write.committed else TxnState.PREPARE_ABORT
        for key, value in self.host.log[: self.host.committed]:
            if value is not None and decode_key(key) == write.transactional_id:
                record = decode_value(value)
                if (record.state, record.number) == (wanted, write.number):
                    return
        raise AssertionError("a marker for an outcome that is not committed")

    def closed(self, item: Write, write: WriteMarkers) -> None:
        self.seen["write committed" if write.committed else "write aborted"] += 1
        key = (write.transactional_id, write.number)
        assert (item.name, item.number) == key, "a write was ended by another transaction"
        assert self.outcomes.setdefault(key, write.committed) == write.committed, "torn"
        if item.is_v2 and item.producer in self.promised:
            assert self.promised[item.producer] == write.committed, "not what was promised"

    def report(self, at: int, again: bool) -> None:
        write = self.reports[at]
        if not again:
            del self.reports[at]
        self.host.report(write)

    # Time, crashes and the end.

    def wait(self, ms: int) -> None:
        self.host.wait(ms)
        for record in self.host.shard.durable_state().values():
            if record.state is TxnState.ONGOING:
                assert self.host.now_ms < record.start_ms + record.timeout_ms, "not timed out"

    def crash(self, kept: int) -> None:
        self.host.crash(kept)
        self.calls.clear()

    def settle(self) -> None:
        """Ends the faults: every transaction must end, and no partition may wait any longer."""
        self.commit()
        self.crash(kept=0)
        while self.writes:
            self.append(-1)
        for _ in range(2):
            self.wait(TIMEOUT_MS)
            self.commit()
            while self.host.markers:
                self.write_markers(0, again=False, only_first=False)
            while self.reports:
                self.report(-1, again=False)
            self.commit()
        for name, record in self.host.shard.durable_state().items():
            assert record.state in IDLE, f"{name} never ended: {record}"
        for partition, log in self.partitions.items():
            assert not log.open, f"{partition} waits for ever: {log.open}"
            assert log.producers.first_open_offset == -1
        self.check()

    # Invariants.

    def check(self) -> None:
        assert self.host.replayed() == self.host.shard.durable_state(), "a replay differs"
        for name in NAMES:
            history = self.history(name)
            producer_ids = [history[0].producer_id]
            for last, record in itertools.pairwise(history):
                _check_step(last, record, producer_ids)


def _check_step(last: TxnRecord, record: TxnRecord, producer_ids: list[int]) -> None:
    if record.producer_id == last.producer_id:
        assert record.producer_epoch >= last.producer_epoch, "the epoch went back"
    else:
        assert record.producer_id not in producer_ids, "a producer id came back"
        assert record.producer_epoch == 0
        producer_ids.append(record.producer_id)
    assert record.updated_ms >= last.updated_ms, "time went back"
    if last.state in PREPARED:
        is_commit = last.state is TxnState.PREPARE_COMMIT
        outcome = TxnState.COMPLETE_COMMIT if is_commit else TxnState.COMPLETE_ABORT
        assert (record.number, record.state) == (last.number, outcome), "an outcome changed"
    if last.state is TxnState.ONGOING and record.state is TxnState.ONGOING:
        assert record.number == last.number
    limit = EPOCH_MAX - 1 if record.state in (*IDLE, TxnState.ONGOING) else EPOCH_MAX
    assert record.producer_epoch <= limit, "a producer was given the last epoch"


def _sender(sent: Sent) -> ProducerEpoch:
    return ProducerEpoch(sent.request.producer_id, sent.request.producer_epoch)
