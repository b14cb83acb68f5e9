"""Transactions that append to several partitions, and readers of committed records.

Each writer has a transactional id of its own. One transaction in six is aborted on purpose. A
writer with an unknown outcome starts again as a new producer with the same id, which ends the
transaction left open.
"""

import time

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.histories.logs import Reads, read_to_end
from tests.histories.workload import QUIET, Workload

PARTITIONS = 4
WRITERS, READERS = 4, 2
RECORDS_MAX = 3
TIMEOUT_MS = 8_000
STEP_S = 4.0
PAUSE_S = 0.05


class Transactions(Workload):
    """Commits and aborts over the partitions of one topic."""

    model = "transactions"
    watched = "transactions"

    def prepare(self) -> None:
        self.create(self.watched, PARTITIONS)

    def begin(self) -> None:
        for n in range(WRITERS):
            self._run(f"t{n}", _Writes(self, f"t{n}").step, PAUSE_S)
        for n in range(READERS):
            reads = Reads(self, f"r{n}", self.watched, PARTITIONS, "read_committed")
            self._run(f"r{n}", reads.step, PAUSE_S)

    def look(self) -> None:
        bootstrap = self.cluster.bootstrap
        read_to_end(bootstrap, self.journal, self.watched, PARTITIONS, "read_committed")


class _Writes:
    """One producer, one transaction after another."""

    def __init__(self, workload: Transactions, name: str) -> None:
        self._workload, self._name = workload, name
        self._count = 0
        self._chance = workload._chance()
        self._producer: Producer | None = None

    def step(self) -> None:
        try:
            if self._producer is None:
                self._producer = self._made()
            self._transact(self._producer)
        except KafkaException:
            self._producer = None

    def _made(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._workload.cluster.bootstrap,
                **QUIET,
                "transactional.id": self._name,
                "transaction.timeout.ms": TIMEOUT_MS,
                "linger.ms": 0,
            }
        )
        producer.init_transactions(STEP_S)
        return producer

    def _transact(self, producer: Producer) -> None:
        self._count += 1
        name = f"{self._name}.{self._count}"
        partitions = self._chance.sample(range(PARTITIONS), self._chance.randint(1, RECORDS_MAX))
        writes = {p: {"key": str(p), "value": f"{name}/{p}", "offset": -1} for p in partitions}

        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None and offset is not None:
                writes[message.partition() or 0]["offset"] = offset

        rows = list(writes.values())
        # Until its commit is asked for it cannot have happened.
        call = self._workload.journal.call(self._name, "transaction", value=name, writes=rows)
        is_asked = False
        try:
            producer.begin_transaction()
            for partition, row in writes.items():
                value = str(row["value"]).encode()
                topic = self._workload.watched
                producer.produce(topic, value, partition=partition, on_delivery=delivered)
            if self._chance.random() < 1 / 6:
                producer.flush(self._chance.random() * STEP_S)
                producer.abort_transaction(STEP_S)
                call.fail("aborted on purpose")
                return
            producer.flush(STEP_S)
            is_asked = True
            call.again()
            self._commit(producer)
            call.ok()
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if not is_asked:
                call.fail(error.name())
                raise
            if not error.txn_requires_abort():
                call.info(error.name())
                raise
            # The condition of an abort: it is not committed, and never will be once it is aborted.
            try:
                producer.abort_transaction(STEP_S)
            except KafkaException:
                call.info(error.name())
                raise
            call.fail(error.name())

    def _commit(self, producer: Producer) -> None:
        """Asked again for as long as the client says that this is the thing to do."""
        deadline = time.monotonic() + 2 * STEP_S
        while True:
            try:
                producer.commit_transaction(STEP_S)
                return
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if not error.retriable() or time.monotonic() > deadline:
                    raise
