"""Exactly-once protocol of the sink, step by step against a real broker, without Spark's JVM.

A batch of three tasks has seven steps: each task writes, the driver stores the commit intent, then
it ends each transaction. The tests interrupt the batch after every step and run it again, as Spark
does after a crash, with the same rows in every task or with other ones.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.base.errors import ErrorCode, Refused
from penstock.client.producer.identity import ProducerIdentity
from penstock.client.producer.transaction import OpenTransaction, begin, end
from penstock.spark.connection import blocking_client, close_clients
from penstock.spark.settings import WriteSettings, read_settings, write_settings
from penstock.spark.sink import sink
from penstock.spark.sink.commit import TaskResult, abort_all, commit_all
from penstock.spark.sink.commit_intent import (
    CommitIntent,
    has_commit_intent,
    read_commit_intent,
    store_commit_intent,
    withdraw_commit_intent,
)
from penstock.spark.sink.committed_batches import (
    CommittedBatch,
    ensure_ledger,
    group_and_partition,
    next_uncommitted_batch,
)
from penstock.spark.source.stream import StreamReader
from tests.conftest import FreshBroker
from tests.spark.topics import Topics, topics_of

TASKS = 3
ROWS = 40
STEPS = 2 * TASKS + 1


@pytest.fixture(autouse=True)
def _close_clients() -> Iterator[None]:
    yield
    close_clients()


class Job:
    """Query whose batch b has the numbers from b * ROWS * TASKS on; task t has every third."""

    def __init__(self, topics: Topics, topic: str) -> None:
        options = {"brokers": topics.bootstrap, "topic": topic}
        self.settings: WriteSettings = write_settings(options, is_streaming=True)
        self.query_id = topic

    def rows(self, batch_id: int, task: int) -> Any:
        start = batch_id * ROWS * TASKS + task
        values = [str(n) for n in range(start, start + ROWS * TASKS, TASKS)]
        return pa.RecordBatch.from_pydict({"key": values, "value": values})

    def write(self, batch_id: int, task: int, rows: Any = None) -> TaskResult:
        name = f"penstock-{self.query_id}-{task}"
        entry = CommittedBatch(self.query_id, task, batch_id)
        batches = iter([self.rows(batch_id, task) if rows is None else rows])
        return sink._write(self.settings, batches, task, name, entry)

    def write_all(self, batch_id: int, shift: int = 0) -> list[TaskResult]:
        """Writes all tasks; with a shift, each has the rows of another task."""
        return [
            self.write(batch_id, task, self.rows(batch_id, (task + shift) % TASKS))
            for task in range(TASKS)
        ]

    def end(self, *messages: TaskResult | None, committed: bool = True) -> None:
        (commit_all if committed else abort_all)(self.settings.access, messages)

    def run(self, batch_id: int, shift: int = 0) -> None:
        self.end(*self.write_all(batch_id, shift))

    def begin(self, batch_id: int, steps: int) -> None:
        """Runs the first steps of a batch; then the driver dies."""
        client = blocking_client(self.settings.access)
        found = [self.write(batch_id, task) for task in range(min(TASKS, steps))]
        txns = {one.task: one.txn for one in found if one.txn is not None}
        if steps > TASKS and txns:
            client.run(store_commit_intent(client.cluster, self.query_id, batch_id, txns))
        for txn in list(txns.values())[: max(0, steps - TASKS - 1)]:
            client.run(end(client.cluster, txn, committed=True))


@pytest.fixture
def job(topics: Topics, topic: str) -> Job:
    topics.create(topic, 2)
    return Job(topics, topic)


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("steps", range(STEPS + 1))
def test_batch_interrupted_after_any_step_is_written_once(
    job: Job, topics: Topics, topic: str, steps: int, shift: int
) -> None:
    job.run(0)
    job.begin(1, steps)
    job.run(1, shift)
    job.run(2)
    assert topics.values(topic) == list(range(3 * ROWS * TASKS))


def test_batch_interrupted_repeatedly_is_written_once(job: Job, topics: Topics, topic: str) -> None:
    for steps in (1, 2, 0, 3, 1, 5, 2, 4, 0):
        job.begin(0, steps)
    job.run(0, shift=2)
    assert topics.values(topic) == list(range(ROWS * TASKS))


@pytest.mark.parametrize("steps", range(TASKS + 1, STEPS + 1))
def test_intended_batch_is_committed_even_if_its_rerun_is_empty(
    job: Job, topics: Topics, topic: str, steps: int
) -> None:
    job.begin(0, steps)
    job.end(*(TaskResult(task, 0, entry=CommittedBatch(topic, task, 0)) for task in range(TASKS)))
    assert topics.values(topic) == list(range(ROWS * TASKS))


@pytest.mark.parametrize("steps", range(TASKS + 1, STEPS + 1))
def test_intended_batch_is_committed_even_if_spark_aborts_it(
    job: Job, topics: Topics, topic: str, steps: int
) -> None:
    """Spark aborts a batch when a query is stopped in the middle of a commit."""
    messages = job.write_all(0)
    client = blocking_client(job.settings.access)
    txns = {one.task: one.txn for one in messages if one.txn is not None}
    client.run(store_commit_intent(client.cluster, topic, 0, txns))
    for txn in list(txns.values())[: steps - TASKS - 1]:
        client.run(end(client.cluster, txn, committed=True))
    job.end(*messages, committed=False)
    assert topics.values(topic) == list(range(ROWS * TASKS))
    job.run(0, shift=1)
    job.run(1)
    assert topics.values(topic) == list(range(2 * ROWS * TASKS))


def test_uncommittable_intent_is_withdrawn_and_the_ledger_applies(
    job: Job, topics: Topics, topic: str
) -> None:
    """The driver restarts too late: one transaction is committed, the others have timed out."""
    client = blocking_client(job.settings.access)
    messages = job.write_all(0)
    txns = [one.txn for one in messages if one.txn is not None]
    client.run(store_commit_intent(client.cluster, topic, 0, dict(enumerate(txns))))
    client.run(end(client.cluster, txns[0], committed=True))
    for txn in txns[1:]:
        client.run(end(client.cluster, txn, committed=False))
    again = job.write_all(0)
    assert [one.has_commit_intent for one in again] == [True] * TASKS
    with pytest.raises(ConnectionAbortedError):
        job.end(*again)
    assert not client.run(has_commit_intent(client.cluster, topic, 0))
    last = job.write_all(0)
    assert [one.txn is None for one in last] == [True, False, False]
    job.end(*last)
    assert topics.values(topic) == list(range(ROWS * TASKS))


def test_batch_fenced_after_its_commit_counts_as_committed(
    job: Job, topics: Topics, topic: str
) -> None:
    """A straggler of the batch begins between the commit and Spark's commit log entry."""
    client = blocking_client(job.settings.access)
    job.begin(0, STEPS - 1)
    client.run(begin(client.cluster, f"penstock-{topic}-0", 60_000))
    job.run(0)
    assert topics.values(topic) == list(range(ROWS * TASKS))


