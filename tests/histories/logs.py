"""A log: idempotent producers of librdkafka append, consumers read; every record is one operation.

An append that librdkafka gives up is not certain, and its producer is replaced: another might not
go on after it. A read says which records are between two offsets; a consumer that lost its place
says so and begins there again.
"""

import time
from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka._model import IsolationLevel
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.histories.journal import Journal
from tests.histories.workload import FINISH_S, QUIET, Workload

PARTITIONS = 3
WRITERS, READERS = 4, 2
GIVEN_UP_MS = 6_000
PAUSE_S = 0.02
SETTLE_S = 60.0


class Logs(Workload):
    """Appends and reads of one topic."""

    model = "log"
    watched = "log"

    def prepare(self) -> None:
        self.create(self.watched, PARTITIONS)

    def begin(self) -> None:
        for n in range(WRITERS):
            self._run(f"w{n}", _Appends(self, f"w{n}").step, PAUSE_S)
        for n in range(READERS):
            reads = Reads(self, f"r{n}", self.watched, PARTITIONS, "read_uncommitted")
            self._run(f"r{n}", reads.step, PAUSE_S)

    def look(self) -> None:
        bootstrap = self.cluster.bootstrap
        read_to_end(bootstrap, self.journal, self.watched, PARTITIONS, "read_uncommitted")


class _Appends:
    """One writer: one record at a time."""

    def __init__(self, workload: Logs, name: str) -> None:
        self._workload, self._name = workload, name
        self._count = 0
        self._chance = workload._chance()
        self._producer: Producer | None = None

    def step(self) -> None:
        if self._producer is None:
            bootstrap = {"bootstrap.servers": self._workload.cluster.bootstrap}
            usual = {"enable.idempotence": True, "message.timeout.ms": GIVEN_UP_MS, "linger.ms": 0}
            self._producer = Producer({**bootstrap, **QUIET, **usual})
        partition = self._chance.randrange(PARTITIONS)
        self._count += 1
        value = f"{self._name} {self._count}"
        answers: list[tuple[KafkaError | None, Message]] = []
        call = self._workload.journal.call(self._name, "append", key=str(partition), value=value)
        self._producer.produce(
            self._workload.watched,
            value.encode(),
            partition=partition,
            on_delivery=lambda error, message: answers.append((error, message)),
        )
        deadline = time.monotonic() + GIVEN_UP_MS / 1000 + 2
        try:
            while not answers and time.monotonic() < deadline:
                self._producer.poll(0.1)
        except KafkaException as failure:
            # It goes on never again: what it has sent is not certain.
            self._producer = None
            call.info(failure.args[0].name())
            return
        error, message = answers[0] if answers else (None, None)
        if message is None or error is not None:
            self._producer = None
            call.info("no answer" if error is None else error.name())
            return
        offset = message.offset()
        call.ok(offset=-1 if offset is None else offset)


class Reads:
    """One reader of all partitions, from their beginning."""

    def __init__(
        self, workload: Workload, name: str, topic: str, partitions: int, isolation: str
    ) -> None:
        self._journal, self._name, self._topic = workload.journal, name, topic
        self._places = dict.fromkeys(range(partitions), 0)
        self._consumer = Consumer(
            {
                "bootstrap.servers": workload.cluster.bootstrap,
                **QUIET,
                "group.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": isolation,
                "fetch.wait.max.ms": 50,
                "check.crcs": True,
            }
        )
        self._assign()

    def _assign(self) -> None:
        rows = [TopicPartition(self._topic, p, at) for p, at in self._places.items()]
        self._consumer.assign(rows)

    def step(self) -> None:
        began_ns = self._journal.now_ns()
        found: dict[int, list[Message]] = defaultdict(list)
        errors: list[str] = []
        for message in self._consumer.consume(200, 0.1):
            error = message.error()
            if error is not None:
                errors.append(f"{error.name()}: {error.str()}")
            else:
                found[message.partition() or 0].append(message)
        for partition, messages in found.items():
            fields = {"key": str(partition), **shown(self._places[partition], messages)}
            self._places[partition] = fields["next"]
            self._journal.done(began_ns, self._name, "read", **fields)
        if errors:
            for error in errors:
                self._journal.call(self._name, "read").fail(error)
            time.sleep(0.2)
            self._assign()


def shown(first: int, messages: list[Message]) -> dict[str, Any]:
    """Content of the log from `first` on, as these messages show it."""
    records = [{"offset": m.offset(), "value": (m.value() or b"").decode()} for m in messages]
    return {"from": first, "next": (messages[-1].offset() or 0) + 1, "records": records}


def read_to_end(
    bootstrap: str, journal: Journal, topic: str, partitions: int, isolation: str
) -> None:
    """Every partition from its beginning, as soon as no transaction is open in it."""
    settings = {"bootstrap.servers": bootstrap, **QUIET}
    admin = AdminClient(settings)
    rows = [TopicPartition(topic, p) for p in range(partitions)]
    deadline = time.monotonic() + SETTLE_S
    while (ends := ends_of(admin, rows, True)) is None or ends != ends_of(admin, rows, False):
        if time.monotonic() > deadline:
            raise TimeoutError(f"transactions stay open in {topic}: {ends}")
        time.sleep(0.1)
    for row, end in zip(rows, ends, strict=True):
        call = journal.call("last", "read", key=str(row.partition), final=True)
        found = read_all(settings, TopicPartition(topic, row.partition, 0), end, isolation)
        fields = shown(0, found) if found else {"from": 0, "records": []}
        call.ok(**{**fields, "next": end})


def ends_of(admin: AdminClient, rows: list[TopicPartition], is_committed: bool) -> list[int] | None:
    """None: not all of them are answered yet."""
    level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
    asked = {row: OffsetSpec.latest() for row in rows}
    try:
        told = admin.list_offsets(asked, isolation_level=level, request_timeout=5)
        found = {row.partition: future.result(10).offset for row, future in told.items()}
    except KafkaException:
        return None
    return [found[row.partition] for row in rows]


def read_all(
    settings: dict[str, Any], start: TopicPartition, end: int, level: str
) -> list[Message]:
    own = {"group.id": "last", "enable.partition.eof": True, "isolation.level": level}
    consumer = Consumer({**settings, **own, "auto.offset.reset": "error"})
    found: list[Message] = []
    deadline = time.monotonic() + FINISH_S
    try:
        consumer.assign([start])
        while True:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{start} cannot be read up to {end}: {len(found)} records")
            for message in consumer.consume(1_000, 0.1):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    if (message.offset() or 0) >= end:
                        return found
                else:
                    raise TimeoutError(f"{start} cannot be read: {error.str()}")
    finally:
        consumer.close()
