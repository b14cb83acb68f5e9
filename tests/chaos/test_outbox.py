"""The outbox under kill -9: writers commit and roll back, relays die at any moment.

What was committed is in the log once, for readers of committed records; what was rolled back is
not; each key is in order. The broker is real and stays; the relays are `penstock outbox relay`
processes, two of them, one killed after the other.
"""

import random
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from penstock.app.outbox.enqueue import Outbox
from penstock.app.outbox.relay import open_engine
from penstock.app.outbox.tables import RowState
from penstock.testing import Broker
from tests.brokers import COMMAND
from tests.postgres import PostgresProcess
from tests.processes import LoggedProcess
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.chaos
KILLS = 6
WRITERS = 3
KEYS = 4
"""Of each writer."""
TOPICS = ("orders", "mails")
RELAYING = re.compile("penstock: relaying")


@pytest.fixture
def postgres() -> Iterator[PostgresProcess]:
    process = PostgresProcess()
    yield process
    process.stop()


class Writers:
    """Threads that write to the database until they are stopped."""

    def __init__(self, engine: Engine, outbox: Outbox, seed: int) -> None:
        self.committed: dict[tuple[str, bytes], list[bytes]] = {}
        self._engine, self._outbox = engine, outbox
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(number, random.Random(f"{seed}/{number}")))
            for number in range(WRITERS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _write(self, writer: int, rng: random.Random) -> None:
        number = 0
        while not self._is_over.is_set():
            rows = []
            for _ in range(rng.randint(1, 4)):
                topic, key = rng.choice(TOPICS), f"{writer}-{rng.randrange(KEYS)}"
                rows.append((topic, key, f"{key}:{number}"))
                number += 1
            with self._engine.connect() as connection:
                for topic, key, text in rows:
                    self._outbox.enqueue(connection, topic, text, key=key)
                if rng.random() < 0.2:
                    connection.rollback()
                    continue
                connection.commit()
            for topic, key, text in rows:
                self.committed.setdefault((topic, key.encode()), []).append(text.encode())
            time.sleep(rng.uniform(0, 0.01))


class Relays:
    """Two `penstock outbox relay`, of which one is killed and started again at a time."""

    def __init__(self, broker: Broker, url: str, directory: Path) -> None:
        self._command = [COMMAND, "outbox", "relay", "-d", url, "-b", broker.bootstrap]
        self._command += ["--batch", "7", "--lease", "400ms", "--poll", "10ms"]
        self._both = [LoggedProcess(directory / f"relay-{n}.log") for n in range(2)]
        for process in self._both:
            process.run(self._command)

    def kill_one(self, which: int, after_s: float) -> None:
        """Some time after it has begun to relay, so that every kill is one of a relay at work."""
        process = self._both[which]
        process.wait_said(RELAYING, PATIENCE_S)
        time.sleep(after_s)
        assert process.running, process.log()
        process.kill()
        process.run(self._command)

    def stop(self) -> None:
        for process in self._both:
            # A signal that comes while it starts would just end it.
            process.wait_said(RELAYING, PATIENCE_S)
            assert process.stop() == 0, process.log()

    def kill(self) -> None:
        """Leaves none behind, whatever the test has come to."""
        for process in self._both:
            process.kill()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_relays_send_everything_once_and_in_order(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "sqlite":
        # Its own limit for a database that is locked is five seconds.
        url = f"sqlite:///{tmp_path / 'app.db'}?timeout=60"
    else:
        url = request.getfixturevalue("postgres").url
    outbox, rng = Outbox(lanes=2), random.Random(7)
    engine = open_engine(url)
    outbox.metadata.create_all(engine)
    with Broker({"num.partitions": 2}) as broker:
        relays = Relays(broker, url, tmp_path)
        writers = Writers(engine, outbox, seed=7)
        try:
            for kill in range(KILLS):
                relays.kill_one(kill % 2, after_s=rng.uniform(0.0, 0.8))
            writers.stop()
            broker.wait_for(lambda: not open_count(engine, outbox), timeout_s=120)
            relays.stop()
        finally:
            writers.stop()
            relays.kill()
        found: dict[tuple[str, bytes], list[bytes]] = {}
        for topic in TOPICS:
            for message in broker.messages(topic):
                place = (topic, message.key or b"")
                found.setdefault(place, []).append(message.value or b"")
    with engine.connect() as connection:
        assert outbox.counts(connection)[RowState.FAILED] == 0
    engine.dispose()
    assert sum(map(len, writers.committed.values())) > 100
    assert {place: sorted(texts) for place, texts in found.items()} == {
        place: sorted(texts) for place, texts in writers.committed.items()
    }, "something is missing, is there twice, or was never committed"
    assert found == writers.committed, "some key is out of order"


def open_count(engine: Engine, outbox: Outbox) -> int:
    with engine.connect() as connection:
        counts = outbox.counts(connection)
    return counts[RowState.PENDING] + counts[RowState.CLAIMED]
