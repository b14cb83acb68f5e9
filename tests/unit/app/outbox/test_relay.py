"""Outbox relay, from SQLite to a real broker."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, update
from sqlalchemy.orm import Session

from penstock.app.outbox.claims import InDoubt, LaneLease, LaneLost, LaneStore
from penstock.app.outbox.enqueue import Outbox
from penstock.app.outbox.relay import (
    OutOfStep,
    Relay,
    RelayConfig,
    ResumeChoice,
    TableMissing,
    open_engine,
    relaying,
)
from penstock.app.outbox.sender import ClaimSender
from penstock.app.outbox.tables import RowState
from penstock.app.sync import SyncClient
from penstock.client.cluster import Cluster, parse_brokers
from penstock.runtime.clock import SystemClock
from penstock.runtime.random import SystemRandom
from penstock.runtime.workers import ThreadWorkers
from penstock.testing import Broker
from tests.unit.app.outbox.stage import (
    QUICK,
    assert_once,
    database,
    drain,
    payloads,
    run,
    sqlite_url,
    states,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"auto.create.topics.enable": "true", "num.partitions": 3}) as broker:
        yield broker


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


@pytest.fixture
def engine(tmp_path: Path, outbox: Outbox) -> Iterator[Engine]:
    with database(sqlite_url(tmp_path), outbox) as engine:
        yield engine


def enqueue(engine: Engine, outbox: Outbox, topic: str, texts: list[str], key: str = "") -> None:
    with engine.begin() as connection:
        for text in texts:
            outbox.enqueue(connection, topic, text, key=key or text)


def test_committed_rows_are_sent_and_rolled_back_rows_are_not(
    broker: Broker, engine: Engine, outbox: Outbox
) -> None:
    with Session(engine) as session, session.begin():
        outbox.enqueue(session, "both", "kept", key="k", headers={"a": "1"}, message_id="m-1")
    with Session(engine) as session:
        outbox.enqueue(session, "both", "gone")
        session.rollback()
    assert drain(broker, engine, outbox) == (1, 0)
    (message,) = broker.messages("both")
    assert (message.key, message.value) == (b"k", b"kept")
    assert dict(message.headers) == {
        "a": b"1",
        "message_id": b"m-1",
        "penstock-dedup-id": b"m-1",
    }
    assert states(engine, outbox) == {RowState.SENT: 1}


def test_key_order_holds_across_batches(broker: Broker, engine: Engine, outbox: Outbox) -> None:
    with engine.begin() as connection:
        for number in range(300):
            outbox.enqueue(connection, "ordered", str(number), key=f"k{number % 7}")
    drain(broker, engine, outbox, RelayConfig(poll_ms=5, rows_max=16))
    by_key: dict[bytes | None, list[int]] = {}
    for message in broker.messages("ordered"):
        by_key.setdefault(message.key, []).append(int(message.value or b"-1"))
    assert sorted(n for numbers in by_key.values() for n in numbers) == list(range(300))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert len(by_key) == 7


def test_keyless_messages_are_spread_over_partitions(
    broker: Broker, engine: Engine, outbox: Outbox
) -> None:
    with engine.begin() as connection:
        for number in range(400):
            outbox.enqueue(connection, "keyless", str(number))
    drain(broker, engine, outbox)
    assert {message.partition for message in broker.messages("keyless")} == {0, 1, 2}


def test_lanes_are_sent_in_parallel_in_key_order(broker: Broker, tmp_path: Path) -> None:
    outbox = Outbox(lanes=4)
    with database(sqlite_url(tmp_path), outbox) as engine:
        with engine.begin() as connection:
            for number in range(200):
                outbox.enqueue(connection, "lanes", str(number), key=f"k{number % 11}")
        drain(broker, engine, outbox)
        by_key: dict[bytes | None, list[int]] = {}
        for message in broker.messages("lanes"):
            by_key.setdefault(message.key, []).append(int(message.value or b"-1"))
        assert all(numbers == sorted(numbers) for numbers in by_key.values())
        assert sum(map(len, by_key.values())) == 200
        with engine.connect() as connection:
            rows = connection.execute(outbox.tables.lanes.select()).all()
        assert len({row.identity for row in rows}) == 4


def test_refused_message_fails_alone(broker: Broker, engine: Engine, outbox: Outbox) -> None:
    broker.create_topic("small", configs={"max.message.bytes": 2_000})
    with engine.begin() as connection:
        for number in range(10):
            outbox.enqueue(connection, "small", "x" * 5_000 if number == 4 else str(number))
        outbox.enqueue(connection, "no such name!", "bad topic")
        outbox.enqueue(connection, "small", "last")
    assert drain(broker, engine, outbox) == (10, 2)
    assert payloads(broker, "small") == [*(b"%d" % n for n in range(10) if n != 4), b"last"]
    assert states(engine, outbox) == {RowState.SENT: 10, RowState.FAILED: 2}
    with engine.begin() as connection:
        messages = outbox.tables.messages
        failed = connection.execute(messages.select().where(messages.c.error.is_not(None))).all()
        assert ["max.message.bytes" in failed[0].error, "name" in failed[1].error] == [True, True]
        broker.configure_topic("small", {"max.message.bytes": 100_000})
        assert outbox.retry_failed(connection) == 2
    assert drain(broker, engine, outbox) == (1, 1)
    assert len(payloads(broker, "small")) == 11


@pytest.mark.parametrize("died", ["before the write", "after the write", "while writing"])
def test_relay_crash_causes_no_loss_and_no_duplicates(
    broker: Broker, engine: Engine, outbox: Outbox, died: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Creates each of the three crash states by hand; tests/chaos covers kill -9."""
    topic = died.replace(" ", "-")
    enqueue(engine, outbox, topic, ["first"])
    drain(broker, engine, outbox)
    enqueue(engine, outbox, topic, ["a", "b", "c"], key="k")

    async def die() -> None:
        async with Cluster(SystemRandom(), parse_brokers(broker.bootstrap)) as cluster:
            relay = Relay(engine, cluster, outbox, QUICK)
            lease = relay._lanes.take([])
            assert lease is not None
            claimed = relay._lanes.claim(lease, 100, 100_000)
            assert claimed is not None
            from penstock.app.outbox.sender import ClaimSender
            from penstock.client.producer.transactional import TransactionalWriter

            sender = ClaimSender(lease, relay._lanes, cluster, relay._workers, QUICK)
            writer = TransactionalWriter(cluster, lease.identity)
            if died != "before the write":
                await writer.begin()
                with monkeypatch.context() as patched:
                    if died == "while writing":
                        patched.setattr("penstock.client.producer.transactional.end", _never)
                    await sender._write(writer, claimed)
            relay.close()

    run(die())
    expire_leases(engine, outbox)
    before = states(engine, outbox)
    assert before == {RowState.SENT: 1, RowState.CLAIMED: 3}
    drain(broker, engine, outbox)
    assert_once(broker, topic, [b"first", b"a", b"b", b"c"])
    assert states(engine, outbox) == {RowState.SENT: 4}
    # A queue reads uncommitted records unless told otherwise, and tells copies by their ids.
    copies = len(broker.messages(topic, committed=False))
    assert copies == (7 if died == "while writing" else 4)
    delivered: list[str] = []
    with SyncClient(broker.bootstrap) as client:
        while len(delivered) < 4:
            for message in client.poll(topic, "workers", max=10, wait="10s"):
                delivered.append(message.text)
                message.ack()
        assert client.poll(topic, "workers", wait="300ms") == []
    assert sorted(delivered) == ["a", "b", "c", "first"]


