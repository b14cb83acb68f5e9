"""Producers fight over transactional ids while everything that can go wrong does.

The real shard runs on a small host, and real partition state (`penstock.log.producers`) stands
behind it. Requests, writes, markers and reports are delayed, reordered and repeated; records are
committed late; the coordinator crashes and loses what was not committed.
"""

from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from penstock.base.errors import ErrorCode, Refused
from penstock.log.producers import Producers
from penstock.txns.markers import WriteMarkers
from penstock.txns.records import (
    EPOCH_MAX,
    PREPARED,
    Producer,
    TxnRecord,
    TxnState,
    decode_key,
    decode_value,
    encode_record,
)
from penstock.wire.markers import Marker
from penstock.wire.records import CONTROL, TRANSACTIONAL, BatchHeader
from tests.unit.txns.building import NOW_MS, Host, add, end, init

NAMES = ("a", "b")
PARTITIONS = (("x", 0), ("x", 1), ("y", 0))
TIMEOUT_MS = 1_000
INIT_VERSION = 5
ABORTS = frozenset(("PREPARE_ABORT", "COMPLETE_ABORT"))


class Write(NamedTuple):
    """A batch on its way to a partition, allowed by the coordinator."""

    name: str
    producer: Producer
    number: int
    """The transaction in which the coordinator allowed it."""
    partition: tuple[str, int]
    guard: int
    """Markers the partition had when the coordinator was asked."""


class Partition:
    """One partition's log as far as transactions go."""

    def __init__(self) -> None:
        self.producers = Producers(expiration_ms=10**9)
        self.open: dict[int, list[Write]] = {}
        self.markers = 0
        self.offset = 0

    def append(self, write: Write, is_guarded: bool) -> None:
        header = self._header(write.producer, TRANSACTIONAL)
        # Before KIP-890 the epoch does not tell a late write; the partition's guard does.
        if is_guarded and write.guard != self.markers and write.producer.id not in self.open:
            raise Refused(ErrorCode.INVALID_TXN_STATE)
        self.producers.check(header)
        self.producers.apply(header, self.offset)
        self.offset += 1
        self.open.setdefault(write.producer.id, []).append(write)

    def end(self, marker: WriteMarkers) -> list[Write]:
        """Takes a marker and returns the writes whose outcome it decided."""
        producer = Producer(marker.producer_id, marker.producer_epoch)
        header = self._header(producer, TRANSACTIONAL | CONTROL)
        body = Marker(marker.committed, 0)
        self.producers.check_marker(header, body, marker.transaction_version)
        self.producers.apply_marker(header, body, self.offset)
        self.offset += 1
        self.markers += 1
        return self.open.pop(producer.id, [])

    def _header(self, producer: Producer, attributes: int) -> BatchHeader:
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


class Client:
    """A producer that believes in an identity; `is_v2` for KIP-890."""

    def __init__(self, name: str, is_v2: bool) -> None:
        self.name = name
        self.is_v2 = is_v2
        self.producer: Producer | None = None


