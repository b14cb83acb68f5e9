"""Transactional writes: in their transaction, or not at all."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.data.produce import produce
from penstock.broker.api.route_row import Operation, ResourceType
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.transacting import CONFIGS, NEW, OLD, Transacting, open_at, ready

VERSIONS = pytest.mark.parametrize("versions", [OLD, NEW], ids=["v1", "v2"])


@run_with(on_node, configs=CONFIGS)
async def test_old_protocol_producer_writes_only_to_added_partitions(node: Node) -> None:
    await ready(node, t=2)
    producer = await Transacting(node, OLD).begin()
    assert await producer.send("t") == ErrorCode.TRANSACTION_ABORTABLE
    assert await producer.add("t", 0) == {0: ErrorCode.NONE}
    assert await producer.send("t") == ErrorCode.NONE
    assert await producer.send("t", 1) == ErrorCode.TRANSACTION_ABORTABLE
    assert (open_at(node, "t", 0), open_at(node, "t", 1)) == (0, -1)


@run_with(on_node, configs=CONFIGS)
async def test_new_protocol_producer_adds_partitions_by_writing(node: Node) -> None:
    await ready(node, t=2)
    producer = await Transacting(node, NEW).begin()
    assert await producer.send("t") == ErrorCode.NONE
    assert await producer.send("t") == ErrorCode.NONE
    shard = node.ctx.transaction.txns.host.runtime_of("tx").require()
    assert shard.durable_state()["tx"].partitions == (("t", (0,)),)
    assert await producer.end() == ErrorCode.NONE
    await asyncio.sleep(0.1)
    assert open_at(node, "t") == -1


@run_with(on_node, configs=CONFIGS)
async def test_only_the_first_write_to_a_partition_is_verified(node: Node) -> None:
    await ready(node, t=1)
    producer = await Transacting(node, NEW).begin()
    await producer.send("t")
    node.ctx.transaction.txns.host.close()
    assert await producer.send("t") == ErrorCode.NONE, "the log knows that it is open"


@run_with(on_node, configs=CONFIGS)
async def test_write_known_to_the_coordinator_is_verified_without_waiting(
    node: Node,
) -> None:
    await ready(node, t=2)
    producer = await Transacting(node, OLD).begin()
    await producer.add("t", 0)
    pending, answer = node.begin(produce, OLD["produce"], producer.request("t", 0))
    assert answer is None, "nothing to wait for but the disk"
    assert open_at(node, "t", 0) == 0
    assert len(node.ctx.transaction.txns.guards) == 0
    assert (await pending.reply()).responses[0].partition_responses[0].error_code == 0
    producer.sequence = 0
    _, answer = node.begin(produce, OLD["produce"], producer.request("t", 1))
    assert answer is not None, "this one is not known, so all are verified"
    answer.close()


@VERSIONS
@run_with(on_node, configs=CONFIGS)
async def test_write_overtaken_by_the_end_of_its_transaction_is_refused(
    node: Node, *, versions: dict[str, int]
) -> None:
    """Verified, then overtaken by the marker: appending it would leave a transaction open."""

    await ready(node, t=2)
    producer = await Transacting(node, versions).begin()
    await producer.add("t", 0, 1)
    await producer.send("t", 1)
    late = producer.request("t", 0)
    # A write of another id in the same shard is pending, so the coordinator's answer takes
    # as long as the disk does.
    index_of = node.ctx.transaction.txns.host.index_of
    name = next(n for n in map(str, range(99)) if index_of(n) == index_of("tx"))
    busy = asyncio.ensure_future(Transacting(node, versions, name).begin())
    waiting = asyncio.ensure_future(producer.produce(late))
    await asyncio.sleep(0)
    held = node.ctx.transaction.txns.guards
    assert len(held) == 1
    held.marked(("t", 0, producer.producer_id), producer.epoch + 1)
    assert await waiting == ErrorCode.INVALID_TXN_STATE
    assert open_at(node, "t", 0) == -1
    assert len(held) == 0
    await busy


@VERSIONS
@run_with(on_node, configs=CONFIGS)
async def test_late_marker_of_the_previous_transaction_refuses_no_write(
    node: Node, *, versions: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As to another node, under way while the producer goes on (KAFKA-18575)."""

    await ready(node, t=1)
    markers = node.ctx.transaction.txns.markers
    write, loop = markers.write, asyncio.get_running_loop()
    late = 0.05
    monkeypatch.setattr(markers, "write", lambda *marker: loop.call_later(late, write, *marker))
    producer = await Transacting(node, versions).begin()
    for _ in range(3):
        if versions is OLD:
            await producer.add("t", 0)
        assert await producer.send("t") == ErrorCode.NONE
        assert await producer.end() == ErrorCode.NONE
    await asyncio.sleep(2 * late)
    assert open_at(node, "t") == -1
    assert len(node.ctx.transaction.txns.guards) == 0


