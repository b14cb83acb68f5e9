"""Transactions across failovers: a topic is copied exactly once while nodes are killed.

Copiers (`copier`) read one topic and write another, their positions inside the same transactions.
The nodes that lead the output, that coordinate the transactions, and that coordinate the group are
killed at moments that follow from how far the copying has come. Copiers are not touched; one that
gives up is started again under its transactional id. In the end every record must be there once,
and every transaction whole or not at all (`anomalies`).

`PENSTOCK_FAILOVERS` says how many nodes are killed (half of it, at least two),
`PENSTOCK_KILLS_SEED` replays the choices of an earlier run.
"""

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from penstock.wire.messages.classic_groups import FindCoordinatorRequest, FindCoordinatorResponse
from tests.chaos import raw
from tests.chaos.anomalies import anomalies
from tests.chaos.cluster_view import wait_whole
from tests.chaos.copier import GAVE_UP, HUNG, Copy, Journals, Order
from tests.chaos.writers import PATIENT, create_topic
from tests.clusters import Nodes

KILLS = max(2, int(os.environ.get("PENSTOCK_FAILOVERS", "2")) // 2)
SEED = int(os.environ.get("PENSTOCK_KILLS_SEED", time.time_ns() % 1_000_000))
RECORDS = 2_000
"""Records that are added to the input before each kill."""
SOURCES = TARGETS = 3
COPIERS = 2
RECORDS_PER_TRANSACTION = 20
TRANSACTION_TIMEOUT_MS = 10_000
STALL_S = 90.0
GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators."""

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300 + 60 * KILLS)]


class Copying:
    """The copiers of one run, and how far they are."""

    def __init__(self, cluster: Nodes, topic: str, journals: Path) -> None:
        self.cluster = cluster
        self.source, self.target, self.group = f"{topic}-in", f"{topic}-out", f"{topic}-group"
        self.journals = Journals(journals)
        self.surrenders = 0
        self._started = 0
        self._copiers: dict[str, subprocess.Popen[bytes]] = {}
        self.ids = [f"{topic}-copier-{slot}" for slot in range(COPIERS)]

    def start(self, transactional_id: str) -> None:
        self._started += 1
        name = f"copier-{self._started}"
        group = {
            "group.id": self.group,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": "cooperative-sticky",
        }
        order = Order(
            name=name,
            bootstrap=self.cluster.bootstrap,
            source=self.source,
            target=self.target,
            target_partitions=TARGETS,
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            records_max=RECORDS_PER_TRANSACTION,
            journal=str(self.journals.path(name)),
            group=group,
        )
        self._copiers[transactional_id] = order.spawn()

    def wait_copied(self, count: int) -> None:
        """Until so many records are known to be copied."""
        best, at = -1, time.monotonic()
        while self.journals.copied < count:
            best, at = self._look(best, at)

    def wait_done(self, ends: list[int]) -> None:
        """Until the group's positions are at the end of the input."""
        settings = {"bootstrap.servers": self.cluster.bootstrap, "group.id": self.group, **PATIENT}
        consumer = Consumer(settings)
        rows = [TopicPartition(self.source, index) for index in range(SOURCES)]
        best, at = -1, time.monotonic()
        found: list[int] = []
        while found != ends:
            best, at = self._look(best, at)
            with contextlib.suppress(KafkaException):  # A position may still be unstable.
                found = [row.offset for row in consumer.committed(rows, timeout=5)]
        consumer.close()

    def _look(self, best: int, at: float) -> tuple[int, float]:
        time.sleep(0.02)
        self.journals.read_on()
        for transactional_id, process in list(self._copiers.items()):
            if (code := process.poll()) is not None:
                assert code in (GAVE_UP, HUNG), f"{transactional_id} ended with code {code}"
                self.surrenders += 1
                self.start(transactional_id)
        if self.journals.copied > best:
            return self.journals.copied, time.monotonic()
        stalled = f"copying stopped at {best}: {self}\n{self.cluster.all_logs()}"
        if time.monotonic() >= at + STALL_S:
            raise TimeoutError(stalled)
        return best, at

    def end(self) -> None:
        for process in self._copiers.values():
            process.kill()
            process.wait()
        self._copiers.clear()
        self.journals.read_on()

    def __str__(self) -> str:
        fates = list(self.journals.fates.values())
        return (
            f"{self.journals.copied} records known to be copied in {fates.count('committed')} "
            f"transactions, {fates.count('aborted')} aborted, {fates.count('begun')} cut off, "
            f"{self.surrenders} copiers gave up; failures {self.journals.failures}"
        )


def feed(bootstrap: str, topic: str, first: int) -> list[int]:
    """Adds RECORDS to an input of `first` records; returns the count of each partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **PATIENT})
    end = first + RECORDS
    for number in range(first, end):
        producer.produce(topic, b"%d" % (number // SOURCES), partition=number % SOURCES)
    assert producer.flush(60) == 0
    return [len(range(index, end, SOURCES)) for index in range(SOURCES)]


def coordinator(cluster: Nodes, kind: int, key: str) -> int:
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    with raw.connect(cluster.nodes[1].address, 10.0) as connection:
        raw.send(connection, request, 6)
        found: FindCoordinatorResponse = raw.receive(connection, FindCoordinatorResponse, 6)
    return found.coordinators[0].node_id


def read_copies(bootstrap: str, topic: str) -> list[list[Copy]]:
    """Everything in the output that read_committed shows, by partition, in order."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "checker", **PATIENT}
    reading = {"isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({**settings, **reading, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(TARGETS)])
    copies: list[list[Copy]] = [[] for _ in range(TARGETS)]
    at_end: set[int] = set()
    while len(at_end) < TARGETS:
        for message in consumer.consume(1_000, 1.0):
            partition = message.partition()
            assert partition is not None
            if message.error() is None:
                copies[partition].append(Copy.decode(message.value() or b""))
            else:
                at_end.add(partition)
    consumer.close()
    return copies


@pytest.fixture
def copying(cluster: Nodes, topic: str, tmp_path: Path) -> Iterator[Copying]:
    made = Copying(cluster, topic, tmp_path)
    yield made
    made.end()


def test_copying_is_exactly_once_across_failovers(copying: Copying) -> None:
    print(f"PENSTOCK_FAILOVERS={KILLS * 2} PENSTOCK_KILLS_SEED={SEED}")
    cluster, chance = copying.cluster, random.Random(SEED)
    for topic in (copying.source, copying.target):
        create_topic(cluster.bootstrap, topic, TARGETS, factor=3, min_insync_replicas="2")
    ends = feed(cluster.bootstrap, copying.source, 0)
    for transactional_id in copying.ids:
        copying.start(transactional_id)
    for number in range(KILLS):
        # However fast copying is, it must not be done before the node is killed.
        copying.wait_copied(sum(ends) - RECORDS + int(chance.uniform(0.05, 0.8) * RECORDS))
        seen = wait_whole(cluster, copying.target)
        victim = (
            coordinator(cluster, TRANSACTION, chance.choice(copying.ids)),
            chance.choice(seen.leaders),
            coordinator(cluster, GROUP, copying.group),
        )[number % 3]
        ends = feed(cluster.bootstrap, copying.source, sum(ends))
        cluster.nodes[victim].kill()
        copying.wait_copied(min(copying.journals.copied + 1, sum(ends)))
        cluster.nodes[victim].start()
    copying.wait_done(ends)
    copying.end()
    copies = read_copies(cluster.bootstrap, copying.target)
    print(f"{sum(map(len, copies))} records; {copying}")
    assert anomalies(ends, copies, copying.journals.fates) == []
