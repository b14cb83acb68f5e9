"""The exactly-once protocol of the sink, step by step against a real broker, without Spark's JVM.

A batch of three tasks is five kinds of steps: each task writes, then the driver ends each
transaction. It is broken off after every one of them and run again, as Spark does after a crash.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.txn_steps import begin, end
from penstock.spark import sink
from penstock.spark.ledger import next_batch, place_of
from penstock.spark.link import close_links, link_to
from penstock.spark.settings import WriteSettings, write_settings
from penstock.spark.sink import Entry, Written
from tests.spark.topics import Topics

TASKS = 3
ROWS = 40


@pytest.fixture(autouse=True)
def _links_end() -> Iterator[None]:
    yield
    close_links()


class Job:
    """One query: batch b is the numbers from b * ROWS * TASKS on, task t has every third."""

    def __init__(self, topics: Topics, topic: str) -> None:
        options = {"brokers": topics.bootstrap, "topic": topic}
        self.settings: WriteSettings = write_settings(options, is_streaming=True)
        self.query_id = topic

    def rows(self, batch_id: int, task: int) -> Any:
        start = batch_id * ROWS * TASKS + task
        values = [str(n) for n in range(start, start + ROWS * TASKS, TASKS)]
        return pa.RecordBatch.from_pydict({"key": values, "value": values})

    def write(self, batch_id: int, task: int) -> Written:
        name = f"penstock-{self.query_id}-{task}"
        entry = Entry(self.query_id, task, batch_id)
        return sink._write(self.settings, iter([self.rows(batch_id, task)]), task, name, entry)

    def end(self, *messages: Written | None, committed: bool = True) -> None:
        sink._end_all(self.settings, messages, committed=committed)

    def run(self, batch_id: int, steps: int = 2 * TASKS) -> None:
        """The batch, or the first steps of it."""
        messages = [self.write(batch_id, task) for task in range(min(TASKS, steps))]
        for message in messages[: max(0, steps - TASKS)]:
            self.end(message)


@pytest.fixture
def job(topics: Topics, topic: str) -> Job:
    topics.create(topic, 2)
    return Job(topics, topic)


@pytest.mark.parametrize("steps", range(2 * TASKS + 1))
def test_a_batch_broken_off_after_any_step_is_there_once(
    job: Job, topics: Topics, topic: str, steps: int
) -> None:
    job.run(0)
    job.run(1, steps)
    job.run(1)
    job.run(2)
    assert topics.values(topic) == list(range(3 * ROWS * TASKS))


def test_a_batch_broken_off_again_and_again_is_there_once(
    job: Job, topics: Topics, topic: str
) -> None:
    for steps in (1, 4, 2, 5, 0, 3, 5, 6, 4, 6):
        job.run(0, steps)
    assert topics.values(topic) == list(range(ROWS * TASKS))


def test_a_second_attempt_fences_the_first_and_only_it_counts(
    job: Job, topics: Topics, topic: str
) -> None:
    first = job.write(0, 0)
    second = job.write(0, 0)
    others = [job.write(0, task) for task in (1, 2)]
    with pytest.raises(ConnectionAbortedError, match="start the query again"):
        job.end(first)
    job.end(second, *others)
    assert topics.values(topic) == list(range(ROWS * TASKS))


def test_a_zombie_writes_nothing_that_is_seen(job: Job, topics: Topics, topic: str) -> None:
    link = link_to(job.settings.access)
    zombie = link.run(begin(link.cluster, f"penstock-{topic}-0", 60_000))
    job.run(0)
    batches = iter([job.rows(9, 0)])
    with pytest.raises(Refused) as caught:
        sink._ship(link, job.settings, zombie.identity, zombie, next(batches), batches)
    assert caught.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    job.run(1)
    assert topics.values(topic) == list(range(2 * ROWS * TASKS))


def test_committing_twice_does_what_once_does(job: Job, topics: Topics, topic: str) -> None:
    messages = [job.write(0, task) for task in range(TASKS)]
    job.end(*messages)
    job.end(*messages)
    assert topics.values(topic) == list(range(ROWS * TASKS))


def test_an_aborted_batch_is_not_seen_and_can_be_run_again(
    job: Job, topics: Topics, topic: str
) -> None:
    messages: list[Written | None] = [job.write(0, task) for task in range(TASKS)]
    job.end(*messages, None, committed=False)
    assert topics.values(topic) == []
    job.run(0)
    assert topics.values(topic) == list(range(ROWS * TASKS))


def test_the_ledger_says_which_batch_is_next(job: Job, topics: Topics, topic: str) -> None:
    link = link_to(job.settings.access)
    job.run(0)
    job.run(1, TASKS + 1)
    found = [link.run(next_batch(link.cluster, topic, task)) for task in range(1)]
    assert found == [2]
    # The rest of batch 1 is open; ending it here lets the next test's reader pass.
    job.run(1)
    assert [link.run(next_batch(link.cluster, topic, task)) for task in range(TASKS)] == [2] * TASKS


def test_many_tasks_share_few_groups() -> None:
    places = [place_of("q", task) for task in range(100)]
    assert len(set(places)) == 100
    assert len({group for group, _ in places}) == 7
    assert places[0][0] == "penstock-spark-q"


def test_a_task_without_rows_begins_nothing(job: Job) -> None:
    entry = Entry(job.query_id, 0, 0)
    written = sink._write(job.settings, iter([]), 0, "penstock-never", entry)
    assert written == Written(0, 0)


def test_a_task_that_fails_aborts_what_it_wrote(job: Job, topics: Topics, topic: str) -> None:
    def rows() -> Iterator[Any]:
        yield pa.concat_batches([job.rows(0, 0)] * 2_000)
        raise RuntimeError("the user's code")

    with pytest.raises(RuntimeError, match="the user's code"):
        sink._write(job.settings, rows(), 0, f"penstock-{topic}-0", Entry(topic, 0, 0))
    # Not only unseen: the transaction is over, so readers of committed records do not wait.
    job.run(0)
    assert topics.values(topic) == list(range(ROWS * TASKS))


def test_a_transaction_that_ended_elsewhere_cannot_be_committed(job: Job, topic: str) -> None:
    message = job.write(0, 0)
    assert message.txn is not None
    link = link_to(job.settings.access)
    link.run(end(link.cluster, message.txn, committed=False))
    with pytest.raises(ConnectionAbortedError):
        job.end(message)
