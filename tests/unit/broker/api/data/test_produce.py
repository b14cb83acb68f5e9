"""Produce: what is appended, what is checked first, and when it is answered."""

import asyncio
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId
from penstock.broker.api.data.produce import (
    RECORDS_NAMED_MAX,
    REST_AFTER_BOMB,
    UNPACKED_BYTES_MIN,
    produce,
)
from penstock.wire.compression import Codec
from penstock.wire.records import (
    APPEND_TIME,
    Record,
    codec_of,
    encode,
    is_append_time,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.producing import (
    HOUR_MS,
    VERSION,
    ask,
    batch,
    partition_of,
    request,
    rows,
    stored,
)


@run_with(on_node)
async def test_batch_is_appended_and_answered_with_its_offset(node: Node) -> None:
    await node.create("t", 1)
    first = await ask(node, batch(b"a", b"b"))
    second = await ask(node, batch(b"c"))
    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset, second.log_start_offset) == (0, 2, 0)
    assert second.log_append_time_ms == -1
    values = [record.value for columns in stored(node) for record in columns]
    assert values == [b"a", b"b", b"c"]
    assert node.ctx.metrics.records_in.value == 3


@pytest.mark.parametrize("version", range(3, 13))
@run_with(on_node)
async def test_every_version_is_answered(node: Node, *, version: int) -> None:
    await node.create("t", 1)
    assert (await ask(node, batch(), version=version)).error_code == 0


@pytest.mark.parametrize("acks", [1, -1])
@run_with(on_node)
async def test_reply_follows_the_sync(node: Node, *, acks: int) -> None:
    await node.create("t", 1)
    pending = await node.send(produce, VERSION, request(("t", 0, batch()), acks=acks))
    assert not pending.is_answered
    assert partition_of(node).log.end_offset == 1
    await pending.reply()
    assert partition_of(node).high_watermark == partition_of(node).log.synced_offset == 1


@run_with(on_node)
async def test_page_cache_policy_replies_at_once(node: Node) -> None:
    await node.create("t", 1, flush_policy="page-cache")
    assert (await node.send(produce, VERSION, request(("t", 0, batch())))).is_answered


@run_with(on_node)
async def test_refused_partition_does_not_affect_the_rest(
    node: Node,
) -> None:
    await node.create("t", 2)
    response = await node.ask(
        produce,
        VERSION,
        request(("t", 0, batch()), ("t", 9, batch()), ("gone", 0, batch()), ("t", 1, batch())),
    )
    assert [row.error_code for row in rows(response)] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        0,
    ]


@run_with(on_node)
async def test_partition_named_twice_gets_both_batches(node: Node) -> None:
    await node.create("t", 1)
    response = await node.ask(
        produce, VERSION, request(("t", 0, batch(b"a")), ("t", 0, batch(b"b")))
    )
    assert [row.base_offset for row in rows(response)] == [0, 1]


@run_with(on_node)
async def test_version_13_names_topics_by_id(node: Node) -> None:
    await node.create("t", 1)
    topic_id = node.ctx.image.topics["t"].id
    good = await node.ask(produce, 13, request(("", 0, batch()), topic_id=topic_id))
    assert rows(good)[0].error_code == 0
    assert good.responses[0].topic_id == topic_id
    strange = TopicId(bytes(range(16)))
    bad = await node.ask(produce, 13, request(("", 0, batch()), topic_id=strange))
    assert rows(bad)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


# -- acks -------------------------------------------------------------------------------------


@run_with(on_node)
async def test_acks_0_is_never_answered(node: Node) -> None:
    await node.create("t", 1)
    pending = await node.send(produce, VERSION, request(("t", 0, batch()), acks=0))
    assert pending.call.is_done
    assert not pending.is_answered
    assert not pending.is_hung_up
    assert partition_of(node).log.end_offset == 1


@run_with(on_node)
async def test_acks_0_error_closes_the_connection(node: Node) -> None:
    pending = await node.send(produce, VERSION, request(("gone", 0, batch()), acks=0))
    assert not pending.is_answered
    assert pending.is_hung_up


@run_with(on_node)
async def test_unknown_acks_are_refused(node: Node) -> None:
    await node.create("t", 1)
    row = await ask(node, batch(), acks=2)
    assert (row.error_code, row.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert partition_of(node).log.end_offset == 0


# -- what the batch must be like --------------------------------------------------------------


def damaged() -> memoryview:
    view = batch()
    view[-1] ^= 1
    return view


def of_magic(magic: int) -> memoryview:
    view = batch()
    view[16] = magic
    return view


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (memoryview(b""), ErrorCode.INVALID_RECORD),
        (memoryview(b"short"), ErrorCode.INVALID_RECORD),
        (damaged(), ErrorCode.CORRUPT_MESSAGE),
        (of_magic(1), ErrorCode.INVALID_RECORD),
        (of_magic(3), ErrorCode.CORRUPT_MESSAGE),
        (memoryview(bytes(batch()) * 2), ErrorCode.INVALID_RECORD),
        (batch(attributes=APPEND_TIME), ErrorCode.INVALID_TIMESTAMP),
        (batch(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0), None),
    ],
    ids=["null", "empty", "short", "crc", "magic1", "magic3", "two", "append-time", "txn"],
)
@run_with(on_node)
async def test_invalid_batch_is_refused(
    node: Node, *, records: memoryview | None, code: ErrorCode | None
) -> None:
    await node.create("t", 1)
    row = await ask(node, records)
    assert row.error_code == code if code is not None else row.error_code != 0
    assert row.base_offset == -1
    assert partition_of(node).log.end_offset == 0


