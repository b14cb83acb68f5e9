"""ShareAcknowledge: what became of records, and what is refused."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.queues.share_acknowledge import rulings_of
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.coordinator.queues.settle import SettleAction, SettleCommand
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.messages.share import AcknowledgementBatch
from tests.run_with import run_with
from tests.unit.broker.api.harness import Client, Node, on_node
from tests.unit.broker.api.sharing import (
    ACCEPT,
    CONFIGS,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    acquired,
    code_of,
    set_up,
)

KEY = QueueKey("g", b"t" * 16, 0)


def batch(first: int, last: int, *kinds: int) -> AcknowledgementBatch:
    return AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=kinds)


def test_acknowledgement_types_apply_to_all_or_to_each_record() -> None:
    batches = [batch(0, 9, 1), batch(10, 13, 1, 1, 2, 0)]
    found = list(rulings_of(KEY, "m", batches, False))
    assert [one[2:5] for one in found] == [
        (0, 9, SettleAction.ACCEPT),
        (10, 11, SettleAction.ACCEPT),
        (12, 12, SettleAction.RELEASE),
        (13, 13, SettleAction.ACCEPT),
    ]
    assert found[2] == SettleCommand(KEY, "m", 12, 12, SettleAction.RELEASE, is_patient=False)


@pytest.mark.parametrize(
    "batches",
    [
        [batch(5, 4, 1)],
        [batch(0, 4, 1), batch(4, 6, 1)],
        [batch(5, 9, 1), batch(0, 1, 1)],
        [batch(0, 4)],
        [batch(0, 4, 1, 1)],
        [batch(0, 0, 5)],
        [batch(0, 0, -1)],
        [batch(0, 0, RENEW)],
        [batch(-1, 0, 1)],
    ],
)
def test_invalid_acknowledgements_are_refused(batches: list[AcknowledgementBatch]) -> None:
    with pytest.raises(Refused) as refused:
        list(rulings_of(KEY, "m", batches, False))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [1, 2])
@run_with(on_node, configs=CONFIGS)
async def test_records_are_accepted_released_and_rejected(node: Node, *, version: int) -> None:
    await set_up(node, 4)
    member = Member(node)
    await member.fetch(0)
    answer = await member.answer([(0, 0, ACCEPT), (1, 2, RELEASE)], version=version)
    assert (answer.error_code, code_of(answer)) == (0, 0)
    answer = await member.answer([(3, 3, REJECT)], version=version)
    assert code_of(answer) == 0
    assert acquired(await member.fetch()) == [(1, 2, 2)]


@run_with(on_node, configs=CONFIGS)
async def test_acknowledgement_requires_the_topic_read_permission(node: Node) -> None:
    await set_up(node, 1)
    member = Member(node)
    await member.fetch(0)
    node.rights.deny(Operation.READ, ResourceType.TOPIC, "t")
    answer = await member.answer([(0, 0, ACCEPT)])
    assert code_of(answer) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    node.rights.denied.clear()
    assert code_of(await member.answer([(0, 0, ACCEPT)])) == 0, "it was still held"


@run_with(on_node, configs=CONFIGS)
async def test_record_without_a_lease_refuses_the_whole_batch(node: Node) -> None:
    await set_up(node, 4)
    member = Member(node)
    await member.fetch(0, max_records=2)
    answer = await member.answer([(0, 0, ACCEPT), (2, 2, ACCEPT)])
    assert code_of(answer) == ErrorCode.INVALID_RECORD_STATE
    assert code_of(await member.answer([(0, 1, ACCEPT)])) == 0
    assert code_of(await member.answer([(0, 1, ACCEPT)])) == ErrorCode.INVALID_RECORD_STATE


@run_with(on_node, configs=CONFIGS)
async def test_lease_is_renewed_only_on_request_in_version_2(node: Node) -> None:
    await set_up(node, 1)
    member = Member(node)
    await member.fetch(0)
    answer = await member.answer([(0, 0, RENEW)])
    assert code_of(answer) == ErrorCode.INVALID_REQUEST
    answer = await member.answer([(0, 0, RENEW)], is_renew_ack=True)
    assert code_of(answer) == 0
    assert answer.acquisition_lock_timeout_ms == 30_000
    answer = await member.answer([(0, 0, RENEW)], version=1)
    assert code_of(answer) == ErrorCode.INVALID_REQUEST


@run_with(on_node, configs=CONFIGS)
async def test_group_config_can_forbid_renewal(node: Node) -> None:
    await set_up(node, 1, share_renew_acknowledge_enable="false")
    member = Member(node)
    await member.fetch(0)
    answer = await member.answer([(0, 0, RENEW)], is_renew_ack=True)
    assert code_of(answer) == ErrorCode.INVALID_REQUEST


@run_with(on_node, configs=CONFIGS)
async def test_acknowledgement_may_use_another_connection(node: Node) -> None:
    await set_up(node, 3)
    member = Member(node)
    await member.fetch(0)
    fetching, acknowledging = member.client, Client()
    member.client = acknowledging
    answer = await member.answer([(0, 0, ACCEPT), (1, 1, RELEASE)])
    assert (answer.error_code, code_of(answer)) == (0, 0)
    code = (await member.answer([(2, 2, ACCEPT)], epoch=1)).error_code
    assert code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    acknowledging.lose()
    member.client = fetching
    assert acquired(await member.fetch()) == [(1, 1, 2)]
    member.client = Client()
    waits = asyncio.ensure_future(member.fetch(max_wait_ms=60_000))
    await asyncio.sleep(1)
    member.client = Client()
    assert code_of(await member.answer([(1, 1, ACCEPT)])) == 0
    await asyncio.sleep(1)
    assert not waits.done(), "no reply of its own connection waits for this one"
    await node.produce("t", 4)  # The first three are there already.
    assert acquired(await waits) == [(3, 3, 1)]
    fetching.lose()
    await asyncio.sleep(0)
    assert acquired(await Member(node, "b").fetch(0)) == [(2, 3, 2)]


@run_with(on_node, configs=CONFIGS)
async def test_acknowledgement_needs_its_session(node: Node) -> None:
    await set_up(node, 1)
    member = Member(node)
    answer = await member.answer([(0, 0, ACCEPT)], epoch=1)
    assert answer.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    await member.fetch(0)
    for epoch, code in (
        (0, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
        (9, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
        (1, ErrorCode.NONE),
    ):
        assert (await member.answer([(0, 0, ACCEPT)], epoch=epoch)).error_code == code


@run_with(on_node, configs=CONFIGS)
async def test_final_acknowledgement_releases_the_remaining_records(node: Node) -> None:
    await set_up(node, 3)
    member = Member(node)
    await member.fetch(0)
    assert code_of(await member.answer([(1, 1, ACCEPT)], epoch=-1)) == 0
    assert acquired(await Member(node, "b").fetch(0)) == [(0, 0, 2), (2, 2, 2)]
    assert len(node.ctx.share.share_sessions) == 1


@run_with(on_node, configs=CONFIGS)
async def test_closed_queue_is_opened_for_an_acknowledgement(node: Node) -> None:
    await set_up(node, 1)
    member = Member(node)
    await member.fetch(0)
    (queue,) = node.ctx.queue.queues.queues()
    queue.close(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert code_of(await member.answer([(0, 0, ACCEPT)])) == 0
    answer = await member.answer([(0, 0, ACCEPT)], index=7)
    assert code_of(answer, 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
