"""Cache of a registry's schemas in one process, by id and by subject.

The schema of an id never changes, so the cache has no expiry. An unknown id is queried again after
`MISSING_TTL_MS`: its schema may have been registered since. A registry that is unreachable or
denies access fails the task, which Spark retries; its rows are never reported as bad.
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
from penstock.spark.schemas.format import Malformed, ValueCodec, codec_for
from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.formats import parse
from penstock.state.registry.parsed_schemas import Parsed

T = TypeVar("T")

CACHED_MAX: Final = 1_000
MISSING_TTL_MS: Final = 5_000
"""Time for which an unknown schema id is not queried again."""
_REGISTRY_FAILURES: Final = frozenset(
    {
        RegistryErrorCode.STORE,
        RegistryErrorCode.TIMEOUT,
        RegistryErrorCode.FORWARDING,
        RegistryErrorCode.UNKNOWN_LEADER,
        RegistryErrorCode.FORBIDDEN,
    }
)
"""Errors unrelated to the schema, such as an expired password or an error page of a proxy."""
ATTEMPTS_MAX: Final = 4
BACKOFF_S: Final = 1.0
"""Upper bound of the first backoff."""
BACKOFF_S_MAX: Final = 10.0


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """URL and credentials of a registry: `RegistryAddress("http://localhost:8080")`."""

    url: str
    user: str | None = None
    password: str = field(default="", repr=False)
    token: str | None = field(default=None, repr=False)


def address_of(registry: str | RegistryAddress) -> RegistryAddress:
    """Address from a URL such as `http://localhost:8080` or `https://ann:secret@host`."""
    if isinstance(registry, RegistryAddress):
        return registry
    parts = urlsplit(registry)
    if parts.username is None:
        return RegistryAddress(registry)
    url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return RegistryAddress(url, unquote(parts.username), unquote(parts.password or ""))


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """Version of a subject with its codec, which for Protobuf is for one message."""

    registered: Registered
    parsed: Parsed
    codec: ValueCodec


class RegistryCache:
    """Schemas that this process has read from one registry."""

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
        """Version of a subject, the latest if `version` is None.

        Raises OptionError for an unknown subject or denied access.
        """
        try:
            registered, source = self._with_retries(lambda: self._api.version(subject, version))
            parsed = parse(source)
        except Rejected as error:
            advice = (
                "pass credentials as https://user:password@host or as a RegistryAddress"
                if error.number in _REGISTRY_FAILURES
                else "register a schema with penstock.Registry(...).register(...)"
            )
            raise OptionError(
                f"registry {self.address.url} refused subject {subject!r}: {error.message}; "
                f"{advice}"
            ) from None
        return SchemaVersion(registered, parsed, codec_for(parsed, message))

    def schema(self, schema_id: int) -> Parsed:
        """Schema of an id. Raises Malformed for an unknown id."""
        known = self._by_id.get(schema_id)
        if known is not None:
            return known
        until, why = self._missing.get(schema_id, (0, ""))
        if self._clock.now_ms() < until:
            raise Malformed("UnknownSchema", why)
        try:
            found = parse(self._with_retries(lambda: self._api.schema(schema_id)))
        except Rejected as error:
            why = f"schema id {schema_id}: {error.message}"
            if error.number in _REGISTRY_FAILURES:
                raise ConnectionError(
                    f"the registry at {self.address.url} is not available: {why}"
                ) from None
            if len(self._missing) >= CACHED_MAX:
                self._missing.clear()
            self._missing[schema_id] = (self._clock.now_ms() + MISSING_TTL_MS, why)
            raise Malformed("UnknownSchema", why) from None
        self._by_id[schema_id] = found
        if len(self._by_id) > CACHED_MAX:
            self._by_id.popitem(last=False)
        return found

    def _with_retries(self, work: Callable[[], T]) -> T:
        backoff = Backoff(SystemRandom(), BACKOFF_S, BACKOFF_S_MAX)
        for attempt in range(ATTEMPTS_MAX):
            try:
                return work()
            except OSError as error:
                if attempt == ATTEMPTS_MAX - 1:
                    raise ConnectionError(
                        f"the registry at {self.address.url} is not reachable: {error}"
                    ) from error
                time.sleep(backoff.delay_s(attempt))
        raise AssertionError("unreachable")


@lru_cache(maxsize=16)
def registry_cache(address: RegistryAddress) -> RegistryCache:
    """Cache of a registry, shared in this process."""
    return RegistryCache(address)