def test_concurrently_withdrawn_intent_fails_the_batch(
    job: Job, topics: Topics, topic: str
) -> None:
    client = blocking_client(job.settings.access)
    job.begin(0, TASKS + 1)
    messages = job.write_all(0)
    client.run(withdraw_commit_intent(client.cluster, topic, 0))
    with pytest.raises(ConnectionAbortedError, match="batch 0"):
        job.end(*messages)
    job.run(0)
    assert topics.values(topic) == list(range(ROWS * TASKS))


def test_batch_of_an_outdated_driver_is_dropped(job: Job, topics: Topics, topic: str) -> None:
    late = job.write(0, 0)
    job.run(0)
    job.run(1)
    job.end(late, TaskResult(1, 0, entry=CommittedBatch(topic, 1, 0), has_commit_intent=True))
    assert topics.values(topic) == list(range(2 * ROWS * TASKS))


def test_stored_intent_is_read_back(job: Job, topic: str) -> None:
    client = blocking_client(job.settings.access)
    assert client.run(read_commit_intent(client.cluster, topic)) is None
    messages = job.write_all(4)
    job.end(*messages)
    found = client.run(read_commit_intent(client.cluster, topic))
    assert found is not None
    assert (found.batch_id, found.is_whole) == (4, True)
    assert found.txns == {one.task: one.txn for one in messages}


def test_large_intent_spans_several_ledger_partitions(job: Job, topic: str) -> None:
    client = blocking_client(job.settings.access)
    txns = {
        task: OpenTransaction(f"penstock-{topic}-{task}", ProducerIdentity(10**15 + task, 7))
        for task in range(1_000)
    }
    client.run(ensure_ledger(client.cluster))
    client.run(store_commit_intent(client.cluster, topic, 3, txns))
    found = client.run(read_commit_intent(client.cluster, topic))
    assert found == CommitIntent(3, txns)
    # A smaller intent replaces it completely.
    few = {task: txns[task] for task in range(2)}
    client.run(store_commit_intent(client.cluster, topic, 4, few))
    assert client.run(read_commit_intent(client.cluster, topic)) == CommitIntent(4, few)


def test_ledger_suffices_if_the_broker_stores_no_metadata(
    fresh_broker: FreshBroker, topic: str
) -> None:
    broker = fresh_broker(sets={"offset.metadata.max.bytes": 4})
    with topics_of(broker.bootstrap) as topics:
        topics.create(topic, 2)
        job = Job(topics, topic)
        for batch_id in range(2):
            job.begin(batch_id, TASKS + 2)
            messages = job.write_all(batch_id)
            assert [one.txn is None for one in messages] == [True, False, False]
            job.end(*messages)
        assert topics.values(topic) == list(range(2 * ROWS * TASKS))


