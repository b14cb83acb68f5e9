"""Messages: acknowledgement, nack, reject, extend, and the properties of a record."""

import asyncio

import pytest

from penstock.app.message import LogMessage, show_traceback
from penstock.base.errors import ErrorCode, Refused
from penstock.client.consumer.fetched import FetchedRecord as Fetched
from penstock.state.queues.delivery_state import TRACEBACK_MAX
from tests.run_with import run_with
from tests.unit.app.simulated import Sim, on_broker, take


def test_message_exposes_its_record() -> None:
    headers = (("a", b"1"), ("a", b"2"), ("b", None))
    message = LogMessage(Fetched("t", 1, 5, 1_700_000_000_123, b"k", b'{"x": 1}', headers))
    assert (message.topic, message.partition, message.offset) == ("t", 1, 5)
    assert (message.text, message.json()) == ('{"x": 1}', {"x": 1})
    assert message.headers == {"a": b"2", "b": None}
    assert message.header_pairs == headers
    assert (message.header("a"), message.header("b", "-"), message.header("c", "-")) == (
        "2",
        "-",
        "-",
    )
    assert message.published_at.timestamp() == 1_700_000_000.123
    assert not message.is_tombstone
    assert repr(message) == "LogMessage(t[1]@5, key=b'k', b'{\"x\": 1}')"
    empty = LogMessage(Fetched("t", 1, 5, 0, None, None, ()))
    assert empty.is_tombstone
    assert (empty.payload, empty.value) == (b"", None)


@run_with(on_broker)
async def test_nack_redelivers_after_the_delay(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        await client.publish("jobs", b"x")
        (message,) = await take(client, "jobs", "workers", 1)
        before = sim.loop.time()
        await message.nack(delay=30)
        assert await client.poll("jobs", "workers", wait=29) == []
        (again,) = await client.poll("jobs", "workers", wait=5)
        assert 30 <= sim.loop.time() - before < 31
        assert again.attempt == 2
        await again.nack(delay=0)
        (third,) = await client.poll("jobs", "workers", wait=0)
        assert third.attempt == 3


@run_with(on_broker)
async def test_reject_dead_letters_with_the_reason(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        await client.publish_many("jobs", [b"bad", b"worse"])
        bad, worse = await take(client, "jobs", "workers", 2)
        await bad.reject(ValueError("no such id"))
        await worse.reject("broken")
        await asyncio.sleep(5)
        dead_letters = await take(client, "jobs.dlq", "look", 2)
        told = {
            dead.payload: (
                dead.header("penstock-dlq-error-class"),
                dead.header("penstock-dlq-error-message"),
            )
            for dead in dead_letters
        }
        assert told == {b"bad": ("ValueError", "no such id"), b"worse": ("Error", "broken")}


@run_with(on_broker)
async def test_dead_letter_has_the_reason_of_the_last_nack(sim: Sim) -> None:
    async def take_from_dlq(sim: Sim) -> list[dict[str, bytes | None]]:
        await asyncio.sleep(5)
        async with sim.client() as client:
            return [one.headers for one in await take(client, "jobs.dlq", "look", 1)]

    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        await client.configure_group("workers", {"share.delivery.count.limit": "2"})
        await client.publish("jobs", b"x")
        for number in (1, 2):
            (message,) = await take(client, "jobs", "workers", 1)
            await message.nack(delay=0, error=RuntimeError(f"failure {number}"))
        (dead,) = await take_from_dlq(sim)
        assert dead["penstock-dlq-error-class"] == b"RuntimeError"
        assert dead["penstock-dlq-error-message"] == b"failure 2"
        assert dead["penstock-dlq-attempts"] == b"2"


@run_with(on_broker)
async def test_second_acknowledgement_is_refused(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        await client.publish("jobs", b"x")
        (message,) = await take(client, "jobs", "workers", 1)
        await message.ack()
        assert message.is_settled
        for verdict in (message.ack, message.nack, message.reject, message.extend):
            with pytest.raises(Refused, match="settled before") as refused:
                await verdict()
            assert refused.value.code is ErrorCode.INVALID_RECORD_STATE


@run_with(on_broker)
async def test_invalid_delay_is_rejected_and_the_lease_kept(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        await client.publish("jobs", b"x")
        (message,) = await take(client, "jobs", "workers", 1)
        for delay in (-1, "soon", 400 * 86_400):
            with pytest.raises(ValueError, match=r"delay|duration"):
                await message.nack(delay=delay)
        await message.ack()


@run_with(on_broker)
async def test_extend_prolongs_the_lease(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        await client.publish("jobs", b"x")
        reader = client.queue("jobs", "workers", renew_for=0, prefetch=0)
        (message,) = await reader.receive(1, 5)
        await message.extend("60s")
        assert await client.poll("jobs", "workers", wait=55) == []
        (again,) = await client.poll("jobs", "workers", wait=10)
        assert again.attempt == 2
        with pytest.raises(Refused, match="no longer held"):
            await message.ack()
        assert message.is_lost
        await again.ack()


def test_long_traceback_keeps_its_beginning_and_its_end() -> None:
    def sink(depth: int) -> None:
        if depth:
            sink(depth - 1) if depth % 2 else rise(depth - 1)
        raise ValueError("at the bottom")

    def rise(depth: int) -> None:
        sink(depth)

    with pytest.raises(ValueError, match="bottom") as caught:
        sink(100)
    text = show_traceback(caught.value)
    assert text is not None
    assert len(text) == TRACEBACK_MAX
    assert text.startswith("Traceback (most recent call last):")
    assert "... (omitted) ..." in text
    assert text.endswith("ValueError: at the bottom\n")


def test_error_that_was_never_raised_has_no_traceback() -> None:
    assert show_traceback(ValueError("made up")) is None
