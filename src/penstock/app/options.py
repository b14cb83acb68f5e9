"""Options of the public API as types, and the refusal of unknown ones with a suggestion.

`NoOptions` is the type of a `**unknown` parameter: type checkers accept no further option, and
`refuse_unknown` raises TypeError for one at run time, whatever Python's version. The other types
are the options of methods that pass them on; a test compares each with the method's signature.
"""

import os
import ssl
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, TypedDict

from penstock.app.durations import Duration, Moment
from penstock.app.outgoing import Headers, Key
from penstock.app.publish import OnFull, Partitioner
from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random, WallClock
from penstock.client.connection import Address

QueueDelivery: TypeAlias = Literal["at-least-once", "at-most-once"]
LogDelivery: TypeAlias = Literal["at-least-once", "at-most-once", "exactly-once"]
Start: TypeAlias = Literal["earliest", "latest"]

BROKERS_VARIABLE = "PENSTOCK_BROKERS"
BROKERS = "localhost:9092"
GUARD_VARIABLE = "PENSTOCK_TEST_GUARD"
_DEFAULT_PORT = 9092
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class NoOptions(TypedDict):
    """No option at all."""


class ClientOptions(TypedDict, total=False):
    """Options of `penstock.Client`."""

    client_id: str
    linger_ms: float
    batch_bytes: int
    compression: str
    buffer_bytes: int
    on_full: OnFull
    partitioner: Partitioner | None
    delivery_timeout: Duration
    auto_create: bool
    tls: ssl.SSLContext | None
    security: Mapping[str, str] | None
    tracing: Any
    clock: WallClock | None
    random: Random | None


class PublishOptions(TypedDict, total=False):
    """Options of `publish`."""

    key: Key
    headers: Headers
    delay: Duration | None
    deliver_at: Moment | None
    priority: int | None
    dedup_id: str | None
    expires_in: Duration | None
    partition: int | None
    timestamp_ms: int | None


class TopicOptions(TypedDict, total=False):
    """Options of `create_topic` that are passed by name."""

    order: str | None
    configs: Mapping[str, str] | None
    exist_ok: bool


class QueueOptions(TypedDict, total=False):
    """Options of `queue`."""

    delivery: QueueDelivery
    prefetch: int
    in_flight_max: int
    renew_for: Duration
    start: Start


class PollOptions(TypedDict, total=False):
    """Options of `poll` that are passed by name."""

    start: Start


class LogOptions(TypedDict, total=False):
    """Options of `consume`."""

    delivery: LogDelivery
    start: Start
    commit_every: Duration
    auto_commit: bool
    uncommitted: bool


def refuse_in_tests(addresses: Iterable[Address]) -> None:
    """Refuses the default broker's address in a test, whose author forgot to name a broker.

    Penstock's pytest plugin sets the variable; its option `penstock_guard` turns that off.
    """
    if not os.environ.get(GUARD_VARIABLE):
        return
    for address in addresses:
        if address.port == _DEFAULT_PORT and address.host in _LOOPBACK:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"a test would connect to {address}, where a real broker may be: use the fixture "
                "`penstock` (penstock.run_worker(worker), penstock.bootstrap), name another "
                "address, or set `penstock_guard = false` in pytest's configuration",
            )


def default_brokers(brokers: str | None) -> str:
    """Returns the given brokers, else those of `PENSTOCK_BROKERS`, else localhost:9092."""
    return brokers or os.environ.get(BROKERS_VARIABLE) or BROKERS


def refuse_unknown(
    where: str,
    unknown: Iterable[str],
    known: Iterable[str],
    others: Mapping[str, str] | None = None,
) -> None:
    """Raises TypeError for the first unknown option, with the option that was probably meant.

    `others` are options of other calls, each with the name of its call.
    """
    others = others or {}
    for name in unknown:
        known = list(known)
        if close := get_close_matches(name, known, n=1):
            hint = f"did you mean {close[0]!r}?"
        elif close := get_close_matches(name, others, n=1):
            hint = f"did you mean {close[0]!r}, an option of {others[close[0]]}?"
        else:
            hint = f"options are {', '.join(sorted(known))}"
        raise TypeError(f"{where} has no option {name!r}: {hint}")