def test_second_attempt_fences_the_first(job: Job, topics: Topics, topic: str) -> None:
    first = job.write(0, 0)
    second = job.write(0, 0)
    others = [job.write(0, task) for task in (1, 2)]
    with pytest.raises(ConnectionAbortedError):
        job.end(first)
    job.end(second, *others)
    assert topics.values(topic) == list(range(ROWS * TASKS))


def test_records_of_a_zombie_task_stay_invisible(job: Job, topics: Topics, topic: str) -> None:
    client = blocking_client(job.settings.access)
    zombie = client.run(begin(client.cluster, f"penstock-{topic}-0", 60_000))
    job.run(0)
    batches = iter([job.rows(9, 0)])
    with pytest.raises(Refused) as caught:
        sink._send_batches(client, job.settings, zombie.identity, zombie, next(batches), batches)
    assert caught.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    job.run(1)
    assert topics.values(topic) == list(range(2 * ROWS * TASKS))


def test_commit_is_idempotent(job: Job, topics: Topics, topic: str) -> None:
    messages = [job.write(0, task) for task in range(TASKS)]
    job.end(*messages)
    job.end(*messages)
    assert topics.values(topic) == list(range(ROWS * TASKS))


def test_aborted_batch_is_invisible_and_repeatable(job: Job, topics: Topics, topic: str) -> None:
    messages: list[TaskResult | None] = [job.write(0, task) for task in range(TASKS)]
    job.end(*messages, None, committed=False)
    assert topics.values(topic) == []
    job.run(0)
    assert topics.values(topic) == list(range(ROWS * TASKS))


def test_ledger_returns_the_next_uncommitted_batch(job: Job, topics: Topics, topic: str) -> None:
    client = blocking_client(job.settings.access)
    job.run(0)
    job.begin(1, TASKS + 2)
    found = [client.run(next_uncommitted_batch(client.cluster, topic, task)) for task in range(1)]
    assert found == [2]
    # The rest of batch 1 is open; ending it unblocks the reader of the next test.
    job.run(1)
    assert [
        client.run(next_uncommitted_batch(client.cluster, topic, task)) for task in range(TASKS)
    ] == [2] * TASKS


def test_tasks_share_few_ledger_groups() -> None:
    places = [group_and_partition("q", task) for task in range(100)]
    assert len(set(places)) == 100
    assert len({group for group, _ in places}) == 7
    assert places[0][0] == "penstock-spark-q"


def test_task_without_rows_begins_no_transaction(job: Job) -> None:
    entry = CommittedBatch(job.query_id, 0, 0)
    written = sink._write(job.settings, iter([]), 0, "penstock-never", entry)
    assert written == TaskResult(0, 0, entry=entry)


def test_failing_task_aborts_its_transaction(job: Job, topics: Topics, topic: str) -> None:
    def rows() -> Iterator[Any]:
        yield pa.concat_batches([job.rows(0, 0)] * 2_000)
        raise RuntimeError("the user's code")

    with pytest.raises(RuntimeError, match="the user's code"):
        sink._write(job.settings, rows(), 0, f"penstock-{topic}-0", CommittedBatch(topic, 0, 0))
    # The transaction is aborted, so read_committed consumers do not wait for it.
    job.run(0)
    assert topics.values(topic) == list(range(ROWS * TASKS))


def test_aborted_transaction_cannot_be_committed(job: Job, topic: str) -> None:
    message = job.write(0, 0)
    assert message.txn is not None
    client = blocking_client(job.settings.access)
    client.run(end(client.cluster, message.txn, committed=False))
    with pytest.raises(ConnectionAbortedError):
        job.end(message)


def test_source_reads_committed_records_by_default(job: Job, topics: Topics, topic: str) -> None:
    def read(**options: str) -> list[int]:
        given = {"brokers": topics.bootstrap, "subscribe": topic, "columns": "value", **options}
        settings = read_settings({**given, "startingOffsets": "earliest"}, is_streaming=True)
        schema = StructType([StructField("value", BinaryType())])
        source = StreamReader(settings, schema)
        start = source.initialOffset()
        parts = source.partitions(start, source.latestOffset(start, ReadAllAvailable()))
        batches = [batch for part in parts for batch in source.read(part)]
        return sorted(int(row["value"]) for batch in batches for row in batch.to_pylist())

    messages = job.write_all(0)
    assert read() == []
    assert read(**{"isolation.level": "read_uncommitted"}) == list(range(ROWS * TASKS))
    job.end(*messages, committed=False)
    job.run(1)
    assert topics.values(topic) == read() == list(range(ROWS * TASKS, 2 * ROWS * TASKS))
