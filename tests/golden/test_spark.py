"""Contents of Spark's checkpoints, archives and tables, and state of queries in the cluster."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from pyarrow.fs import LocalFileSystem

from penstock.client.metadata import TopicPartition
from penstock.client.producer.identity import ProducerIdentity
from penstock.jobs import archive, cdc
from penstock.jobs.archive import ArchiveFile
from penstock.pipelines import status_topic
from penstock.pipelines.checkpoints import path_of
from penstock.pipelines.pipeline import Pipeline
from penstock.pipelines.progress import StageState
from penstock.spark.range_planning import PartitionOffsets, from_json, to_json, topic_ids_of
from penstock.spark.sink import commit_intent, committed_batches
from penstock.spark.source.queue_member import QueueOffset, read_offset
from penstock.state.queues.intervals import IntervalSet
from tests.golden.book import Book, Sample

OFFSETS: Final = {
    TopicPartition("orders", 1): 70_000,
    TopicPartition("orders", 0): 5,
    TopicPartition("jobs", 10): 7,
}
TASK: Final = committed_batches.LEDGER_PARTITIONS + 3
FILE: Final = ArchiveFile("orders", "2026-11-16", 3, 1_000, 70_000, 2)


def _samples() -> Iterator[Sample]:
    text = json.dumps(to_json(OFFSETS)).encode()
    yield Sample("offset of a stream", text, OFFSETS, partial(_loaded, from_json))
    ids = {"orders": "AAAAAAAAAAAAAAAAAAAAAQ", "jobs": "AAAAAAAAAAAAAAAAAAAAAg"}
    text = json.dumps(to_json(OFFSETS, ids)).encode()
    yield Sample("offset of a stream with topic ids", text, (OFFSETS, ids), _read_offset)
    for name, offset in (("full", _queue_offset()), ("minimal", QueueOffset())):
        text = json.dumps(offset.to_json()).encode()
        yield Sample(f"offset of a queue, {name}", text, offset, _read_queue_offset)
    group, where = committed_batches.group_and_partition("query", TASK)
    transactional_id = committed_batches.transactional_id_of("query", TASK)
    told = f"{committed_batches.TOPIC} {transactional_id} {group} {where}"
    yield Sample("line in the ledger", told.encode())
    group, where = committed_batches.group_and_partition("query", 1)
    yield Sample("line in the ledger of an early task", f"{group} {where}".encode())
    producers = {1: ProducerIdentity(70, 2), TASK: ProducerIdentity(71, 0)}
    texts = commit_intent.write_producers(producers)
    assert texts is not None
    yield Sample("decision", "\n".join(texts).encode(), (producers, True), _read_producers)
    yield Sample("group of decisions", commit_intent._group("query").encode())
    path = f"/archive/{FILE.folder}/{FILE.name}"
    read = FILE._replace(path=path)
    yield Sample("file of an archive", path.encode(), read, _parse)
    whole = FILE._replace(part=0)
    yield Sample("file of an archive, alone", f"{whole.folder}/{whole.name}".encode())
    names = (
        archive.MERGED,
        archive.MERGING,
        archive._WRITING,
        archive.CODEC,
    )
    yield Sample("names in archives", " ".join((*names, *archive.COLUMNS)).encode())
    yield from _pipelines()


def _queue_offset() -> QueueOffset:
    taken, unacknowledged = IntervalSet(), IntervalSet()
    taken.add(5, 9)
    taken.add(12, 12)
    unacknowledged.add(3, 3)
    return QueueOffset(
        3, {TopicPartition("jobs", 0): taken}, {TopicPartition("jobs", 1): unacknowledged}
    )


def _pipelines() -> Iterator[Sample]:
    numbers = (1, 2, 3, 4, 5, 6, 7, 8)
    texts = ("error", "source", "target", "group", "dlq")
    counts = {"positive": {"passed": 9, "failed": 10}}
    plain = ("pipeline", "stage", "run", "failed", *numbers, *texts)
    values: dict[str, Any] = dict(zip(_fields(), (*plain, counts), strict=True))
    state = StageState(**values)
    yield Sample("line of the board", f"{state.key} {json.dumps(state.document())}".encode())
    pipeline = Pipeline("orders")
    pipeline.extract("in", to="out", name="validate", version=2, schema="id bigint")(_rows)
    stage = pipeline.stages["validate"]
    told = (stage.id, stage.group, stage.dlq, path_of("/checkpoints", stage))
    yield Sample("names of a stage", " ".join(told).encode())
    with tempfile.TemporaryDirectory() as root:
        done = cdc.ApplyResult(3, events=4, rows=5)
        cdc._publish(LocalFileSystem(), root, done, "orders", {"0": 70_000, "1": 5})
        for path in sorted(Path(root).iterdir()):
            yield Sample(f"table: {path.name}", path.read_bytes())
    yield Sample("columns of a table's state", " ".join(cdc._INTERNAL).encode())
    yield Sample(
        "topics of pipelines", f"{status_topic.TOPIC} {status_topic.CONTROL_TOPIC}".encode()
    )


def _fields() -> list[str]:
    return [field.name for field in fields(StageState)]


def _rows(rows: Any) -> Any:
    return rows


def _read_offset(data: bytes) -> tuple[PartitionOffsets, dict[str, str]]:
    written = json.loads(data)
    return from_json(written), topic_ids_of(written)


def _loaded(read: Any, data: bytes) -> Any:
    return read(json.loads(data))


def _read_queue_offset(data: bytes) -> QueueOffset:
    return read_offset(json.loads(data), ["jobs"])


def _read_producers(data: bytes) -> Any:
    return commit_intent.read_producers(data.decode().split("\n"))


def _parse(data: bytes) -> ArchiveFile | None:
    return archive.parse(data.decode())


BOOK: Final = Book("spark", _samples)


@pytest.mark.parametrize("sample", BOOK.samples, ids=str)
def test_bytes_are_unchanged(sample: Sample) -> None:
    BOOK.check(sample)


def test_no_sample_is_lost() -> None:
    BOOK.check_names()
