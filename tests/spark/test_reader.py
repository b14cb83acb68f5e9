"""The source's methods for driver and tasks, called without Spark's JVM."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from penstock.spark.connection import blocking_client, close_clients
from penstock.spark.data_loss import DataLoss
from penstock.spark.range_planning import TOPIC_IDS, ForeignOffsets, Range
from penstock.spark.settings import read_settings
from penstock.spark.source.rows import RANGES_SCHEMA, RangePartition, read_rows
from penstock.spark.source.stream import StreamReader
from penstock.wire.records import Record
from tests.brokers import PenstockProcess
from tests.conftest import FreshBroker
from tests.ports import free_port
from tests.spark.topics import Topics

SCHEMA = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])


@pytest.fixture(autouse=True)
def _close_clients() -> Iterator[None]:
    yield
    close_clients()


def reader(topics: Topics, **options: Any) -> StreamReader:
    given = {"brokers": topics.bootstrap, "startingOffsets": "earliest", "columns": "offset,value"}
    given |= {name: str(value) for name, value in options.items()}
    return StreamReader(read_settings(given, is_streaming=True), SCHEMA)


def offsets(batches: Any) -> list[int]:
    return [row["offset"] for batch in batches for row in batch.to_pylist()]


def plain(written: dict[str, Any] | None) -> dict[str, Any]:
    """Offsets without the topics' ids."""
    assert written is not None
    return {topic: rows for topic, rows in written.items() if topic != TOPIC_IDS}


def test_limit_is_shared_by_all_partitions(topics: Topics, topic: str) -> None:
    topics.create(topic, 2)
    topics.numbers(topic, 100, partitions=2)
    source = reader(topics, subscribe=topic, maxOffsetsPerTrigger=10)
    start = source.initialOffset()
    assert plain(start) == {topic: {"0": 0, "1": 0}}
    assert source.getDefaultReadLimit() == ReadMaxRows(10)
    assert plain(source.latestOffset(start, ReadMaxRows(10))) == {topic: {"0": 5, "1": 5}}
    assert plain(source.latestOffset(start, ReadAllAvailable())) == {topic: {"0": 50, "1": 50}}
    assert plain(source.reportLatestOffset()) == {topic: {"0": 50, "1": 50}}


def test_minimum_is_awaited_up_to_the_trigger_delay(topics: Topics, topic: str) -> None:
    topics.numbers(topic, 10)
    source = reader(topics, subscribe=topic, minOffsetsPerTrigger=11, maxTriggerDelay="300ms")
    start = source.initialOffset()
    assert source.getDefaultReadLimit() == ReadMinRows(11)
    assert source.latestOffset(start, ReadMinRows(11)) == start
    time.sleep(0.35)
    assert plain(source.latestOffset(start, ReadMinRows(11))) == {topic: {"0": 10}}
    topics.numbers(topic, 30, start=10)
    current = {topic: {"0": 10}}
    assert plain(source.latestOffset(current, ReadMinRows(11))) == {topic: {"0": 40}}


def test_available_now_reads_up_to_the_end_at_start(topics: Topics, topic: str) -> None:
    topics.numbers(topic, 10)
    source = reader(topics, subscribe=topic, minOffsetsPerTrigger=1_000)
    source.prepareForTriggerAvailableNow()
    topics.numbers(topic, 10, start=10)
    end = source.latestOffset(source.initialOffset(), ReadMinRows(1_000))
    assert plain(end) == {topic: {"0": 10}}
    assert source.latestOffset(end, ReadMinRows(1_000)) == end


def test_finished_offsets_are_committed_to_the_group(topics: Topics, topic: str) -> None:
    topics.numbers(topic, 10)
    source = reader(topics, subscribe=topic, group=topic)
    source.latestOffset({topic: {"0": 7}}, ReadAllAvailable())
    assert topics.committed(topic) == {(topic, 0): 7}
    again = reader(topics, subscribe=topic, group=topic, startingOffsets="committed")
    assert plain(again.initialOffset()) == {topic: {"0": 7}}


def test_repeated_batch_has_the_same_tasks(topics: Topics, topic: str) -> None:
    topics.create(topic, 2)
    start, end = {topic: {"0": 0, "1": 10}}, {topic: {"0": 100, "1": 20}}
    plans = [
        [
            part.spans
            for part in reader(topics, subscribe=topic, minPartitions=5).partitions(start, end)
        ]
        for _ in range(2)
    ]
    assert plans[0] == plans[1]
    assert len(plans[0]) == 5


