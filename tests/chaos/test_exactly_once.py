"""Exactly-once: topic to topic through transactions, while broker and copiers are killed.

Several copiers in one group read a topic whose own writer aborted some of its transactions, and
write every record to another topic, their positions in the same transactions. All of them, and
the broker, are killed again and again, at moments that follow from the seed and from how far the
copying has come. A copier that comes back either takes up its old transactional id, and so ends
what its predecessor left open, or leaves that to the transaction's timeout. Some are not killed
but stopped until the group has given their partitions away, and then go on where they were.

`PENSTOCK_COPIES` says how many records (default 10,000; `make chaos` asks for 200,000),
`PENSTOCK_KILLS_SEED` replays the plan of an earlier run.
"""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.brokers import PenstockProcess
from tests.chaos.anomalies import anomalies
from tests.chaos.copier import GAVE_UP, HUNG, Copy, Journals, Order
from tests.chaos.writers import PATIENT, create_topic
from tests.conftest import QUICK_GROUPS, FreshBroker
from tests.ports import free_port

RECORDS = int(os.environ.get("PENSTOCK_COPIES", "10000"))
SEED = int(os.environ.get("PENSTOCK_KILLS_SEED", time.time_ns() % 1_000_000))
BROKER_KILLS = max(2, RECORDS // 5_000)
COPIER_KILLS = max(2, RECORDS // 4_000)
COPIER_STOPS = max(1, RECORDS // 20_000)
COPIERS = 3
SOURCES = 6
TARGETS = 4
RECORDS_PER_TRANSACTION = 100
TRANSACTION_TIMEOUT_MS = 5_000
SESSION_TIMEOUT_MS = 2_000
STOP_SECONDS = SESSION_TIMEOUT_MS / 1000 + 1
STALL_SECONDS = 90.0
LSO_SECONDS = TRANSACTION_TIMEOUT_MS / 1000 + 10

GROUPS: dict[str, dict[str, Any]] = {
    "classic": {
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": 200,
        "partition.assignment.strategy": "cooperative-sticky",
    },
    "consumer": {"group.protocol": "consumer"},
}

# A life of the broker takes a second or two; a slow machine gets ten.
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240 + 20 * BROKER_KILLS)]


class Run:
    """One run: the broker, the copiers, and how often each was killed."""

    def __init__(self, broker: PenstockProcess, topic: str, protocol: str, journals: Path) -> None:
        self.broker = broker
        self.source, self.target, self.group = f"{topic}-in", f"{topic}-out", f"{topic}-group"
        self.random = random.Random(f"{SEED} {protocol}")
        self.journals = Journals(journals)
        self.broker_kills = self.copier_kills = self.stops = 0
        self.surrenders = self.hangs = 0
        self._group = {"group.id": self.group, **GROUPS[protocol]}
        self._copiers: dict[int, subprocess.Popen[bytes]] = {}
        self._stopped: list[tuple[float, subprocess.Popen[bytes]]] = []
        self._ids = [f"{topic}-copier-{slot}" for slot in range(COPIERS)]
        self._started = 0

    # -- copiers ----------------------------------------------------------------------------

    def start_copier(self, slot: int) -> None:
        self._started += 1
        name = f"copier-{slot}-{self._started}"
        order = Order(
            name=name,
            bootstrap=self.broker.bootstrap,
            source=self.source,
            target=self.target,
            target_partitions=TARGETS,
            transactional_id=self._ids[slot],
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            records_max=RECORDS_PER_TRANSACTION,
            journal=str(self.journals.path(name)),
            group=self._group,
        )
        self._copiers[slot] = order.spawn()

    def kill_copier(self, slot: int) -> None:
        self.copier_kills += 1
        self._copiers[slot].kill()
        self._copiers[slot].wait()
        if self.random.random() < 0.3:
            # A transaction left open by the last one is not ended by its successor.
            self._ids[slot] = f"{self._ids[slot].partition('~')[0]}~{self._started}"
        self.start_copier(slot)

    def stop_copier(self, slot: int) -> None:
        self.stops += 1
        self._copiers[slot].send_signal(signal.SIGSTOP)
        self._stopped.append((time.monotonic() + STOP_SECONDS, self._copiers[slot]))

    def let_stopped_go_on(self) -> None:
        while self._stopped and self._stopped[0][0] < time.monotonic():
            self._stopped.pop(0)[1].send_signal(signal.SIGCONT)

    def revive(self) -> None:
        for slot, process in list(self._copiers.items()):
            code = process.poll()
            if code is not None:
                assert code in (GAVE_UP, HUNG), f"copier {slot} ended with code {code}"
                self.surrenders += 1
                self.hangs += code == HUNG
                self.start_copier(slot)

    def end_copiers(self) -> None:
        for process in self._copiers.values():
            process.kill()
            process.wait()
        self._copiers.clear()
        self.journals.read_on()

    # -- the broker -------------------------------------------------------------------------

    def kill_broker(self) -> None:
        """Sometimes it dies again while it comes up."""
        self.broker_kills += 1
        self.broker.kill()
        time.sleep(self.random.uniform(0.0, 0.3))
        while self.random.random() < 0.25:
            self.broker_kills += 1
            self.broker.spawn()
            time.sleep(self.random.uniform(0.0, 0.8))
            self.broker.kill()
        self.broker.start()

    # -- all of it --------------------------------------------------------------------------

    def strike(self) -> None:
        """Carries out the plan: who is struck, and after how many records."""
        blows: list[Callable[[], None]] = [self.kill_broker] * BROKER_KILLS
        for strike, count in ((self.kill_copier, COPIER_KILLS), (self.stop_copier, COPIER_STOPS)):
            slots = (self.random.randrange(COPIERS) for _ in range(count))
            blows += [partial(strike, slot) for slot in slots]
        self.random.shuffle(blows)
        marks = sorted(self.random.uniform(0.0, 0.9) * RECORDS for _ in blows)
        for mark, blow in zip(marks, blows, strict=True):
            self.wait_copied(int(mark))
            time.sleep(self.random.uniform(0.0, 0.1))
            blow()

    # -- how far it is ----------------------------------------------------------------------

    def wait_copied(self, count: int) -> None:
        """Until that many records are known to be copied; kills make the rest uncertain."""
        best, at = self.journals.copied, time.monotonic()
        while self.journals.copied < count:
            self._look()
            if self.journals.copied > best:
                best, at = self.journals.copied, time.monotonic()
            if time.monotonic() >= at + STALL_SECONDS:
                raise TimeoutError(f"copying stopped at {best}: {self}")

    def wait_done(self, ends: list[int]) -> None:
        """Until the group's positions are at the end of the input."""
        settings = {"bootstrap.servers": self.broker.bootstrap, "group.id": self.group, **PATIENT}
        consumer = Consumer({**settings, "isolation.level": "read_committed"})
        rows = [TopicPartition(self.source, index) for index in range(SOURCES)]
        found: list[int] = []
        best, at = self.journals.copied, time.monotonic()
        while found != ends:
            self._look()
            if self.journals.copied > best:
                best, at = self.journals.copied, time.monotonic()
            if time.monotonic() >= at + STALL_SECONDS:
                raise TimeoutError(f"{found} is not {ends}: {self}")
            with contextlib.suppress(KafkaException):  # A position may still be unstable.
                found = [row.offset for row in consumer.committed(rows, timeout=2)]
        consumer.close()

    def _look(self) -> None:
        time.sleep(0.005)
        self.journals.read_on()
        self.let_stopped_go_on()
        self.revive()

    def __str__(self) -> str:
        fates = list(self.journals.fates.values())
        return (
            f"{self.journals.copied} records known to be copied; transactions: "
            f"{fates.count('committed')} committed, {fates.count('aborted')} aborted, "
            f"{fates.count('begun')} cut off; kills: {self.broker_kills} broker, "
            f"{self.copier_kills} copiers; {self.stops} stopped, {self.surrenders} gave up, "
            f"{self.hangs} of them hung; "
            f"failures {self.journals.failures}, troubles {self.journals.troubles}"
        )


def feed(bootstrap: str, topic: str) -> list[int]:
    """Fills the input, with aborted transactions between; the end of each partition's records."""
    ends = [0] * SOURCES

    def delivered(error: object, message: Any) -> None:
        assert error is None, error
        if message.value() != b"-1":
            ends[message.partition()] = message.offset() + 1

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, **PATIENT})
    producer.init_transactions(30)
    for start in range(0, RECORDS, 500):
        producer.begin_transaction()
        for index in range(SOURCES):
            producer.produce(topic, b"-1", partition=index, on_delivery=delivered)
        producer.flush(30)
        producer.abort_transaction(30)
        producer.begin_transaction()
        for number in range(start, min(start + 500, RECORDS)):
            value = b"%d" % (number // SOURCES)
            producer.produce(topic, value, partition=number % SOURCES, on_delivery=delivered)
        producer.commit_transaction(30)
    return ends


def source_counts() -> list[int]:
    return [len(range(index, RECORDS, SOURCES)) for index in range(SOURCES)]


def abandon_transaction(bootstrap: str, topic: str) -> None:
    """Leaves a transaction open on every partition, so that only its timeout ends it."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-abandoned"}
    timeout = {"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
    producer = Producer({**settings, **timeout, **PATIENT})
    producer.init_transactions(30)
    producer.begin_transaction()
    for index in range(TARGETS):
        producer.produce(topic, Copy(0, -1, "abandoned", TARGETS).encode(), partition=index)
    producer.flush(30)


def ends_of(admin: AdminClient, topic: str, isolation: IsolationLevel) -> list[int]:
    rows = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(TARGETS)}
    found = admin.list_offsets(rows, isolation_level=isolation, request_timeout=20)
    return [found[row].result(20).offset for row in rows]


def wait_last_stable(bootstrap: str, topic: str) -> float:
    """Seconds until the last stable offset is the end offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **PATIENT})
    started = time.monotonic()
    while True:
        ends = ends_of(admin, topic, IsolationLevel.READ_UNCOMMITTED)
        stable = ends_of(admin, topic, IsolationLevel.READ_COMMITTED)
        seconds = time.monotonic() - started
        if stable == ends:
            return seconds
        if seconds >= LSO_SECONDS:
            raise TimeoutError(f"last stable offsets stuck at {stable}, ends are {ends}")
        time.sleep(0.1)