@VERSIONS
@run_with(on_node, configs=CONFIGS)
async def test_write_after_the_end_opens_no_transaction(
    node: Node, *, versions: dict[str, int]
) -> None:
    await ready(node, t=1)
    producer = await Transacting(node, versions).begin()
    await producer.add("t", 0)
    await producer.send("t")
    late = producer.request("t")
    assert await producer.end() == ErrorCode.NONE
    await asyncio.sleep(0.1)
    assert await producer.produce(late) != ErrorCode.NONE
    assert open_at(node, "t") == -1


@pytest.mark.parametrize("seed", range(30))
@VERSIONS
@run_with(on_node, configs=CONFIGS, fixtures=["seed"])
async def test_racing_requests_leave_no_transaction_open(
    node: Node, *, versions: dict[str, int], seed: int
) -> None:
    """Writes and the end over several connections: what is acknowledged is in the transaction."""
    await ready(node, t=4)
    producer = await Transacting(node, versions).begin()
    if versions is OLD:
        await producer.add("t", 0, 1, 2, 3)
    writes = []
    for index in range(4):
        producer.sequence = 0
        writes.append(producer.request("t", index))
    racing = [asyncio.ensure_future(producer.produce(write)) for write in writes]
    await asyncio.sleep(0.0005 * (seed % 10))
    await producer.end()
    codes = await asyncio.gather(*racing)
    await asyncio.sleep(0.5)
    for index in range(4):
        assert open_at(node, "t", index) == -1, (codes, index)
    assert len(node.ctx.transaction.txns.guards) == 0


@VERSIONS
@run_with(on_node, configs=CONFIGS)
async def test_fenced_producer_writes_nothing(node: Node, *, versions: dict[str, int]) -> None:
    await ready(node, t=1)
    old = await Transacting(node, versions).begin()
    await Transacting(node, versions).begin()
    assert await old.send("t") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert open_at(node, "t") == -1


@run_with(on_node, configs=CONFIGS)
async def test_transactional_batch_requires_the_transactional_id_and_its_permission(
    node: Node,
) -> None:
    await ready(node, t=1)
    producer = await Transacting(node, NEW).begin()
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await producer.produce(producer.request("t", named=False)) == refused
    assert await producer.send("t") == ErrorCode.NONE
    node.rights.deny(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx")
    assert await producer.send("t") == refused, "though its transaction is open"


@VERSIONS
@run_with(on_node, configs=CONFIGS)
async def test_missing_coordinator_is_a_retriable_error(
    node: Node, *, versions: dict[str, int]
) -> None:
    await ready(node, t=1)
    producer = await Transacting(node, versions).begin()
    node.ctx.transaction.txns.host.runtime_of("tx").retire()
    assert await producer.send("t") == ErrorCode.NOT_ENOUGH_REPLICAS


@run_with(on_node, configs=CONFIGS)
async def test_internal_topics_are_not_written_by_clients(node: Node) -> None:
    await ready(node, t=1)
    producer = await Transacting(node, NEW).begin()
    for topic in ("__consumer_offsets", "__transaction_state"):
        assert await producer.send(topic) == ErrorCode.INVALID_TOPIC_EXCEPTION
    request = producer.request("t")
    request.topic_data[0].name = "__consumer_offsets"
    request.transactional_id = None
    answer = await node.ask(produce, 9, request)
    code = answer.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
