"""Queue administration: one answer for each queue, from its leader."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.coordinator.queues.admin import ChangeKind, Told, answer_of, told_by
from penstock.coordinator.queues.open_queues import QueueStanding
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.messages.internal.queues import QueueCall
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, change, key_of, on_node, opened, take


@run_with(on_node, configs=CONFIGS)
async def test_every_queue_gets_its_own_answer(node: Node) -> None:
    queue = await opened(node, 5)
    missing = QueueKey("g", b"x" * 16, 0)
    beyond = QueueKey("g", queue.key.topic_id, 9)
    other = await key_of(node, "other")
    told = await node.ctx.queue.queue_admin.describe([missing, queue.key, beyond, other])
    assert isinstance(told[0], Refused)
    assert told[0].code is ErrorCode.UNKNOWN_TOPIC_ID
    assert told[1] == QueueStanding(0, queue.leader_epoch, 5)
    assert isinstance(told[2], Refused)
    assert told[2].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told[3] is None


@run_with(on_node, configs=CONFIGS)
async def test_queues_are_moved_deleted_and_woken(node: Node) -> None:
    admin = node.ctx.queue.queue_admin
    queue = await opened(node, 5)
    await take(queue)
    await change(queue, lambda m, now: m.accept("a", 0, 4, now))
    assert await admin.move([(queue.key, 3)]) == [None]
    assert await admin.describe([queue.key]) == [QueueStanding(3, queue.leader_epoch, 2)]
    assert node.ctx.queue.queues.find(queue.key) is None
    assert await admin.wake([queue.key]) == [None]
    assert node.ctx.queue.queues.find(queue.key) is not None
    assert await admin.forget([queue.key]) == [None]
    assert await admin.describe([queue.key]) == [None]
    (told,) = await admin.wake([queue.key])
    assert isinstance(told, Refused)


@run_with(on_node, configs=CONFIGS)
async def test_call_of_an_unknown_kind_is_refused(node: Node) -> None:
    call = QueueCall(kind=9, group_id="g", topic_id=TopicId(b"x" * 16), partition=0)
    (answer,) = await node.ctx.queue.queue_admin.answer_all([call])
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "told", [None, QueueStanding(3, 2, 7), Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")]
)
def test_answer_round_trips_over_the_wire(told: Told) -> None:
    back = told_by(answer_of(told))
    if isinstance(told, Refused):
        assert isinstance(back, Refused)
        assert (back.code, back.message) == (told.code, told.message)
    else:
        assert back == told


def test_call_kind_numbers_are_stable() -> None:
    assert [kind.value for kind in ChangeKind] == [0, 1, 2, 3]
