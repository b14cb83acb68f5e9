"""Cost of calls: partitions, processor time, and exempt principals."""

import asyncio
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.admin import topics
from penstock.broker.api.call import Prepared
from penstock.broker.api.metrics import Metrics
from penstock.broker.api.quota import Meter, MeteredCall, TimedSteps, exempt, take_partitions
from penstock.broker.api.route_row import Needs, Operation, ResourceType, Route
from penstock.cluster.access import quotas
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.security.acl_types import NODE_USER
from penstock.security.quotas import DEFAULT, Entity, QuotaKind
from penstock.wire.messages import REQUESTS, RESPONSES
from penstock.wire.messages.metadata import MetadataResponse
from penstock.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from simulation.loop import SimLoop, run
from tests.run_with import run_with
from tests.unit.broker.api.harness import Client, Node, on_node

CREATE, DELETE, GROW = 19, 20, 37


def metered(
    node: Node, key: int, version: int, client: Client, operation: Operation = Operation.CREATE
) -> MeteredCall:
    request: Any = REQUESTS[key]
    needs = Needs(ResourceType.CLUSTER, operation)
    route = Route(request, RESPONSES[key], request.WIRE.versions, topics.create_topics, needs)
    metrics = node.ctx.metrics.route(route.name)
    prepared = Prepared(route, version, _unused, _unused, metrics)
    now = asyncio.get_running_loop().time
    meter = node.ctx.meter
    return MeteredCall(client, prepared, 1, "tester", version, 0, client.encode, now, meter, 100)


def _unused(*args: Any) -> Any:
    raise AssertionError


async def limit(node: Node, **values: float) -> None:
    ctx = node.ctx
    await ctx.reached(await quotas.alter(ctx.admin.store, ctx.image, Entity(DEFAULT), values))


async def mutate(node: Node, key: int, version: int, request: Any) -> tuple[list[int], int, float]:
    """Error codes, throttle time, and for how long the connection was muted."""
    handlers: dict[int, Any] = {
        CREATE: topics.create_topics,
        DELETE: topics.delete_topics,
        GROW: topics.create_partitions,
    }
    client = Client()
    call = metered(node, key, version, client)
    answer: Any = await handlers[key](node.ctx.admin, call, request)
    call.reply(answer)
    rows = getattr(answer, {CREATE: "topics", DELETE: "responses", GROW: "results"}[key])
    return [row.error_code for row in rows], answer.throttle_time_ms, client.muted_s


def creation(*names: str, partitions: int = 1, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                assignments=(),
                configs=(),
            )
            for name in names
        ],
        timeout_ms=5000,
        validate_only=validate_only,
    )


ABOVE = ErrorCode.THROTTLING_QUOTA_EXCEEDED


@run_with(on_node)
async def test_topics_above_the_mutation_quota_are_refused(node: Node) -> None:
    await limit(node, controller_mutation_rate=1)
    names = [f"t{number}" for number in range(4)]
    codes, throttle_ms, muted_s = await mutate(node, CREATE, 7, creation(*names, partitions=5))
    assert codes == [0, 0, 0, ABOVE], "fifteen partitions overdraw the eleven of a bucket"
    assert 3900 < throttle_ms <= 4000
    assert muted_s == pytest.approx(throttle_ms / 1000, abs=0.01)
    await asyncio.sleep(4.1)
    assert (await mutate(node, CREATE, 7, creation("t3")))[0] == [0]


@run_with(on_node)
async def test_old_clients_are_throttled_instead_of_refused(node: Node) -> None:
    await limit(node, controller_mutation_rate=1)
    for name in ("a", "b"):
        codes, throttle_ms, muted_s = await mutate(node, CREATE, 5, creation(name, partitions=20))
        assert codes == [0]
    assert throttle_ms > 20_000
    assert muted_s > 20


