"""Dead letters: one copy of each, whatever the target topic and the failures in between."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.metadata.image import TopicImage
from penstock.cluster.replication.partition import Partition
from penstock.coordinator.queues.dead_letter_writer import HEADER_BYTES
from penstock.coordinator.queues.open_queue import OpenQueue
from penstock.state.queues.delivery import Delivery, DeliveryOutcome
from penstock.state.queues.delivery_state import DeadLetterBatch
from penstock.wire.records import Record, batches, decode
from tests.run_with import run_with
from tests.unit.coordinator.queueing import (
    CONFIGS,
    Node,
    append,
    change,
    configure,
    key_of,
    on_node,
    opened,
    pack,
    take,
)

CLOSED = Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def partition_of(node: Node, topic: str = "t.dlq") -> Partition:
    partition = node.ctx.partitions.get(topic, 0)
    assert partition is not None
    return partition


def dead_letters(node: Node, topic: str = "t.dlq") -> list[Record]:
    files = partition_of(node, topic).log
    span = files.locate(files.start_offset, 1 << 20, files.end_offset)
    if span is None:
        return []
    view = memoryview(span.read())
    return [record for position, _ in batches(view) for record in decode(view[position:])]


async def reject(queue: OpenQueue, count: int) -> None:
    taking = await take(queue, "a", count)
    for offset in taking.offsets:
        assert await change(queue, lambda m, now: m.reject("a", offset, offset, now)) is None  # noqa: B023


def header(record: Record, name: str) -> bytes | None:
    return dict(record.headers)[f"penstock-dlq-{name}"]


@run_with(on_node, configs=CONFIGS)
async def test_rejected_record_is_copied_and_then_finished(node: Node) -> None:
    queue = await opened(node, 3)
    await reject(queue, 2)
    await asyncio.sleep(1)
    found = dead_letters(node)
    assert [record.value for record in found] == [b"v0", b"v1"]
    assert [header(record, "offset") for record in found] == [b"0", b"1"]
    assert {header(record, "group") for record in found} == {b"g"}
    assert queue.machine.kept.start == 2
    assert len(node.ctx.image.topics["t.dlq"].partitions) == 1


@run_with(on_node, configs=CONFIGS)
async def test_group_may_name_another_dead_letter_topic(node: Node) -> None:
    queue = await opened(node, 1, errors_deadletterqueue_topic_name="failed")
    await reject(queue, 1)
    await asyncio.sleep(1)
    assert [record.value for record in dead_letters(node, "failed")] == [b"v0"]
    assert "t.dlq" not in node.ctx.image.topics


def test_queues_waiting_for_one_new_topic_log_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(node: Node) -> None:
        await node.create("t", 6)
        await configure(node, "g")
        queues = []
        for index in range(6):
            await node.produce("t", 1, index=index)
            queues.append(await node.ctx.queue.queues.open(await key_of(node, index=index)))
        node.workers.delay_s = (0.01, 0.05)
        await asyncio.gather(*(reject(queue, 1) for queue in queues))
        await asyncio.sleep(5)
        found = [node.ctx.partitions.get("t.dlq", index) for index in range(6)]
        assert [one.log.end_offset for one in found if one is not None] == [1] * 6

    on_node(test, configs=CONFIGS)
    assert [one.message for one in caplog.records if one.name == "penstock.queues"] == []


@run_with(on_node, configs=CONFIGS)
async def test_max_message_bytes_of_the_dead_letter_topic_is_raised(
    node: Node, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers of a dead-lettered message come on top of a record that is as large as its topic
    accepts; the leader of the dead-letter topic, on another node, refuses what is too large.
    """

    await node.create("t.dlq", 1, max_message_bytes="1500")
    queue = await opened(node)
    await append(node, (("own", b"h" * 1_400),), (("own", b"h" * 1_400),))
    posting = node.ctx.queue.queues._dead_letter_writer._posting
    write = posting.append

    async def strict(topic: TopicImage, index: int, batch: memoryview) -> int:
        if len(batch) > int(node.ctx.image.topics["t.dlq"].configs["max.message.bytes"]):
            raise Refused(ErrorCode.MESSAGE_TOO_LARGE)
        return await write(topic, index, batch)

    monkeypatch.setattr(posting, "append", strict)
    await reject(queue, 2)
    await asyncio.sleep(5)
    assert [header(record, "offset") for record in dead_letters(node)] == [b"0", b"1"]
    assert queue.machine.kept.start == 2
    limit = int(node.ctx.image.topics["t.dlq"].configs["max.message.bytes"])
    assert limit == 1_048_588 + HEADER_BYTES


@run_with(on_node, configs=CONFIGS)
async def test_batches_of_one_producer_are_consecutive(node: Node) -> None:
    queue = await opened(node, 6)
    for _ in range(3):
        await reject(queue, 2)
        await asyncio.sleep(1)
    assert [record.value for record in dead_letters(node)] == [b"v%d" % n for n in range(6)]
    planned = queue.machine.kept.dead_letter_batch
    assert planned is not None
    assert (planned.sequence, planned.offsets) == (6, ())


