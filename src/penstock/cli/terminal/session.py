"""Connection of a command to a cluster: brokers, security settings, event loop and ports.

The command line may use the real clock and real randomness (`penstock.runtime`); the layers below
get them as arguments.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from penstock.cli.terminal.errors import UserError

if TYPE_CHECKING:
    from penstock.base.ports import Random, WallClock
    from penstock.client.cluster import Cluster
    from penstock.client.consumer.consumer import Consumer, ConsumerConfig
    from penstock.client.producer.producer import Producer, ProducerConfig
    from penstock.client.security_settings import SecuritySettings

T = TypeVar("T")

DEFAULT_BROKERS = "127.0.0.1:9092"


def default_brokers() -> str:
    """Returns the brokers of the chosen or current profile; without a profile, this machine's."""
    from penstock.cli.terminal import profile_file

    found = profile_file.chosen()
    return DEFAULT_BROKERS if found is None else found[1].brokers


brokers_option = click.option(
    "-b",
    "--brokers",
    default=default_brokers,
    show_default=f"those of the current profile, else {DEFAULT_BROKERS}",
    envvar="PENSTOCK_BROKERS",
    show_envvar=True,
    metavar="HOST:PORT,...",
    help="Bootstrap brokers.",
)


@dataclass(frozen=True)
class CommandSession:
    """Connected cluster and the ports that commands use."""

    clock: WallClock
    random: Random
    cluster: Cluster

    def producer(self, config: ProducerConfig) -> Producer:
        from penstock.client.producer.producer import Producer

        return Producer(self.clock, self.random, self.cluster, config)

    def consumer(self, config: ConsumerConfig) -> Consumer:
        from penstock.client.consumer.consumer import Consumer

        return Consumer(self.cluster, config)


def run(
    brokers: str, work: Callable[[CommandSession], Awaitable[T]], *, within_s: float | None = None
) -> T:
    """Connects, runs `work` and disconnects. Fails at once if a broker is not reachable.

    Refused access raises UserError with what is required.
    """
    import asyncio

    import uvloop

    from penstock.base.errors import Refused
    from penstock.cli.terminal.access_errors import explain_denial, find_requirement
    from penstock.client.cluster import Cluster, parse_brokers
    from penstock.client.connection import ConnectionConfig
    from penstock.client.errors import ConnectionLost, Unreachable
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
        async with (
            asyncio.timeout(within_s),
            Cluster(random, addresses, config, authenticate=authenticate) as cluster,
        ):
            return await work(CommandSession(SystemClock(), random, cluster))

    try:
        return uvloop.run(connected())
    except Refused as refused:
        denial = explain_denial(
            refused, _command_path(), _user(is_secured=security.tls is not None)
        )
        if denial is None:
            raise
        raise UserError(denial) from refused
    except (ConnectionLost, Unreachable) as lost:
        requirement = None
        # A broker that does not listen is not asked again.
        is_closed = not isinstance(lost.__cause__, (ConnectionRefusedError, TimeoutError))
        if is_closed and security.authenticate is None and security.tls is None:
            requirement = uvloop.run(find_requirement(addresses))
        if requirement is None:
            raise
        raise UserError(requirement) from lost


def _command_path() -> str:
    context = click.get_current_context(silent=True)
    return "" if context is None else context.command_path.partition(" ")[2]


def _user(*, is_secured: bool) -> str:
    """Returns the name of this client's principal, as ACLs write it; a placeholder if unknown."""
    settings, _ = security_settings()
    name = settings.get("sasl.username")
    return name or ("USER" if is_secured else "ANONYMOUS")


def _security(random: Random) -> SecuritySettings:
    from penstock.client.security_settings import parse_security

    settings, source = security_settings()
    try:
        return parse_security(settings, random)
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None


def security_settings(*, takes_one_in_use: bool = True) -> tuple[dict[str, str], str]:
    """Returns the security settings and their source: --command-config, else the profile.

    A profile's password is sent only to the profile's brokers, or to brokers that the user names
    together with the profile.
    """
    from penstock.cli.terminal import profile_file
    from penstock.client.security_settings import read_properties

    context = click.get_current_context(silent=True)
    if context is None:
        return {}, ""
    options = context.find_root().params
    path = options.get("command_config")
    if path is not None:
        source = f"--command-config {path}"
        try:
            with open(path, encoding="utf-8") as file:
                return read_properties(file.read()), source
        except (OSError, ValueError) as error:
            raise UserError(f"{source}: {error}") from None
    is_meant = options.get("profile") is not None or (
        takes_one_in_use and _has_default_brokers(context)
    )
    found = profile_file.chosen() if is_meant else None
    if found is None:
        return {}, ""
    name, profile = found
    return profile.security, f"profile {name} ({profile_file.path()})"


def _has_default_brokers(context: click.Context) -> bool:
    from click.core import ParameterSource

    return context.get_parameter_source("brokers") in (None, ParameterSource.DEFAULT)


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Returns the known name most similar to `name`, if one is similar enough for a hint."""
    matches = difflib.get_close_matches(name[:100], list(known), n=1, cutoff=likeness)
    return matches[0] if matches else None


async def require_topics(session: CommandSession, names: Iterable[str]) -> None:
    """Raises UserError with the most similar name if a topic does not exist."""
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