@run_with(on_node)
async def test_deletions_and_new_partitions_are_charged(node: Node) -> None:
    await node.create("large", 12)
    await node.create("small", 1)
    await limit(node, controller_mutation_rate=1)
    request = DeleteTopicsRequest(topic_names=["large"], timeout_ms=5000)
    codes, throttle_ms, _ = await mutate(node, DELETE, 5, request)
    assert codes == [0]
    assert throttle_ms > 0
    growth = CreatePartitionsTopic(name="small", count=3, assignments=None)
    grow = CreatePartitionsRequest(topics=[growth], timeout_ms=5000, validate_only=False)
    assert (await mutate(node, GROW, 3, grow))[0] == [ABOVE]
    assert (await mutate(node, GROW, 2, grow))[0] == [0]


@run_with(on_node)
async def test_validation_only_is_not_charged(node: Node) -> None:
    await limit(node, controller_mutation_rate=1)
    for _ in range(3):
        tried = creation("t", partitions=100, validate_only=True)
        assert await mutate(node, CREATE, 7, tried) == ([0], 0, 0.0)


@run_with(on_node)
async def test_nodes_are_not_charged(node: Node) -> None:
    await limit(node, controller_mutation_rate=0.001, producer_byte_rate=1, consumer_byte_rate=1)
    meter = node.ctx.meter
    assert meter.fetch_bytes_max(f"User:{NODE_USER}", None) == float("inf")
    assert meter.fetch_bytes_max("User:ann", None) == 1
    for at, operation in enumerate((Operation.CLUSTER_ACTION, Operation.CREATE)):
        client = Client()
        if at == 1:
            client.principal = f"User:{NODE_USER}"
        call = metered(node, CREATE, 7, client, operation)
        for _ in range(5):
            take_partitions(call, 1000, is_strict=True)
    call = metered(node, CREATE, 7, Client())
    exempt(call)
    take_partitions(call, 1000, is_strict=True)
    call = metered(node, CREATE, 7, Client())
    take_partitions(call, 1000, is_strict=True)
    with pytest.raises(Refused):
        take_partitions(call, 1, is_strict=True)


@run_with(run, 0)
async def test_coroutine_steps_are_timed_without_its_waits(loop: SimLoop) -> None:
    spent = {"s": 0.0}
    meter = Meter(Metrics(), BrokerConfigs(), processor_s=lambda: spent["s"])

    class Counted:
        """In the place of a call."""

        begun, total = 0.0, 0.0

        def begin(self) -> None:
            self.begun = meter.processor_s()

        def pause(self) -> None:
            self.total += meter.processor_s() - self.begun

    counted = Counted()

    async def work() -> str:
        spent["s"] += 1
        await asyncio.sleep(1)
        spent["s"] += 2
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 1)
        except TimeoutError:
            spent["s"] += 4
        return "done"

    async def others() -> None:
        for _ in range(5):
            spent["s"] += 100
            await asyncio.sleep(0.3)

    other = asyncio.create_task(others())
    assert await TimedSteps(counted, work()) == "done"
    assert counted.total == 7
    await other

    async def failing() -> None:
        await asyncio.sleep(0)
        raise ValueError("ours")

    with pytest.raises(ValueError, match="ours"):
        await TimedSteps(counted, failing())


@run_with(on_node)
async def test_nothing_is_metered_without_a_quota(node: Node) -> None:
    meter = node.ctx.meter
    assert not meter.is_on
    assert meter.charge(QuotaKind.PRODUCE, "User:a", None, 1e9, 0.0) == 0
    await limit(node, producer_byte_rate=1)
    assert meter.is_on
    assert meter.charge(QuotaKind.FETCH, "User:a", None, 1e9, 0.0) == 0
    assert meter.fetch_bytes_max("User:a", None) == float("inf")
    client = Client()
    call = metered(node, 3, 9, client, Operation.DESCRIBE)
    call.reply(MetadataResponse(brokers=(), topics=()))
    assert client.muted_s == 0
