"""Client quotas: rate limits of users, clients and addresses (KIP-13, 55, 124, 546, 599, 612).

Owns: quota entities, the choice of the quota that applies, and one bucket for all that share it.

A quota is set for a user, a client id, both together, or an address, by name or as the default for
all without their own. The most specific one applies, in Kafka's order (see `quota_of`). A user's
clients share the user's quota, and users share a client id's quota; each entity under a default
has it for itself.

Bounds: `BUCKETS_MAX`; the most recently used ones are kept.
Leaves to others: storing quotas (`cluster.access.quotas`), measuring and delaying
(`broker.api.quota`).
"""

from collections import OrderedDict
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from penstock.base.token_bucket import TokenBucket

BUCKETS_MAX = 10_000
WAIT_S_MAX = 3_600.0
"""Maximum delay of a client at a time."""
REQUEST_WAIT_S_MAX = 10.0
"""Maximum delay by the request quota: group members must be able to send heartbeats."""


class EntityType(StrEnum):
    """Kafka's names of quota entities."""

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
    """Name of all entities without their own quota."""

    def __repr__(self) -> str:
        return "<default>"


DEFAULT = Default()
EntityName = str | Default | None


class Entity(NamedTuple):
    """Entity for which a quota is set; None matches anything."""

    user: EntityName = None
    client_id: EntityName = None
    ip: EntityName = None

    def parts(self) -> list[tuple[EntityType, str | Default]]:
        """Parts of the entity, by Kafka's names."""
        return [
            (kind, name) for kind, name in zip(EntityType, self, strict=True) if name is not None
        ]


class Share(NamedTuple):
    """Clients that share one bucket."""

    kind: QuotaKind
    user: str = ""
    client_id: str = ""
    ip: str = ""


Quotas = Mapping[Entity, Mapping[str, float]]


def quota_of(
    quotas: Quotas, kind: QuotaKind, user: str, client_id: str
) -> tuple[float, Share] | None:
    """Quota that applies to a client, and the clients that share it; None: no quota."""
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
    """Charges clients against their quotas. The time is a parameter."""

    def __init__(self) -> None:
        self._quotas: Quotas = {}
        self._window_s = 1.0
        self._windows = 11
        self._buckets: OrderedDict[Share, TokenBucket] = OrderedDict()
        self.kinds: frozenset[QuotaKind] = frozenset()
        """Kinds with at least one quota."""

    def configure(self, quotas: Quotas, windows: int, window_s: float) -> None:
        self._quotas = quotas
        self._windows = windows
        self._window_s = window_s
        self.kinds = frozenset(QuotaKind(kind) for values in quotas.values() for kind in values)

    def charge(
        self, kind: QuotaKind, user: str, client_id: str, amount: float, now_s: float
    ) -> float:
        """Charges an amount; returns the seconds that the client should wait before it continues.

        The amount is bytes, partitions, or CPU seconds for requests.
        """
        found = quota_of(self._quotas, kind, user, client_id)
        if found is None:
            return 0.0
        limit, share = found
        if kind is QuotaKind.REQUEST:
            return min(self._take(share, amount, limit / 100, now_s), REQUEST_WAIT_S_MAX)
        return self._take(share, amount, limit, now_s)

    def owes(self, kind: QuotaKind, user: str, client_id: str, now_s: float) -> float:
        """Seconds until the client may begin; 0: now."""
        found = quota_of(self._quotas, kind, user, client_id)
        if found is None:
            return 0.0
        limit, share = found
        return min(self._bucket(share, limit).wait_s(now_s), WAIT_S_MAX)

    def connect(self, ip: str, now_s: float) -> float:
        """Charges a new connection; returns the seconds until its address is below its rate."""
        found = quota_of_ip(self._quotas, ip)
        return self._take(found[1], 1, found[0], now_s) if found is not None else 0.0

    def bytes_max(self, kind: QuotaKind, user: str, client_id: str) -> float:
        """Maximum that a client should get at once; infinity without a quota."""
        found = quota_of(self._quotas, kind, user, client_id)
        return found[0] * self._window_s if found is not None else float("inf")

    def _take(self, share: Share, amount: float, rate: float, now_s: float) -> float:
        return min(self._bucket(share, rate).take(amount, now_s), WAIT_S_MAX)

    def _burst_s(self, kind: QuotaKind) -> float:
        """Burst duration; topics are created rarely and in bulk, so they get Kafka's whole span."""
        return self._window_s * (self._windows if kind is QuotaKind.MUTATION else 1)

    def _bucket(self, share: Share, rate: float) -> TokenBucket:
        """Bucket of the clients that share a quota, at its current rate."""
        bucket = self._buckets.get(share)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._buckets.popitem(last=False)
            bucket = self._buckets[share] = TokenBucket(rate, 0)
        else:
            self._buckets.move_to_end(share)
        bucket.adjust(rate, rate * self._burst_s(share.kind))
        return bucket