def read_copies(bootstrap: str, topic: str) -> list[list[Copy]]:
    """Everything in the output that read_committed shows, by partition, in order."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "checker", **PATIENT}
    reading = {"isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({**settings, **reading, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(TARGETS)])
    copies: list[list[Copy]] = [[] for _ in range(TARGETS)]
    at_end: set[int] = set()
    while len(at_end) < TARGETS:
        messages = consumer.consume(1_000, 1.0)
        for message in messages:
            partition = message.partition()
            assert partition is not None
            if message.error() is None:
                copies[partition].append(Copy.decode(message.value() or b""))
            else:
                at_end.add(partition)
    consumer.close()
    return copies


@pytest.fixture(params=list(GROUPS))
def run(
    fresh_broker: FreshBroker, tmp_path: Path, topic: str, request: pytest.FixtureRequest
) -> Iterator[Run]:
    sets = {**QUICK_GROUPS, "group.consumer.session.timeout.ms": SESSION_TIMEOUT_MS}
    broker = fresh_broker(tmp_path / "data", sets=sets, kafka_port=free_port())
    made = Run(broker, topic, request.param, tmp_path)
    yield made
    made.end_copiers()


def test_copying_is_exactly_once_under_kills(run: Run) -> None:
    print(f"PENSTOCK_COPIES={RECORDS} PENSTOCK_KILLS_SEED={SEED}")
    started = time.monotonic()
    bootstrap = run.broker.bootstrap
    create_topic(bootstrap, run.source, SOURCES)
    create_topic(bootstrap, run.target, TARGETS, segment_bytes="1048576")
    ends = feed(bootstrap, run.source)
    for slot in range(COPIERS):
        run.start_copier(slot)
    run.strike()
    run.wait_done(ends)
    run.end_copiers()
    abandon_transaction(bootstrap, run.target)
    run.kill_broker()
    seconds = wait_last_stable(bootstrap, run.target)
    print(f"{run}; last stable offset at the end after {seconds:.1f} s; ", end="")
    copies = read_copies(bootstrap, run.target)
    print(f"{sum(map(len, copies))} records, {time.monotonic() - started:.0f} s in all")
    assert anomalies(source_counts(), copies, run.journals.fates) == []
    assert "Traceback" not in run.broker.log_path.read_text()
