"""Who is above a quota, and by how long that puts off what it asks next.

Owns: one `QuotaMeters` for all doors of a node, kept up to date with the cluster's quotas, and the
counters of what was put off. `is_on` is all that a request costs while there is no quota.

A quota holds on each node by itself, as in Kafka.
"""

from collections.abc import Callable

from penstock.broker.api.metrics import Metrics
from penstock.cluster.configs.configs import BrokerConfigs
from penstock.cluster.metadata.image import EMPTY, Image
from penstock.security.acl_types import NODE_USER
from penstock.security.quotas import CLIENT_KINDS, QuotaKind, QuotaMeters, Quotas

USER_PREFIX = "User:"


def _no_time() -> float:
    return 0.0


class Meter:
    """Made once for each node."""

    __slots__ = ("_configs", "_metrics", "is_on", "meters", "processor_s", "times_requests")

    def __init__(
        self,
        metrics: Metrics,
        configs: BrokerConfigs,
        image: Image = EMPTY,
        processor_s: Callable[[], float] = _no_time,
    ) -> None:
        """`processor_s`: how long the thread of the loop has been running, without its waits."""
        self._metrics = metrics
        self._configs = configs
        self.meters = QuotaMeters()
        self.processor_s = processor_s
        self.is_on = False
        """Whether clients have quotas at all."""
        self.times_requests = False
        self._configure(image.quotas)

    def follow(self, before: Image, after: Image) -> None:
        """What is set now holds from the next request on."""
        if before.quotas is not after.quotas:
            self._configure(after.quotas)

    def _configure(self, quotas: Quotas) -> None:
        windows = self._configs.integer("quota.window.num")
        window_s = self._configs.integer("quota.window.size.seconds")
        self.meters.configure(quotas, windows, window_s)
        kinds = self.meters.kinds
        self.is_on = any(kind in kinds for kind in CLIENT_KINDS)
        self.times_requests = QuotaKind.REQUEST in kinds

    def charge(
        self, kind: QuotaKind, principal: str, client_id: str | None, amount: float, now_s: float
    ) -> float:
        """Counts what was done for a client; answers how many seconds it is above its quota."""
        if kind not in self.meters.kinds:
            return 0.0
        user = user_of(principal)
        if user == NODE_USER:
            return 0.0
        wait_s = self.meters.charge(kind, user, client_id or "", amount, now_s)
        if wait_s > 0:
            self._metrics.count_throttle(kind, wait_s)
        return wait_s

    def owes(self, kind: QuotaKind, principal: str, client_id: str | None, now_s: float) -> float:
        """For how many seconds a client may not begin; 0: it may."""
        user = user_of(principal)
        if kind not in self.meters.kinds or user == NODE_USER:
            return 0.0
        return self.meters.owes(kind, user, client_id or "", now_s)

    def fetch_bytes_max(self, principal: str, client_id: str | None) -> float:
        """What a consumer is sent at once: not more than it may have in one window."""
        user = user_of(principal)
        if QuotaKind.FETCH not in self.meters.kinds or user == NODE_USER:
            return float("inf")
        return max(1.0, self.meters.bytes_max(QuotaKind.FETCH, user, client_id or ""))

    def connect(self, ip: str, now_s: float) -> float:
        """Counts a new connection; answers for how many seconds its address is above its rate."""
        if QuotaKind.CONNECTION not in self.meters.kinds:
            return 0.0
        wait_s = self.meters.connect(ip, now_s)
        if wait_s > 0:
            self._metrics.count_throttle(QuotaKind.CONNECTION, wait_s)
        return wait_s


def user_of(principal: str) -> str:
    """The name that quotas know a principal by."""
    return principal.removeprefix(USER_PREFIX)
