"""One copier: reads a topic, writes another, its offsets inside the same transactions (KIP-447).

Run as a program until it is killed: `python -m tests.chaos.copier ORDER-AS-JSON`. It writes every
step to its journal, one line at a time, so that the test can still read how far it came. Each
record holds its source, target and transaction: see `Copy`.

A transaction that fails is aborted and its records are read again. A producer that cannot continue
(fenced, or in doubt) ends the process with `GAVE_UP`, one that hangs with `HUNG`; the test then
starts another.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos.writers import PATIENT

GAVE_UP = 3
HUNG = -signal.SIGALRM
STEP_SECONDS = 10.0
POLL_SECONDS = 0.1
HANG_SECONDS = 15
"""After the coordinator was away, librdkafka 2.x may wait in send_offsets_to_transaction for ever,
whatever its timeout (its issues 5456 and 5511). The alarm ends the process then."""
STEADY = {**PATIENT, "metadata.recovery.strategy": "none"}
"""Without the strategy a client forgets all brokers when the only one is away for a moment."""


class Copy(NamedTuple):
    """One record of the output: which record of the input it is, and who brought it over."""

    source: int
    number: int
    transaction: str
    size: int
    """Number of records in this transaction."""

    def encode(self) -> bytes:
        return f"{self.source} {self.number} {self.transaction} {self.size}".encode()

    @classmethod
    def decode(cls, value: bytes) -> "Copy":
        source, number, transaction, size = value.decode().split()
        return cls(int(source), int(number), transaction, int(size))


def target_of(source: int, number: int, partitions: int) -> int:
    """Every input partition is spread over all of the output, so transactions span it too."""
    return (source + number) % partitions


@dataclass(frozen=True)
class Order:
    """Settings of one copier."""

    name: str
    bootstrap: str
    source: str
    target: str
    target_partitions: int
    transactional_id: str
    transaction_timeout_ms: int
    records_max: int
    """Of one transaction."""
    journal: str
    group: dict[str, Any]
    """The consumer's settings."""

    def spawn(self) -> "subprocess.Popen[bytes]":
        text = json.dumps(dataclasses.asdict(self))
        return subprocess.Popen([sys.executable, "-m", "tests.chaos.copier", text])


class Copier:
    """A consumer and a producer, and the loop between them."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._journal = os.open(order.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._count = 0
        shared = {"bootstrap.servers": order.bootstrap, **STEADY, "retry.backoff.ms": 20}
        self._producer = Producer(
            {
                **shared,
                "transactional.id": order.transactional_id,
                "transaction.timeout.ms": order.transaction_timeout_ms,
                "linger.ms": 2,
            }
        )
        self._consumer = Consumer(
            {
                **shared,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                **order.group,
            }
        )

    def run(self) -> None:
        self._persist("init", lambda: self._producer.init_transactions(STEP_SECONDS))
        self._consumer.subscribe([self._order.source], on_assign=self._begin)
        parent = os.getppid()
        while os.getppid() == parent:
            messages = []
            for message in self._consumer.consume(self._order.records_max, POLL_SECONDS):
                error = message.error()
                if error is None:
                    messages.append(message)
                else:
                    self._note("trouble", error.name())
            member = self._consumer.consumer_group_metadata()
            # Only a member's commit is fenced. A copier that has just lost its membership leaves
            # this to the new owner of the partitions.
            if messages and self._consumer.memberid():
                self._copy(messages, member)

    def _begin(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Begins where the group is, once no open transaction may still move that.

        librdkafka asks by itself, too; but where the assignment changes while a position is still
        unstable, it takes the partition for one without a position and begins at its start.
        """
        rows = partitions
        while True:
            try:
                rows = consumer.committed(partitions, timeout=STEP_SECONDS)
            except KafkaException as failure:
                self._note("trouble", failure.args[0].name())
                continue
            if not any(row.error for row in rows):
                break
        consumer.incremental_assign(
            [TopicPartition(row.topic, row.partition, max(row.offset, 0)) for row in rows]
        )

    def _copy(self, messages: Sequence[Message], member: object) -> None:
        self._count += 1
        name = f"{self._order.name}.{self._count}"
        self._note("begun", name)
        signal.alarm(HANG_SECONDS)
        try:
            self._transact(name, messages, member)
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if not error.txn_requires_abort():
                raise
            self._persist("abort", lambda: self._producer.abort_transaction(STEP_SECONDS))
            self._note("aborted", name)
            self._rewind(messages)
        else:
            self._note("committed", name, str(len(messages)))
        finally:
            signal.alarm(0)

    def _transact(self, name: str, messages: Sequence[Message], member: object) -> None:
        producer, order = self._producer, self._order
        ends: dict[int, int] = {}
        self._persist("begin", producer.begin_transaction)
        for message in messages:
            source, offset = message.partition(), message.offset()
            assert source is not None
            assert offset is not None
            number = int(message.value() or b"-1")
            copy = Copy(source, number, name, len(messages))
            target = target_of(source, number, order.target_partitions)
            producer.produce(order.target, copy.encode(), partition=target)
            ends[source] = offset + 1
        rows = [TopicPartition(order.source, source, end) for source, end in ends.items()]
        send = partial(producer.send_offsets_to_transaction, rows, member, STEP_SECONDS)
        self._persist("send-offsets", send)
        self._persist("commit", lambda: producer.commit_transaction(STEP_SECONDS))

    def _persist(self, what: str, step: Callable[[], None]) -> None:
        """Repeats a step for as long as the client says that this is the thing to do."""
        while True:
            try:
                return step()
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if not error.retriable():
                    self._note("failed", f"{what}:{error.name()}")
                    raise

    def _rewind(self, messages: Sequence[Message]) -> None:
        firsts: dict[int, int] = {}
        for message in messages:
            source, offset = message.partition(), message.offset()
            assert source is not None
            assert offset is not None
            firsts.setdefault(source, offset)
        for source, offset in firsts.items():
            try:
                self._consumer.seek(TopicPartition(self._order.source, source, offset))
            except KafkaException as failure:
                # Another member has it by now, and reads it from the group's offset.
                self._note("trouble", failure.args[0].name())

    def _note(self, *words: str) -> None:
        os.write(self._journal, (" ".join(words) + "\n").encode())


class Journals:
    """Journals of all copiers of a run, read as they are written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}
        self.fates: dict[str, str] = {}
        """Transactions by name: begun, committed or aborted."""
        self.failures: dict[str, int] = {}
        """Failures by step of a transaction and error."""
        self.troubles: dict[str, int] = {}
        """Errors reported to consumers."""
        self.copied = 0
        """Records in transactions that are known to be committed."""

    def path(self, name: str) -> Path:
        path = self._directory / f"{name}.journal"
        self._read[path] = 0
        return path

    def read_on(self) -> None:
        for path, start in self._read.items():
            if path.exists():
                with path.open("rb") as journal:
                    journal.seek(start)
                    whole, _, _ = journal.read().rpartition(b"\n")
                for line in whole.decode().splitlines():
                    self._take(*line.split())
                self._read[path] = start + len(whole) + bool(whole)

    def _take(self, what: str, name: str, *rest: str) -> None:
        if what == "trouble":
            self.troubles[name] = self.troubles.get(name, 0) + 1
        elif what == "failed":
            self.failures[name] = self.failures.get(name, 0) + 1
        else:
            self.fates[name] = what
        if what == "committed":
            self.copied += int(rest[0])


def main() -> None:
    copier = Copier(Order(**json.loads(sys.argv[1])))
    try:
        copier.run()
    except KafkaException:
        sys.exit(GAVE_UP)


if __name__ == "__main__":
    main()
