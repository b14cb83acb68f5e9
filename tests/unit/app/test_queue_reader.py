"""Queue reader: iteration, lease renewal, closing readers, delivery guarantees."""

import asyncio

import pytest

from penstock.app.message import Message
from penstock.base.errors import Refused
from tests.run_with import run_with
from tests.unit.app.simulated import Sim, on_broker, take


@run_with(on_broker)
async def test_tasks_sharing_a_queue_handle_each_message_once(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("jobs", 3)
        await client.publish_many("jobs", range(200))
        seen: list[int] = []

        async def work() -> None:
            async with client.queue("jobs", "workers", prefetch=5) as jobs:
                async for message in jobs:
                    seen.append(message.json())
                    await message.ack()

        tasks = [asyncio.ensure_future(work()) for _ in range(4)]
        while len(seen) < 200:
            await asyncio.sleep(0.1)
        await asyncio.sleep(20)
        assert sorted(seen) == list(range(200))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@run_with(on_broker)
async def test_lease_is_renewed_while_message_is_processed(sim: Sim) -> None:
    async with sim.client() as client, sim.client() as other:
        await client.create_topic("jobs", 1)
        await client.publish("jobs", b"long")
        (message,) = await take(client, "jobs", "workers", 1)
        # The lease is 4 seconds; the work takes 60.
        assert await other.poll("jobs", "workers", wait=60) == []
        await message.ack()
        assert await other.poll("jobs", "workers", wait=10) == []


@run_with(on_broker)
async def test_unsettled_message_is_redelivered_after_renewal_ends(sim: Sim) -> None:
    async with sim.client() as client, sim.client() as other:
        await client.create_topic("jobs", 1)
        await client.publish("jobs", b"x")
        jobs = client.queue("jobs", "workers", renew_for=10)
        before = sim.loop.time()
        message = await anext(jobs)
        (again,) = await other.poll("jobs", "workers", wait=60)
        assert again.attempt == 2
        assert 8 < sim.loop.time() - before < 20
        with pytest.raises(Refused, match="no longer held"):
            await message.ack()
        await again.ack()


@run_with(on_broker)
async def test_prefetched_message_is_released_without_counting_a_delivery(sim: Sim) -> None:
    async with sim.client() as client, sim.client() as other:
        await client.create_topic("jobs", 1)
        await client.publish_many("jobs", range(10))
        jobs = client.queue("jobs", "workers", prefetch=20)
        first = await anext(jobs)
        await asyncio.sleep(0.5)
        assert await other.poll("jobs", "workers", wait=0) == []
        # The reader has ended: the other nine are ready again, as if not delivered.
        found: list[Message] = []
        while len(found) < 9:
            found += await other.poll("jobs", "workers", max=9, wait=10)
        assert {message.attempt for message in found} == {1}
        for message in [first, *found]:
            await message.ack()


@run_with(on_broker)
async def test_close_releases_held_messages_at_once(sim: Sim) -> None:
    async with sim.client() as client, sim.client() as other:
        await client.create_topic("jobs", 1)
        await client.publish_many("jobs", range(4))
        async with client.queue("jobs", "workers", prefetch=10) as jobs:
            message = await anext(jobs)
            await asyncio.sleep(0.5)
        before = sim.loop.time()
        found = await take(other, "jobs", "workers", 4)
        assert sim.loop.time() - before < 2
        attempts = {one.offset: one.attempt for one in found}
        assert attempts.pop(message.offset) == 2
        assert set(attempts.values()) == {1}
        with pytest.raises(Refused, match="closed"):
            await message.ack()
        assert await jobs.receive(1) == []


@run_with(on_broker)
async def test_at_most_once_acknowledges_before_delivery(sim: Sim) -> None:
    async with sim.client() as client, sim.client() as other:
        await client.create_topic("jobs", 1)
        await client.publish_many("jobs", range(3))
        jobs = client.queue("jobs", "workers", delivery="at-most-once", prefetch=0)
        message = await anext(jobs)
        assert message.is_settled
        await jobs.close()
        found = await take(other, "jobs", "workers", 2)
        assert message.offset not in {one.offset for one in found}
        assert await other.poll("jobs", "workers", wait=10) == []


@run_with(on_broker)
async def test_acknowledgement_of_lost_lease_fails_alone(sim: Sim) -> None:
    """The broker refuses a partition's acknowledgements together; valid ones still count."""

    async with sim.client() as client, sim.client() as other:
        await client.create_topic("jobs", 1)
        await client.publish_many("jobs", range(8))
        jobs = client.queue("jobs", "workers", renew_for=0, prefetch=0)
        messages = await jobs.receive(8, 5)
        assert len(messages) == 8
        for message in messages[:5] + messages[6:]:
            await message.extend("60s")
        (stolen,) = await other.poll("jobs", "workers", wait=30)
        assert stolen.offset == messages[5].offset
        outcomes = await asyncio.gather(
            *(message.ack() for message in messages), return_exceptions=True
        )
        assert [isinstance(one, Refused) for one in outcomes] == [
            number == 5 for number in range(8)
        ]
        await stolen.ack()


@run_with(on_broker)
async def test_reader_survives_broker_restart(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        await client.publish_many("jobs", range(2))
        async with client.queue("jobs", "workers", prefetch=0) as jobs:
            first = await anext(jobs)
            await first.ack()
            host = sim.cluster.hosts[1]
            await host.stop()
            waiting = asyncio.ensure_future(anext(jobs))
            await asyncio.sleep(10)
            await host.start()
            second = await asyncio.wait_for(waiting, 60)
            assert second.offset == 1
            await second.ack()


@run_with(on_broker)
async def test_iteration_ends_when_reader_is_closed(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        jobs = client.queue("jobs", "workers")

        async def read() -> int:
            return len([message async for message in jobs])

        reading = asyncio.ensure_future(read())
        await asyncio.sleep(5)
        await jobs.close()
        assert await asyncio.wait_for(reading, 10) == 0


@run_with(on_broker)
async def test_unknown_queue_is_refused(sim: Sim) -> None:
    async with sim.client() as client:
        with pytest.raises(Refused, match="'nothing' does not exist"):
            await anext(client.queue("nothing", "workers"))
