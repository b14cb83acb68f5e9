"""`penstock.integrations.celery`: real Celery workers on a real broker."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.exceptions import Reject
from kombu import Connection

from penstock import SyncClient
from penstock.integrations.celery import GROUP, install
from tests.conftest import Broker
from tests.waiting import eventually

pytestmark = [
    pytest.mark.clients,
    # Celery's own.
    pytest.mark.filterwarnings("default::DeprecationWarning"),
    pytest.mark.filterwarnings("default::pytest.PytestUnhandledThreadExceptionWarning"),
]


class Shop:
    """Celery application whose tasks note what they were called with."""

    def __init__(self, broker: str, queue: str) -> None:
        install()
        self.queue = queue
        self.app = Celery(queue, broker=f"penstock://{broker}", set_as_current=False)
        self.app.conf.update(
            task_default_queue=queue,
            task_acks_late=True,
            worker_prefetch_multiplier=1,
            broker_connection_retry_on_startup=False,
        )
        self.calls: list[Any] = []
        self.lock = threading.Lock()
        shop = self

        def note(value: Any) -> None:
            shop.note(value)

        def fail_once(task: Any, value: Any) -> None:
            shop.note((value, task.request.retries))
            if task.request.retries == 0:
                raise task.retry(countdown=0.5)

        def refuse(value: Any) -> None:
            shop.note(value)
            raise Reject("no such postcode", requeue=False)

        task = self.app.task
        self.tasks = {
            "note": task(name=f"{queue}.note")(note),
            "fail_once": task(name=f"{queue}.fail_once", bind=True, max_retries=3)(fail_once),
            "refuse": task(name=f"{queue}.refuse")(refuse),
        }

    def note(self, value: Any) -> None:
        with self.lock:
            self.calls.append(value)

    @contextmanager
    def working(self) -> Iterator[None]:
        with start_worker(self.app, pool="solo", perform_ping_check=False, shutdown_timeout=60):
            yield

    def wait_for(self, count: int) -> list[Any]:
        return eventually(
            lambda: list(self.calls) if len(self.calls) >= count else None,
            f"{count} calls",
            explain=lambda: self.calls,
        )

    def depth(self, broker: str) -> int:
        with SyncClient(broker) as client:
            return client.queue_depth(self.queue, GROUP)


@pytest.fixture
def shop(broker: Broker, topic: str) -> Shop:
    return Shop(broker.bootstrap, topic)


def test_tasks_run_once_each_and_are_acknowledged(shop: Shop, broker: Broker) -> None:
    for number in range(20):
        shop.tasks["note"].delay(number)
    with shop.working():
        assert sorted(shop.wait_for(20)) == list(range(20))
        eventually(lambda: shop.depth(broker.bootstrap) == 0, "every task acknowledged")
    assert len(shop.calls) == 20


def test_delayed_task_waits_in_the_queue_and_others_overtake_it(shop: Shop) -> None:
    began = time.time()
    due: list[float] = []
    shop.tasks["note"].apply_async(("late",), countdown=3)
    shop.tasks["note"].delay("soon")
    with shop.working():
        assert shop.wait_for(1) == ["soon"]
        shop.wait_for(2)
        due.append(time.time())
    assert shop.calls == ["soon", "late"]
    assert due[0] - began >= 3


def test_higher_priority_runs_first(shop: Shop) -> None:
    for number, priority in enumerate((0, 0, 9, 5)):
        shop.tasks["note"].apply_async((number,), priority=priority)
    with shop.working():
        assert shop.wait_for(4)[:2] == [2, 3]


def test_retried_task_runs_again(shop: Shop) -> None:
    shop.tasks["fail_once"].delay("x")
    with shop.working():
        assert shop.wait_for(2) == [("x", 0), ("x", 1)]


def test_rejected_task_goes_to_the_dead_letter_queue(shop: Shop, broker: Broker) -> None:
    shop.tasks["refuse"].delay("bad")
    with shop.working():
        shop.wait_for(1)
        with SyncClient(broker.bootstrap) as client:
            dead = f"{shop.queue}.dlq"
            (message,) = eventually(lambda: client.poll(dead, "test", wait="1s"), "a dead letter")
            assert b"bad" in message.payload or b"refuse" in message.payload
            message.ack()
    assert shop.calls == ["bad"]


def test_task_of_a_worker_that_stops_is_given_to_another(shop: Shop, broker: Broker) -> None:
    install()
    shop.tasks["note"].delay("again")
    with Connection(f"penstock://{broker.bootstrap}") as connection:
        taken = connection.channel().basic_get(shop.queue)
        assert taken is not None
    with shop.working():
        assert shop.wait_for(1) == ["again"]


def test_simple_queue_counts_purges_and_deletes(broker: Broker, topic: str) -> None:
    install()
    with Connection(f"penstock://{broker.bootstrap}") as connection:
        queue = connection.SimpleQueue(topic)
        for number in range(3):
            queue.put({"number": number})
        assert queue.qsize() == 3
        message = queue.get(timeout=20)
        assert message.payload == {"number": 0}
        message.ack()
        assert queue.clear() == 2
        eventually(lambda: queue.qsize() == 0, "an empty queue")
        queue.close()
