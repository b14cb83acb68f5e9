"""Tagged fields of Penstock's own clients in acknowledgements, which Kafka does not have."""

import asyncio
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.queues.share_acknowledge import (
    DELAY_MS_MAX,
    LOCK_MS_MAX,
    rulings_of,
    share_acknowledge,
)
from penstock.coordinator.queues.settle import SettleAction, SettleCommand, rule_together
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.messages.share import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
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
    set_up,
)

KEY = QueueKey("g", b"t" * 16, 0)


def noted(kind: int, first: int = 0, last: int = 0, **note: Any) -> AcknowledgementBatch:
    return AcknowledgementBatch(
        first_offset=first, last_offset=last, acknowledge_types=[kind], **note
    )


async def say(member: Member, *batches: AcknowledgementBatch) -> int:
    """The code that a member's verdicts are answered with."""
    topic_id = member.node.ctx.image.topics["t"].id
    row = AcknowledgePartition(partition_index=0, acknowledgement_batches=list(batches))
    request = ShareAcknowledgeRequest(
        group_id=member.group,
        member_id=member.name,
        share_session_epoch=member.epoch,
        is_renew_ack=True,
        topics=[AcknowledgeTopic(topic_id=topic_id, partitions=[row])],
    )
    member.epoch += 1
    return code_of(await member.node.ask(share_acknowledge, 2, request, member.client))


def test_acknowledgement_without_tagged_fields_is_plain() -> None:
    (ruling,) = rulings_of(KEY, "m", [noted(RELEASE)], False)
    plain = SettleCommand(KEY, "m", 0, 0, SettleAction.RELEASE, is_patient=False)
    assert ruling == plain
    (ruling,) = rulings_of(KEY, "m", [noted(RELEASE, delay_ms=0, error_class="E")], False)
    assert ruling == plain._replace(delay_ms=0, error_class="E")


@pytest.mark.parametrize(
    "wrong",
    [
        {"delay_ms": -2},
        {"delay_ms": DELAY_MS_MAX + 1},
        {"lock_ms": -2},
        {"lock_ms": LOCK_MS_MAX + 1},
    ],
)
def test_invalid_tagged_fields_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(Refused) as refused:
        list(rulings_of(KEY, "m", [noted(RELEASE, **wrong)], False))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@run_with(on_node, configs=CONFIGS)
async def test_released_record_waits_for_its_delay(node: Node) -> None:
    await set_up(node, 2)
    member = Member(node)
    await member.fetch(0)
    assert await say(member, noted(RELEASE, delay_ms=60_000), noted(RELEASE, 1, 1)) == 0
    assert acquired(await member.fetch()) == [(1, 1, 2)]
    assert await say(member, noted(ACCEPT, 1, 1)) == 0
    await asyncio.sleep(59)
    assert acquired(await member.fetch()) == []
    await asyncio.sleep(2)
    assert acquired(await member.fetch()) == [(0, 0, 2)]


@run_with(on_node, configs=CONFIGS)
async def test_failure_reason_is_stored(node: Node) -> None:
    await set_up(node, 3, errors_deadletterqueue_enable="true")
    member = Member(node)
    await member.fetch(0)
    why: dict[str, Any] = {"error_class": "ValueError", "error_message": "no such id"}
    assert await say(member, noted(RELEASE, delay_ms=1_000_000, **why)) == 0
    (queue,) = node.ctx.queue.queues.queues()
    failure = queue.machine.kept.failures[0]
    assert (failure.error_class, failure.error_message) == ("ValueError", "no such id")
    said = [noted(REJECT, 1, 1, **why), noted(REJECT, 2, 2)]
    rulings = list(rulings_of(queue.key, member.name, said, False))
    dead_letters = rule_together(queue.machine, rulings, node.ctx.clock.now_ms()).dead_letters
    assert [(one.offset, one.failure.error_class) for one in dead_letters] == [
        (1, "ValueError"),
        (2, "rejected"),
    ]


@run_with(on_node, configs=CONFIGS)
async def test_lease_is_renewed_for_the_requested_time(node: Node) -> None:
    await set_up(node, 2)
    member = Member(node)
    await member.fetch(0)
    assert await say(member, noted(RENEW, lock_ms=120_000), noted(RENEW, 1, 1)) == 0
    await asyncio.sleep(100)
    assert await say(member, noted(ACCEPT)) == 0
    assert await say(member, noted(ACCEPT, 1, 1)) == ErrorCode.INVALID_RECORD_STATE


@run_with(on_node, configs=CONFIGS)
async def test_unseen_record_does_not_count_as_delivered(node: Node) -> None:
    await set_up(node, 2)
    member = Member(node)
    await member.fetch(0)
    assert await say(member, noted(RELEASE, is_unseen=True), noted(RELEASE, 1, 1)) == 0
    assert acquired(await member.fetch()) == [(0, 0, 1), (1, 1, 2)]
