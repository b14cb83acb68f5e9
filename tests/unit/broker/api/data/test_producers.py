"""InitProducerId and DescribeProducers."""

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.data.producers import describe_producers, init_producer_id
from penstock.broker.api.response_rows import CLUSTER_NAME
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.cluster.metadata.topics import NewTopic, create_topic, plan_topic
from penstock.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node


async def init(
    node: Node,
    transactional_id: str | None = None,
    *,
    version: int = 5,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> InitProducerIdResponse:
    asked = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    answer: InitProducerIdResponse = await node.ask(init_producer_id, version, asked)
    return answer


@pytest.mark.parametrize("version", range(6))
@run_with(on_node)
async def test_every_producer_gets_its_own_id(node: Node, *, version: int) -> None:
    answers = [await init(node, version=version) for _ in range(3)]
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 3
    assert [answer.producer_epoch for answer in answers] == [0] * 3
    assert len({answer.producer_id for answer in answers}) == 3


@run_with(on_node)
async def test_producer_naming_its_old_id_gets_a_new_one(node: Node) -> None:
    answer = await init(node, producer_id=7, producer_epoch=3)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(7, -1), (-1, 3)])
@run_with(on_node)
async def test_incomplete_producer_identity_is_refused(
    node: Node, *, producer_id: int, producer_epoch: int
) -> None:
    answer = await init(node, producer_id=producer_id, producer_epoch=producer_epoch)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@run_with(on_node)
async def test_transactional_id_is_initialized_by_its_coordinator(node: Node) -> None:
    assert (await init(node, "tx")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await node.ctx.transaction.txns.ensure()
    first, second = await init(node, "tx"), await init(node, "tx")
    assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)
    assert (await init(node, "")).error_code == ErrorCode.INVALID_REQUEST


@run_with(on_node)
async def test_producer_ids_require_the_permission(node: Node) -> None:
    node.rights.deny(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
    node.rights.deny(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx")
    assert (await init(node)).error_code == ErrorCode.NONE, "it may write to some topic"
    node.rights.deny(Operation.WRITE, ResourceType.TOPIC, "*")
    assert (await init(node)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    code = (await init(node, "tx")).error_code
    assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@run_with(on_node)
async def test_store_outage_ends_as_request_timed_out(node: Node) -> None:
    node.etcd.down = True
    assert (await init(node)).error_code == ErrorCode.REQUEST_TIMED_OUT


# DescribeProducers.


@run_with(on_node)
async def test_active_producers_are_described(node: Node) -> None:
    ctx = node.ctx
    plan = plan_topic(NewTopic("t", 1), ctx.image, ctx.configs, ctx.random)
    await ctx.reached(await create_topic(ctx.admin.store, plan))
    await node.produce("t", 3, timestamp=5000)
    topics = [
        DescribeProducersTopicRequest(name="t", partition_indexes=[0, 0, 9]),
        DescribeProducersTopicRequest(name="gone", partition_indexes=[0]),
        DescribeProducersTopicRequest(name="b/d", partition_indexes=[0]),
    ]
    answer = await node.ask(describe_producers, 0, DescribeProducersRequest(topics=topics))
    first, second = answer.topics[0].partitions
    [producer] = first.active_producers
    assert (producer.producer_id, producer.producer_epoch) == (7, 0)
    assert (producer.last_sequence, producer.last_timestamp) == (2, 5000)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert second.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    [missing] = answer.topics[1].partitions
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    [wrong] = answer.topics[2].partitions
    assert wrong.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    node.rights.deny(Operation.READ, ResourceType.TOPIC, "t")
    answer = await node.ask(describe_producers, 0, DescribeProducersRequest(topics=topics[:1]))
    code = answer.topics[0].partitions[0].error_code
    assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