@pytest.mark.parametrize("foreign", [{"other": {"0": 1}}, {"numPartitions": 3}])
def test_offsets_of_another_query_are_refused(
    topics: Topics, topic: str, foreign: dict[str, Any]
) -> None:
    topics.create(topic)
    with pytest.raises(ForeignOffsets, match="another query"):
        reader(topics, subscribe=topic).latestOffset(foreign, ReadAllAvailable())


def test_recreated_topic_is_detected(topics: Topics, topic: str) -> None:
    topics.numbers(topic, 5)
    start = {topic: {"0": 9}}
    with pytest.raises(DataLoss):
        reader(topics, subscribe=topic).latestOffset(start, ReadAllAvailable())
    going_on = reader(topics, subscribe=topic, failOnDataLoss="false")
    assert plain(going_on.latestOffset(start, ReadAllAvailable())) == {topic: {"0": 5}}


def test_ranges_are_emitted_instead_of_records(topics: Topics, topic: str) -> None:
    source = reader(topics, subscribe=topic, emit="ranges")
    (row,) = source.read(RangePartition([Range(topic, 0, 3, 9)]))
    assert row.schema == to_arrow_schema(RANGES_SCHEMA)
    assert row.to_pylist() == [{"topic": topic, "partition": 0, "start": 3, "end": 9}]


def test_small_fetches_read_the_whole_range(topics: Topics, topic: str) -> None:
    topics.fill(topic, [Record(0, -1, None, b"x" * 500) for _ in range(2_000)], 0)
    small = reader(topics, subscribe=topic, fetchBytes=10_000)
    span = Range(topic, 0, 17, 1_983)
    assert offsets(read_rows(small.settings, SCHEMA, span)) == list(range(17, 1_983))


def test_small_ranges_are_read_in_order(topics: Topics, topic: str) -> None:
    topics.create(topic, 20)
    topics.numbers(topic, 100, partitions=20)
    source = reader(topics, subscribe=topic)
    spans = [Range(topic, partition, 1, 4) for partition in range(19, -1, -1)]
    assert offsets(source.read(RangePartition(spans))) == [1, 2, 3] * 20


def test_ranges_are_prefetched_and_cancelled_with_the_task(topics: Topics, topic: str) -> None:
    topics.create(topic, 20)
    topics.numbers(topic, 100, partitions=20)
    source = reader(topics, subscribe=topic)
    client = blocking_client(source.settings.access)
    client.retry(lambda: client.cluster.topic(topic))
    started_tasks: list[int] = []
    start = client.start

    def counted(work: Any) -> Any:
        started_tasks.append(1)
        return start(work)

    client.start = counted  # type: ignore[method-assign]
    batches = source.read(RangePartition([Range(topic, at, 0, 5) for at in range(20)]))
    next(batches)
    assert len(started_tasks) == 8
    batches.close()  # type: ignore[attr-defined]
    assert offsets(source.read(RangePartition([Range(topic, 7, 0, 5)]))) == list(range(5))


def test_reader_survives_a_broker_restart(fresh_broker: FreshBroker, tmp_path: Path) -> None:
    first = fresh_broker(kafka_port=free_port())
    given = {"brokers": first.bootstrap, "subscribe": "t", "fetchBytes": "20000"}
    loop = asyncio.new_event_loop()
    helper = Topics(loop, first.bootstrap)
    helper.fill("t", [Record(0, -1, None, b"x" * 500) for _ in range(2_000)], 0)
    helper.close()
    loop.close()
    settings = read_settings(given, is_streaming=False)
    batches = read_rows(settings, SCHEMA, Range("t", 0, 0, 2_000))
    found = offsets([next(batches)])
    first.kill()
    again: list[PenstockProcess] = []

    def start() -> None:
        time.sleep(1.0)
        again.append(fresh_broker(first.data_dir, kafka_port=first.kafka_port))

    starting = threading.Thread(target=start)
    starting.start()
    found += offsets(batches)
    starting.join()
    assert found == list(range(2_000))
    assert blocking_client(settings.access).cluster.metadata.brokers


def test_offset_json_matches_sparks_kafka_source(topics: Topics, topic: str) -> None:
    topics.create(topic, 11)
    written = json.dumps(reader(topics, subscribe=topic).initialOffset())
    keys = list(json.loads(written)[topic])
    assert list(json.loads(written)) == [topic, TOPIC_IDS]
    assert keys == [str(n) for n in range(11)]


