"""Retries by topics, for plain consumer groups."""

import asyncio

import pytest

from penstock.app.message import LogMessage
from penstock.app.retry_topics import RetryTopics
from penstock.app.task import Reject
from tests.run_with import run_with
from tests.unit.app.simulated import Sim, on_broker


@run_with(on_broker)
async def test_failed_message_passes_the_levels_without_blocking_others(sim: Sim) -> None:
    seen: list[tuple[str, str, float]] = []

    async def handle(message: LogMessage) -> None:
        seen.append((message.text, message.topic, sim.loop.time()))
        if message.text == "bad":
            raise ValueError("bad")
        if message.text == "never":
            raise Reject("no")
        if message.text == "once" and message.topic == "orders":
            raise OSError("busy")

    async with sim.client() as client:
        await client.create_topic("orders", 1)
        orders = RetryTopics(
            client, "orders", "billing", delays=("10s", "1m"), partitions=2, clock=sim.clock
        )
        await client.publish_many("orders", ["bad", "once", "never", "good"])
        running = asyncio.ensure_future(orders.run(handle))
        await asyncio.sleep(150)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert [text for text, topic, _ in seen if topic == "orders"] == [
            "bad",
            "once",
            "never",
            "good",
        ]
        tries = [(topic, at) for text, topic, at in seen if text == "bad"]
        assert [topic for topic, _ in tries] == ["orders", "orders.retry.1", "orders.retry.2"]
        assert 9.9 <= tries[1][1] - tries[0][1] < 13
        assert 59.9 <= tries[2][1] - tries[1][1] < 63
        assert [topic for text, topic, _ in seen if text == "once"] == [
            "orders",
            "orders.retry.1",
        ]
        async with client.consume("orders.dlq") as dead_letters:
            found = {
                one.text: one for one in [await anext(dead_letters), await anext(dead_letters)]
            }
        assert set(found) == {"bad", "never"}
        bad = found["bad"].headers
        assert bad["penstock-dlq-topic"] == b"orders"
        assert (bad["penstock-dlq-partition"], bad["penstock-dlq-offset"]) == (b"0", b"0")
        assert bad["penstock-dlq-attempts"] == b"3"
        assert bad["penstock-dlq-error-class"] == b"ValueError"
        assert bad["penstock-dlq-group"] == b"billing"
        assert not any(name.startswith("penstock-retry-") for name in bad)
        assert found["never"].header("penstock-dlq-attempts") == "1"


@run_with(on_broker)
async def test_offset_is_committed_after_handling_or_copying(sim: Sim) -> None:
    seen: list[int] = []

    async def handle(message: LogMessage) -> None:
        seen.append(message.json())
        if message.json() == 3 and len(seen) < 5:
            await asyncio.sleep(1_000)

    async with sim.client() as client:
        await client.create_topic("orders", 1)
        await client.publish_many("orders", range(6))
        for _ in range(2):
            orders = RetryTopics(client, "orders", "billing", delays=(), clock=sim.clock)
            running = asyncio.ensure_future(orders.run(handle))
            await asyncio.sleep(20)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert seen == [0, 1, 2, 3, 3, 4, 5]


@run_with(on_broker)
async def test_too_many_levels_are_rejected(sim: Sim) -> None:
    async with sim.client() as client:
        with pytest.raises(ValueError, match="11 delays"):
            RetryTopics(client, "orders", "billing", delays=["1s"] * 11)
