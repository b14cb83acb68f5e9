"""Log reader: offsets, groups that share partitions, the three delivery guarantees."""

import asyncio

import pytest

from penstock.app.client import Client
from penstock.app.log_reader import LogReader
from penstock.app.message import LogMessage
from tests.run_with import run_with
from tests.unit.app.simulated import Sim, on_broker


async def read(reader: LogReader, count: int) -> list[LogMessage]:
    async with asyncio.timeout(120):
        return [await anext(reader) for _ in range(count)]


async def fill(client: Client, count: int = 10, partitions: int = 1) -> None:
    await client.create_topic("log", partitions)
    await client.publish_many("log", range(count))


@run_with(on_broker)
async def test_reader_without_group_reads_everything(sim: Sim) -> None:
    async with sim.client() as client:
        await fill(client, 30, 3)
        for _ in range(2):
            async with client.consume("log") as reader:
                found = await read(reader, 30)
                assert sorted(one.json() for one in found) == list(range(30))
        async with client.consume("log", start="latest") as reader:
            await client.publish("log", "new")
            assert (await anext(reader)).text == "new"


@run_with(on_broker)
async def test_group_resumes_at_committed_offsets(sim: Sim) -> None:
    async with sim.client() as client:
        await fill(client)
        async with client.consume("log", "readers") as reader:
            await read(reader, 4)
        async with client.consume("log", "readers") as reader:
            assert [one.json() for one in await read(reader, 6)] == [4, 5, 6, 7, 8, 9]


@run_with(on_broker)
async def test_at_least_once_reads_unhandled_message_again(sim: Sim) -> None:
    async with sim.client() as client:
        await fill(client)

        async def fail() -> None:
            async with client.consume("log", "readers") as reader:
                async for message in reader:
                    if message.json() == 3:
                        raise RuntimeError("failed in the middle")

        with pytest.raises(RuntimeError):
            await fail()
        async with client.consume("log", "readers") as reader:
            assert (await anext(reader)).json() == 3


@run_with(on_broker)
async def test_at_most_once_never_reads_a_message_again(sim: Sim) -> None:
    async with sim.client() as client:
        await fill(client)

        async def fail() -> None:
            async with client.consume("log", "readers", delivery="at-most-once") as reader:
                await anext(reader)
                raise RuntimeError("failed at the first")

        with pytest.raises(RuntimeError):
            await fail()
        await client.publish("log", "later")
        async with client.consume("log", "readers", delivery="at-most-once") as reader:
            # All that was fetched was committed before the first of it was seen.
            assert (await anext(reader)).text == "later"


@run_with(on_broker)
async def test_offsets_are_committed_periodically_and_on_demand(sim: Sim) -> None:
    async with sim.client() as client:
        await fill(client)
        reader = client.consume("log", "readers", auto_commit=False)
        await read(reader, 3)
        await reader.commit()
        await read(reader, 2)
        await reader.close()
        async with client.consume("log", "readers") as reader:
            assert (await anext(reader)).json() == 3


@run_with(on_broker)
async def test_members_share_partitions_without_missing_messages(sim: Sim) -> None:
    async with sim.client() as client:
        await fill(client, 40, 4)
        seen: list[int] = []

        async def work(reader: LogReader) -> None:
            async with reader:
                async for message in reader:
                    seen.append(message.json())

        readers = [client.consume("log", "readers") for _ in range(2)]
        tasks = [asyncio.ensure_future(work(reader)) for reader in readers]
        await asyncio.sleep(30)
        shares = [reader.assigned for reader in readers]
        assert sorted(len(share) for share in shares) == [2, 2]
        assert not set(shares[0]) & set(shares[1])
        await client.publish_many("log", range(40, 80))
        await asyncio.sleep(10)
        assert set(seen) == set(range(80))
        await readers[0].close()
        await asyncio.sleep(30)
        assert len(readers[1].assigned) == 4
        await client.publish_many("log", range(80, 120))
        await asyncio.sleep(10)
        assert set(seen) == set(range(120))
        # What moved may be read twice where it was not committed; here it had time to be.
        assert len(seen) < 130
        await readers[1].close()
        await asyncio.gather(*tasks)


@run_with(on_broker)
async def test_exactly_once_commits_outputs_with_offsets(sim: Sim) -> None:
    lives: dict[int, int] = {}

    async with sim.client() as client:
        await fill(client, 20)
        await client.create_topic("out", 2)
        done = 0
        while done < 20:
            # Each life fails in the middle of a message, after it has published.
            try:
                async with client.consume("log", "copy", delivery="exactly-once") as reader:
                    async for message in reader:
                        done = message.json() + 1
                        await reader.publish("out", message.payload, key=message.payload)
                        if done % 7 == 0 and done > lives.get(done, 0):
                            lives[done] = done
                            raise RuntimeError("failed after publishing")
                        if done == 20:
                            break
            except RuntimeError:
                continue
        async with client.consume("out") as reader:
            found = [one.json() for one in await read(reader, 20)]
            assert sorted(found) == list(range(20))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(reader), 5)


@run_with(on_broker)
async def test_seek_accepts_offset_or_time(sim: Sim) -> None:
    async with sim.client() as client:
        await client.create_topic("log", 1)
        for number in range(6):
            await client.publish("log", number, timestamp_ms=5_000 + number)
        async with client.consume("log") as reader:
            await read(reader, 4)
            assert await reader.seek("log", 0, 1) == 1
            assert [one.json() for one in await read(reader, 2)] == [1, 2]
            assert await reader.seek("log", 0, timestamp=5_004) == 4
            assert (await anext(reader)).json() == 4
            assert await client.seek("log", 0, 0) == 0
            assert (await anext(reader)).json() == 0
            assert await reader.seek("log", 0, timestamp=9_000) == 6
            for wrong in ({}, {"offset": 1, "timestamp": 2}, {"offset": -3}):
                with pytest.raises(ValueError, match="offset"):
                    await reader.seek("log", 0, **wrong)
            with pytest.raises(ValueError, match="not assigned"):
                await reader.seek("log", 5, 0)
