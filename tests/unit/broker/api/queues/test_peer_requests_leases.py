"""Queue requests of gateways on other nodes: leases for their members, and their settlement."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId
from penstock.broker.api.queues.peer_requests import settle_leases, take_from_queues
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.coordinator.queues.queue_rpc import asked_by
from penstock.coordinator.queues.settle import SettleAction
from penstock.wire.messages.internal.queues import (
    LeaseRuling,
    SettleLeasesRequest,
    TakeFromQueuesRequest,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Client, Node, on_node
from tests.unit.broker.api.sharing import CONFIGS, set_up


def topic_id_of(node: Node) -> TopicId:
    return node.ctx.image.topics["t"].id


def taking(node: Node, wait_ms: int = 0, member: str = "m") -> TakeFromQueuesRequest:
    return TakeFromQueuesRequest(
        group_id="g",
        topic_id=topic_id_of(node),
        partitions=[0],
        member_id=member,
        records_max=2,
        bytes_max=1 << 20,
        wait_ms=wait_ms,
        fills=True,
        reset="earliest",
    )


def ruling(node: Node, offset: int, verdict: int, member: str = "m") -> LeaseRuling:
    return LeaseRuling(
        group_id="g",
        topic_id=topic_id_of(node),
        partition=0,
        member_id=member,
        first=offset,
        last=offset,
        verdict=verdict,
        delay_ms=0,
    )


@run_with(on_node, configs=CONFIGS)
async def test_records_are_leased_and_settled_for_a_member_of_another_node(node: Node) -> None:
    await set_up(node, 3)
    (row,) = (await node.ask(take_from_queues, 0, taking(node))).rows
    assert [(one.first, one.last, one.delivery_count) for one in row.leases] == [(0, 1, 1)]
    assert b"v0" in bytes(row.records)
    rulings = [
        ruling(node, 0, SettleAction.ACCEPT),
        ruling(node, 0, SettleAction.ACCEPT),
        ruling(node, 1, SettleAction.ACCEPT, "other"),
        ruling(node, 1, 99),
        ruling(node, 1, SettleAction.RELEASE),
    ]
    answers = (await node.ask(settle_leases, 0, SettleLeasesRequest(rulings=rulings))).answers
    lost = ErrorCode.INVALID_RECORD_STATE
    assert [answer.error_code for answer in answers] == [
        0,
        lost,
        lost,
        ErrorCode.INVALID_REQUEST,
        0,
    ]
    (row,) = (await node.ask(take_from_queues, 0, taking(node, member="n"))).rows
    found = [(one.first, one.delivery_count) for one in row.leases]
    assert found == [(1, 2), (2, 1)]


@run_with(on_node, configs=CONFIGS)
async def test_support_for_several_records_of_a_key_is_passed_on(node: Node) -> None:
    await set_up(node, 1)
    _, alone = asked_by(taking(node))
    request = taking(node)
    request.with_followers = True
    _, together = asked_by(request)
    assert (alone.with_followers, together.with_followers) == (False, True)


@run_with(on_node, configs=CONFIGS)
async def test_member_that_stopped_waiting_gets_an_empty_answer(node: Node) -> None:
    await set_up(node, 0)
    asked = node.ask(take_from_queues, 0, taking(node, wait_ms=60_000))
    pending = asyncio.ensure_future(asked)
    await asyncio.sleep(5)
    assert not pending.done()
    await node.ask(settle_leases, 0, SettleLeasesRequest(ended=["another member"]))
    await asyncio.sleep(1)
    assert not pending.done()
    await node.ask(settle_leases, 0, SettleLeasesRequest(ended=["m"]))
    assert list((await pending).rows) == []


@run_with(on_node, configs=CONFIGS)
async def test_lost_connection_cancels_the_wait_without_an_answer(node: Node) -> None:
    await set_up(node, 0)
    reach = node.ctx.queue.queue_router
    waiting = asyncio.ensure_future(reach.answer_take(taking(node, wait_ms=60_000)))
    await asyncio.sleep(5)
    (task,) = reach._waiting.values()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)
    assert task.cancelled()
    assert not reach._waiting


@run_with(on_node, configs=CONFIGS)
async def test_client_principals_are_refused(node: Node) -> None:
    await set_up(node, 1)
    node.rights.deny(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    taken = await node.ask(take_from_queues, 0, taking(node), Client())
    assert taken.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    request = SettleLeasesRequest(rulings=[ruling(node, 0, SettleAction.ACCEPT)])
    (answer,) = (await node.ask(settle_leases, 0, request, Client())).answers
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
