"""A hundred partitions, ten members: one dies, or one more joins, and the rest continue reading.

A producer writes to every partition all the time, so that a member that stops shows as a gap
between the records it gets. Every time limit has the largest gap of the undisturbed group on top:
that is how late this machine is when nothing happens.

`PENSTOCK_INTERVALS_MS` lists the heartbeat intervals of the newcomer's groups (default 1000; `make
chaos` adds Kafka's own default of 5000, at which two seconds cannot be kept: members learn of a
change no sooner than they call).
"""

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.brokers import PenstockProcess
from tests.chaos.writers import PATIENT, create_topic
from tests.clients.groups import Member, spawn
from tests.conftest import QUICK_GROUPS, FreshBroker
from tests.waiting import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

INTERVALS_MS = [int(text) for text in os.environ.get("PENSTOCK_INTERVALS_MS", "1000").split()]
IS_MEASURED = "PENSTOCK_INTERVALS_MS" in os.environ
"""True if times are compared with their limits; beside other tests they mean little."""
PARTITIONS = 100
MEMBERS = 10
TICK_SECONDS = 0.1
"""Interval between records of a partition."""
STEADY_SECONDS = 2.0 if IS_MEASURED else 0.5
SESSION_MS = 4_000
TAKEN_OVER_SECONDS = SESSION_MS / 1000 + 1
SETTLED_SECONDS = 2.0
STALL_SECONDS = 1.0
"""A gap that is longer than usual by so much is a member that has stopped."""

PROTOCOLS: dict[str, dict[str, Any]] = {
    "cooperative": {
        "partition_assignment_strategy": "cooperative-sticky",
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": 300,
    },
    "consumer": {"group_protocol": "consumer"},
}


