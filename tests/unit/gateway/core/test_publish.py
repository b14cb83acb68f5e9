"""Publishing while partitions move: only batches certainly not written are retried."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import Millis
from penstock.base.ports import WallClock
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.in_process_calls import InProcessCalls
from penstock.gateway.core.messages import OutgoingMessage, Placed
from penstock.gateway.core.permissions import Principal
from penstock.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, on_node

WHO = Principal("User:ann")


class Moving:
    """Handlers of a node that refuse the first appends, before or after writing them."""

    def __init__(
        self, handlers: InProcessCalls, code: ErrorCode, times: int, is_written: bool
    ) -> None:
        self._ask = handlers.ask
        self._code, self._left, self._is_written = code, times, is_written
        self.produced = 0

    async def ask(self, principal: Principal, request: object, answer: Any) -> Any:
        if not isinstance(request, ProduceRequest):
            return await self._ask(principal, request, answer)
        self.produced += 1
        if self._left and not self._is_written:
            self._left -= 1
            return _refused(self._code, await self._ask(principal, _nowhere(request), answer))
        response = await self._ask(principal, request, answer)
        if self._left:
            self._left -= 1
            _refused(self._code, response)
        return response


def _nowhere(request: ProduceRequest) -> ProduceRequest:
    request.topic_data[0].partition_data[0].records = memoryview(b"")
    return request


def _refused(code: ErrorCode, response: ProduceResponse) -> ProduceResponse:
    for row in response.responses[0].partition_responses:
        row.error_code, row.base_offset = code, -1
    return response


async def publish(
    node: Node, code: ErrorCode, times: int, *, is_written: bool
) -> tuple[Placed | Refused, int]:
    await node.create("t", 1)
    gateway = Gateway(node.ctx)
    moving = Moving(gateway.handlers, code, times, is_written)
    gateway.handlers.ask = moving.ask  # type: ignore[method-assign]
    (placed,) = await gateway.publish(WHO, "t", [OutgoingMessage(b"v")])
    return placed, moving.produced


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
@run_with(on_node, configs=CONFIGS)
async def test_publish_retries_until_the_partition_has_a_leader(
    node: Node, *, code: ErrorCode
) -> None:
    placed, produced = await publish(node, code, 3, is_written=False)
    assert isinstance(placed, Placed)
    assert (placed.offset, produced) == (0, 4)


HOUR_MS = 3_600_000


class ClockAhead:
    """Clock of a gateway that is two hours ahead of the leader's."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock

    def now_ms(self) -> Millis:
        return Millis(self._clock.now_ms() + 2 * HOUR_MS)


@run_with(on_node, configs=CONFIGS)
async def test_publish_with_a_clock_ahead_takes_the_time_of_the_leader(node: Node) -> None:
    await node.create("t", 1)
    clock = node.ctx.clock
    node.ctx.security.clock = ClockAhead(clock)
    gateway = Gateway(node.ctx)
    chosen = OutgoingMessage(b"v", timestamp_ms=clock.now_ms() + 2 * HOUR_MS)
    (placed,) = await gateway.publish(WHO, "t", [OutgoingMessage(b"v")])
    assert isinstance(placed, Placed)
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    found = partition.log.max_timestamp()
    assert found is not None
    assert found[1] <= clock.now_ms()
    (refused,) = await gateway.publish(WHO, "t", [chosen])
    assert isinstance(refused, Refused)
    assert refused.code is ErrorCode.INVALID_TIMESTAMP, "the caller chose it"


@pytest.mark.parametrize("ahead", ["delay_ms", "deliver_at_ms"])
@run_with(on_node, configs=CONFIGS)
async def test_delay_longer_than_the_retention_is_refused(node: Node, *, ahead: str) -> None:
    await node.create("t", 1, retention_ms="60000")
    gateway, now_ms = Gateway(node.ctx), node.ctx.clock.now_ms()
    base_ms = now_ms if ahead == "deliver_at_ms" else 0
    waits: list[dict[str, Any]] = [{ahead: base_ms + ms} for ms in (59_000, 90_000)]
    good, bad = await gateway.publish(WHO, "t", [OutgoingMessage(b"v", **wait) for wait in waits])
    assert isinstance(good, Placed)
    assert isinstance(bad, Refused)
    assert "90000 ms" in str(bad.message)
    assert "(60000 ms)" in str(bad.message)


@run_with(on_node, configs=CONFIGS)
async def test_retries_without_a_leader_are_bounded(node: Node) -> None:
    placed, produced = await publish(
        node, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1_000_000, is_written=False
    )
    assert isinstance(placed, Refused)
    assert placed.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert 10 < produced < 1_000


@pytest.mark.parametrize(
    ("code", "is_written"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (ErrorCode.MESSAGE_TOO_LARGE, False),
    ],
)
@run_with(on_node, configs=CONFIGS)
async def test_batch_that_may_have_been_written_is_not_retried(
    node: Node, *, code: ErrorCode, is_written: bool
) -> None:
    placed, produced = await publish(node, code, 1, is_written=is_written)
    assert isinstance(placed, Refused)
    assert (placed.code, produced) == (code, 1)
