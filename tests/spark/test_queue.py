"""A queue as a stream: records are leased, then acknowledged or released with their batch."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from penstock import SyncClient
from penstock.spark import read_queue
from penstock.spark.connection import close_clients
from penstock.spark.range_planning import ForeignOffsets
from penstock.spark.settings import read_settings
from penstock.spark.source.queue_stream import QueueStreamReader
from tests.spark.topics import Topics

SCHEMA = StructType([StructField("value", BinaryType()), StructField("offset", LongType())])
WAIT_S = 30.0

Offset = dict[str, Any]


class Query:
    """Calls a source batch by batch, as Spark does."""

    def __init__(
        self, topics: Topics, topic: str, start: Offset | None = None, **more: Any
    ) -> None:
        options = {"brokers": topics.bootstrap, "queue": topic, "group": f"{topic}-group"}
        options |= {name: str(value) for name, value in more.items()}
        settings = read_settings({**options, "columns": "value,offset"}, is_streaming=True)
        self.reader = QueueStreamReader(settings, SCHEMA)
        self.at = start or self.reader.initialOffset()

    def plan(self) -> Offset:
        """Plans the next batch; returns `self.at` if there is none."""
        return self.reader.latestOffset(self.at, ReadMaxRows(10_000))

    def read(self, end: Offset) -> list[int]:
        return sorted(
            int(row["value"])
            for partition in self.reader.partitions(self.at, end)
            for batch in self.reader.read(partition)
            for row in batch.to_pylist()
        )

    def batch(self) -> list[int]:
        """Runs one batch, which is acknowledged when the next one is planned."""
        end = self.plan()
        found = self.read(end) if end != self.at else []
        self.at = end
        return found

    def drain(self, count: int) -> list[int]:
        """Runs batches until `count` records are read, and one more batch."""
        found: list[int] = []
        deadline = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < deadline:
            found += self.batch()
        return sorted(found + self.batch())


@pytest.fixture
def query(topics: Topics, topic: str) -> Iterator[Callable[..., Query]]:
    made: list[Query] = []

    def make(start: Offset | None = None, **options: Any) -> Query:
        made.append(Query(topics, topic, start, **options))
        return made[-1]

    yield make
    for one in made:
        one.reader.stop()
    close_clients()


def test_queue_records_are_read_once_and_acknowledged(
    topics: Topics, topic: str, query: Callable[..., Query]
) -> None:
    topics.create(topic, 2)
    topics.numbers(topic, 300, partitions=2)
    first = query(maxOffsetsPerTrigger=100)
    found = first.drain(300)
    assert found == list(range(300))
    assert first.at["batch"] >= 3
    first.reader.stop()
    assert query().batch() == []


def test_records_of_an_unfinished_batch_are_released(
    topics: Topics, topic: str, query: Callable[..., Query]
) -> None:
    topics.numbers(topic, 20)
    first = query()
    assert first.read(first.plan()) == list(range(20))
    assert query().batch() == []
    first.reader.stop()
    assert query().drain(20) == list(range(20))


def test_finished_but_unacknowledged_batch_is_not_repeated(
    topics: Topics, topic: str, query: Callable[..., Query]
) -> None:
    """The driver died after the commit, before the acknowledgement: only the checkpoint has it."""
    topics.numbers(topic, 20)
    first = query()
    assert len(first.batch()) == 20
    first.reader.stop()
    topics.numbers(topic, 5, start=20)
    second = query(first.at)
    assert second.drain(5) == [20, 21, 22, 23, 24]
    second.reader.stop()
    assert query().batch() == []


def test_repeated_queue_batch_has_the_same_records(
    topics: Topics, topic: str, query: Callable[..., Query]
) -> None:
    topics.numbers(topic, 20)
    first = query(minPartitions=3)
    end = first.plan()
    first.reader.stop()
    second = query(first.at, minPartitions=3)
    assert second.read(end) == list(range(20))
    assert len(second.reader.partitions(first.at, end)) == 3


def test_records_leased_by_other_consumers_are_skipped(
    topics: Topics, topic: str, query: Callable[..., Query]
) -> None:
    topics.numbers(topic, 12)
    with SyncClient(topics.bootstrap) as client:
        held = client.poll(topic, f"{topic}-group", max=3, wait=WAIT_S)
        leased = sorted(int(message.payload or b"") for message in held)
        held[1].ack()
        ours = query()
        assert ours.drain(9) == sorted(set(range(12)) - set(leased))
        held[0].nack(0)
        assert ours.drain(1) == [int(held[0].payload or b"")]


def test_leases_are_renewed_while_the_batch_runs(
    topics: Topics, topic: str, query: Callable[..., Query]
) -> None:
    topics.numbers(topic, 5)
    with SyncClient(topics.bootstrap) as client:
        client.configure_group(f"{topic}-group", {"share.record.lock.duration.ms": "1000"})
        slow = query()
        end = slow.plan()
        assert end != slow.at
        # For three lease durations, no other consumer receives them.
        assert client.poll(topic, f"{topic}-group", max=5, wait=3.0) == []
        slow.at = end
        assert slow.batch() == []


def test_available_now_reads_up_to_the_queue_end_at_start(
    topics: Topics, topic: str, query: Callable[..., Query]
) -> None:
    topics.numbers(topic, 5)
    now = query()
    now.reader.prepareForTriggerAvailableNow()
    topics.numbers(topic, 5, start=5)
    assert now.drain(5) == [0, 1, 2, 3, 4]
    now.reader.stop()
    assert query().drain(5) == [5, 6, 7, 8, 9]


def test_checkpoint_of_a_topic_is_refused(
    topics: Topics, topic: str, query: Callable[..., Query]
) -> None:
    topics.create(topic)
    with pytest.raises(ForeignOffsets, match="belongs to another query"):
        query({topic: {"0": 5}}).batch()


@pytest.mark.spark
@pytest.mark.parametrize("how", ["records", "ranges"])
def test_query_moves_a_queue_to_a_topic_once(
    spark: Any, topics: Topics, topic: str, run_stream: Callable[..., Any], how: str
) -> None:
    out = f"{topic}-out"
    topics.create(topic, 2)
    topics.create(out)
    topics.numbers(topic, 60, partitions=2)
    options = {"brokers": topics.bootstrap, "queue": topic, "group": f"{topic}-group"}
    if how == "ranges":
        frame = read_queue(spark, **options, maxOffsetsPerTrigger=40)
    else:
        frame = spark.readStream.format("penstock").options(**options).load()
    run_stream(frame.select("value"), topic=out, brokers=topics.bootstrap)
    assert topics.values(out) == list(range(60))
    with SyncClient(topics.bootstrap) as client:
        assert client.poll(topic, f"{topic}-group", wait=0.5) == []


@pytest.mark.spark
def test_failing_query_releases_all_records(
    spark: Any, topics: Topics, topic: str, run_stream: Callable[..., Any]
) -> None:
    topics.numbers(topic, 10)
    frame = read_queue(spark, brokers=topics.bootstrap, queue=topic, group=f"{topic}-group")
    broken = frame.selectExpr("assert_true(offset < 5) as ok", "value")
    with pytest.raises(StreamingQueryException):
        run_stream(broken, "broken", format="noop")
    with SyncClient(topics.bootstrap) as client:
        found: list[int] = []
        while len(found) < 10:
            messages = client.poll(topic, f"{topic}-group", max=10, wait=WAIT_S)
            assert messages, f"only {found} came back"
            found += [int(message.payload or b"") for message in messages]
            for message in messages:
                message.ack()
    assert sorted(found) == list(range(10))
