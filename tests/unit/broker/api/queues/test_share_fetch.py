"""ShareFetch: acquired records, waiting, and records of answers that are never received."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.queues.share_acknowledge import end_session
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.cluster.metadata import store_keys
from penstock.coordinator.queues.receive import take
from penstock.state.queues.state_shard import QueueKey
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.sharing import (
    ACCEPT,
    CONFIGS,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    acquired,
    code_of,
    row_of,
    set_up,
)
from tests.unit.coordinator.queueing import append


def start_of(node: Node, index: int = 0) -> int:
    key = QueueKey("g", node.ctx.image.topics["t"].id, index)
    queue = node.ctx.queue.queues.find(key)
    assert queue is not None
    return queue.machine.kept.start


# -- acquiring --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
@run_with(on_node, configs=CONFIGS)
async def test_records_are_returned_with_their_acquired_ranges(node: Node, *, version: int) -> None:
    await set_up(node, 5)
    answer = await Member(node).fetch(0, version=version)
    assert answer.error_code == 0
    assert answer.acquisition_lock_timeout_ms == 30_000
    assert acquired(answer) == [(0, 4, 1)]


@run_with(on_node, configs=CONFIGS)
async def test_record_is_acquired_by_one_member_only(node: Node) -> None:
    await set_up(node, 10)
    first, second = Member(node, "a"), Member(node, "b")
    assert acquired(await first.fetch(0, max_records=6)) == [(0, 5, 1)]
    assert acquired(await second.fetch(0)) == [(6, 9, 1)]
    assert acquired(await first.fetch()) == []


@run_with(on_node, configs=CONFIGS)
async def test_partitions_are_served_in_turns(node: Node) -> None:
    await set_up(node, partitions=3)
    for index in range(3):
        await node.produce("t", 4, index=index)
    member = Member(node)
    seen = []
    answer = await member.fetch(0, 1, 2, max_records=2)
    for _ in range(3):
        seen.append([index for index in range(3) if acquired(answer, index)])
        answer = await member.fetch(max_records=2)
    assert seen == [[0], [1], [2]]


@run_with(on_node, configs=CONFIGS)
async def test_records_beyond_the_size_limit_are_released_uncounted(node: Node) -> None:
    await set_up(node, 6)
    member = Member(node)
    answer = await member.fetch(0, max_bytes=100)
    runs = acquired(answer)
    assert runs[0][0] == 0
    assert runs[-1][1] < 5
    rest = acquired(await Member(node, "b").fetch(0))
    assert rest == [(runs[-1][1] + 1, 5, 1)]


@run_with(on_node, configs=CONFIGS)
async def test_prioritized_record_is_returned_alone_and_first(node: Node) -> None:
    await set_up(node, 5)
    await append(node, (("penstock-priority", b"9"),))
    member = Member(node)
    assert acquired(await member.fetch(0)) == [(5, 5, 1)]
    assert acquired(await member.fetch()) == [(0, 4, 1)]


# -- waiting ----------------------------------------------------------------------------------


@run_with(on_node, configs=CONFIGS)
async def test_fetch_waits_until_a_record_arrives(node: Node) -> None:
    await set_up(node)
    pending = asyncio.ensure_future(Member(node).fetch(0, max_wait_ms=60_000))
    await asyncio.sleep(1)
    assert not pending.done()
    await node.produce("t", 1)
    await asyncio.sleep(0.1)
    assert pending.done()
    assert acquired(pending.result()) == [(0, 0, 1)]


@run_with(on_node, configs=CONFIGS)
async def test_fetch_waits_at_most_max_wait(node: Node) -> None:
    await set_up(node)
    loop = asyncio.get_running_loop()
    member = Member(node)
    await member.fetch(0)
    before = loop.time()
    answer = await member.fetch(max_wait_ms=500)
    assert 0.499 < loop.time() - before < 0.6
    assert (answer.error_code, list(answer.responses)) == (0, [])


@run_with(on_node, configs=CONFIGS)
async def test_fetch_waits_for_min_bytes(node: Node) -> None:
    await set_up(node, 1)
    pending = asyncio.ensure_future(Member(node).fetch(0, max_wait_ms=60_000, min_bytes=200))
    await asyncio.sleep(1)
    assert not pending.done()
    await node.produce("t", 3)
    await asyncio.sleep(0.1)
    assert pending.done()
    assert acquired(pending.result())[0][0] == 0
    assert acquired(pending.result())[-1][1] >= 1


@run_with(on_node, configs=CONFIGS)
async def test_connection_lost_before_the_answer_releases_all_records(
    node: Node,
) -> None:
    await set_up(node, 1)
    member = Member(node)
    task = asyncio.ensure_future(member.fetch(0, max_wait_ms=60_000, min_bytes=10_000))
    await asyncio.sleep(1)
    task.cancel()
    member.client.lose()
    await asyncio.sleep(0.1)
    assert acquired(await Member(node, "b").fetch(0)) == [(0, 0, 1)]


# -- acknowledgements on the way --------------------------------------------------------------


@run_with(on_node, configs=CONFIGS)
async def test_acknowledgements_apply_before_records_are_acquired(node: Node) -> None:
    await set_up(node, 3)
    member = Member(node)
    await member.fetch(0)
    answer = await member.fetch(acks={0: [(0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT)]})
    assert row_of(answer).acknowledge_error_code == 0
    assert acquired(answer) == [(1, 1, 2)]


@run_with(on_node, configs=CONFIGS)
async def test_invalid_acknowledgement_is_refused_beside_the_records(node: Node) -> None:
    await set_up(node, 4)
    member = Member(node)
    await member.fetch(0, max_records=1)
    answer = await member.fetch(acks={0: [(0, 0, ACCEPT), (3, 3, ACCEPT)]}, max_records=1)
    row = row_of(answer)
    assert row.acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
    assert acquired(answer) == [(1, 1, 1)]
    assert start_of(node) == 0, "none of them counts"


@run_with(on_node, configs=CONFIGS)
async def test_renewal_request_acquires_nothing(node: Node) -> None:
    await set_up(node, 2)
    member = Member(node)
    await member.fetch(0, max_records=1)
    await asyncio.sleep(20)
    nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    answer = await member.fetch(acks={0: [(0, 0, RENEW)]}, is_renew_ack=True, **nothing)
    assert row_of(answer).acknowledge_error_code == 0
    assert acquired(answer) == []
    await asyncio.sleep(20)
    answer = await member.fetch(acks={0: [(0, 0, ACCEPT)]})
    assert row_of(answer).acknowledge_error_code == 0
    wrong = await member.fetch(acks={0: [(1, 1, RENEW)]}, is_renew_ack=True)
    assert wrong.error_code == ErrorCode.INVALID_REQUEST


# -- sessions ---------------------------------------------------------------------------------


@run_with(on_node, configs=CONFIGS)
async def test_session_keeps_its_partitions_until_they_are_forgotten(node: Node) -> None:
    await set_up(node, 2, partitions=2)
    member = Member(node)
    await member.fetch(0, 1)
    await node.produce("t", 1, index=1)
    assert acquired(await member.fetch(), 1) == [(0, 0, 1)]
    await member.fetch(forget=(1,))
    await node.produce("t", 1, index=1)
    assert list((await member.fetch()).responses) == []


@run_with(on_node, configs=CONFIGS)
async def test_final_request_of_a_session_releases_everything(node: Node) -> None:
    await set_up(node, 3)
    member = Member(node)
    await member.fetch(0)
    answer = await member.fetch(acks={0: [(0, 0, ACCEPT)]}, epoch=-1)
    assert row_of(answer).acknowledge_error_code == 0
    assert acquired(answer) == []
    assert acquired(await Member(node, "b").fetch(0)) == [(1, 2, 2)]
    again = await member.fetch(epoch=-1)
    assert again.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize("is_opened_anew", [False, True])
@run_with(on_node, configs=CONFIGS)
async def test_fetch_overtaken_by_the_end_of_its_session_keeps_nothing(
    node: Node, *, is_opened_anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await set_up(node, 3)
    member, sessions = Member(node), node.ctx.share.share_sessions

    async def take_later(*asked: Any) -> Any:
        """As if the queue had to be opened first, and the member left meanwhile."""
        session = sessions.find("g", "m")
        sessions.close(session)
        end_session(node.ctx.share, session)
        if is_opened_anew:
            sessions.open("g", "m", member.client, 10, lambda ended: None)
        return await take(*asked)

    monkeypatch.setattr("penstock.broker.api.queues.share_fetch.take", take_later)
    assert acquired(await member.fetch(0)) == [(0, 2, 1)]
    monkeypatch.undo()
    left = [] if is_opened_anew else [(0, 2, 2)]
    assert acquired(await Member(node, "b").fetch(0)) == left


@run_with(on_node, configs=CONFIGS)
async def test_fetch_without_byte_capacity_returns_at_once(node: Node) -> None:
    await set_up(node, 3)
    before = asyncio.get_running_loop().time()
    assert acquired(await Member(node).fetch(0, max_bytes=0, max_wait_ms=60_000)) == []
    assert asyncio.get_running_loop().time() - before < 1
    assert acquired(await Member(node, "b").fetch(0)) == [(0, 2, 1)]


@run_with(on_node, configs=CONFIGS)
async def test_released_record_returns_at_once_without_a_backoff(node: Node) -> None:
    await node.create("t", 1)
    await node.produce("t", 100)
    values = {"share.auto.offset.reset": "earliest"}
    await node.put(store_keys.group_configs_key("g"), store_keys.ConfigsRecord(values=values))
    member = Member(node)
    await member.fetch(0)
    await member.answer([(0, 99, RELEASE)])
    assert acquired(await member.fetch()) == [(0, 99, 2)]
    await member.answer([(0, 9, RELEASE)], is_patient=True)
    await member.answer([(10, 99, ACCEPT)])
    assert acquired(await member.fetch()) == []
    await asyncio.sleep(3)
    assert acquired(await member.fetch()) == [(0, 9, 3)]


def on_delaying_broker(test: Callable[[Node], Awaitable[None]], where: str) -> None:
    """Runs a test on a node that delays retries if `where` is `broker`."""
    delay = {"group.share.retry.backoff.ms": "1000"} if where == "broker" else {}
    on_node(test, configs=CONFIGS | delay)


@pytest.mark.parametrize("where", ["group", "broker"])
@run_with(on_delaying_broker, fixtures=["where"])
async def test_delayed_retries_of_a_group_arrive_together(node: Node, *, where: str) -> None:
    await node.create("t", 1)
    await node.produce("t", 100)
    values = {"share.auto.offset.reset": "earliest"}
    values |= {"share.retry.backoff.ms": "1000"} if where == "group" else {}
    await node.put(store_keys.group_configs_key("g"), store_keys.ConfigsRecord(values=values))
    member = Member(node)
    await member.fetch(0)
    await member.answer([(0, 99, RELEASE)])
    fetches = 0
    offsets: set[int] = set()
    while len(offsets) < 100:
        fetches += 1
        for first, last, _ in acquired(await member.fetch(max_wait_ms=10_000)):
            offsets |= set(range(first, last + 1))
    assert fetches <= 12


@run_with(on_node, configs=CONFIGS)
async def test_lost_connection_releases_its_records(node: Node) -> None:
    await set_up(node, 3)
    member = Member(node)
    await member.fetch(0)
    member.client.lose()
    await asyncio.sleep(0)
    assert acquired(await Member(node, "b").fetch(0)) == [(0, 2, 2)]


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(1, ErrorCode.SHARE_SESSION_NOT_FOUND), (-1, ErrorCode.SHARE_SESSION_NOT_FOUND)],
)
@run_with(on_node, configs=CONFIGS)
async def test_later_epoch_without_a_session_is_refused(
    node: Node, *, epoch: int, code: ErrorCode
) -> None:
    await set_up(node)
    assert (await Member(node).fetch(0, epoch=epoch)).error_code == code


@run_with(on_node, configs=CONFIGS)
async def test_request_out_of_sequence_is_refused(node: Node) -> None:
    await set_up(node)
    member = Member(node)
    await member.fetch(0)
    answer = await member.fetch(epoch=7)
    assert answer.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    answer = await member.fetch(epoch=0, acks={0: [(0, 0, ACCEPT)]})
    assert answer.error_code == ErrorCode.INVALID_REQUEST


# -- refusals ---------------------------------------------------------------------------------


@run_with(on_node, configs=CONFIGS)
async def test_permissions_of_group_and_topic_are_checked(node: Node) -> None:
    await set_up(node, 1)
    node.rights.deny(Operation.READ, ResourceType.TOPIC, "t")
    answer = await Member(node).fetch(0)
    assert code_of(answer) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    node.rights.deny(Operation.READ, ResourceType.GROUP, "g")
    answer = await Member(node, "b").fetch(0)
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert (await Member(node, "", "h").fetch(0)).error_code == ErrorCode.INVALID_REQUEST


@run_with(on_node, configs=CONFIGS)
async def test_unknown_partition_is_refused_in_its_row(node: Node) -> None:
    await set_up(node, 1)
    answer = await Member(node).fetch(0, 9)
    assert code_of(answer, 9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert acquired(answer, 0) == [(0, 0, 1)]
    member = Member(node, "b")
    await member.fetch(0)
    await node.delete("t")
    answer = await member.fetch()
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@run_with(on_node, configs=CONFIGS)
async def test_queue_that_cannot_be_opened_yet_returns_nothing(node: Node) -> None:
    await set_up(node, 1)
    member = Member(node)
    await member.fetch(0)
    queue = node.ctx.queue.queues.find(QueueKey("g", node.ctx.image.topics["t"].id, 0))
    assert queue is not None
    node.ctx.queue.queues._close(queue.key, "test")
    node.ctx.queue.queues.keeping.host.close()
    answer = await member.fetch(max_wait_ms=100)
    assert (answer.error_code, list(answer.responses)) == (0, [])