@run_with(on_node)
async def test_zstd_needs_version_7(node: Node) -> None:
    await node.create("t", 1)
    zstd = batch(codec=Codec.ZSTD)
    assert (await ask(node, zstd, version=6)).error_code == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    assert (await ask(node, zstd, version=7)).error_code == 0


@run_with(on_node)
async def test_batch_above_max_message_bytes_is_refused(node: Node) -> None:
    size = len(batch(b"x" * 1000))
    await node.create("t", 1, max_message_bytes=str(size))
    assert (await ask(node, batch(b"x" * 1000))).error_code == 0
    row = await ask(node, batch(b"x" * 1001))
    assert row.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in (row.error_message or "")


@run_with(on_node)
async def test_timestamps_outside_the_limits_are_refused(node: Node) -> None:
    await node.create(
        "t", 1, message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="2000"
    )
    now_ms = node.ctx.clock.now_ms()
    for at_ms in (now_ms + HOUR_MS, now_ms - HOUR_MS):
        row = await ask(node, batch(at_ms=at_ms))
        assert row.error_code == ErrorCode.INVALID_TIMESTAMP
    for at_ms in (now_ms, now_ms + 1900, now_ms - 900, -1):
        assert (await ask(node, batch(at_ms=at_ms))).error_code == 0


# -- topic configs ------------------------------------------------------------------------------


@run_with(on_node)
async def test_log_append_time_is_set_by_the_broker_and_returned(node: Node) -> None:
    await node.create("t", 1, message_timestamp_type="LogAppendTime")
    now_ms = node.ctx.clock.now_ms()
    row = await ask(node, batch(at_ms=5))
    assert row.log_append_time_ms == now_ms
    (columns,) = stored(node)
    assert is_append_time(columns.header.attributes)
    assert [record.timestamp for record in columns] == [now_ms]


@run_with(on_node)
async def test_repeated_batch_is_answered_with_its_first_append_time(node: Node) -> None:
    await node.create("t", 1, message_timestamp_type="LogAppendTime")
    producer: Any = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
    first = await ask(node, batch(**producer))
    await asyncio.sleep(2)
    again = await ask(node, batch(**producer))
    assert (again.error_code, again.base_offset) == (0, 0)
    assert again.log_append_time_ms == first.log_append_time_ms < node.ctx.clock.now_ms()


@run_with(on_node)
async def test_refused_batch_has_no_append_time(node: Node) -> None:
    await node.create("t", 1, message_timestamp_type="LogAppendTime")
    producer: Any = {"producer_id": 9, "producer_epoch": 0}
    assert (await ask(node, batch(**producer, base_sequence=0))).error_code == 0
    row = await ask(node, batch(**producer, base_sequence=7))
    assert row.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert row.log_append_time_ms == -1


@run_with(on_node)
async def test_decompression_pauses_after_a_decompression_bomb(node: Node) -> None:
    """Limits senders of decompression bombs to a tenth of a processor."""

    await node.create("t", 1, cleanup_policy="compact")
    node.workers.delay_s = (0.001, 0.001)
    loop = asyncio.get_running_loop()
    bomb = batch(bytes(UNPACKED_BYTES_MIN + 1), key=b"k", codec=Codec.ZSTD)
    began = loop.time()
    pending = await node.send(produce, VERSION, request(("t", 0, bomb)))
    good = await ask(node, batch(b"v" * 100, key=b"k", codec=Codec.ZSTD))
    assert loop.time() - began > 0.001 * REST_AFTER_BOMB
    assert good.error_code == 0
    (refused,) = rows(await pending.reply())
    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE


@run_with(on_node)
async def test_compacted_topic_refuses_records_without_a_key(node: Node) -> None:
    await node.create("t", 1, cleanup_policy="compact")
    row = await ask(node, batch())
    assert row.error_code == ErrorCode.INVALID_RECORD
    assert "key" in (row.error_message or "")
    assert (await ask(node, batch(key=b"k"))).error_code == 0


@run_with(on_node)
async def test_records_that_caused_a_refusal_are_listed(node: Node) -> None:
    await node.create("t", 1, cleanup_policy="compact")
    keys = [b"k", None, b"k", None]
    mixed = memoryview(encode([Record(0, -1, key, b"v", ()) for key in keys]))
    row = await ask(node, mixed)
    assert [error.batch_index for error in row.record_errors] == [1, 3]
    assert "key" in (row.record_errors[0].batch_index_error_message or "")
    row = await ask(node, batch(*[b"v"] * (RECORDS_NAMED_MAX + 1)))
    assert len(row.record_errors) == RECORDS_NAMED_MAX
    late_ms = node.ctx.clock.now_ms() + 2 * HOUR_MS
    row = await ask(node, batch(key=b"k", at_ms=late_ms))
    assert row.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in row.record_errors] == [0]
    row = await ask(node, batch(b"a", b"b", key=b"k", at_ms=late_ms))
    assert list(row.record_errors) == []


