"""What a process knows of a registry: schemas by id and by subject, asked for once.

An id never means anything else, so what was found is kept for the life of the process. An id that
is not there is asked for again after a while: the schema may have been registered since.
A registry that cannot be asked, or does not let us in, fails the task, which Spark runs again; rows
are never called bad for it.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

from penstock.base.retry import Backoff
from penstock.client.registry_client import Registered, RegistryApi
from penstock.runtime.clock import SystemClock
from penstock.runtime.http_request import ask_web
from penstock.runtime.random import SystemRandom
from penstock.spark.option_values import OptionError
from penstock.spark.schemas.format import Form, Malformed, form_of
from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.formats import parse
from penstock.state.registry.parsed_schemas import Parsed

T = TypeVar("T")

KEPT_MAX: Final = 1_000
MISSING_MS: Final = 5_000
"""How long an id that the registry does not know is believed not to be there."""
_NOT_ANSWERED: Final = frozenset(
    {
        RegistryErrorCode.STORE,
        RegistryErrorCode.TIMEOUT,
        RegistryErrorCode.FORWARDING,
        RegistryErrorCode.UNKNOWN_LEADER,
        RegistryErrorCode.FORBIDDEN,
    }
)
"""They say nothing of the schema: a password that is not taken any more, a page of a proxy."""
TRIES: Final = 4
PAUSE_S: Final = 1.0
"""Bound of the first pause."""
PAUSE_S_MAX: Final = 10.0


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """Where a registry is, and who asks it. `RegistryAddress("http://localhost:8080")`."""

    url: str
    user: str | None = None
    password: str = field(default="", repr=False)
    token: str | None = field(default=None, repr=False)


def address_of(registry: str | RegistryAddress) -> RegistryAddress:
    """An address as the user gives it: `http://localhost:8080`, `https://ann:secret@host`."""
    if isinstance(registry, RegistryAddress):
        return registry
    parts = urlsplit(registry)
    if parts.username is None:
        return RegistryAddress(registry)
    url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return RegistryAddress(url, unquote(parts.username), unquote(parts.password or ""))


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A version of a subject, and which message of it (Protobuf)."""

    registered: Registered
    parsed: Parsed
    form: Form


class Book:
    """One registry, as far as this process has read it."""

    def __init__(self, address: RegistryAddress) -> None:
        self.address = address
        self._api = RegistryApi(
            ask_web,
            address.url,
            user=address.user,
            password=address.password,
            token=address.token,
        )
        self._by_id: OrderedDict[int, Parsed] = OrderedDict()
        self._missing: dict[int, tuple[int, str]] = {}
        self._clock = SystemClock()

    def subject(
        self, subject: str, version: int | None, message: str | None = None
    ) -> SchemaVersion:
        """Raises OptionError for a subject that is not there."""
        try:
            registered, source = self._patiently(lambda: self._api.version(subject, version))
            parsed = parse(source)
        except Rejected as error:
            advice = (
                "say who asks: https://user:password@host, or a RegistryAddress"
                if error.number in _NOT_ANSWERED
                else "penstock.Registry(...).register(...) registers a schema"
            )
            raise OptionError(
                f"subject {subject!r}: {error.message}, says the registry at {self.address.url}; "
                f"{advice}"
            ) from None
        return SchemaVersion(registered, parsed, form_of(parsed, message))

    def schema(self, schema_id: int) -> Parsed:
        """What an id stands for. Raises Malformed where there is no such schema."""
        known = self._by_id.get(schema_id)
        if known is not None:
            return known
        until, why = self._missing.get(schema_id, (0, ""))
        if self._clock.now_ms() < until:
            raise Malformed("UnknownSchema", why)
        try:
            found = parse(self._patiently(lambda: self._api.schema(schema_id)))
        except Rejected as error:
            why = f"schema id {schema_id}: {error.message}"
            if error.number in _NOT_ANSWERED:
                raise ConnectionError(
                    f"the registry at {self.address.url} does not answer: {why}"
                ) from None
            if len(self._missing) >= KEPT_MAX:
                self._missing.clear()
            self._missing[schema_id] = (self._clock.now_ms() + MISSING_MS, why)
            raise Malformed("UnknownSchema", why) from None
        self._by_id[schema_id] = found
        if len(self._by_id) > KEPT_MAX:
            self._by_id.popitem(last=False)
        return found

    def _patiently(self, work: Callable[[], T]) -> T:
        backoff = Backoff(SystemRandom(), PAUSE_S, PAUSE_S_MAX)
        for attempt in range(TRIES):
            try:
                return work()
            except OSError as error:
                if attempt == TRIES - 1:
                    raise ConnectionError(
                        f"the registry at {self.address.url} cannot be asked: {error}"
                    ) from error
                time.sleep(backoff.delay_s(attempt))
        raise AssertionError("unreachable")


@lru_cache(maxsize=16)
def book_of(address: RegistryAddress) -> Book:
    """This process's book of a registry."""
    return Book(address)
