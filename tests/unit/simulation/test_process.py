"""`SimProcess`: a killed process runs nothing more, not even cleanup."""

import asyncio

from simulation.loop import SimLoop, run
from simulation.network import HOST
from tests.run_with import run_with


@run_with(run)
async def test_killed_process_runs_nothing(loop: SimLoop) -> None:
    done: list[str] = []

    async def work(loop: SimLoop) -> None:
        loop.call_later(2, done.append, "timer")
        try:
            await asyncio.sleep(1)
            done.append("slept")
            await asyncio.sleep(1)
            done.append("slept on")
        finally:
            done.append("cleaned up")

    process = loop.process("a")
    process.start(work(loop))
    await asyncio.sleep(1.5)
    process.kill()
    await asyncio.sleep(10)
    assert list(done) == ["slept"]


@run_with(run)
async def test_event_awaited_by_a_killed_process_still_happens(loop: SimLoop) -> None:
    event, woken = asyncio.Event(), []

    async def wait() -> None:
        await event.wait()
        woken.append(True)

    process = loop.process("a")
    process.start(wait())
    await asyncio.sleep(1)
    process.kill()
    event.set()
    await asyncio.sleep(1)
    assert (event.is_set(), bool(woken)) == (True, False)


@run_with(run)
async def test_tasks_and_callbacks_belong_to_their_process(loop: SimLoop) -> None:
    hosts: list[str] = []

    async def inner() -> None:
        loop.call_soon(lambda: hosts.append(HOST.get()))

    async def outer() -> None:
        await asyncio.create_task(inner())

    one, other = loop.process("one"), loop.process("other")
    await asyncio.gather(one.start(outer()), other.start(outer()))
    await asyncio.sleep(1)
    other.kill()
    await one.start(outer())
    other.start(outer())
    await asyncio.sleep(1)
    assert hosts == ["one", "other", "one"]


def test_packets_arrive_after_the_death_of_their_sender() -> None:
    class Sink(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            received.append(data)

    received: list[bytes] = []

    async def send(loop: SimLoop) -> None:
        transport, _ = await loop.create_connection(asyncio.Protocol, "server", 80)
        transport.write(b"last words")

    async def main(loop: SimLoop) -> None:
        loop.net.whole_ratio = 1.0
        server, client = loop.process("server"), loop.process("client")
        await server.start(loop.create_server(Sink, "server", 80))
        await client.start(send(loop))
        client.kill()
        loop.net.crash("client", silent=True)
        await asyncio.sleep(1)

    run(main)
    assert received == [b"last words"]


@run_with(run)
async def test_paused_process_runs_due_callbacks_at_resume(loop: SimLoop) -> None:
    done: list[tuple[str, float]] = []

    async def work() -> None:
        loop.call_later(2, lambda: done.append(("timer", loop.time())))
        await asyncio.sleep(1)
        done.append(("slept", loop.time()))
        await asyncio.sleep(3)
        done.append(("slept on", loop.time()))

    process = loop.process("a")
    process.start(work())
    await asyncio.sleep(0.5)
    process.pause()
    await asyncio.sleep(9.5)
    assert done == []
    process.resume()
    await asyncio.sleep(10)
    assert done == [("timer", 10.0), ("slept", 10.0), ("slept on", 13.0)]


@run_with(run)
async def test_paused_process_can_be_killed(loop: SimLoop) -> None:
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(1)
        done.append("slept")

    process = loop.process("a")
    process.start(work())
    process.pause()
    await asyncio.sleep(2)
    process.kill()
    await asyncio.sleep(2)
    assert done == []
