"""Shared by the outbox tests: a database, a broker, and a relay between them."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Engine

from penstock.app.outbox.enqueue import Outbox
from penstock.app.outbox.relay import Relay, RelayConfig, open_engine
from penstock.app.outbox.tables import RowState
from penstock.client.cluster import Cluster, parse_brokers
from penstock.runtime.random import SystemRandom
from penstock.testing import Broker

T = TypeVar("T")
QUICK = RelayConfig(poll_ms=5, lease_ms=60_000)


@contextmanager
def database(url: str, outbox: Outbox) -> Iterator[Engine]:
    """An engine with the outbox's tables in it."""
    engine = open_engine(url)
    outbox.metadata.create_all(engine)
    try:
        yield engine
    finally:
        engine.dispose()


def sqlite_url(directory: Path) -> str:
    return f"sqlite:///{directory / 'app.db'}"


def drain(
    broker: Broker, engine: Engine, outbox: Outbox, config: RelayConfig = QUICK
) -> tuple[int, int]:
    """Relays everything; returns the numbers of sent and of failed messages."""

    async def main() -> tuple[int, int]:
        async with Cluster(SystemRandom(), parse_brokers(broker.bootstrap)) as cluster:
            relay = Relay(engine, cluster, outbox, config)
            try:
                await relay.drain()
            finally:
                relay.close()
            return relay.sent, relay.failed

    return run(main())


def run(work: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(limited())


def states(engine: Engine, outbox: Outbox) -> dict[RowState, int]:
    """Row counts of the states that occur."""
    with engine.connect() as connection:
        return {state: n for state, n in outbox.counts(connection).items() if n}


def payloads(broker: Broker, topic: str) -> list[bytes]:
    return [message.value or b"" for message in broker.messages(topic)]


def assert_once(broker: Broker, topic: str, expected: list[bytes]) -> None:
    found = Counter(payloads(broker, topic))
    assert found == Counter(expected), (
        f"missing {list((Counter(expected) - found).elements())[:5]}, "
        f"too many {list((found - Counter(expected)).elements())[:5]}"
    )