async def _never(*what: object, committed: bool) -> None:
    """The transaction stays open."""


def expire_leases(engine: Engine, outbox: Outbox) -> None:
    with engine.begin() as connection:
        connection.execute(update(outbox.tables.lanes).values(lease_until_ms=0))


def test_relay_that_lost_its_lane_sends_nothing(
    broker: Broker, engine: Engine, outbox: Outbox
) -> None:
    async def main() -> None:
        async with Cluster(SystemRandom(), parse_brokers(broker.bootstrap)) as cluster:
            one = Relay(engine, cluster, outbox, QUICK)
            first = asyncio.create_task(one.run())
            enqueue(engine, outbox, "taken", ["a"])
            while one.sent < 1:
                await asyncio.sleep(0.01)
            other = Relay(engine, cluster, outbox, QUICK)
            second = asyncio.create_task(other.run())
            while not other._tasks:
                expire_leases(engine, outbox)  # The first one may have renewed it.
                await asyncio.sleep(0.01)
            texts = [str(number) for number in range(50)]
            for text in texts:
                enqueue(engine, outbox, "taken", [text])
                await asyncio.sleep(0.001)
            # What the first one wrote but could not mark is found by the second, and not counted.
            while states(engine, outbox) != {RowState.SENT: 51}:
                await asyncio.sleep(0.01)
            for task in (first, second):
                task.cancel()
            await asyncio.gather(first, second, return_exceptions=True)
            one.close()
            other.close()

    run(main())
    assert_once(broker, "taken", [b"a", *(b"%d" % n for n in range(50))])


