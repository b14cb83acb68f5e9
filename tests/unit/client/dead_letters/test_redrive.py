"""Redriven copies of dead letters, and their targets; crashes are in tests/sim."""

import json
from dataclasses import replace
from random import Random

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.dead_letters.filters import DeadLetterFilter
from penstock.client.dead_letters.message import REDRIVES, DeadLetterMessage, RecordOrigin
from penstock.client.dead_letters.open_messages import encode_settled_offsets
from penstock.client.dead_letters.redrive import (
    AUDIT,
    MESSAGES_MAX,
    OFFSET_GAP_MAX,
    REDRIVEN_FROM,
    Redriver,
    RedriveRequest,
    is_record_lost,
    redriven_record,
    target_partition,
)
from penstock.client.dead_letters.topics import describe_dead_letter_topic
from penstock.client.metadata import TopicPartition
from penstock.state.queues import dead_letter_format as headers
from penstock.state.queues import delivery_headers
from tests.run_with import run_with
from tests.unit.client.on_cluster import Desk, on_cluster

DEAD_LETTER = DeadLetterMessage(
    topic="t.dlq",
    partition=1,
    offset=7,
    timestamp_ms=5_000,
    key=b"k",
    payload=b"v",
    own_headers=(("colour", b"red"), (delivery_headers.PRIORITY, b"3")),
    source=RecordOrigin("t", 1, 42),
    source_timestamp_ms=1_000,
    group="g",
    attempts=5,
    error_class="Timeout",
    error_message="",
    first_failure_ms=2_000,
    last_failure_ms=3_000,
    redrives=2,
)


async def dead_letter(desk: Desk, count: int, topic: str = "t", error: str = "Timeout") -> None:
    told = {
        headers.TOPIC: topic.encode(),
        headers.PARTITION: b"0",
        headers.OFFSET: b"9",
        headers.ERROR_CLASS: error.encode(),
        headers.TIMESTAMP: b"77",
    }
    values = [b"%d" % number for number in range(count)]
    await desk.produce(f"{topic}.dlq", values, headers=list(told.items()))


async def redrive(desk: Desk, **asked: object) -> Redriver:
    request = RedriveRequest("t.dlq", "run", "me", **asked)  # type: ignore[arg-type]
    redriver = Redriver(desk.cluster, desk.clock, request)
    await redriver.run()
    return redriver


def test_redriven_copy_counts_redrives_and_drops_old_delivery_headers() -> None:
    old = (
        delivery_headers.DELAY_MS,
        delivery_headers.DELIVER_AT,
        delivery_headers.EXPIRES_AT,
        delivery_headers.TTL_MS,
        delivery_headers.DEDUP_ID,
    )
    dead_letter = replace(
        DEAD_LETTER,
        own_headers=(*((name, b"1") for name in old), *DEAD_LETTER.own_headers, (REDRIVES, b"2")),
    )
    record = redriven_record(dead_letter, 9_000)
    assert (record.key, record.value, record.timestamp) == (b"k", b"v", 9_000)
    assert record.headers == (
        ("colour", b"red"),
        (delivery_headers.PRIORITY, b"3"),
        (REDRIVES, b"3"),
        (REDRIVEN_FROM, b"t.dlq/1/7"),
    )


def test_dead_letter_of_a_lost_record_is_recognized() -> None:
    assert not is_record_lost(DEAD_LETTER)
    assert is_record_lost(replace(DEAD_LETTER, key=None, payload=None, source_timestamp_ms=-1))
    assert not is_record_lost(replace(DEAD_LETTER, key=None, payload=None))


def test_settled_offsets_of_the_largest_transaction_fit() -> None:
    far = [(1 << 62) + number * (OFFSET_GAP_MAX - 1) for number in range(MESSAGES_MAX)]
    assert encode_settled_offsets(b"\xff" * 16, far) is not None


@run_with(on_cluster)
async def test_dead_letter_returns_to_its_partition_or_by_key(desk: Desk) -> None:
    await desk.admin.create_topic("t", 3, 1)
    await desk.admin.create_topic("other", 3, 1)
    cluster = desk.cluster
    assert await target_partition(cluster, DEAD_LETTER, None) == TopicPartition("t", 1)
    assert await target_partition(cluster, DEAD_LETTER, "t") == TopicPartition("t", 1)
    by_key = await target_partition(cluster, DEAD_LETTER, "other")
    shrunk = replace(DEAD_LETTER, source=RecordOrigin("t", 9, 42))
    assert (await target_partition(cluster, shrunk, None)).partition == by_key.partition
    bare = replace(DEAD_LETTER, key=None)
    assert await target_partition(cluster, bare, "other") == TopicPartition("other", 1)
    unknown = replace(DEAD_LETTER, source=None)
    with pytest.raises(Refused, match="1:7 does not name its source"):
        await target_partition(cluster, unknown, None)
    assert (await target_partition(cluster, unknown, "other")).topic == "other"


