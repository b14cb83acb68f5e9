"""Client quotas: what is charged, and for how long a client above its quota waits (KIP-124, 219).

`Meter` is the node's one set of buckets, kept up to date with the cluster's quotas, and the
counters of what was put off; `is_on` is all that a request costs while there is no quota. A quota
holds on each node by itself, as in Kafka. Two ways to charge draw from it:

- `MeteredCall`, for Kafka clients: a request that takes its client above a quota is answered at
  once, with the time the client should wait (`throttle_time_ms`), and its connection is not read
  for that long. Charged are for Produce the bytes of the request, for Fetch those of the records
  sent, for creating and deleting topics the partitions, and for every request the time it took of
  the processor. A Produce is charged when it comes and not when it is answered: producers have many
  requests under way, and those behind it would be taken while it waits for the disk.
- `GatewayQuota`, for every other endpoint: those clients are told to wait by the answer alone, so
  the next request is refused (`Throttled`) until the debt is paid off.

Nodes of the cluster are not charged, nor are requests that come before authentication.
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
from penstock.cluster.configs.configs import BrokerConfigs
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


class Throttled(Refused):
    """Refused until a quota allows more."""

    def __init__(self, kind: QuotaKind, wait_s: float) -> None:
        super().__init__(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            f"The quota {kind} is used up; try again in {wait_s:.1f} s.",
        )
        self.wait_s = wait_s


class Payer(Protocol):
    """The client that something is done for."""

    @property
    def name(self) -> str: ...

    @property
    def client_id(self) -> str | None: ...


class GatewayQuota:
    """Charges what came in over other endpoints than Kafka's to the client it was for."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def require(self, payer: Payer, kind: QuotaKind) -> None:
        """Raises Throttled while the quota is used up."""
        wait_s = self.owed_s(payer, kind)
        if wait_s > 0:
            raise Throttled(kind, wait_s)

    def owed_s(self, payer: Payer, kind: QuotaKind) -> float:
        """For how long nothing more should be done; 0: go on."""
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

        Returns when what was owed is paid off.
        """
        for kind in kinds:
            self.charge(payer, kind, size)
            await asyncio.sleep(self.owed_s(payer, kind))

    def fetch_bytes_max(self, payer: Payer, most: int) -> int:
        """How much may be handed out at once."""
        if not self._meter.is_on:
            return most
        return int(min(most, self._meter.fetch_bytes_max(payer.name, payer.client_id)))

    @property
    def is_on(self) -> bool:
        return self._meter.is_on


class MeteredCall(Call):
    """A call that is charged when it is answered."""

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
        """Charges the making or deleting of partitions (KIP-599); strictly: raises Refused."""
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

    # -- time of the processor ----------------------------------------------------------------

    def begin(self) -> None:
        self._begun_s = self._meter.processor_s()

    def pause(self) -> None:
        if self._begun_s is not None:
            self._spent_s += self._meter.processor_s() - self._begun_s
            self._begun_s = None


def _sent(response: FetchResponse | ShareFetchResponse) -> int:
    """Bytes of records in the response to a fetch."""
    return sum(
        len(row.records)
        for topic in response.responses
        for row in topic.partitions
        if row.records is not None
    )


def exempt(call: Call) -> None:
    """It is not charged: a node asks, not a client."""
    if isinstance(call, MeteredCall):
        call.is_exempt = True


def take_partitions(call: Call, count: int, *, is_strict: bool) -> None:
    """Charges the making or deleting of partitions, where there is a quota on it."""
    if isinstance(call, MeteredCall):
        call.take_partitions(count, is_strict=is_strict)


def timed(prepared: Prepared) -> Prepared:
    """The same API with a handler that tells its call how long it takes."""
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
    """Runs while a step does."""

    def begin(self) -> None: ...

    def pause(self) -> None: ...


class TimedSteps:
    """A coroutine whose steps are counted, and not what it waits for."""

    def __init__(self, watch: Stopwatch, work: Awaitable[Any]) -> None:
        self._watch = watch
        # Coroutines and futures give generators, which `Awaitable` does not say.
        self._steps: Generator[Any, Any, Any] = work.__await__()

    def __await__(self) -> Generator[Any, Any, Any]:
        # Whoever awaits it needs no more of a generator than these methods.
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