class Sent(NamedTuple):
    """A request on its way to the coordinator; it may arrive more than once."""

    client: Client
    kind: str
    request: Any
    partition: tuple[str, int] | None


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.host = Host(commits=False)
        self.clients = [Client(name, is_v2) for name in NAMES for is_v2 in (True, True, False)]
        self.partitions = {partition: Partition() for partition in PARTITIONS}
        self.network: list[Sent] = []
        self.calls: dict[int, Sent] = {}
        self.guards: dict[int, int] = {}
        self.writes: list[Write] = []
        self.reports: list[WriteMarkers] = []
        self.outcomes: dict[tuple[str, int, int], bool] = {}
        """By id, number and partition-independent: what markers said."""
        self.promised: dict[Producer, bool] = {}
        """What a v2 producer was told of its transaction."""
        self.given: set[Producer] = set()
        """Identities given by InitProducerId without an expected one."""

    @initialize(epoch=st.sampled_from((0, EPOCH_MAX - 4, EPOCH_MAX - 2)))
    def begin_with(self, epoch: int) -> None:
        for name in NAMES:
            record = TxnRecord(TxnState.EMPTY, self.host.take_id(), epoch, TIMEOUT_MS, NOW_MS)
            key, value = encode_record(name, record)
            self.host.log.append((key, value))
            self.host.shard.apply(key, value)
        self.host.commit()

    # Clients.

    clients_at = st.integers(0, 5)

    @rule(at=clients_at, recover=st.booleans())
    def initialise(self, at: int, recover: bool) -> None:
        client = self.clients[at]
        expected = client.producer if recover else None
        request = init(client.name, expected, TIMEOUT_MS)
        self.network.append(Sent(client, "InitProducerId", request, None))

    @rule(at=clients_at, partition=st.sampled_from(PARTITIONS))
    def write(self, at: int, partition: tuple[str, int]) -> None:
        """A v2 client writes at once; an older one enters the partition first."""
        client = self.clients[at]
        if client.producer is not None:
            request = add(client.producer, [partition], client.name)
            kind = "Produce" if client.is_v2 else "AddPartitionsToTxn"
            self.network.append(Sent(client, kind, request, partition))

    @rule(at=clients_at, committed=st.booleans())
    def finish(self, at: int, committed: bool) -> None:
        client = self.clients[at]
        if client.producer is not None:
            request = end(client.producer, committed=committed, name=client.name)
            self.network.append(Sent(client, "EndTxn", request, None))

    # The network and the coordinator.

    @precondition(lambda self: self.network)
    @rule(data=st.data(), again=st.booleans(), last=st.booleans())
    def arrive(self, data: st.DataObject, again: bool, last: bool) -> None:
        count = len(self.network) - 1
        at = count if last else data.draw(st.integers(0, count))
        sent = self.network[at]
        if not again:
            del self.network[at]
        version = {"EndTxn": 5 if sent.client.is_v2 else 4, "InitProducerId": INIT_VERSION}.get(
            sent.kind, 5 if sent.client.is_v2 else 3
        )
        if sent.kind == "Verify":
            version = 4
        name = sent.kind if sent.kind in ("EndTxn", "InitProducerId") else "AddPartitionsToTxn"
        guard = self.partitions[sent.partition].markers if sent.partition else 0
        before = self.host.shard.durable_state()
        try:
            token = self.host.call(name, sent.request, version)
        except Refused:
            assert self.host.shard.durable_state() == before, "a refusal changed the state"
            return
        self.calls[token] = sent
        self.guards[token] = guard
        self.answer()

    @rule(count=st.integers(1, 3))
    def commit(self, count: int) -> None:
        self.host.commit(count)
        self.answer()

    @rule()
    def commit_all(self) -> None:
        self.host.commit()
        self.answer()

    def answer(self) -> None:
        """Hands out the replies whose records are committed."""
        for token in list(self.host.replies):
            reply, sent = self.host.replies.pop(token), self.calls.pop(token)
            client, request = sent.client, sent.request
            if sent.kind == "InitProducerId" and reply.error_code == ErrorCode.NONE:
                client.producer = Producer(reply.producer_id, reply.producer_epoch)
                if request.producer_id < 0:
                    assert client.producer not in self.given, "two producers are the same"
                    self.given.add(client.producer)
            elif sent.kind == "EndTxn":
                self.ended(client, request, Producer(reply.producer_id, reply.producer_epoch))
            elif sent.kind in ("Produce", "Verify"):
                codes = reply.topic_results[0].results_by_partition
                if codes[0].partition_error_code == ErrorCode.NONE:
                    self.allowed(sent, self.guards[token])
            elif sent.kind == "AddPartitionsToTxn":
                assert sent.partition is not None
                check = add(
                    Producer(request.producer_id, request.producer_epoch),
                    [sent.partition],
                    client.name,
                    verify_only=True,
                )
                self.network.append(Sent(client, "Verify", check, sent.partition))

    def ended(self, client: Client, request: Any, successor: Producer) -> None:
        producer = Producer(request.producer_id, request.producer_epoch)
        if not client.is_v2:
            return
        assert self.promised.setdefault(producer, request.committed) == request.committed
        assert successor != producer
        if client.producer == producer:
            client.producer = successor

    def allowed(self, sent: Sent, guard: int) -> None:
        assert sent.partition is not None
        producer = Producer(sent.request.producer_id, sent.request.producer_epoch)
        # The reply may come after the transaction was ended, but it was given inside it.
        number = self.number_of(sent.client.name, producer)
        self.writes.append(Write(sent.client.name, producer, number, sent.partition, guard))

    def number_of(self, name: str, producer: Producer) -> int:
        """The number of the last transaction in which this producer had partitions."""
        numbers = [
            record.number
            for record in self.history(name)
            if record.state is TxnState.ONGOING and record.producer == producer
        ]
        return numbers[-1]

    def history(self, name: str) -> list[TxnRecord]:
        return [
            decode_value(value)
            for key, value in self.host.log
            if value is not None and decode_key(key) == name
        ]

    # Partitions.

    @precondition(lambda self: self.writes)
    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.writes) - 1))
        write = self.writes.pop(at)
        is_v2 = any(c.is_v2 and c.name == write.name for c in self.clients)
        try:
            self.partitions[write.partition].append(write, is_guarded=True)
        except Refused as refused:
            assert is_v2 or refused.code is not ErrorCode.NONE

    @precondition(lambda self: self.host.markers)
    @rule(data=st.data(), again=st.booleans(), one=st.booleans())
    def write_markers(self, data: st.DataObject, again: bool, one: bool) -> None:
        at = data.draw(st.integers(0, len(self.host.markers) - 1))
        write = self.host.markers[at]
        if not again and not one:
            del self.host.markers[at]
        self.put(write, write.partitions[:1] if one else write.partitions)

    def put(self, write: WriteMarkers, partitions: tuple[tuple[str, int], ...]) -> None:
        self.check_prepared(write)
        record = self.host.shard.durable_state().get(write.transactional_id)
        is_late = record is None or (record.number, record.state in PREPARED) != (
            write.number,
            True,
        )
        if is_late and write.transaction_version < 2:
            return  # Before KIP-1228 the host itself must not send a marker it has given up.
        done = []
        for partition in partitions:
            try:
                closed = self.partitions[partition].end(write)
            except Refused:
                assert is_late, "a marker that is due was refused"
                continue
            done.append(partition)
            for item in closed:
                self.closed(item, write)
        if done:
            self.reports.append(write._replace(partitions=tuple(done)))

    def check_prepared(self, write: WriteMarkers) -> None:
        wanted = TxnState.PREPARE_COMMIT if write.committed else TxnState.PREPARE_ABORT
        assert any(
            value is not None
            and decode_key(key) == write.transactional_id
            and decode_value(value).state is wanted
            and decode_value(value).number == write.number
            for key, value in self.host.log[: self.host.committed]
        ), "a marker for an outcome that is not committed"

    def closed(self, item: Write, write: WriteMarkers) -> None:
        assert (item.name, item.number) == (write.transactional_id, write.number), (
            "a write was ended by the marker of another transaction"
        )
        key = (item.name, item.producer.id, item.number)
        assert self.outcomes.setdefault(key, write.committed) == write.committed, "torn"
        if item.producer in self.promised and write.transaction_version == 2:
            assert self.promised[item.producer] == write.committed, "not what was promised"

    @precondition(lambda self: self.reports)
    @rule(data=st.data(), again=st.booleans())
    def report(self, data: st.DataObject, again: bool) -> None:
        at = data.draw(st.integers(0, len(self.reports) - 1))
        write = self.reports[at]
        if not again:
            del self.reports[at]
        self.host.report(write)

    # Time and crashes.

    @rule(ms=st.sampled_from((1, 300, TIMEOUT_MS)))
    def wait(self, ms: int) -> None:
        self.host.wait(ms)
        for record in self.host.shard.durable_state().values():
            if record.state is TxnState.ONGOING:
                assert self.host.now_ms < record.start_ms + record.timeout_ms, "not timed out"

    @rule(kept=st.integers(0, 4))
    def crash(self, kept: int) -> None:
        self.host.crash(kept)
        self.calls.clear()

    # What must always hold.

    @invariant()
    def a_replay_gives_the_live_state(self) -> None:
        assert self.host.replayed() == self.host.shard.durable_state()

    @invariant()
    def epochs_never_go_back_and_outcomes_never_change(self) -> None:
        for name in NAMES:
            seen: list[int] = []
            last: TxnRecord | None = None
            for record in self.history(name):
                if last is not None:
                    self.check_step(last, record, seen)
                if record.producer_id not in seen:
                    seen.append(record.producer_id)
                last = record

    def check_step(self, last: TxnRecord, record: TxnRecord, seen: list[int]) -> None:
        if record.producer_id == last.producer_id:
            assert record.producer_epoch >= last.producer_epoch, "the epoch went back"
            assert record.producer_epoch <= EPOCH_MAX
        else:
            assert record.producer_id not in seen, "a producer id came back"
            assert record.producer_epoch == 0
        assert record.updated_ms >= last.updated_ms
        if record.number == last.number and last.state in PREPARED:
            is_abort = record.state.name in ABORTS
            assert record.state.name.startswith("COMPLETE") and is_abort == (
                last.state.name in ABORTS
            ), "an outcome changed"
        if record.state.name.startswith("COMPLETE"):
            assert record.producer_epoch < EPOCH_MAX, "the last epoch was given away"

    def teardown(self) -> None:
        """The faults end: every transaction must end, and no partition be left waiting."""
        self.host.commit()
        self.answer()
        while self.writes:
            self.append_last()
        for _ in range(2):
            self.host.wait(TIMEOUT_MS)
            self.host.commit()
            for write in self.host.shard.pending_markers():
                self.put(write, write.partitions)
            while self.reports:
                self.host.report(self.reports.pop())
            self.host.commit()
        for name, record in self.host.shard.durable_state().items():
            idle = (TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)
            assert record.state in idle, f"{name} never ended: {record}"
        for partition, state in self.partitions.items():
            assert not state.open, f"{partition} waits for ever: {state.open}"
            assert state.producers.first_open_offset == -1

    def append_last(self) -> None:
        write = self.writes.pop()
        try:
            self.partitions[write.partition].append(write, is_guarded=True)
        except Refused:
            return


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
