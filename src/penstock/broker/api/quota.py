"""Client quotas: charges requests and throttles clients above their quota (KIP-124, KIP-219).

`Meter` has the node's token buckets, updated with the cluster's quotas, and counts throttles. While
no quota is set, a request costs only a check of `is_on`. As in Kafka, a quota applies to each node
separately. There are two ways to charge:

- `MeteredCall`, for Kafka clients: a request that exceeds a quota is answered at once with
  `throttle_time_ms`, and its connection is not read for that time. Produce is charged for the bytes
  of the request, Fetch for the bytes of sent records, creating and deleting topics for partitions,
  and every request for its CPU time. Produce is charged on arrival and not on reply: producers have
  many requests in flight, and later ones would be accepted while the first waits for the disk.
- `GatewayQuota`, for all other endpoints: these clients cannot be throttled by not reading, so the
  next request is refused (`Throttled`) until the quota allows it.

Nodes of the cluster are not charged, nor are requests before authentication.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Buffer
from penstock.broker.api.call import Call, ClientConnection, Prepared
from penstock.broker.api.metrics import Metrics
from penstock.broker.api.route_row import Operation
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata.image import EMPTY, Image
from penstock.security.acl_types import NODE_USER
from penstock.security.quotas import CLIENT_KINDS, QuotaKind, QuotaMeters, Quotas
from penstock.wire.messages.fetch import FetchResponse
from penstock.wire.messages.share import ShareFetchResponse

USER_PREFIX = "User:"
PRODUCE_KEY = 0
FETCH_KEYS = (1, 78)


def _no_time() -> float:
    return 0.0


class Meter:
    """Token buckets of all client quotas of this node."""

    __slots__ = ("_configs", "_metrics", "is_on", "meters", "processor_s", "times_requests")

    def __init__(
        self,
        metrics: Metrics,
        configs: BrokerConfigs,
        image: Image = EMPTY,
        processor_s: Callable[[], float] = _no_time,
    ) -> None:
        """`processor_s` returns the CPU time of the event loop's thread."""
        self._metrics = metrics
        self._configs = configs
        self.meters = QuotaMeters()
        self.processor_s = processor_s
        self.is_on = False
        """True if any client quota is set."""
        self.times_requests = False
        self._configure(image.quotas)

    def follow(self, before: Image, after: Image) -> None:
        """Applies changed quotas from the next request on."""
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
        """Charges a client; returns the seconds by which it exceeds its quota."""
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
        """Returns the seconds for which a client must wait; 0: none."""
        user = user_of(principal)
        if kind not in self.meters.kinds or user == NODE_USER:
            return 0.0
        return self.meters.owes(kind, user, client_id or "", now_s)

    def fetch_bytes_max(self, principal: str, client_id: str | None) -> float:
        """Returns the largest fetch of a consumer: at most its quota for one window."""
        user = user_of(principal)
        if QuotaKind.FETCH not in self.meters.kinds or user == NODE_USER:
            return float("inf")
        return max(1.0, self.meters.bytes_max(QuotaKind.FETCH, user, client_id or ""))

    def connect(self, ip: str, now_s: float) -> float:
        """Counts a new connection; returns the seconds by which its address exceeds its rate."""
        if QuotaKind.CONNECTION not in self.meters.kinds:
            return 0.0
        wait_s = self.meters.connect(ip, now_s)
        if wait_s > 0:
            self._metrics.count_throttle(QuotaKind.CONNECTION, wait_s)
        return wait_s


def user_of(principal: str) -> str:
    """Returns the user name of a principal for quotas."""
    return principal.removeprefix(USER_PREFIX)


class Throttled(Refused):
    """Refusal because of an exceeded quota, with the time to wait."""

    def __init__(self, kind: QuotaKind, wait_s: float) -> None:
        super().__init__(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            f"The quota {kind} is used up; try again in {wait_s:.1f} s.",
        )
        self.wait_s = wait_s


class Payer(Protocol):
    """Client to charge."""

    @property
    def name(self) -> str: ...

    @property
    def client_id(self) -> str | None: ...


