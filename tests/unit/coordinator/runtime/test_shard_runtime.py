"""Shard runtime: replies wait for their records, reads for earlier writes."""

import asyncio
import errno

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.state_machine import Decision, Token
from penstock.coordinator.runtime import shard_runtime
from penstock.coordinator.runtime.shard_runtime import Effect, ShardRuntime
from penstock.wire.records import batches
from simulation.disk import Fault
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.coordinator.tally import Replies, Tally, codes, count, host_on, look

A_WHILE_S = 0.1
A_MOMENT_S = 0.001
FEW = {"offsets.topic.num.partitions": "2"}


@run_with(on_node, configs=FEW)
async def test_reply_waits_until_its_record_is_committed(node: Node) -> None:
    runtime = (await host_on(node)).runtime(0)
    replies: Replies = []
    count(runtime, b"a", replies)
    assert replies == []
    assert runtime.partition.high_watermark == 0
    await asyncio.sleep(A_WHILE_S)
    assert replies == [1]
    assert runtime.partition.high_watermark == 1


@run_with(on_node, configs=FEW)
async def test_read_waits_for_the_write_before_it(node: Node) -> None:
    runtime = (await host_on(node)).runtime(0)
    replies: Replies = []
    look(runtime, b"a", replies)
    assert replies == [0], "nothing is pending, so it need not wait"
    count(runtime, b"a", replies)
    look(runtime, b"a", replies)
    assert replies == [0]
    await asyncio.sleep(A_WHILE_S)
    assert replies == [0, 1, 1]


@run_with(on_node, configs=FEW)
async def test_replies_keep_the_call_order(node: Node) -> None:
    runtime = (await host_on(node)).runtime(0)
    replies: Replies = []
    for _ in range(20):
        count(runtime, b"a", replies)
        await asyncio.sleep(0.0003)
    await asyncio.sleep(A_WHILE_S)
    assert replies == list(range(1, 21))


@run_with(on_node, configs=FEW)
async def test_decision_is_applied_before_the_next_call(node: Node) -> None:
    runtime = (await host_on(node)).runtime(0)
    replies: Replies = []
    count(runtime, b"a", replies)
    count(runtime, b"a", replies)
    assert runtime.require().counts == {b"a": 2}


@run_with(on_node, configs=FEW)
async def test_decision_applied_directly_is_not_decoded(
    node: Node,
) -> None:
    runtime = (await host_on(node)).runtime(0)
    replies: Replies = []

    def decide(tally: Tally, token: Token, now_ms: int) -> Decision:
        def apply() -> None:
            tally.counts[b"a"] = 7

        # A record that the machine would refuse to read.
        return Decision(((b"a", b"broken"),), ((token, 7),), apply)

    runtime.call(decide, replies.append)
    assert runtime.require().counts == {b"a": 7}
    assert replies == []
    await asyncio.sleep(A_WHILE_S)
    assert replies == [7]
    assert runtime.partition.log.end_offset == 1


def batches_of(runtime: ShardRuntime[Tally]) -> list[int]:
    """The number of records in each batch of the runtime's partition."""
    log = runtime.partition.log
    span = log.locate(0, 1_000_000, log.end_offset)
    return [header.count for _, header in batches(memoryview(span.read()))] if span else []


@run_with(on_node, configs=FEW)
async def test_decisions_of_one_turn_are_appended_as_one_batch(node: Node) -> None:
    runtime = (await host_on(node)).runtime(0)
    replies: Replies = []
    for name in (b"a", b"b", b"a"):
        count(runtime, name, replies)
    await asyncio.sleep(A_WHILE_S)
    count(runtime, b"b", replies)
    await asyncio.sleep(A_WHILE_S)
    assert batches_of(runtime) == [3, 1]
    assert replies == [1, 1, 2, 2]


