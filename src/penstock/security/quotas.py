"""Client quotas: how fast users, clients and addresses may go on (KIP-13, 55, 124, 546, 599, 612).

Owns: what an entity is, which quota holds for whom, and one bucket for each that share one.

A quota is set for a user, a client id, both together, or an address, by name or for all that have
none of their own (the default). The most special one holds, in Kafka's order (`ORDER`). Who shares
it: a user's clients share what is set for the user, users share what is set for a client id; a
default is what each of them has for itself.

Bounds: `BUCKETS_MAX`, of which those used last are kept.
Leaves to others: where quotas are kept (`cluster.access.quotas`), what is charged, and who waits
(`broker.api.quota`).
"""

from collections import OrderedDict
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from penstock.base.token_bucket import TokenBucket

BUCKETS_MAX = 10_000
WAIT_S_MAX = 3_600.0
"""Clients are never put off for longer than this at a time."""
REQUEST_WAIT_S_MAX = 10.0
"""Members of groups must get to their heartbeats."""


class EntityType(StrEnum):
    """Kafka's names of what a quota can be set for."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


class QuotaKind(StrEnum):
    """Kafka's names of quotas."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    CONNECTION = "connection_creation_rate"


CLIENT_KINDS = (QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST, QuotaKind.MUTATION)


class Default:
    """The name of all those that have no quota of their own."""

    def __repr__(self) -> str:
        return "<default>"


DEFAULT = Default()
EntityName = str | Default | None


class Entity(NamedTuple):
    """What a quota is set for; None: whatever it is."""

    user: EntityName = None
    client_id: EntityName = None
    ip: EntityName = None

    def parts(self) -> list[tuple[EntityType, str | Default]]:
        """What it consists of, by Kafka's names."""
        return [
            (kind, name) for kind, name in zip(EntityType, self, strict=True) if name is not None
        ]


class Share(NamedTuple):
    """Those who draw from one bucket."""

    kind: QuotaKind
    user: str = ""
    client_id: str = ""
    ip: str = ""


Quotas = Mapping[Entity, Mapping[str, float]]


def quota_of(
    quotas: Quotas, kind: QuotaKind, user: str, client_id: str
) -> tuple[float, Share] | None:
    """The quota that holds for a client, and who shares it; None: it has none."""
    order = (
        (Entity(user, client_id), Share(kind, user, client_id)),
        (Entity(user, DEFAULT), Share(kind, user, client_id)),
        (Entity(user), Share(kind, user)),
        (Entity(DEFAULT, client_id), Share(kind, user, client_id)),
        (Entity(DEFAULT, DEFAULT), Share(kind, user, client_id)),
        (Entity(DEFAULT), Share(kind, user)),
        (Entity(None, client_id), Share(kind, "", client_id)),
        (Entity(None, DEFAULT), Share(kind, "", client_id)),
    )
    for entity, share in order:
        values = quotas.get(entity)
        if values is not None and (limit := values.get(kind)) is not None:
            return limit, share
    return None


def quota_of_ip(quotas: Quotas, ip: str) -> tuple[float, Share] | None:
    for entity in (Entity(ip=ip), Entity(ip=DEFAULT)):
        values = quotas.get(entity)
        if values is not None and (limit := values.get(QuotaKind.CONNECTION)) is not None:
            return limit, Share(QuotaKind.CONNECTION, ip=ip)
    return None


class QuotaMeters:
    """Charges clients by their quotas. Time is given, never asked for."""

    def __init__(self) -> None:
        self._quotas: Quotas = {}
        self._window_s = 1.0
        self._windows = 11
        self._buckets: OrderedDict[Share, TokenBucket] = OrderedDict()
        self.kinds: frozenset[QuotaKind] = frozenset()
        """Those of which there is a quota for anybody."""

    def configure(self, quotas: Quotas, windows: int, window_s: float) -> None:
        self._quotas = quotas
        self._windows = windows
        self._window_s = window_s
        self.kinds = frozenset(QuotaKind(kind) for values in quotas.values() for kind in values)

    def charge(
        self, kind: QuotaKind, user: str, client_id: str, amount: float, now_s: float
    ) -> float:
        """Counts what was done; answers how many seconds the client should wait before more.

        Bytes, partitions, or for requests seconds of the processor.
        """
        found = quota_of(self._quotas, kind, user, client_id)
        if found is None:
            return 0.0
        limit, share = found
        if kind is QuotaKind.REQUEST:
            return min(self._take(share, amount, limit / 100, now_s), REQUEST_WAIT_S_MAX)
        return self._take(share, amount, limit, now_s)

    def owes(self, kind: QuotaKind, user: str, client_id: str, now_s: float) -> float:
        """How many seconds the client must wait before it may begin; 0: it may now."""
        found = quota_of(self._quotas, kind, user, client_id)
        if found is None:
            return 0.0
        limit, share = found
        return min(self._bucket(share, limit).wait_s(now_s), WAIT_S_MAX)

    def connect(self, ip: str, now_s: float) -> float:
        """Counts a new connection; answers for how many seconds its address is above its rate."""
        found = quota_of_ip(self._quotas, ip)
        return self._take(found[1], 1, found[0], now_s) if found is not None else 0.0

    def bytes_max(self, kind: QuotaKind, user: str, client_id: str) -> float:
        """The most that a client should be given at once; infinity where it has no quota."""
        found = quota_of(self._quotas, kind, user, client_id)
        return found[0] * self._window_s if found is not None else float("inf")

    def _take(self, share: Share, amount: float, rate: float, now_s: float) -> float:
        return min(self._bucket(share, rate).take(amount, now_s), WAIT_S_MAX)

    def _burst_s(self, kind: QuotaKind) -> float:
        """Topics are made many at a time and seldom, so there Kafka's whole span may be used."""
        return self._window_s * (self._windows if kind is QuotaKind.MUTATION else 1)

    def _bucket(self, share: Share, rate: float) -> TokenBucket:
        """The bucket of those who share a quota, at the rate that holds now."""
        bucket = self._buckets.get(share)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._buckets.popitem(last=False)
            bucket = self._buckets[share] = TokenBucket(rate, 0)
        else:
            self._buckets.move_to_end(share)
        bucket.adjust(rate, rate * self._burst_s(share.kind))
        return bucket
