"""The two sides of a comparison: how each broker is started, and topics on either.

A side can start many brokers of its kind; the caller stops them. Both get a data directory on the
same real disk and a port of their own.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from bench import probe
from bench.peers.kafka import KafkaProcess, free_port
from tests.brokers import PenstockProcess

Say = Callable[[str], None]

# Deleted topics give their pages back at once. With the default minute, each measurement would
# run on memory nobody has touched yet, which a virtual machine has to ask its host for.
TIDY = {"log.segment.delete.delay.ms": 500}
# A group's first generation begins without waiting for more members.
SETTINGS = {**TIDY, "group.initial.rebalance.delay.ms": 0}


class Process(Protocol):
    """A broker process, whichever side it is of."""

    bootstrap: str

    @property
    def pid(self) -> int: ...

    def start(self) -> None: ...
    def spawn(self) -> None: ...
    def stop(self, timeout_s: float = 30.0) -> int: ...


class Side:
    """One broker under measurement, by name; `prepare` makes a process that is not running yet."""

    def __init__(self, name: str, prepare: Callable[[Path], Process]) -> None:
        self.name = name
        self.prepare = prepare

    @contextmanager
    def running(self, root: Path) -> Iterator[Process]:
        """A fresh broker with an empty data directory, stopped and wiped at the end."""
        with fresh_dir(root) as directory:
            process = self.prepare(directory / "data")
            process.start()
            try:
                probe.wait_served(process.bootstrap)
                yield process
            finally:
                process.stop()


def penstock(sets: Mapping[str, object] | None = None, name: str = "penstock") -> Side:
    """Penstock; `sets` are broker settings."""

    def prepare(data_dir: Path) -> Process:
        port = free_port()
        settings = {**SETTINGS, **(sets or {})}
        process = PenstockProcess(data_dir, settings, kafka_port=port, started=False)
        process.bootstrap = f"127.0.0.1:{port}"
        return process

    return Side(name, prepare)


def kafka(say: Say) -> Side:
    """Apache Kafka from Maven Central, formatted in advance as an operator would."""
    return Side("kafka", lambda data_dir: KafkaProcess(data_dir, SETTINGS, say=say, started=False))


@contextmanager
def fresh_dir(root: Path) -> Iterator[Path]:
    """A directory of its own, gone at the end."""
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
    """A fresh topic whose every partition answers, deleted at the end."""
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
    """Wait until every partition tells its offsets: Kafka names a leader before it leads."""
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