@run_with(on_node, configs=CONFIGS)
async def test_planned_batch_is_written_once_by_the_reopened_queue(
    node: Node,
) -> None:
    """Written before or not: there is one copy in the end."""

    await node.create("t.dlq", 1)
    for is_written in (False, True):
        queue = await opened(node, 4)
        taking = await take(queue, "a", 2)
        first, last = taking.offsets
        place = node.ctx.image.topics["t.dlq"].id
        producer_id = await node.ctx.transaction.producer_ids.next()
        plan = DeadLetterBatch(producer_id, place, 0, 0, (first, last), 5)
        done: asyncio.Future[Refused | None] = asyncio.get_running_loop().create_future()
        queue.change(lambda m, now: _given_up(m, plan, now), done.set_result)  # noqa: B023
        assert await done is None
        if is_written:
            # As far as this life of the queue gets: it is closed before it hears of it.
            while len(dead_letters(node)) < 4:
                await asyncio.sleep(0)
        queue.close(CLOSED)
        queue = await node.ctx.queue.queues.open(queue.key)
        await asyncio.sleep(1)
        assert queue.machine.kept.start == last + 1
    values = [record.value for record in dead_letters(node)]
    assert values == [b"v0", b"v1", b"v2", b"v3"]


def _given_up(machine: Delivery, plan: DeadLetterBatch, now_ms: int) -> DeliveryOutcome:
    outcome = machine.reject("a", plan.offsets[0], plan.offsets[-1], now_ms)
    outcome.ops += machine.plan_dead_letters(plan)
    return outcome


def _planned(machine: Delivery, plan: DeadLetterBatch) -> DeliveryOutcome:
    return DeliveryOutcome(machine.plan_dead_letters(plan))


@run_with(on_node, configs=CONFIGS)
async def test_recreated_dead_letter_topic_gets_dead_letters_again(node: Node) -> None:
    queue = await opened(node, 2)
    await reject(queue, 1)
    await asyncio.sleep(1)
    await node.delete("t.dlq")
    await reject(queue, 1)
    await asyncio.sleep(1)
    assert [record.value for record in dead_letters(node)] == [b"v1"]


@run_with(on_node, configs=CONFIGS)
async def test_producer_unknown_to_the_log_is_replaced(node: Node) -> None:
    queue = await opened(node, 2)
    await reject(queue, 1)
    await asyncio.sleep(1)
    planned = queue.machine.kept.dead_letter_batch
    assert planned is not None
    wrong = DeadLetterBatch(planned.producer_id, planned.topic_id, 0, 77)
    queue.change(lambda m, now: _planned(m, wrong), lambda _: None)
    await reject(queue, 1)
    await asyncio.sleep(2)
    assert [record.value for record in dead_letters(node)] == [b"v0", b"v1"]


@run_with(on_node, configs=CONFIGS)
async def test_dead_letters_wait_while_the_disk_is_full(node: Node) -> None:
    queue = await opened(node, 1)
    node.ctx.partitions.write_refusal = "full"
    await reject(queue, 1)
    await asyncio.sleep(5)
    assert dead_letters(node) == []
    node.ctx.partitions.write_refusal = None
    await asyncio.sleep(30)
    assert [record.value for record in dead_letters(node)] == [b"v0"]


@run_with(on_node, configs=CONFIGS)
async def test_dead_letter_of_a_deleted_record_has_no_value(node: Node) -> None:
    queue = await opened(node, 2)
    await node.create("t.dlq", 1)
    node.ctx.partitions.write_refusal = "full"
    await reject(queue, 1)
    await asyncio.sleep(1)
    assert queue.machine.kept.dead_letter_batch is not None
    await queue.partition.delete_before(1)
    node.ctx.partitions.write_refusal = None
    await asyncio.sleep(30)
    (message,) = dead_letters(node)
    assert message.value is None
    assert header(message, "offset") == b"0"
    assert queue.machine.kept.start == 1


@run_with(on_node, configs=CONFIGS)
async def test_many_dead_letters_are_written_in_several_batches(node: Node) -> None:
    queue = await opened(node)
    await append(node, *[()] * 1_200)
    taking = await take(queue, "a", 1_200)
    assert len(taking.offsets) == 1_200
    assert await change(queue, lambda m, now: m.reject("a", 0, 1_199, now)) is None
    await asyncio.sleep(5)
    assert partition_of(node).high_watermark == 1_200
    assert queue.machine.kept.start == 1_200


@run_with(on_node, configs=CONFIGS)
async def test_compressed_record_stays_compressed_as_a_dead_letter(node: Node) -> None:
    """Else a rejected record would be a way to fill the disk with a thousandth of the bytes."""

    await node.create("t", 1)
    await pack(node, 8 << 20, 8 << 20)
    queue = await opened(node, share_auto_offset_reset="earliest")
    await asyncio.sleep(1)
    await reject(queue, 2)
    await asyncio.sleep(1)
    found = dead_letters(node)
    assert [len(record.value or b"") for record in found] == [8 << 20, 8 << 20]
    assert partition_of(node).log.size_bytes < 1 << 20
