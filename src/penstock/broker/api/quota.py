"""Calls of clients while there are quotas: what they cost, and how long the next one is put off.

A request that takes its client above a quota is answered at once, with the time the client should
wait (`throttle_time_ms`), and its connection is not read for that long (KIP-219). What is charged:
for Produce the bytes of the request, for Fetch those of the records sent, for creating and deleting
topics the partitions, and for every request the time it took of the processor (KIP-124).

A Produce is charged when it comes and not when it is answered: producers have many requests under
way, and those behind it would be taken while it waits for the disk.

Nodes of the cluster are not charged, nor are requests that come before authentication.
"""

import math
from collections.abc import Awaitable, Callable, Generator
from dataclasses import replace
from typing import Any, Protocol, cast

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Buffer
from penstock.broker.api.context import Call, ClientConnection, Prepared
from penstock.broker.api.quota_meter import Meter
from penstock.broker.api.route_row import Operation
from penstock.security.quotas import QuotaKind
from penstock.wire.messages.fetch import FetchResponse
from penstock.wire.messages.share import ShareFetchResponse

PRODUCE_KEY = 0
FETCH_KEYS = (1, 78)


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