def test_sent_rows_are_purged_after_retention(
    broker: Broker, engine: Engine, outbox: Outbox
) -> None:
    enqueue(engine, outbox, "cleaned", [str(number) for number in range(20)])

    async def main() -> None:
        config = RelayConfig(poll_ms=5, keep_ms=0)
        async with Cluster(SystemRandom(), parse_brokers(broker.bootstrap)) as cluster:
            relay = Relay(engine, cluster, outbox, config)
            running = asyncio.create_task(relay.run())
            while states(engine, outbox):
                await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            relay.close()

    run(main())
    assert len(payloads(broker, "cleaned")) == 20
    enqueue(engine, outbox, "cleaned", ["again"])
    with engine.connect() as connection:
        (row,) = connection.execute(outbox.tables.messages.select()).all()
    assert row.id == 21, "an id is never used twice"


def test_lost_ledger_stops_the_relay_until_configured(
    broker: Broker, engine: Engine, outbox: Outbox
) -> None:
    enqueue(engine, outbox, "ledger", ["a"])
    drain(broker, engine, outbox)
    enqueue(engine, outbox, "ledger", ["b"])
    with engine.begin() as connection:
        lanes, messages = outbox.tables.lanes, outbox.tables.messages
        connection.execute(update(lanes).values(batch=9, done=8, lease_until_ms=0))
        connection.execute(
            update(messages).where(messages.c.state == RowState.PENDING).values(state=1, batch=9)
        )
    with pytest.raises(OutOfStep, match="lane 0: batch 9"):
        drain(broker, engine, outbox)
    expire_leases(engine, outbox)
    drain(broker, engine, outbox, RelayConfig(poll_ms=5, in_doubt=ResumeChoice.RESEND))
    assert_once(broker, "ledger", [b"a", b"b"])


def test_restored_database_stops_the_relay_until_configured(
    broker: Broker, engine: Engine, outbox: Outbox
) -> None:
    for text in ("a", "b"):
        enqueue(engine, outbox, "restored", [text])
        drain(broker, engine, outbox)
    with engine.begin() as connection:
        connection.execute(update(outbox.tables.lanes).values(batch=1, done=1))
    enqueue(engine, outbox, "restored", ["c"])
    with pytest.raises(OutOfStep, match="older than the log"):
        drain(broker, engine, outbox)
    expire_leases(engine, outbox)
    drain(broker, engine, outbox, RelayConfig(poll_ms=5, in_doubt=ResumeChoice.RESEND))
    assert_once(broker, "restored", [b"a", b"b", b"c"])


class OvertakenLaneStore(LaneStore):
    """Another relay takes the lane and sends its rows right after `in_doubt` returned."""

    overtake: Callable[[], object]

    def in_doubt(self, lease: LaneLease) -> InDoubt:
        doubt = super().in_doubt(lease)
        self.overtake()
        return doubt


def test_lane_lost_while_resolving_is_not_reported_as_out_of_step(
    broker: Broker, engine: Engine, outbox: Outbox
) -> None:
    enqueue(engine, outbox, "overtaken", ["a"])
    drain(broker, engine, outbox)
    enqueue(engine, outbox, "overtaken", ["b"])

    def overtake() -> None:
        expire_leases(engine, outbox)
        drain(broker, engine, outbox)

    async def main() -> None:
        random, workers = SystemRandom(), ThreadWorkers(name="overtaken")
        lanes = OvertakenLaneStore(engine, outbox.tables, SystemClock(), random, QUICK.lease_ms)
        lanes.overtake = overtake
        async with Cluster(random, parse_brokers(broker.bootstrap)) as cluster:
            lease = lanes.take([])
            assert lease is not None
            try:
                await ClaimSender(lease, lanes, cluster, workers, QUICK).run()
            finally:
                workers.close()

    with pytest.raises(LaneLost):
        run(main())
    assert_once(broker, "overtaken", [b"a", b"b"])


def test_missing_tables_are_reported(broker: Broker, tmp_path: Path) -> None:
    async def main() -> None:
        async with relaying(broker.bootstrap, sqlite_url(tmp_path)) as relay:
            await relay.run()

    with pytest.raises(TableMissing, match="penstock outbox init"):
        run(main())


def test_postgresql_url_defaults_to_psycopg() -> None:
    engine = open_engine("postgresql://user:secret@localhost/app")
    assert engine.url.drivername == "postgresql+psycopg"
    engine.dispose()
