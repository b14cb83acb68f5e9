"""Workers, against a real node in a simulated world: retries, dead letters, order, stopping."""

import asyncio
import gc
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from penstock.app.message import Message
from penstock.app.task import Reject, Retry, RetryBackoff
from penstock.app.worker import Worker
from penstock.base.errors import Refused
from simulation.workers import SimWorkers
from tests.run_with import run_with
from tests.unit.app.simulated import Sim, on_broker, take


def new_worker(sim: Sim, group: str = "workers", **options: Any) -> Worker:
    return Worker(sim.brokers, group=group, threads=SimWorkers(1), **{**sim.options(), **options})


@contextmanager
def recorded(name: str) -> Iterator[list[logging.LogRecord]]:
    """Records that a logger receives meanwhile."""
    found: list[logging.LogRecord] = []

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record)

    handler = Recorder()
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


async def serve(worker: Worker, seconds: float) -> None:
    """Runs the worker for `seconds`, then stops it."""
    serving = asyncio.ensure_future(worker.serve())
    await asyncio.sleep(seconds)
    worker.stop()
    await serving


@run_with(on_broker)
async def test_plain_and_async_handlers_acknowledge_on_return(sim: Sim) -> None:
    seen: list[bytes] = []
    worker = new_worker(sim)

    @worker.task("one")
    def plain(message: Message) -> None:
        seen.append(message.payload)

    @worker.task("two")
    async def async_(message: Message) -> None:
        seen.append(message.payload)
        await worker.client.publish("three", message.payload)

    async with sim.client() as client:
        await client.create_topic("one", 1)
        await client.publish("one", b"1")
        await client.publish("two", b"2")
        await serve(worker, 10)
        assert sorted(seen) == [b"1", b"2"]
        for topic in ("one", "two"):
            assert await client.poll(topic, "workers", wait=5) == []
        assert len(await client.poll("three", "others", wait=5)) == 1


@run_with(on_broker)
async def test_failed_messages_are_retried_then_dead_lettered(sim: Sim) -> None:
    tries: list[tuple[str, float]] = []
    worker = new_worker(sim)

    @worker.task("jobs", retries=3, backoff=RetryBackoff(2.0), no_retry=[KeyError])
    async def handle(message: Message) -> None:
        tries.append((message.text, sim.loop.time()))
        match message.text:
            case "fatal":
                raise KeyError("gone")
            case "rejected":
                raise Reject("never")
            case "later":
                if message.attempt == 1:
                    raise Retry(delay="20s")
            case "bad":
                raise ValueError("bad")

    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        await client.publish_many("jobs", ["fatal", "rejected", "later", "bad", "good"])
        await serve(worker, 60)
        dead_letters = await take(client, "jobs.dlq", "look", 3)
        told = {
            one.text: (
                one.header("penstock-dlq-error-class"),
                one.header("penstock-dlq-error-message"),
                one.header("penstock-dlq-attempts"),
            )
            for one in dead_letters
        }
    assert told == {
        "fatal": ("KeyError", "'gone'", "1"),
        "rejected": ("Reject", "never", "1"),
        "bad": ("ValueError", "bad", "4"),
    }
    times = [at for text, at in tries if text == "bad"]
    pauses = [later - before for before, later in pairwise(times)]
    for pause, least in zip(pauses, (2, 4, 8), strict=True):
        assert least <= pause < least + 3
    first, second = (at for text, at in tries if text == "later")
    assert 20 <= second - first < 21
    assert [text for text, _ in tries].count("good") == 1


class Order(msgspec.Struct):
    id: int


@run_with(on_broker)
async def test_invalid_payloads_are_dead_lettered_at_once(sim: Sim) -> None:
    handled: list[tuple[int, int]] = []
    worker = new_worker(sim)

    @worker.task("orders", retries=3, backoff=0.1)
    async def bill(order: Order, message: Message) -> None:
        handled.append((order.id, message.attempt))

    @worker.task("parcels", retries=3, backoff=0.1)
    def ship(order: Order) -> None:
        handled.append((order.id, 0))

    async with sim.client() as client:
        await client.publish_many("orders", [{"id": 1}, {"id": "x"}])
        await client.publish_many("parcels", [{"id": 2}, b"no JSON"])
        await serve(worker, 20)
        for topic in ("orders", "parcels"):
            (letter,) = await take(client, f"{topic}.dlq", "look", 1)
            assert letter.header("penstock-dlq-error-class") == "InvalidPayload"
            assert letter.header("penstock-dlq-attempts") == "1"
    assert sorted(handled) == [(1, 1), (2, 0)]


@run_with(on_broker)
async def test_failures_leave_their_traceback_in_the_log_and_the_dead_letter(sim: Sim) -> None:
    prices: dict[str, int] = {}
    worker = new_worker(sim)

    @worker.task("jobs", retries=1, backoff=0.1)
    async def handle(message: Message) -> None:
        prices[message.text]  # A line to find.

    async with sim.client() as client:
        await client.publish("jobs", "missing")
        with recorded("penstock.worker") as records:
            await serve(worker, 20)
        (letter,) = await take(client, "jobs.dlq", "look", 1)
    logged = [one for one in records if one.levelno >= logging.WARNING]
    assert [one.exc_info[0] for one in logged if one.exc_info] == [KeyError, KeyError]
    lines = letter.header("penstock-dlq-error-traceback").splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith(f'  File "{__file__}", line ')
    assert lines[2] == "    prices[message.text]  # A line to find."
    assert lines[-1] == "KeyError: 'missing'"