def test_recreated_topic_with_more_records_is_detected(topics: Topics, topic: str) -> None:
    topics.numbers(topic, 5)
    source = reader(topics, subscribe=topic)
    start = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    topics.recreate(topic)
    topics.numbers(topic, 15)
    with pytest.raises(DataLoss, match="created again"):
        source.latestOffset(start, ReadAllAvailable())
    # A query that is started again finds out, too.
    with pytest.raises(DataLoss, match="created again"):
        reader(topics, subscribe=topic).latestOffset(start, ReadAllAvailable())


def test_recreated_topic_is_read_from_its_beginning_if_loss_is_allowed(
    topics: Topics, topic: str
) -> None:
    topics.numbers(topic, 5)
    source = reader(topics, subscribe=topic, failOnDataLoss="false", group=topic)
    start = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    topics.recreate(topic)
    topics.numbers(topic, 15)
    end = source.latestOffset(start, ReadMaxRows(10))
    assert plain(end) == {topic: {"0": 10}}
    assert [part.spans for part in source.partitions(start, end)] == [(Range(topic, 0, 0, 10),)]
    assert topics.committed(topic) == {}
    last = source.latestOffset(end, ReadMaxRows(10))
    assert [part.spans for part in source.partitions(end, last)] == [(Range(topic, 0, 10, 15),)]
    assert topics.committed(topic) == {(topic, 0): 10}


def test_planned_batch_of_a_deleted_topic_is_not_read_from_its_successor(
    topics: Topics, topic: str
) -> None:
    topics.numbers(topic, 5)
    source = reader(topics, subscribe=topic)
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    topics.recreate(topic)
    topics.numbers(topic, 15)
    close_clients()
    with pytest.raises(DataLoss, match="created again"):
        reader(topics, subscribe=topic).partitions(start, end)
    going_on = reader(topics, subscribe=topic, failOnDataLoss="false")
    assert going_on.partitions(start, end) == []
    assert plain(going_on.latestOffset(end, ReadAllAvailable())) == {topic: {"0": 15}}


def test_stream_continues_without_a_deleted_topic_if_loss_is_allowed(
    topics: Topics, topic: str
) -> None:
    other = f"{topic}-2"
    both = f"{topic},{other}"
    topics.numbers(topic, 5)
    topics.numbers(other, 5)
    source = reader(topics, subscribe=both, failOnDataLoss="false")
    start = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    topics.delete(topic)
    topics.numbers(other, 5, start=5)
    with pytest.raises(DataLoss, match="no longer exists"):
        reader(topics, subscribe=both).latestOffset(start, ReadAllAvailable())
    end = source.latestOffset(start, ReadAllAvailable())
    assert plain(end) == {topic: {"0": 5}, other: {"0": 10}}
    assert source.latestOffset(end, ReadAllAvailable()) == end
    source.prepareForTriggerAvailableNow()
    assert source.latestOffset(end, ReadAllAvailable()) == end
    # The name is used again.
    topics.create(topic)
    topics.numbers(topic, 7)
    source = reader(topics, subscribe=both, failOnDataLoss="false")
    last = source.latestOffset(end, ReadAllAvailable())
    assert plain(last) == {topic: {"0": 7}, other: {"0": 10}}
    assert [part.spans for part in source.partitions(end, last)] == [(Range(topic, 0, 0, 7),)]


def test_checkpoint_without_topic_ids_is_continued(topics: Topics, topic: str) -> None:
    topics.numbers(topic, 9)
    source = reader(topics, subscribe=topic)
    end = source.latestOffset({topic: {"0": 5}}, ReadAllAvailable())
    assert plain(end) == {topic: {"0": 9}}
    assert source.latestOffset(end, ReadAllAvailable()) == end
    parts = source.partitions({topic: {"0": 5}}, end)
    assert [part.spans for part in parts] == [(Range(topic, 0, 5, 9),)]


def test_starting_offsets_may_name_topic_ids(topics: Topics, topic: str) -> None:
    topics.numbers(topic, 9)
    end = reader(topics, subscribe=topic).latestOffset({topic: {"0": 5}}, ReadAllAvailable())
    again = reader(topics, subscribe=topic, startingOffsets=json.dumps(end))
    assert again.initialOffset() == end
    topics.recreate(topic)
    topics.numbers(topic, 20)
    again = reader(topics, subscribe=topic, startingOffsets=json.dumps(end))
    with pytest.raises(DataLoss, match="created again"):
        again.latestOffset(again.initialOffset(), ReadAllAvailable())
