"""The asyncio client, against a real node in a simulated world."""

import asyncio
import re
from pathlib import Path

import pytest

import penstock
from penstock.app.client import Client
from penstock.app.outgoing import Outgoing
from penstock.app.publish import BufferFull
from penstock.base.errors import ErrorCode, Refused
from penstock.client.errors import Unreachable
from penstock.client.producer.partitioner import partition_for_key
from tests.run_with import run_with
from tests.unit.app.simulated import Sim, on_broker, take


def test_public_names_are_imported_lazily() -> None:
    """The stub for type checkers lists the same names."""
    homes: dict[str, str] = vars(penstock)["_HOMES"]
    for name, home in homes.items():
        assert getattr(penstock, name).__module__ == home
        assert name in dir(penstock)
    stub = (Path(penstock.__file__).parent / "__init__.pyi").read_text()
    assert sorted(re.findall(r" as (\w+)$", stub, re.MULTILINE)) == sorted(homes)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        vars(penstock)["__getattr__"]("Nothing")


@run_with(on_broker)
async def test_message_is_published_received_and_acknowledged(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("jobs", partitions=3)
        published = await client.publish("jobs", {"id": 7}, key="ann", headers={"n": 1})
        assert published.partition == partition_for_key(b"ann", 3)
        assert published.offset == 0
        (message,) = await client.poll("jobs", "workers", wait=5)
        assert message.json() == {"id": 7}
        assert (message.key, message.headers) == (b"ann", {"n": b"1"})
        assert message.attempt == 1
        await message.ack()
        assert await client.poll("jobs", "workers", wait=1) == []


@run_with(on_broker)
async def test_new_group_reads_earlier_messages(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("jobs", 2)
        await client.publish_many("jobs", range(20))
        first = await take(client, "jobs", "workers", 20)
        assert sorted(message.json() for message in first) == list(range(20))
        assert await client.poll("jobs", "late", start="latest") == []


@run_with(on_broker)
async def test_configured_offset_reset_is_kept(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        await client.configure_group("workers", {"share.auto.offset.reset": "latest"})
        await client.publish("jobs", b"before")
        assert await client.poll("jobs", "workers", wait=1) == []
        await client.publish("jobs", b"after")
        (message,) = await client.poll("jobs", "workers", wait=5)
        assert message.payload == b"after"


@run_with(on_broker, time_max=3000)
async def test_delayed_message_is_delivered_when_due(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        before = sim.loop.time()
        await client.publish("jobs", b"later", delay="15m")
        assert await client.poll("jobs", "workers", wait="14m") == []
        (message,) = await client.poll("jobs", "workers", wait="5m")
        assert 900 <= sim.loop.time() - before < 902
        assert message.payload == b"later"


@run_with(on_broker)
async def test_priority_is_delivered_first_and_duplicates_are_dropped(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        await client.publish_many("jobs", [b"low"] * 5)
        await client.publish("jobs", b"high", priority=9)
        (message,) = await client.poll("jobs", "workers", wait=5)
        assert message.payload == b"high"
        await client.create_topic("once", 1)
        for _ in range(3):
            await client.publish("once", b"x", dedup_id="a")
        assert len(await client.poll("once", "workers", max=10, wait=5)) == 1
        assert await client.poll("once", "workers", max=10, wait=1) == []


@run_with(on_broker)
async def test_full_buffer_follows_on_full(sim: Sim) -> None:
    size = {"buffer_bytes": 4_000, "linger_ms": 1_000}
    async with sim.client(**size, on_full="raise") as client:
        await client.create_topic("jobs", 1)
        sent = [asyncio.ensure_future(client.publish("jobs", b"x" * 1_000)) for _ in range(5)]
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        assert [type(one) for one in outcomes].count(BufferFull) == 2
    async with sim.client(**size, on_full="drop") as client:
        published = await client.publish_many("jobs", [b"x" * 1_000] * 5)
        assert [one.is_dropped for one in published] == [False] * 3 + [True] * 2
        assert client.dropped == 2
    async with sim.client(**size) as client:
        published = await client.publish_many("jobs", [b"x" * 1_000] * 5)
        assert [one.offset for one in published] == list(range(6, 11))


@run_with(on_broker)
async def test_custom_partitioner_selects_the_partition(sim: Sim) -> None:
    def choose(topic: str, key: bytes | None, count: int) -> int | None:
        return count - 1 if key == b"vip" else None

    async with sim.client(partitioner=choose) as client:
        await client.create_topic("jobs", 4)
        assert (await client.publish("jobs", b"x", key="vip")).partition == 3
        other = await client.publish("jobs", b"x", key="ann")
        assert other.partition == partition_for_key(b"ann", 4)
        assert (await client.publish("jobs", b"x", key="vip", partition=0)).partition == 0


@run_with(on_broker)
async def test_topic_is_created_once_with_its_settings(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("jobs", 2, 1, retention_ms=5_000, order="key")
        await client.create_topic("jobs", 2)
        with pytest.raises(Refused) as refused:
            await client.create_topic("jobs", 2, exist_ok=False)
        assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        rows = await client.admin.describe_configs(2, "jobs", ["retention.ms", "queue.order"])
        assert [row.value for row in rows] == ["key", "5000"]
        await client.delete_topic("jobs")
        with pytest.raises(Refused, match="does not exist"):
            await client.poll("jobs", "workers")


@run_with(on_broker)
async def test_invalid_arguments_are_rejected_before_sending(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("jobs", 1)
        with pytest.raises(ValueError, match="priority 10"):
            await client.publish("jobs", b"", priority=10)
        with pytest.raises(ValueError, match="duration"):
            await client.publish("jobs", b"", delay=-1)
        with pytest.raises(TypeError, match="neither bytes, text nor JSON"):
            await client.publish("jobs", object())
        with pytest.raises(Refused, match="there is no partition 3"):
            await client.publish("jobs", b"", partition=3)
        with pytest.raises(ValueError, match="at most once"):
            client.queue("jobs", "workers", delivery="exactly-once")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="needs a group"):
            client.consume("jobs", delivery="exactly-once")
        with pytest.raises(ValueError, match="max=0"):
            await client.poll("jobs", "workers", max=0)
        assert await client.poll("jobs", "workers", wait=1) == []
    with pytest.raises(Refused, match="not connected"):
        await client.publish("jobs", b"")
    with pytest.raises(ValueError, match="compression"):
        Client(compression="zip")
    with pytest.raises(ValueError, match="on_full"):
        Client(on_full="wait")  # type: ignore[arg-type]


@run_with(on_broker)
async def test_unreachable_broker_fails_at_once(sim: Sim) -> None:
    with pytest.raises(Unreachable):
        await Client("nowhere:1", **sim.options()).connect()


@run_with(on_broker)
async def test_seek_moves_a_group_without_members(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("log", 1)
        await client.publish_many(
            "log", [Outgoing(payload=n, timestamp_ms=1000 + n) for n in range(10)]
        )
        assert await client.seek("log", 0, 7, group="readers") == 7
        async with client.consume("log", "readers") as reader:
            assert (await anext(reader)).json() == 7
        assert await client.seek("log", 0, timestamp=1004, group="readers") == 4
        with pytest.raises(ValueError, match="group="):
            await client.seek("log", 0, 1)


@run_with(on_broker)
async def test_create_topic_says_how_an_existing_topic_differs(
    sim: Sim, *, caplog: pytest.LogCaptureFixture
) -> None:
    async with sim.client() as client:
        await client.create_topic("jobs", 3, configs={"retention.ms": "1000"})
        caplog.clear()
        await client.create_topic("jobs", 3, 1, 1000)
        await client.create_topic("jobs")
        assert caplog.messages == []
        await client.create_topic("jobs", 6, order="key", retention_ms=1000)
        (told,) = caplog.messages
        assert "with 3 partitions, not 6, queue.order=none, not key: use" in told
