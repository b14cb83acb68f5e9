"""Transactions that follow each other while nodes are killed: all of one, or none of it."""

import threading
from typing import Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.chaos.writers import PATIENT, high_watermarks

TOPIC: Final = "paid"
NAME: Final = "cashier"
PARTITIONS: Final = 3
TIMEOUT_S: Final = 60.0


class Transactions:
    """One producer; each transaction writes its number to every partition."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.committed: list[int] = []
        self.aborted: set[int] = set()
        self.in_doubt: set[int] = set()
        """Transactions with an unknown outcome."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="transactions", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        producer: Producer | None = None
        while not self._stopping.is_set():
            number += 1
            is_committing = False
            try:
                if producer is None:
                    producer = self._begin()
                producer.begin_transaction()
                for partition in range(PARTITIONS):
                    producer.produce(TOPIC, b"%d" % number, partition=partition)
                producer.flush(TIMEOUT_S)
                if number % 5 == 0:
                    producer.abort_transaction(TIMEOUT_S)
                    self.aborted.add(number)
                else:
                    is_committing = True
                    producer.commit_transaction(TIMEOUT_S)
                    self.committed.append(number)
            except KafkaException as error:
                producer = self._after(producer, error, number, is_committing=is_committing)
            self._stopping.wait(0.02)

    def _begin(self) -> Producer:
        settings = {"bootstrap.servers": self._bootstrap, "transactional.id": NAME}
        producer = Producer({**settings, **PATIENT})
        producer.init_transactions(TIMEOUT_S)
        return producer

    def _after(
        self, producer: Producer | None, error: KafkaException, number: int, *, is_committing: bool
    ) -> Producer | None:
        """The producer that continues: the same one if the transaction can be aborted, else a new
        one, which ends the transaction left open.
        """
        told = error.args[0]
        if producer is not None and isinstance(told, KafkaError) and told.txn_requires_abort():
            try:
                producer.abort_transaction(TIMEOUT_S)
            except KafkaException:
                pass
            else:
                self.aborted.add(number)
                return producer
        (self.in_doubt if is_committing else self.aborted).add(number)
        return None

    def check(self) -> int:
        """Committed records are there once in every partition and in order, and nothing else is."""
        expected = set(self.committed)
        for partition, end in enumerate(high_watermarks(self._bootstrap, TOPIC, PARTITIONS)):
            found = [int(message.value() or b"") for message in self._read(partition, end)]
            assert found == sorted(set(found)), f"[{partition}] twice, or out of order"
            missing = expected - set(found)
            assert not missing, f"[{partition}] committed and lost: {sorted(missing)[:10]}"
            strange = set(found) - expected - self.in_doubt
            assert not strange, f"[{partition}] never committed: {sorted(strange)[:10]}"
        return len(expected)

    def _read(self, partition: int, end: int) -> list[Message]:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "auditor", **PATIENT}
        consumer = Consumer(
            {
                **settings,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        found: list[Message] = []
        try:
            consumer.assign([TopicPartition(TOPIC, partition, 0)])
            while True:
                message = consumer.poll(60)
                assert message is not None, f"[{partition}] says nothing before {end}"
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    return found
                found.append(message)
        finally:
            consumer.close()