@run_with(on_node, configs=FEW)
async def test_large_turn_is_appended_in_parts(
    node: Node, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_runtime, "BATCH_BYTES", 4)

    runtime = (await host_on(node)).runtime(0)
    replies: Replies = []
    for _ in range(5):
        count(runtime, b"a", replies)
    await asyncio.sleep(A_WHILE_S)
    assert batches_of(runtime) == [2, 2, 1]
    assert replies == [1, 2, 3, 4, 5]


@run_with(on_node, configs=FEW)
async def test_unappended_records_of_a_retired_shard_are_never_written(node: Node) -> None:
    runtime = (await host_on(node)).runtime(0)
    replies: Replies = []
    count(runtime, b"a", replies)
    runtime.retire()
    await asyncio.sleep(A_WHILE_S)
    assert runtime.partition.log.end_offset == 0
    assert codes(replies) == [ErrorCode.NOT_COORDINATOR]


@run_with(on_node, configs=FEW)
async def test_records_of_one_leader_epoch_are_not_written_in_the_next(node: Node) -> None:
    runtime = (await host_on(node)).runtime(0)
    replies: Replies = []
    count(runtime, b"a", replies)
    runtime.leader_epoch -= 1
    await asyncio.sleep(A_WHILE_S)
    assert codes(replies) == [ErrorCode.NOT_COORDINATOR]
    assert runtime.partition.log.end_offset == 0


@run_with(on_node, configs=FEW)
async def test_failed_state_machine_drops_the_rest_of_its_turn(node: Node) -> None:
    runtime = (await host_on(node)).runtime(0)
    replies: Replies = []
    count(runtime, b"a", replies)
    with pytest.raises(AssertionError):
        runtime.call(lambda shard, token, now_ms: shard.wreck(token), replies.append)
    assert codes(replies) == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    await asyncio.sleep(A_WHILE_S)
    assert runtime.partition.log.end_offset == 0


@run_with(on_node, configs=FEW)
async def test_effect_that_discards_the_shard_skips_the_remaining_effects(
    node: Node,
) -> None:
    def effects(runtime: ShardRuntime[Tally]) -> Effect | None:
        return (lambda: runtime.discard("it went wrong")) if runtime.require().counts else None

    runtime = (await host_on(node, effects=effects)).runtime(0)
    replies: Replies = []
    count(runtime, b"a", replies)
    count(runtime, b"a", replies)
    await asyncio.sleep(A_WHILE_S)
    assert replies[0] == 1
    assert codes(replies) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


@run_with(on_node, configs=FEW)
async def test_refusal_is_raised_without_a_pending_call(node: Node) -> None:
    runtime = (await host_on(node)).runtime(0)
    with pytest.raises(Refused) as refused:
        runtime.call(lambda shard, token, now_ms: shard.refuse(), lambda reply: None)
    assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert runtime.waiting == 0
    assert runtime.shard is not None


@run_with(on_node, configs=FEW)
async def test_failed_append_reloads_the_shard(node: Node) -> None:
    host = await host_on(node)
    runtime = host.runtime(0)
    replies: Replies = []
    count(runtime, b"a", replies)
    await asyncio.sleep(A_WHILE_S)
    first = runtime.require()
    parked: Replies = []
    runtime.call(lambda shard, token, now_ms: shard.park(token, now_ms + 60_000), parked.append)
    node.disk.inject(Fault("append", errno.ENOSPC, path="__consumer_offsets"))
    count(runtime, b"a", replies)
    await asyncio.sleep(A_MOMENT_S)
    assert codes(replies) == codes(parked) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    with pytest.raises(Refused) as refused:
        count(runtime, b"a", replies)
    assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert host.is_loading
    await asyncio.sleep(2)
    assert runtime.require() is not first
    assert runtime.require().counts == {b"a": 1}
    assert runtime.waiting == 0


@run_with(on_node, configs=FEW)
async def test_failed_state_machine_is_not_called_again(node: Node) -> None:
    runtime = (await host_on(node)).runtime(0)
    replies: Replies = []
    with pytest.raises(AssertionError):
        runtime.call(lambda shard, token, now_ms: shard.wreck(token), replies.append)
    assert codes(replies) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert runtime.shard is None