@run_with(on_broker)
async def test_key_order_holds_across_failures_and_workers(sim: Sim) -> None:
    keys, each = 20, 8
    rng = random.Random(3)
    done: dict[str, int] = {}
    wrong: list[str] = []
    failures = 0

    def make() -> Worker:
        worker = new_worker(sim)

        @worker.task("jobs", order="key", concurrency=8, retries=15, backoff=RetryBackoff(0.2, 0.5))
        async def handle(message: Message) -> None:
            nonlocal failures
            assert message.key is not None
            key, number = message.key.decode(), message.json()
            if done.get(key, 0) != number:
                wrong.append(f"{key}: {number} after {done.get(key, 0)}")
            await asyncio.sleep(rng.uniform(0, 0.05))
            if rng.random() < 0.1:
                failures += 1
                raise ValueError("again")
            done[key] = number + 1

        return worker

    async with sim.client() as client:
        await client.create_topic("jobs", 2, order="key")
        for number in range(each):
            for key in range(keys):
                await client.publish("jobs", number, key=f"k{key}")
        workers = [make() for _ in range(3)]
        await asyncio.gather(*(serve(worker, 60) for worker in workers))
    assert wrong == []
    assert failures > 5
    assert done == {f"k{key}": each for key in range(keys)}


@run_with(on_broker)
async def test_concurrency_is_bounded(sim: Sim) -> None:
    running = most = handled = 0
    worker = new_worker(sim)

    @worker.task("jobs", concurrency=5)
    async def handle(message: Message) -> None:
        nonlocal running, most, handled
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1
        handled += 1

    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        await client.publish_many("jobs", range(20))
        await serve(worker, 10)
    assert most == 5
    assert handled == 20


@run_with(on_broker)
async def test_stop_lets_handlers_finish_and_releases_the_rest(sim: Sim) -> None:
    finished: list[str] = []
    worker = new_worker(sim, grace=10)

    @worker.task("jobs", concurrency=2, prefetch=5)
    async def handle(message: Message) -> None:
        await asyncio.sleep(5 if message.text == "short" else 500)
        finished.append(message.text)

    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        await client.publish_many("jobs", ["short", "long", "next"])
        before = sim.loop.time()
        await serve(worker, 2)
        assert 10 <= sim.loop.time() - before < 20
        assert finished == ["short"]
        before = sim.loop.time()
        found = await take(client, "jobs", "workers", 2)
        assert sim.loop.time() - before < 2
        assert {one.text: one.attempt for one in found} == {"long": 2, "next": 1}


@run_with(on_broker)
async def test_second_stop_ends_the_grace_period(sim: Sim) -> None:
    worker = new_worker(sim, grace=100)

    @worker.task("jobs")
    async def handle(message: Message) -> None:
        await asyncio.sleep(500)

    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        await client.publish("jobs", b"x")
        serving = asyncio.ensure_future(worker.serve())
        await asyncio.sleep(5)
        worker.stop()
        await asyncio.sleep(1)
        assert not serving.done()
        complaints: list[dict[str, Any]] = []
        sim.loop.set_exception_handler(lambda _, told: complaints.append(told))
        worker.stop()
        await asyncio.wait_for(serving, 15)
        await asyncio.sleep(0)
        gc.collect()
        assert complaints == []


@run_with(on_broker)
async def test_handler_timeout_is_a_failure(sim: Sim) -> None:
    attempts: list[int] = []
    worker = new_worker(sim)

    @worker.task("jobs", timeout="2s", retries=2, backoff=1.0)
    async def handle(message: Message) -> None:
        attempts.append(message.attempt)
        await asyncio.sleep(100)

    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        await client.publish("jobs", b"x")
        await serve(worker, 40)
        (dead,) = await take(client, "jobs.dlq", "look", 1)
        assert dead.header("penstock-dlq-error-class") == "TimeoutError"
    assert attempts == [1, 2, 3]


@run_with(on_broker)
async def test_worker_survives_broker_outage(sim: Sim) -> None:
    seen: list[str] = []
    worker = new_worker(sim)

    @worker.task("jobs")
    async def handle(message: Message) -> None:
        seen.append(message.text)

    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        serving = asyncio.ensure_future(worker.serve())
        await asyncio.sleep(5)
        with recorded("penstock.worker") as records:
            await sim.cluster.hosts[1].stop()
            await asyncio.sleep(2)
            assert "is unreachable, retrying" in records[-1].getMessage()
            await asyncio.sleep(50)
            assert len(records) == 1
            await asyncio.sleep(48)
            await sim.cluster.hosts[1].start()
            await asyncio.sleep(5)
            assert "is reachable again, after 10" in records[-1].getMessage()
        await client.publish("jobs", "after")
        await asyncio.sleep(20)
        assert seen == ["after"]
        worker.stop()
        await serving


@run_with(on_broker, nodes=3)
async def test_worker_does_not_call_the_cluster_unreachable_for_one_broker(sim: Sim) -> None:
    worker = new_worker(sim)

    @worker.task("jobs")
    async def handle(message: Message) -> None: ...

    async with sim.client() as client:
        await client.create_topic("jobs", 6, rf=3)
        serving = asyncio.ensure_future(worker.serve())
        await asyncio.sleep(5)
        with recorded("penstock.worker") as records:
            await sim.cluster.hosts[2].stop()
            await asyncio.sleep(30)
        assert not any("unreachable" in one.getMessage() for one in records)
        worker.stop()
        await serving


@run_with(on_broker)
async def test_invalid_worker_config_is_rejected(sim: Sim) -> None:
    with pytest.raises(ValueError, match="no tasks"):
        await new_worker(sim).serve()
    worker = new_worker(sim)
    with pytest.raises(Refused, match="not running"):
        assert worker.client

    @worker.task("jobs", retries=50)
    async def handle(message: Message) -> None: ...

    with pytest.raises(Refused, match="retries=50"):
        await worker.serve()