@pytest.mark.parametrize(
    ("configured", "sent", "expected"),
    [
        ("producer", Codec.GZIP, Codec.GZIP),
        ("uncompressed", Codec.GZIP, Codec.NONE),
        ("zstd", Codec.NONE, Codec.ZSTD),
        ("lz4", Codec.GZIP, Codec.LZ4),
        ("snappy", Codec.SNAPPY, Codec.SNAPPY),
    ],
)
@run_with(on_node)
async def test_batches_are_recompressed_to_the_topic_codec(
    node: Node, *, configured: str, sent: Codec, expected: Codec
) -> None:
    await node.create("t", 1, compression_type=configured)
    producer: Any = {"producer_id": 9, "producer_epoch": 3, "base_sequence": 0}
    row = await ask(node, batch(b"a", b"b", codec=sent, at_ms=77, **producer))
    assert (row.error_code, row.base_offset) == (0, 0)
    (columns,) = stored(node)
    header = columns.header
    assert codec_of(header.attributes) == expected
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 0)
    assert [(record.timestamp, record.value) for record in columns] == [
        (77, b"a"),
        (77, b"b"),
    ]


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
@run_with(on_node)
async def test_topic_compression_level_is_applied(node: Node, *, codec: str) -> None:
    """On text of digits, the lowest level of each codec leaves more than its highest."""
    text = b" ".join(b"%d" % (n * n % 9973) for n in range(20_000))
    levels = {"gzip": ("1", "9"), "lz4": ("1", "17"), "zstd": ("-50", "19")}

    sizes = []
    for name, level in zip(("low", "high"), levels[codec], strict=True):
        configs = {"compression_type": codec, f"compression_{codec}_level": level}
        await node.create(name, 1, **configs)
        row = await ask(node, batch(text), topic=name)
        assert row.error_code == 0
        (columns,) = stored(node, name)
        assert next(iter(columns)).value == text
        sizes.append(columns.header.length)
    assert sizes[1] < sizes[0] * 0.95


@run_with(on_node)
async def test_oversized_batch_is_refused_without_decompression(node: Node) -> None:
    await node.create("t", 1, compression_type="zstd", max_message_bytes="500")
    row = await ask(node, batch(b"x" * 1000))
    assert row.error_code == ErrorCode.MESSAGE_TOO_LARGE


@run_with(on_node)
async def test_batches_are_copied_before_the_receive_buffer_is_reused(node: Node) -> None:
    await node.create("keyed", 1, cleanup_policy="compact")
    await node.create("t", 1)
    sent = request(("keyed", 0, batch(b"first", key=b"k")), ("t", 0, batch(b"second")))
    buffers = [data.records for topic in sent.topic_data for data in topic.partition_data]
    pending, work = node.begin(produce, VERSION, sent)
    for buffer in buffers:
        assert buffer is not None
        buffer[:] = bytes(len(buffer))
    await work
    await pending.reply()
    for topic, value in (("keyed", b"first"), ("t", b"second")):
        assert [r.value for columns in stored(node, topic) for r in columns] == [value]


# -- idempotent producers ---------------------------------------------------------------------


@run_with(on_node)
async def test_repeated_batch_is_answered_with_its_first_offset(node: Node) -> None:
    await node.create("t", 1)
    producer: Any = {"producer_id": 9, "producer_epoch": 0}
    await ask(node, batch())
    first = await ask(node, batch(b"a", b"b", **producer, base_sequence=0))
    await ask(node, batch(b"c", **producer, base_sequence=2))
    again = await ask(node, batch(b"a", b"b", **producer, base_sequence=0))
    assert (again.error_code, again.base_offset) == (0, first.base_offset)
    assert partition_of(node).log.end_offset == 4
    assert node.ctx.metrics.duplicates.value == 1


@run_with(on_node)
async def test_repeated_pending_batch_waits_for_the_first(node: Node) -> None:
    await node.create("t", 1)
    producer: Any = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
    first = await node.send(produce, VERSION, request(("t", 0, batch(**producer))))
    again = await node.send(produce, VERSION, request(("t", 0, batch(**producer))))
    assert not again.is_answered
    for pending in (first, again):
        (row,) = rows(await pending.reply())
        assert (row.error_code, row.base_offset) == (0, 0)


@pytest.mark.parametrize(
    ("epoch", "sequence", "code"),
    [
        (1, 5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 3, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
@run_with(on_node)
async def test_batch_out_of_sequence_is_refused(
    node: Node, *, epoch: int, sequence: int, code: ErrorCode
) -> None:
    await node.create("t", 1)
    await ask(node, batch(producer_id=9, producer_epoch=1, base_sequence=0))
    late = batch(producer_id=9, producer_epoch=epoch, base_sequence=sequence)
    assert (await ask(node, late)).error_code == code
