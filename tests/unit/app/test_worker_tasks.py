"""Tasks that are published, called, chained and wrapped: against a node in a simulated world."""

import asyncio
from typing import Any

import msgspec
import pydantic
import pytest

from penstock.app.message import Message
from penstock.app.replies import TaskFailed
from penstock.app.task import Reject
from penstock.app.task_runner import CallNext
from penstock.app.worker import Worker
from penstock.base.errors import Refused
from penstock.testing import Broker
from tests.run_with import run_with
from tests.unit.app.simulated import Sim, on_broker
from tests.unit.app.test_worker import new_worker, serve


class Order(pydantic.BaseModel):
    id: int


class Price(msgspec.Struct):
    cents: int


@run_with(on_broker)
async def test_task_publishes_its_own_messages(sim: Sim) -> None:
    seen: list[tuple[int, float]] = []
    worker = new_worker(sim)

    @worker.task("orders")
    async def bill(order: Order) -> None:
        seen.append((order.id, sim.loop.time()))

    with pytest.raises(Refused, match="async with worker"):
        await bill.publish(Order(id=1))
    begin = sim.loop.time()
    async with worker:
        published = await bill.publish(Order(id=1))
        assert published.topic == "orders"
        await bill.publish(Order(id=2), delay="10s")
    await serve(worker, 20)
    assert [number for number, _ in seen] == [1, 2]
    assert seen[1][1] - begin >= 10


@run_with(on_broker)
async def test_call_returns_the_result_as_the_annotated_type(sim: Sim) -> None:
    server, caller = new_worker(sim), new_worker(sim)
    attempts: list[int] = []

    def declare(worker: Worker) -> tuple[Any, Any]:
        @worker.task("quotes", retries=1, backoff=0.1)
        async def quote(order: Order, message: Message) -> Price:
            attempts.append(message.attempt)
            if order.id == 0:
                raise Reject("no such order")
            if message.attempt == 1:
                raise ValueError("again")
            return Price(order.id * 100)

        @worker.task("pings")
        def ping(message: Message) -> None: ...

        return quote, ping

    declare(server)
    quote, ping = declare(caller)
    serving = asyncio.ensure_future(server.serve())
    async with caller:
        assert await ping.call(None, timeout=60) is None
        prices = await asyncio.gather(*(quote.call(Order(id=one)) for one in (1, 2, 3)))
        assert prices == [Price(100), Price(200), Price(300)]
        with pytest.raises(TaskFailed, match="Reject: no such order") as failed:
            await quote.call(Order(id=0))
        assert failed.value.error_class == "Reject"
        server.stop()
        await serving
        with pytest.raises(TimeoutError):
            await quote.call(Order(id=5), timeout="5s")
    assert sorted(attempts) == [1, 1, 1, 1, 2, 2, 2]


@run_with(on_broker)
async def test_results_are_passed_on_to_the_next_task(sim: Sim) -> None:
    shipped: list[tuple[int, bytes | None]] = []
    worker = new_worker(sim)

    @worker.task("parcels")
    async def ship(order: Order, message: Message) -> None:
        shipped.append((order.id, message.key))

    @worker.task("orders", then=ship, retries=2, backoff=0.1)
    async def bill(order: Order, message: Message) -> Order | None:
        if message.attempt == 1:
            raise ValueError("again")
        return Order(id=order.id + 10) if order.id != 3 else None

    @worker.task("raw", then="orders")
    def parse(message: Message) -> dict[str, int]:
        return {"id": int(message.text)}

    async with worker:
        for number in (1, 2, 3):
            await parse.publish(str(number), key=f"k{number}")
    await serve(worker, 20)
    assert sorted(shipped) == [(11, b"k1"), (12, b"k2")]


@run_with(on_broker)
async def test_middleware_wraps_handlers_in_the_order_of_declaration(sim: Sim) -> None:
    steps: list[str] = []
    worker = new_worker(sim)

    @worker.middleware
    async def outer(message: Message, call_next: CallNext) -> Any:
        steps.append(f"outer {message.topic}")
        try:
            return await call_next(message)
        finally:
            steps.append("left")

    @worker.middleware
    async def inner(message: Message, call_next: CallNext) -> Any:
        steps.append("inner")
        return 2 * await call_next(message)

    @worker.task("numbers", then="doubled")
    def same(number: int) -> int:
        return number

    async with sim.client() as client:
        await client.publish("numbers", 21)
        await serve(worker, 10)
        (found,) = await client.poll("doubled", "look", wait=5)
        assert found.text == "42"
    assert steps == ["outer numbers", "inner", "left"]


def test_delay_publishes_without_asyncio(penstock: Broker) -> None:
    worker = Worker(group="workers")

    @worker.task("orders", then="done")
    def bill(order: Order) -> int:
        if order.id < 3:
            bill.delay(Order(id=order.id + 1), headers={"by": "handler"})
        return order.id

    assert bill.delay(Order(id=1), key="ann").topic == "orders"
    with penstock.run_worker(worker):
        penstock.wait_for(lambda: len(penstock.messages("done")) == 3)
    # A result follows the message that its handler published, which another slot handles at once.
    assert {one.value for one in penstock.messages("done")} == {b"1", b"2", b"3"}

    async def block() -> None:
        bill.delay(Order(id=1))

    with pytest.raises(RuntimeError, match="would block the event loop"):
        asyncio.run(block())