class Reader:
    """A member that reads in a thread of its own, and notes when it got what."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.events: list[tuple[float, int]] = []
        """Times and partitions of received records."""
        self.partitions: set[int] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stopping.is_set():
            self.member.poll()
            messages, self.member.messages = self.member.messages, []
            now = time.monotonic()
            self.events += [(now, message.partition() or 0) for message in messages]
            # Asked here, because a consumer answers one thread at a time.
            self.partitions = self.member.partitions

    def gap(self, since: float, until: float) -> float:
        """The longest time without a record."""
        times = [since, *(at for at, _ in self.events if since < at < until), until]
        return max(after - before for before, after in itertools.pairwise(times))

    @property
    def given_up(self) -> list[int]:
        member = self.member
        return [index for rows in member.revoked + member.lost for index in rows]

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self.member.close()


class Group:
    """The members of one test."""

    def __init__(self, broker: PenstockProcess, topic: str, protocol: str) -> None:
        self.readers: list[Reader] = []
        self._names = (broker, f"group-of-{topic}", topic)
        self._settings = {
            **PROTOCOLS[protocol],
            "auto_offset_reset": "latest",
            "fetch_wait_max_ms": 50,
        }

    def join(self) -> Reader:
        self.readers.append(Reader(Member(*self._names, **self._settings)))
        return self.readers[-1]

    @contextmanager
    def crashing(self) -> Iterator[Callable[[], None]]:
        """One more member, in a process that can be killed."""
        process = spawn(*self._names, **self._settings)

        def kill() -> None:
            process.kill()
            process.wait()

        try:
            yield kill
        finally:
            kill()

    def held(self) -> list[set[int]]:
        return [reader.partitions for reader in self.readers]

    def shares(self) -> list[int]:
        return sorted(map(len, self.held()))

    def is_shared(self) -> bool:
        """Every partition has one owner among the readers, and no reader exceeds its share."""
        shares = self.shares()
        return sum(shares) == PARTITIONS and shares[-1] - shares[0] <= 1

    def gap(self, since: float, until: float) -> float:
        return max(reader.gap(since, until) for reader in self.readers)

    def steady_gap(self) -> float:
        """Longest time without a record when nothing happens."""
        started = time.monotonic()
        time.sleep(STEADY_SECONDS)
        return self.gap(started, time.monotonic())


@contextmanager
def writing(broker: PenstockProcess, topic: str) -> Iterator[None]:
    """Writes to every partition, again and again."""
    stopping = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, **PATIENT})
        while not stopping.wait(TICK_SECONDS):
            for index in range(PARTITIONS):
                producer.produce(topic, b"tick", partition=index)
            producer.poll(0)
        producer.flush(10)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@contextmanager
def started(
    fresh_broker: FreshBroker, topic: str, protocol: str, interval_ms: int
) -> Iterator[Group]:
    """A broker that is being written to, and a group without members."""
    sets = {
        **QUICK_GROUPS,
        "group.consumer.session.timeout.ms": max(SESSION_MS, 3 * interval_ms),
        "group.consumer.heartbeat.interval.ms": interval_ms,
    }
    broker = fresh_broker(sets=sets)
    create_topic(broker.bootstrap, topic, PARTITIONS)
    group = Group(broker, topic, protocol)
    with writing(broker, topic):
        try:
            yield group
        finally:
            for reader in group.readers:
                reader.close()


def wait_until(question: Callable[[], object], what: str) -> float:
    """Seconds until the answer is true."""
    begun = time.monotonic()
    eventually(question, what)
    return time.monotonic() - begun


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_partitions_of_a_dead_member_are_taken_over_while_the_group_reads(
    fresh_broker: FreshBroker, topic: str, protocol: str
) -> None:
    with started(fresh_broker, topic, protocol, 500) as group, group.crashing() as crash:
        for _ in range(MEMBERS - 1):
            group.join()
        share = PARTITIONS // MEMBERS
        wait_until(lambda: group.shares() == [share] * (MEMBERS - 1), "all have their share")
        steady = group.steady_gap()
        kept, given_up = group.held(), [reader.given_up for reader in group.readers]
        orphans = set(range(PARTITIONS)).difference(*kept)
        crash()
        crashed = time.monotonic()
        seconds = wait_until(group.is_shared, "what the dead one had is taken over")
        read = seconds + wait_until(
            lambda: orphans <= {p for r in group.readers for at, p in r.events if at > crashed},
            "what the dead one had is read",
        )
        gap = group.gap(crashed, time.monotonic())
        print(
            f"{protocol}: {len(orphans)} partitions taken over after {seconds:.2f} s, read after "
            f"{read:.2f} s (session {SESSION_MS} ms); longest gap of the others {gap:.3f} s, "
            f"{steady:.3f} s before"
        )
        if IS_MEASURED:
            assert seconds < TAKEN_OVER_SECONDS + steady
            assert gap < steady + STALL_SECONDS, "a member stopped reading"
        assert [reader.given_up for reader in group.readers] == given_up, "one had to stop reading"
        assert all(old < new for old, new in zip(kept, group.held(), strict=True))


@pytest.mark.parametrize("interval_ms", INTERVALS_MS)
def test_new_member_gets_its_share_while_the_group_reads(
    fresh_broker: FreshBroker, topic: str, interval_ms: int
) -> None:
    with started(fresh_broker, topic, "consumer", interval_ms) as group:
        for _ in range(MEMBERS):
            group.join()
        wait_until(group.is_shared, "all have their share")
        steady = group.steady_gap()
        kept = group.held()
        joined = time.monotonic()
        newcomer = group.join()
        seconds = wait_until(group.is_shared, "the newcomer has its share")
        wait_until(lambda: newcomer.events, "the newcomer reads")
        gap = max(reader.gap(joined, time.monotonic()) for reader in group.readers[:-1])
        print(
            f"{interval_ms} ms between heartbeats: settled after {seconds:.2f} s; longest gap of "
            f"the others {gap:.3f} s, {steady:.3f} s before"
        )
        if IS_MEASURED:
            assert seconds < max(SETTLED_SECONDS, interval_ms / 1000 + 1) + steady
            assert gap < steady + STALL_SECONDS, "a member stopped reading"
        moved = set().union(*kept) - set().union(*group.held()[:-1])
        assert moved == newcomer.partitions, "more moved than had to"