class GatewayQuota:
    """Charges requests to endpoints other than Kafka's."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def require(self, payer: Payer, kind: QuotaKind) -> None:
        """Raises Throttled while the quota is exceeded."""
        wait_s = self.owed_s(payer, kind)
        if wait_s > 0:
            raise Throttled(kind, wait_s)

    def owed_s(self, payer: Payer, kind: QuotaKind) -> float:
        """Returns the seconds to wait before more work; 0: none."""
        if not self._meter.is_on:
            return 0.0
        now_s = asyncio.get_running_loop().time()
        return self._meter.owes(kind, payer.name, payer.client_id, now_s)

    def charge(self, payer: Payer, kind: QuotaKind, amount: float) -> None:
        if self._meter.is_on:
            now_s = asyncio.get_running_loop().time()
            self._meter.charge(kind, payer.name, payer.client_id, amount, now_s)

    async def pass_on(
        self,
        payer: Payer,
        size: int,
        kinds: Sequence[QuotaKind] = (QuotaKind.FETCH, QuotaKind.PRODUCE),
    ) -> None:
        """Charges for bytes that are read and written in the background on a client's behalf.

        Waits until the quota allows more.
        """
        for kind in kinds:
            self.charge(payer, kind, size)
            await asyncio.sleep(self.owed_s(payer, kind))

    def fetch_bytes_max(self, payer: Payer, most: int) -> int:
        """Limits the bytes of one response."""
        if not self._meter.is_on:
            return most
        return int(min(most, self._meter.fetch_bytes_max(payer.name, payer.client_id)))

    @property
    def is_on(self) -> bool:
        return self._meter.is_on


class MeteredCall(Call):
    """Call that charges its client's quotas."""

    __slots__ = ("_begun_s", "_meter", "_owed_s", "_spent_s", "_told_s", "is_exempt")

    def __init__(
        self,
        caller: ClientConnection,
        prepared: Prepared,
        correlation_id: int,
        client_id: str | None,
        version: int,
        position: int,
        encode: Callable[[Call, Any], list[Buffer]],
        now: Callable[[], float],
        meter: Meter,
        size: int,
    ) -> None:
        super().__init__(
            caller, prepared, correlation_id, client_id, version, position, encode, now
        )
        self._meter = meter
        self._owed_s = 0.0
        self._told_s = 0.0
        self._spent_s = 0.0
        self._begun_s: float | None = None
        needs = prepared.route.needs
        self.is_exempt = needs is None or needs.operation is Operation.CLUSTER_ACTION
        if prepared.route.key == PRODUCE_KEY:
            self._told_s = self._take(QuotaKind.PRODUCE, size, self.started)
            if self._told_s > 0:
                caller.mute(self._told_s)

    def reply(self, response: Any) -> None:
        wait_s = 0.0 if self.is_exempt else self._charge(response)
        told_s = max(wait_s, self._told_s)
        if told_s > 0 and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, math.ceil(told_s * 1000))
        super().reply(response)
        if wait_s > 0:
            self.caller.mute(wait_s)

    def finish_silently(self) -> None:
        wait_s = 0.0 if self.is_exempt else self._charge(None)
        super().finish_silently()
        if wait_s > 0:
            self.caller.mute(wait_s)

    def _charge(self, response: Any) -> float:
        now_s = self._now()
        key = self.prepared.route.key
        wait_s = self._owed_s
        if key in FETCH_KEYS and response is not None:
            wait_s = max(wait_s, self._take(QuotaKind.FETCH, _sent(response), now_s))
        if self._meter.times_requests:
            spent_s = self._spent_s
            if self._begun_s is not None:
                spent_s += self._meter.processor_s() - self._begun_s
            wait_s = max(wait_s, self._take(QuotaKind.REQUEST, spent_s, now_s))
        return wait_s

    def _take(self, kind: QuotaKind, amount: float, now_s: float) -> float:
        return self._meter.charge(kind, self.caller.principal, self.client_id, amount, now_s)

    def take_partitions(self, count: int, *, is_strict: bool) -> None:
        """Charges created or deleted partitions (KIP-599); strictly: raises Refused."""
        if self.is_exempt:
            return
        now_s = self._now()
        who = self.caller.principal, self.client_id
        if is_strict and (owed_s := self._meter.owes(QuotaKind.MUTATION, *who, now_s)) > 0:
            self._owed_s = max(self._owed_s, owed_s)
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"The quota {QuotaKind.MUTATION} is used up; try again in {owed_s:.1f} s.",
            )
        self._owed_s = max(self._owed_s, self._take(QuotaKind.MUTATION, count, now_s))

    # -- CPU time -----------------------------------------------------------------------------

    def begin(self) -> None:
        self._begun_s = self._meter.processor_s()

    def pause(self) -> None:
        if self._begun_s is not None:
            self._spent_s += self._meter.processor_s() - self._begun_s
            self._begun_s = None


def _sent(response: FetchResponse | ShareFetchResponse) -> int:
    """Returns the bytes of records in a fetch response."""
    return sum(
        len(row.records)
        for topic in response.responses
        for row in topic.partitions
        if row.records is not None
    )


def exempt(call: Call) -> None:
    """Exempts a call from quotas, since it comes from a node."""
    if isinstance(call, MeteredCall):
        call.is_exempt = True


def take_partitions(call: Call, count: int, *, is_strict: bool) -> None:
    """Charges the creation or deletion of partitions, if there is a quota on it."""
    if isinstance(call, MeteredCall):
        call.take_partitions(count, is_strict=is_strict)


def timed(prepared: Prepared) -> Prepared:
    """Wraps the handler of a route to measure its CPU time."""
    handler = prepared.route.handler

    def handle(ctx: Any, call: MeteredCall, request: Any) -> Any:
        call.begin()
        try:
            answer = handler(ctx, call, request)
        finally:
            call.pause()
        return TimedSteps(call, answer) if isinstance(answer, Awaitable) else answer

    return replace(prepared, route=replace(prepared.route, handler=handle))


class Stopwatch(Protocol):
    """Measures the CPU time of steps."""

    def begin(self) -> None: ...

    def pause(self) -> None: ...


class TimedSteps:
    """Coroutine whose steps are measured, without its waits."""

    def __init__(self, watch: Stopwatch, work: Awaitable[Any]) -> None:
        self._watch = watch
        # Coroutines and futures return generators, which `Awaitable` does not declare.
        self._steps: Generator[Any, Any, Any] = work.__await__()

    def __await__(self) -> Generator[Any, Any, Any]:
        # `await` needs only these methods of a generator.
        return cast("Generator[Any, Any, Any]", self)

    def __iter__(self) -> "TimedSteps":
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        self._watch.begin()
        try:
            return self._steps.send(value)
        finally:
            self._watch.pause()

    def throw(self, *error: Any) -> Any:
        self._watch.begin()
        try:
            return self._steps.throw(*error)
        finally:
            self._watch.pause()

    def close(self) -> None:
        self._steps.close()
