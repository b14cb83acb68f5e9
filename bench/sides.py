"""Sides of a comparison: starts of each kind of broker, and topics on either.

A side can start many brokers of its kind; the caller stops them. Each broker has its own data
directory, on the same real disk, and its own port.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from bench import probe
from bench.peers.kafka import KafkaProcess, free_port
from tests.brokers import PenstockProcess

Say = Callable[[str], None]

# Deleted topics free their pages immediately. With the default minute, each measurement would use
# untouched memory, which a virtual machine must request from its host.
TIDY = {"log.segment.delete.delay.ms": 500}
# A group's first generation starts without waiting for more members.
SETTINGS = {**TIDY, "group.initial.rebalance.delay.ms": 0}


class Process(Protocol):
    """Broker process of any side."""

    bootstrap: str

    @property
    def pid(self) -> int: ...

    def start(self) -> None: ...
    def spawn(self) -> None: ...
    def stop(self, timeout_s: float = 30.0) -> int: ...


class Side:
    """Kind of broker under measurement; `prepare` creates a process without starting it."""

    def __init__(self, name: str, prepare: Callable[[Path], Process]) -> None:
        self.name = name
        self.prepare = prepare

    @contextmanager
    def running(self, root: Path) -> Iterator[Process]:
        """Fresh broker with an empty data directory, stopped and deleted at the end."""
        with fresh_dir(root) as directory:
            process = self.prepare(directory / "data")
            process.start()
            try:
                probe.wait_served(process.bootstrap)
                yield process
            finally:
                process.stop()


def penstock(
    sets: Mapping[str, object] | None = None,
    name: str = "penstock",
    prefix: Sequence[str] = (),
) -> Side:
    """Penstock side; `sets` are broker settings, `prefix` goes before its command."""

    def prepare(data_dir: Path) -> Process:
        port = free_port()
        settings = {**SETTINGS, **(sets or {})}
        process = PenstockProcess(data_dir, settings, kafka_port=port, started=False, prefix=prefix)
        process.bootstrap = f"127.0.0.1:{port}"
        return process

    return Side(name, prepare)


def kafka(say: Say) -> Side:
    """Kafka side, from Maven Central, formatted before the start as by an operator."""
    return Side("kafka", lambda data_dir: KafkaProcess(data_dir, SETTINGS, say=say, started=False))


@contextmanager
def fresh_dir(root: Path) -> Iterator[Path]:
    """Temporary directory, deleted at the end."""
    root.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=root))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def topic(
    bootstrap: str,
    partitions: int,
    replicas: int = 1,
    config: Mapping[str, object] | None = None,
) -> Iterator[str]:
    """Fresh topic with leaders for all partitions, deleted at the end."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    name = f"bench-{partitions}-{time.monotonic_ns()}"
    told = {key: str(value) for key, value in (config or {}).items()}
    wanted = NewTopic(name, partitions, replicas, config=told)
    admin.create_topics([wanted], request_timeout=60)[name].result(60)
    wait_led(bootstrap, name, partitions)
    try:
        yield name
    finally:
        admin.delete_topics([name], operation_timeout=30)[name].result(60)


def wait_led(bootstrap: str, name: str, partitions: int, timeout_s: float = 60.0) -> None:
    """Waits until every partition returns its offsets: Kafka names a leader before it leads."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    asked = {TopicPartition(name, number): OffsetSpec.latest() for number in range(partitions)}
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            for answer in admin.list_offsets(asked, request_timeout=30).values():
                answer.result(30)
            return
        except KafkaException as refused:
            if time.monotonic() > deadline:
                raise probe.ProbeFailed(f"{name} never got leaders: {refused}") from None
            time.sleep(0.05)