@run_with(on_cluster)
async def test_redriven_timestamp_is_now_or_the_original(desk: Desk) -> None:
    await desk.admin.create_topic("t", 1, 1)
    await desk.admin.create_topic("t.dlq", 1, 1)
    await dead_letter(desk, 2)
    first = DeadLetterFilter(ids=frozenset({(0, 0)}))
    assert (await redrive(desk, chosen=first, keeps_timestamp=True)).report.settled == 1
    await redrive(desk)
    times = [message.timestamp for message in await desk.read("t")]
    assert times[0] == 77
    assert times[1] > 1_000_000_000_000


@run_with(on_cluster)
async def test_redrive_limit_purge_and_revision_are_applied_and_recorded(desk: Desk) -> None:
    await desk.admin.create_topic("t", 1, 1)
    await desk.admin.create_topic("t.dlq", 1, 1)
    await dead_letter(desk, 6)
    told: list[int] = []
    request = RedriveRequest("t.dlq", "one", "me", limit=2)
    redriver = Redriver(desk.cluster, desk.clock, request, told.append)
    assert (await redriver.run()).targets == {TopicPartition("t", 0): 2}
    assert told == [2]
    await redrive(desk, limit=1, revise=lambda dead_letter: replace(dead_letter, payload=b"new"))
    await redrive(desk, purges=True, chosen=DeadLetterFilter(ids=frozenset({(0, 5)})))
    assert [m.value for m in await desk.read("t")] == [b"0", b"1", b"new"]
    assert (await describe_dead_letter_topic(desk.cluster, "t.dlq")).messages == 2
    entries = [json.loads(message.value or b"") for message in await desk.read(AUDIT)]
    assert [(entry["action"], entry["count"], entry["letters"]) for entry in entries] == [
        ("redrive", 2, [[0, 1]]),
        ("edit", 1, [[2, 2]]),
        ("purge", 1, [[5, 5]]),
    ]
    assert entries[0]["who"] == "me"
    assert entries[2]["filter"] == {"letters": ["0:5"]}


@run_with(on_cluster)
async def test_dead_letters_of_lost_records_are_skipped_and_counted(desk: Desk) -> None:
    await desk.admin.create_topic("t", 1, 1)
    await desk.admin.create_topic("t.dlq", 1, 1)
    gone = ((headers.TOPIC, b"t"), (headers.OFFSET, b"3"), (headers.TIMESTAMP, b"-1"))
    await desk.produce("t.dlq", [None], headers=gone)  # type: ignore[list-item]
    report = (await redrive(desk)).report
    assert (report.settled, report.skipped) == (0, 1)
    assert (await describe_dead_letter_topic(desk.cluster, "t.dlq")).messages == 1


@pytest.mark.parametrize("may_see", [True, False])
@run_with(on_cluster)
async def test_oversized_dead_letter_is_reported_and_the_rest_redriven(
    desk: Desk, *, may_see: bool
) -> None:
    """Headers added on the way can make a record too large that was just small enough."""

    await desk.admin.create_topic("t", 1, 1, {"max.message.bytes": "2000"})
    await desk.admin.create_topic("t.dlq", 1, 1)
    await desk.admin.create_topic("u", 1, 1)
    told = ((headers.TOPIC, b"t"), (headers.PARTITION, b"0"), (headers.OFFSET, b"9"))
    rng = Random(5)
    large, small = rng.randbytes(1_900), [rng.randbytes(800) for _ in range(9)]
    compressible = b"z" * 5_000
    sent = [*small[:4], large, *small[4:], compressible]
    await desk.produce("t.dlq", sent, headers=told)
    request = RedriveRequest("t.dlq", "run", "me")
    redriver = Redriver(desk.cluster, desk.clock, request)
    if not may_see:
        redriver._limits["t"] = None
    report = await redriver.run()
    expected = [*small, compressible] if may_see else small
    assert [message.value for message in await desk.read("t")] == expected
    assert report.settled == len(expected)
    left = ["0:4"] if may_see else ["0:4", "0:10"]
    assert list(report.too_large) == left
    assert "max.message.bytes" in report.too_large["0:4"]
    assert (await describe_dead_letter_topic(desk.cluster, "t.dlq")).messages == len(left)
    again = await redrive(desk, to="u")
    assert again.report.settled == len(left)


@run_with(on_cluster)
async def test_invalid_redrive_targets_are_refused(desk: Desk) -> None:
    await desk.admin.create_topic("t", 1, 1)
    await desk.admin.create_topic("t.dlq", 1, 1)
    await dead_letter(desk, 1)

    def refuse(topic: str) -> None:
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic)

    with pytest.raises(Refused):
        await redrive(desk, check_target=refuse)
    assert await desk.read("t") == []
    assert (await describe_dead_letter_topic(desk.cluster, "t.dlq")).messages == 1
