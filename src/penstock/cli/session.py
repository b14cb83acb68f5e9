"""How a command talks to a cluster: which brokers, on which loop, with which ports.

The command line is one of the two places that may use the real clock and the real randomness
(`penstock.runtime`); everything below gets them as arguments.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from penstock.cli.errors import UserError

if TYPE_CHECKING:
    from penstock.base.ports import Random, WallClock
    from penstock.client.cluster import Cluster
    from penstock.client.consumer import Consumer, ConsumerConfig
    from penstock.client.producer import Producer, ProducerConfig
    from penstock.client.security import Security

T = TypeVar("T")

brokers_option = click.option(
    "-b",
    "--brokers",
    default="127.0.0.1:9092",
    show_default=True,
    envvar="PENSTOCK_BROKERS",
    show_envvar=True,
    metavar="HOST:PORT,...",
    help="Brokers to connect to first.",
)


@dataclass(frozen=True)
class Session:
    """A connected cluster and the outside world's ports."""

    clock: WallClock
    random: Random
    cluster: Cluster

    def producer(self, config: ProducerConfig) -> Producer:
        from penstock.client.producer import Producer

        return Producer(self.clock, self.random, self.cluster, config)

    def consumer(self, config: ConsumerConfig) -> Consumer:
        from penstock.client.consumer import Consumer

        return Consumer(self.cluster, config)


def run(brokers: str, work: Callable[[Session], Awaitable[T]]) -> T:
    """Connects, does the work, disconnects. A broker that is not there fails at once."""
    import uvloop

    from penstock.client.cluster import Cluster, parse_brokers
    from penstock.client.connection import ConnectionConfig
    from penstock.runtime.clock import SystemClock
    from penstock.runtime.random import SystemRandom

    try:
        addresses = parse_brokers(brokers)
    except ValueError as error:
        raise UserError(f"--brokers: {error}") from None
    random = SystemRandom()
    security = _security(random)

    async def connected() -> T:
        config = ConnectionConfig(client_id="penstock-cli", tls=security.tls)
        authenticate = security.authenticate
        async with Cluster(random, addresses, config, authenticate=authenticate) as cluster:
            return await work(Session(SystemClock(), random, cluster))

    return uvloop.run(connected())


def _security(random: Random) -> Security:
    """As --command-config says, which belongs to the whole command line."""
    from penstock.client.security import parse_security, read_properties

    context = click.get_current_context(silent=True)
    path = context.find_root().params.get("command_config") if context is not None else None
    if path is None:
        return parse_security({}, random)
    try:
        with open(path, encoding="utf-8") as file:
            return parse_security(read_properties(file.read()), random)
    except (OSError, ValueError) as error:
        raise UserError(f"--command-config {path}: {error}") from None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, if any is close enough to be meant."""
    matches = difflib.get_close_matches(name[:100], list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


async def require_topics(session: Session, names: Iterable[str]) -> None:
    """Fails with the nearest name when a topic does not exist."""
    from penstock.base.errors import ErrorCode, Refused

    for name in names:
        try:
            await session.cluster.topic(name)
        except Refused as refused:
            if refused.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            await session.cluster.refresh(None)
            close = nearest(name, session.cluster.metadata.topics)
            hint = f"did you mean {close!r}?" if close else "see `penstock topic list`"
            raise UserError(f"topic {name!r} does not exist; {hint}") from None