@run_with(on_node, configs=FEW)
async def test_dropped_call_is_removed(node: Node) -> None:
    runtime = (await host_on(node)).runtime(0)
    replies: Replies = []
    token = count(runtime, b"a", replies)
    runtime.dropped(token)
    runtime.dropped(token)
    assert runtime.require().gone == [token]
    await asyncio.sleep(A_WHILE_S)
    assert replies == []
    assert runtime.require().counts == {b"a": 1}, "it was decided all the same"


@run_with(on_node, configs=FEW)
async def test_timer_fires_when_due_and_its_records_are_persisted(node: Node) -> None:
    runtime = (await host_on(node)).runtime(0)
    replies: Replies = []
    due: list[int] = []

    def park(shard: Tally, token: object, now_ms: int) -> object:
        due.append(now_ms + 500)
        return shard.park(token, now_ms + 500)

    runtime.call(park, replies.append)  # type: ignore[arg-type]
    await asyncio.sleep(0.45)
    assert runtime.require().ticks == []
    await asyncio.sleep(0.2)
    (ticked,) = runtime.require().ticks
    assert due[0] <= ticked <= due[0] + 10
    assert replies == ["ticked"]
    assert runtime.require().counts == {b"ticks": 1}


@run_with(on_node, configs=FEW)
async def test_timer_waits_while_the_partition_is_out_of_touch(
    node: Node, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = (await host_on(node)).runtime(0)
    is_in_touch = False
    monkeypatch.setattr(type(runtime.partition), "is_in_touch", lambda self: is_in_touch)
    runtime.call(
        lambda shard, token, now_ms: shard.park(token, now_ms + 100),
        lambda reply: None,
    )
    await asyncio.sleep(10)
    assert runtime.require().ticks == []
    is_in_touch = True
    await asyncio.sleep(1)
    assert len(runtime.require().ticks) == 1


@run_with(on_node, configs=FEW)
async def test_earlier_deadline_moves_the_timer(node: Node) -> None:
    runtime = (await host_on(node)).runtime(0)
    for delay_ms in (60_000, 300):
        runtime.call(
            lambda shard, token, now_ms, delay_ms=delay_ms: shard.park(  # type: ignore[misc]
                token, now_ms + delay_ms
            ),
            lambda reply: None,
        )
    await asyncio.sleep(0.4)
    assert len(runtime.require().ticks) == 1


@run_with(on_node, configs=FEW)
async def test_effects_wait_for_their_records(node: Node) -> None:
    seen: list[int] = []
    host = await host_on(
        node, effects=lambda runtime: lambda: seen.append(runtime.partition.high_watermark)
    )
    seen.clear()
    count(host.runtime(0), b"a", [])
    assert seen == []
    await asyncio.sleep(A_WHILE_S)
    assert seen == [1]


@run_with(on_node, configs=FEW)
async def test_waiting_calls_are_limited(node: Node, *, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_runtime, "WAITING_MAX", 3)

    runtime = (await host_on(node)).runtime(0)
    replies: Replies = []
    for _ in range(3):
        count(runtime, b"a", replies)
    with pytest.raises(Refused) as refused:
        count(runtime, b"a", replies)
    assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert runtime.require().counts == {b"a": 3}
    await asyncio.sleep(A_WHILE_S)
    count(runtime, b"a", replies)


@run_with(on_node, configs=FEW)
async def test_retired_shard_redirects_its_callers(node: Node) -> None:
    runtime = (await host_on(node)).runtime(0)
    replies: Replies = []
    count(runtime, b"a", replies)
    runtime.retire()
    assert codes(replies) == [ErrorCode.NOT_COORDINATOR]
    with pytest.raises(Refused) as refused:
        count(runtime, b"a", replies)
    assert refused.value.code == ErrorCode.NOT_COORDINATOR
    await asyncio.sleep(A_WHILE_S)
    assert len(replies) == 1, "the later commit answers no caller"
