"""Gateway of one node: publish, receive, settle, and refusals."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.coordinator.runtime.steady_clock import SteadyTime
from penstock.gateway.core.gateway import Gateway, Prefetch, SettleAction, Settlement
from penstock.gateway.core.messages import OutgoingMessage, Placed, ReceivedMessage
from penstock.gateway.core.permissions import Principal
from simulation.clock import SimClock
from simulation.loop import SimLoop, run
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, on_node, pack

WHO = Principal("User:ann")
AUTO = CONFIGS | {"auto.create.topics.enable": "true", "num.partitions": "2"}


async def published(gateway: Gateway, *messages: OutgoingMessage, topic: str = "t") -> list[Placed]:
    placed = await gateway.publish(WHO, topic, list(messages))
    for one in placed:
        assert isinstance(one, Placed), one
    return [one for one in placed if isinstance(one, Placed)]


async def received(
    gateway: Gateway, count: int = 10, *, group: str = "g", wait_ms: int = 0, topic: str = "t"
) -> list[ReceivedMessage]:
    return await gateway.receive(WHO, topic, group, records_max=count, wait_ms=wait_ms)


async def settled(
    gateway: Gateway, verdict: SettleAction, *receipts: str
) -> list[ErrorCode | None]:
    answers = await gateway.settle(WHO, [Settlement(receipt, verdict) for receipt in receipts])
    return [None if answer is None else answer.code for answer in answers]


@run_with(on_node, configs=CONFIGS)
async def test_published_messages_are_received_and_settled_once(node: Node) -> None:
    await node.create("t", 3)
    gateway = Gateway(node.ctx)
    messages = [
        OutgoingMessage(b"v%d" % n, key=b"k%d" % n, headers=(("h", b"1"),)) for n in range(9)
    ]
    placed = await published(gateway, *messages)
    assert {one.partition for one in placed} == {0, 1, 2}
    found = await received(gateway)
    assert {one.payload for one in found} == {message.payload for message in messages}
    assert {(one.partition, one.offset) for one in found} == {
        (one.partition, one.offset) for one in placed
    }
    assert all(one.delivery_count == 1 and one.headers == (("h", b"1"),) for one in found)
    receipts = [one.receipt for one in found]
    assert await settled(gateway, SettleAction.ACCEPT, *receipts) == [None] * 9
    assert (
        await settled(gateway, SettleAction.ACCEPT, *receipts)
        == [ErrorCode.INVALID_RECORD_STATE] * 9
    )
    assert await received(gateway) == []


@run_with(on_node, configs=CONFIGS)
async def test_group_is_registered_by_one_coordinator_call(node: Node) -> None:
    await node.create("t", 1)
    gateway = Gateway(node.ctx)
    calls = [
        node.ctx.metrics.route(name).requests
        for name in ("ShareGroupHeartbeat", "ShareGroupDescribe")
    ]
    assert await received(gateway) == []
    assert [counter.value for counter in calls] == [1, 0]
    await received(gateway)
    assert [counter.value for counter in calls] == [1, 0], "remembered"
    group = await gateway.groups.one(WHO, "g")
    assert (group.kind, group.state, group.members) == ("share", "Empty", [])


@run_with(on_node, configs=AUTO)
async def test_topic_is_created_on_publish_if_auto_creation_is_enabled(node: Node) -> None:
    gateway = Gateway(node.ctx)
    await published(gateway, OutgoingMessage(b"v"), topic="new")
    assert len(node.ctx.image.topics["new"].partitions) == 2
    with pytest.raises(Refused) as refused:
        await received(gateway, topic="other")
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@run_with(on_node, configs=AUTO)
async def test_concurrent_publishes_to_a_new_topic_all_succeed(node: Node) -> None:
    gateway = Gateway(node.ctx)
    await asyncio.gather(
        *(published(gateway, OutgoingMessage(b"v"), topic="new") for _ in range(20))
    )
    assert len(await received(gateway, 100, topic="new")) == 20


@run_with(on_node, configs=CONFIGS | {"auto.create.topics.enable": "false"})
async def test_unknown_topic_is_refused_if_auto_creation_is_disabled(node: Node) -> None:
    with pytest.raises(Refused) as refused:
        await published(Gateway(node.ctx), OutgoingMessage(b"v"), topic="new")
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@run_with(on_node, configs=CONFIGS)
async def test_invalid_values_are_refused_per_message(node: Node) -> None:
    await node.create("t", 1)
    gateway = Gateway(node.ctx)
    placed = await gateway.publish(
        WHO,
        "t",
        [
            OutgoingMessage(b"good"),
            OutgoingMessage(b"v", priority=10),
            OutgoingMessage(b"v", delay_ms=-1),
            OutgoingMessage(b"v", dedup_id=""),
            OutgoingMessage(b"v", partition=1),
            OutgoingMessage(b"v", headers=(("", b"1"),)),
            OutgoingMessage(b"x" * (2 << 20)),
            OutgoingMessage(b"good too"),
        ],
    )
    codes = [one.code if isinstance(one, Refused) else one.offset for one in placed]
    bad = ErrorCode.INVALID_REQUEST
    assert codes == [0, bad, bad, bad, bad, bad, ErrorCode.MESSAGE_TOO_LARGE, 1]


@run_with(on_node, configs=CONFIGS | {"message.max.bytes": "350000"})
async def test_messages_above_the_batch_size_are_split_in_order(node: Node) -> None:
    await node.create("t", 1)
    gateway = Gateway(node.ctx)
    placed = await published(gateway, *(OutgoingMessage(b"%d" % n * 100_000) for n in range(9)))
    assert [one.offset for one in placed] == list(range(9))


@run_with(on_node, configs=CONFIGS)
async def test_delay_and_priority_affect_delivery(node: Node) -> None:
    await node.create("t", 1)
    gateway = Gateway(node.ctx)
    await published(
        gateway,
        OutgoingMessage(b"later", delay_ms=5_000),
        OutgoingMessage(b"low"),
        OutgoingMessage(b"high", priority=9),
    )
    assert [one.payload for one in await received(gateway, 1)] == [b"high"]
    assert [one.payload for one in await received(gateway)] == [b"low"]
    started = asyncio.get_running_loop().time()
    assert [one.payload for one in await received(gateway, wait_ms=60_000)] == [b"later"]
    assert 4.9 <= asyncio.get_running_loop().time() - started <= 5.2


@run_with(on_node, configs=CONFIGS)
async def test_released_message_is_redelivered_and_rejected_one_is_not(node: Node) -> None:
    await node.create("t", 1)
    gateway = Gateway(node.ctx)
    await published(gateway, OutgoingMessage(b"a"), OutgoingMessage(b"b"))
    first, second = await received(gateway)
    answers = await gateway.settle(
        WHO,
        [
            Settlement(first.receipt, SettleAction.RELEASE, delay_ms=1_000),
            Settlement(second.receipt, SettleAction.REJECT, error_class="Bad", error_message="no"),
        ],
    )
    assert answers == [None, None]
    assert await received(gateway) == []
    (again,) = await received(gateway, wait_ms=5_000)
    assert (again.payload, again.delivery_count) == (b"a", 2)
    assert again.receipt != first.receipt
    assert await settled(gateway, SettleAction.ACCEPT, first.receipt) == [
        ErrorCode.INVALID_RECORD_STATE
    ]


@run_with(on_node, configs=CONFIGS)
async def test_extension_sets_the_end_of_the_lease(node: Node) -> None:
    await node.create("t", 1)
    gateway = Gateway(node.ctx)
    await published(gateway, OutgoingMessage(b"a"))
    (one,) = await gateway.receive(WHO, "t", "g", records_max=1, wait_ms=0, lock_ms=1_000)
    await asyncio.sleep(0.9)
    extension = Settlement(one.receipt, SettleAction.EXTEND, lock_ms=2_000)
    assert await gateway.settle(WHO, [extension]) == [None]
    await asyncio.sleep(1.9)
    assert await settled(gateway, SettleAction.ACCEPT, one.receipt) == [None]
    await published(gateway, OutgoingMessage(b"b"))
    (two,) = await gateway.receive(WHO, "t", "g", records_max=1, wait_ms=0, lock_ms=1_000)
    await asyncio.sleep(1.1)
    assert await settled(gateway, SettleAction.ACCEPT, two.receipt) == [
        ErrorCode.INVALID_RECORD_STATE
    ]


@run_with(on_node, configs=CONFIGS)
async def test_refused_settlement_does_not_affect_the_others(node: Node) -> None:
    await node.create("t", 1)
    gateway = Gateway(node.ctx)
    await published(gateway, *(OutgoingMessage(b"v") for _ in range(5)))
    receipts = [one.receipt for one in await received(gateway)]
    lost = ErrorCode.INVALID_RECORD_STATE
    assert await settled(gateway, SettleAction.ACCEPT, receipts[2]) == [None]
    assert await settled(gateway, SettleAction.ACCEPT, *receipts) == [None, None, lost, None, None]


@run_with(on_node, configs=CONFIGS)
async def test_invalid_receipts_and_lost_leases_have_different_errors(node: Node) -> None:
    await node.create("t", 1)
    gateway = Gateway(node.ctx)
    await published(gateway, OutgoingMessage(b"a"))
    (one,) = await received(gateway)
    damaged = one.receipt[:-8] + "AAAAAAA="
    bad = ErrorCode.INVALID_REQUEST
    assert await settled(
        gateway, SettleAction.ACCEPT, "", "é", "nonsense", damaged, one.receipt
    ) == [
        bad,
        bad,
        bad,
        bad,
        None,
    ]


@run_with(on_node, configs=CONFIGS)
async def test_cancelled_receive_delivers_nothing(node: Node) -> None:
    await node.create("t", 1)
    gateway = Gateway(node.ctx)
    waiting = asyncio.ensure_future(received(gateway, wait_ms=60_000))
    await asyncio.sleep(1)
    await published(gateway, OutgoingMessage(b"a"))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    (one,) = await received(gateway, wait_ms=1_000)
    assert one.delivery_count == 1


@run_with(on_node, configs=CONFIGS)
async def test_calls_without_permission_are_refused(node: Node) -> None:
    await node.create("t", 1)
    gateway = Gateway(node.ctx)
    await published(gateway, OutgoingMessage(b"a"))
    (one,) = await received(gateway)
    denied = node.rights.denied
    denied.add((Operation.WRITE, ResourceType.TOPIC, "t"))
    denied.add((Operation.READ, ResourceType.GROUP, "g"))
    with pytest.raises(Refused) as refused:
        await published(gateway, OutgoingMessage(b"b"))
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(Refused) as refused:
        await received(gateway)
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert await settled(gateway, SettleAction.ACCEPT, one.receipt) == [
        ErrorCode.GROUP_AUTHORIZATION_FAILED
    ]


@run_with(on_node, configs=CONFIGS)
async def test_missing_envelope_headers_are_added(node: Node) -> None:
    await node.create("t", 1)
    gateway = Gateway(node.ctx)
    own = (("message_id", b"mine"), ("trace_id", b"t1"), ("retry_count", b"3"))
    placed = await published(
        gateway,
        OutgoingMessage(b"a", has_envelope=True),
        OutgoingMessage(b"b", headers=own, has_envelope=True),
        OutgoingMessage(b"c", has_envelope=True, trace_id="t2"),
        OutgoingMessage(b"d"),
    )
    found = await received(gateway)
    first, third = dict(found[0].headers), dict(found[2].headers)
    assert sorted(first) == ["message_id", "retry_count", "trace_id"]
    assert (placed[0].message_id or "").encode() == first["message_id"]
    assert (found[1].headers, placed[1].message_id) == (own, "mine")
    assert third["trace_id"] == b"t2"
    assert third["message_id"] != first["message_id"]
    assert (found[3].headers, placed[3].message_id) == ((), None)


@run_with(on_node, configs=CONFIGS)
async def test_receive_gives_back_messages_above_its_size_limit(node: Node) -> None:
    """A message of a kilobyte may decompress to megabytes: twenty of them took twelve gigabytes."""

    await node.create("t", 1)
    await pack(node, *[7 << 20] * 5)
    gateway = Gateway(node.ctx)
    first = await received(gateway)
    await asyncio.sleep(1)
    found = [await received(gateway) for _ in range(3)]
    assert [len(some) for some in found] == [2, 2, 0]
    everything = [one for some in (first, *found) for one in some]
    assert [one.offset for one in everything] == [0, 1, 2, 3, 4]
    assert all(one.delivery_count == 1 for one in everything), (
        "messages given back do not count as delivered"
    )


@run_with(on_node, configs=CONFIGS)
async def test_message_too_large_for_gateways_is_dead_lettered(node: Node) -> None:
    await node.create("t", 1)
    await pack(node, 17 << 20, 10)
    gateway = Gateway(node.ctx)
    seen = [one.offset for _ in range(3) for one in await received(gateway)]
    assert seen == [1]
    await asyncio.sleep(1)
    dead_letter = (await received(gateway, topic="t.dlq", group="h")) or []
    assert dead_letter == [], "dead letters of that size are not delivered either"
    partition = node.ctx.partitions.get("t.dlq", 0)
    assert partition is not None
    assert partition.log.end_offset == 1
    assert partition.log.size_bytes < 1 << 20


@run_with(on_node, configs=CONFIGS)
async def test_log_read_is_limited_in_size(node: Node) -> None:
    await node.create("t", 1)
    await pack(node, *[7 << 20] * 5)
    gateway = Gateway(node.ctx)
    positions = {0: 0}
    topic = node.ctx.image.topics["t"]
    counts = [len(await gateway.log.read(WHO, topic, positions, records_max=100)) for _ in range(4)]
    assert counts == [2, 2, 1, 0]
    await pack(node, 10, 17 << 20)
    assert len(await gateway.log.read(WHO, topic, positions, records_max=100)) == 1
    with pytest.raises(Refused, match="commit the offset after it") as refused:
        await gateway.log.read(WHO, topic, positions, records_max=100)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def message(receipt: str, until_ms: int) -> ReceivedMessage:
    return ReceivedMessage("t", 0, 0, None, None, (), 0, 1, receipt, until_ms)


@run_with(run, seed=1)
async def test_capacity_returns_with_settlements_and_ended_leases(loop: SimLoop) -> None:
    time = SteadyTime(SimClock(loop))
    now_ms = time.now_ms()
    everyone: dict[str, Prefetch] = {}
    prefetch = Prefetch(everyone, 3, time)
    assert await prefetch.capacity() == 3
    rows = [message("a", now_ms + 9_000), message("b", now_ms + 9_000)]
    prefetch.handed_out([*rows, message("c", now_ms + 5_000)])
    assert everyone.keys() == {"a", "b", "c"}
    waiting = asyncio.ensure_future(prefetch.capacity())
    await asyncio.sleep(1)
    assert not waiting.done()
    prefetch.settled("a")
    assert await waiting == 1
    prefetch.handed_out([message("d", now_ms + 60_000)])
    assert await prefetch.capacity() == 1
    assert 4.9 < loop.time() < 5.2, "the lease of c has ended"
    prefetch.extended("b", 60_000)
    prefetch.handed_out([message("e", now_ms + 60_000)])
    waiting = asyncio.ensure_future(prefetch.capacity())
    await asyncio.sleep(10)
    assert not waiting.done()
    waiting.cancel()
    assert sorted(prefetch.close()) == ["b", "d", "e"]
    assert not everyone
