"""State of long jobs: saved under a lease, given back at the next delivery, deleted at the end."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import InvalidPayload, Refused, Worker
from penstock.app.checkpoints import SUFFIX
from penstock.app.message import Message
from penstock.testing import Broker, build_message
from simulation.workers import SimWorkers
from tests.run_with import run_with
from tests.unit.app.simulated import Sim, on_broker, take


@dataclass
class Progress:
    page: int


@run_with(on_broker)
async def test_later_delivery_gets_the_state_saved_last(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("films", 1)
        await client.publish_many("films", [b"one", b"two"])
        one, two = await take(client, "films", "workers", 2)
        assert await one.saved() is None
        for page in range(3):
            await one.save(Progress(page))
        await two.save({"other": True})
        await one.nack(delay=0)
        (again,) = await take(client, "films", "workers", 1)
        assert (again.offset, again.attempt) == (one.offset, 2)
        assert await again.saved(Progress) == Progress(2)
        assert await again.saved() == {"page": 2}
        assert await again.saved(bytes) == b'{"page":2}'
        with pytest.raises(InvalidPayload):
            await again.saved(list[int])
        # Another group has a state of its own.
        (elsewhere, _) = await take(client, "films", "others", 2)
        await elsewhere.nack(delay=0)
        (elsewhere,) = await take(client, "films", "others", 1)
        assert await elsewhere.saved() is None


@run_with(on_broker)
async def test_message_without_state_has_none_and_creates_no_topic(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("films", 1)
        await client.publish("films", b"one")
        (message,) = await take(client, "films", "workers", 1)
        await message.nack(delay=0)
        (again,) = await take(client, "films", "workers", 1)
        assert await again.saved() is None
        assert "films" + SUFFIX not in [one.name for one in await client.admin.list_topics()]


@run_with(on_broker)
async def test_state_is_deleted_when_the_message_is_done(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("films", 1)
        await client.publish_many("films", [b"one", b"two"])
        one, two = await take(client, "films", "workers", 2)
        await one.save(1)
        await two.save(2)
        await one.ack()
        await two.nack(delay=0)
        (two,) = await take(client, "films", "workers", 1)
        assert await two.saved() == 2
        await two.reject("broken")
        await asyncio.sleep(1)
        async with client.consume("films" + SUFFIX) as reader:
            records = [await anext(reader) for _ in range(4)]
        assert [record.value for record in records] == [b"1", b"2", None, None]
        (topic,) = await client.admin.describe_topics(["films" + SUFFIX])
        assert len(topic.partitions) == 1


@run_with(on_broker)
async def test_consumer_without_the_lease_cannot_save(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("films", 1)
        await client.publish("films", b"one")
        (message,) = await take(client, "films", "workers", 1)
        await message.save(1)
        await message.ack()
        with pytest.raises(Refused):
            await message.save(2)


@run_with(on_broker)
async def test_consumer_whose_lease_expired_cannot_save(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("films", 1)
        await client.publish("films", b"one")
        async with client.queue("films", group="workers", renew_for=1) as slow:
            late = await anext(slow)
            await asyncio.sleep(10)
            async with sim.client() as other:
                (taken,) = await take(other, "films", "workers", 1)
                await taken.save("mine")
                with pytest.raises(Refused):
                    await late.save("late")
                await taken.nack(delay=0)
                (again,) = await take(other, "films", "workers", 1)
                assert await again.saved() == "mine"


def test_state_is_never_none() -> None:
    with pytest.raises(TypeError, match="None"):
        asyncio.run(build_message().save(None))


@run_with(on_broker)
async def test_job_goes_on_where_a_stopped_worker_saved(sim: Sim) -> None:
    done: list[int] = []

    def new_worker(fails_at: int | None) -> Worker:
        worker = Worker(sim.brokers, group="w", threads=SimWorkers(1), **sim.options())

        @worker.task("films", retries=3, backoff=0.1)
        async def convert(message: Message) -> None:
            for page in range(await message.saved(int) or 0, 6):
                if page == fails_at:
                    worker.stop()
                    raise RuntimeError("stopped")
                done.append(page)
                await message.save(page + 1)

        return worker

    async with sim.client() as client:
        await client.create_topic("films", 1)
        await client.publish("films", b"one")
    await new_worker(4).serve()
    assert done == [0, 1, 2, 3]
    second = new_worker(None)
    serving = asyncio.ensure_future(second.serve())
    async with asyncio.timeout(60):
        while len(done) < 6:
            await asyncio.sleep(0.1)
    second.stop()
    await serving
    assert done == [0, 1, 2, 3, 4, 5]


def test_blocking_client_saves_and_loads(penstock: Broker) -> None:
    from penstock import SyncClient

    with SyncClient(penstock.bootstrap) as client:
        client.publish("films", "one")
        (message,) = client.poll("films", "workers", wait="20s")
        message.save({"page": 3})
        message.nack(delay=0)
        (again,) = client.poll("films", "workers", wait="20s")
        assert again.saved() == {"page": 3}
        again.ack()


def test_built_message_keeps_its_state() -> None:
    async def handle(message: Message) -> None:
        page: Any = await message.saved(Progress)
        await message.save(Progress(page.page + 1))

    message = build_message(state={"page": 4}, attempt=2)
    asyncio.run(handle(message))
    assert message.state == Progress(5)
    assert message.extensions == 1
