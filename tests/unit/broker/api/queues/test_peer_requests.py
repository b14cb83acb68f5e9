"""Queue requests between nodes: only nodes may send them, and every call has an answer."""

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId
from penstock.broker.api.queues.peer_requests import keep_queue_state, tell_queue
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.coordinator.queues import admin
from penstock.coordinator.queues.state_store import StateRequestKind
from penstock.wire.messages.internal.queues import (
    KeepQueueStateRequest,
    QueueCall,
    QueueStateCall,
    TellQueueRequest,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.sharing import CONFIGS, Member, set_up

TOPIC = TopicId(b"t" * 16)


def call(kind: int, number: int = 0, payload: bytes = b"", index: int = 0) -> QueueStateCall:
    return QueueStateCall(
        kind=kind,
        group_id="g",
        topic_id=TOPIC,
        partition=index,
        leader_epoch=1,
        number=number,
        payload=payload,
    )


def deny(node: Node) -> None:
    node.rights.deny(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")


@run_with(on_node, configs=CONFIGS)
async def test_queue_states_are_stored_and_read_in_call_order(node: Node) -> None:
    await node.ctx.queue.queues.keeping.ensure()
    calls = [
        call(StateRequestKind.SNAPSHOT, 0, b"S"),
        call(StateRequestKind.DELTA, 1, b"a"),
        call(StateRequestKind.DELTA, 9, b"x"),
        call(StateRequestKind.READ),
        call(StateRequestKind.READ, index=5),
        call(StateRequestKind.FORGET),
    ]
    answers = (await node.ask(keep_queue_state, 0, KeepQueueStateRequest(calls=calls))).answers
    assert [answer.error_code for answer in answers] == [
        0,
        0,
        ErrorCode.FENCED_STATE_EPOCH,
        0,
        0,
        0,
    ]
    assert (answers[3].snapshot, list(answers[3].deltas)) == (b"S", [b"a"])
    assert answers[4].snapshot is None
    empty = await node.ask(keep_queue_state, 0, KeepQueueStateRequest(calls=[]))
    assert list(empty.answers) == []


@run_with(on_node, configs=CONFIGS)
async def test_queues_are_described_and_moved(node: Node) -> None:
    await set_up(node, 4)
    await Member(node).fetch(0)
    topic_id = node.ctx.image.topics["t"].id
    calls = [
        QueueCall(kind=kind, group_id="g", topic_id=topic_id, partition=index, start_offset=3)
        for kind, index in (
            (admin.ChangeKind.DESCRIBE, 0),
            (admin.ChangeKind.MOVE, 0),
            (admin.ChangeKind.DESCRIBE, 0),
            (admin.ChangeKind.DESCRIBE, 9),
        )
    ]
    answers = (await node.ask(tell_queue, 0, TellQueueRequest(calls=calls))).answers
    assert [(a.error_code, a.start_offset, a.lag) for a in answers] == [
        (0, 0, 4),
        (0, -1, -1),
        (0, 3, 1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
    ]


@run_with(on_node, configs=CONFIGS)
async def test_client_principals_are_refused(node: Node) -> None:
    deny(node)
    request = KeepQueueStateRequest(calls=[call(StateRequestKind.READ)])
    (answer,) = (await node.ask(keep_queue_state, 0, request)).answers
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    told = TellQueueRequest(calls=[QueueCall(kind=0, group_id="g", topic_id=TOPIC, partition=0)])
    (refused,) = (await node.ask(tell_queue, 0, told)).answers
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
