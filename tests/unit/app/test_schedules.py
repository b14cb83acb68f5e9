"""Schedules: slots, missed slots, and exactly one message for each, whatever crashes."""

import asyncio
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.app.message import Message
from penstock.app.schedules import GROUP_PREFIX, MISSED_MAX, EverySlots, due, slots_of
from penstock.app.worker import Worker
from penstock.base.ids import Millis
from penstock.base.ports import WallClock
from penstock.client.committed_offsets import committed_offsets
from simulation.workers import SimWorkers
from tests.run_with import run_with
from tests.unit.app.simulated import Sim, on_broker
from tests.unit.app.test_worker import new_worker, serve

KILLS = 20
THREE_COPIES = {
    "offsets.topic.replication.factor": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "log.message.timestamp.after.max.ms": str(10**12),
}


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def test_cron_slots_follow_their_time_zone() -> None:
    slots = slots_of("0 3 * * *", None, "Europe/Berlin")
    assert slots.after(ms("2026-01-10T02:00+00:00")) == ms("2026-01-11T02:00+00:00")
    assert slots.until(ms("2026-01-10T02:00+00:00")) == ms("2026-01-10T02:00+00:00")
    assert slots.until(ms("2026-01-10T01:59:59+00:00")) == ms("2026-01-09T02:00+00:00")
    every = slots_of("* * * * *", None, "UTC")
    assert [every.until(one) for one in (119_999, 120_000, 120_001)] == [60_000, 120_000, 120_000]
    assert due(every, 0, 180_000, "all") == [60_000, 120_000, 180_000]
    assert slots.after(ms("2026-07-10T02:00+00:00")) == ms("2026-07-11T01:00+00:00")


def test_cron_slots_come_once_when_summer_time_begins_and_ends() -> None:
    slots = slots_of("30 2 * * *", None, "Europe/Berlin")
    found, at_ms = [], ms("2026-03-28T12:00+01:00")
    while at_ms < ms("2026-03-31T12:00+02:00"):
        at_ms = slots.after(at_ms)
        found.append(at_ms)
    assert len({one // 86_400_000 for one in found}) == len(found) == 4
    found, at_ms = [], ms("2026-10-24T12:00+02:00")
    while at_ms < ms("2026-10-26T12:00+01:00"):
        at_ms = slots.after(at_ms)
        found.append(at_ms)
    assert len(found) == 3


def test_intervals_are_multiples_since_1970() -> None:
    slots = slots_of(None, "30s", "UTC")
    assert (slots.after(60_000), slots.after(59_999)) == (90_000, 60_000)
    assert (slots.until(60_000), slots.until(59_999)) == (60_000, 30_000)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("* * *", None, "UTC"), "is not a cron expression"),
        (("61 * * * *", None, "UTC"), "is not a cron expression"),
        (("0 0 31 2 *", None, "UTC"), "31 2"),
        (("* * * * *", None, "Mars/Base"), "timezone='Mars/Base'"),
        ((None, "10ms", "UTC"), "one second or more"),
        ((None, None, "UTC"), "not both and not neither"),
        (("* * * * *", "1m", "UTC"), "not both and not neither"),
    ],
)
def test_invalid_schedule_times_are_rejected(given: tuple[Any, Any, str], told: str) -> None:
    with pytest.raises(ValueError, match=told.replace("*", r"\*")):
        slots_of(*given)


def test_missed_slots_follow_the_policy() -> None:
    slots = EverySlots(10_000)
    assert due(slots, 100_000, 109_999, "all") == []
    assert due(slots, 100_000, 135_000, "all") == [110_000, 120_000, 130_000]
    assert due(slots, 100_000, 135_000, "latest") == [130_000]
    assert due(slots, 100_000, 135_000, "skip") == [130_000]
    minutes = EverySlots(3_600_000)
    assert due(minutes, 0, 3_600_000 + 60_001, "skip") == []
    assert due(minutes, 0, 3_600_000 + 60_000, "skip") == [3_600_000]
    assert len(due(slots, 0, 10_000 * (MISSED_MAX + 5), "all")) == MISSED_MAX


def test_invalid_schedule_declarations_are_rejected() -> None:
    worker = Worker(group="x")
    worker.cron("* * * * *", name="same")(lambda: None)
    with pytest.raises(ValueError, match="two schedules are named 'same'"):
        worker.cron("* * * * *", name="same")(lambda: None)
    with pytest.raises(ValueError, match="missed='never'"):
        worker.cron("* * * * *", missed="never")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="did you mean 'every'"):
        worker.cron(everry="1m")  # type: ignore[call-arg]


async def slots_in(sim: Sim, topic: str) -> list[int]:
    """Slots of a topic's committed messages, in the order of the log."""
    found: list[int] = []
    async with sim.client() as client, client.consume(topic) as reader:
        while True:
            try:
                async with asyncio.timeout(5):
                    found.append(int((await anext(reader)).header("penstock-scheduled-at")))
            except TimeoutError:
                return found


@run_with(on_broker)
async def test_handler_receives_nothing_the_slot_or_the_message(sim: Sim) -> None:
    seen: list[Any] = []
    worker = new_worker(sim)

    @worker.cron(every="10s")
    def nothing() -> None:
        seen.append("nothing")

    @worker.cron(every="10s")
    async def slot(at: datetime) -> None:
        seen.append(at)

    @worker.cron(every="10s", name="third", topic="ticks")
    async def message(found: Message) -> None:
        seen.append(int(found.header("penstock-scheduled-at")))

    await serve(worker, 15)
    (at,) = [one for one in seen if isinstance(one, datetime)]
    assert "nothing" in seen
    assert round(at.timestamp() * 1000) % 10_000 == 0
    assert at.tzinfo is UTC or at.utcoffset() is not None
    assert round(at.timestamp() * 1000) in seen


@run_with(on_broker)
async def test_restarted_schedule_publishes_the_missed_slots(sim: Sim) -> None:
    def declared(**options: Any) -> Worker:
        worker = new_worker(sim)
        worker.cron(every="10s", name="tick", **options)(lambda: None)
        return worker

    await serve(declared(), 25)
    await asyncio.sleep(100)
    await serve(declared(missed="all"), 5)
    found = await slots_in(sim, "workers.tick.schedule")
    assert found == list(range(found[0], found[-1] + 1, 10_000))
    assert len(found) >= 12
    await asyncio.sleep(100)
    await serve(declared(missed="latest"), 5)
    later = await slots_in(sim, "workers.tick.schedule")
    assert later[: len(found)] == found
    assert later[len(found)] - found[-1] > 90_000


class FastClock:
    """Wall clock that runs faster than the simulated time: hours pass between two looks."""

    def __init__(self, clock: WallClock, factor: int) -> None:
        self._clock, self._factor = clock, factor
        self._begin_ms = clock.now_ms()

    def now_ms(self) -> Millis:
        return Millis(self._begin_ms + (self._clock.now_ms() - self._begin_ms) * self._factor)


@pytest.mark.parametrize(("seed", "factor"), [(1, 1), (2, 150)])
def test_every_slot_is_published_once_while_leaders_are_killed(seed: int, factor: int) -> None:
    """Factor 1: 20 kills in an hour of minutes. Factor 150: in days of five minutes."""
    expression = "* * * * *" if factor == 1 else "*/5 * * * *"
    every_ms = 60_000 if factor == 1 else 300_000
    kills: list[int] = []

    async def test(sim: Sim) -> None:
        rng = random.Random(seed)
        clock = FastClock(sim.clock, factor)
        workers = []
        for _ in range(3):
            options = {**sim.options(), "clock": clock}
            worker = Worker(sim.brokers, group="w", threads=SimWorkers(1), **options)
            worker.cron(expression, name="tick", missed="all")(lambda: None)
            workers.append(worker)
        serving = [asyncio.ensure_future(worker.serve()) for worker in workers]
        await asyncio.sleep(20)
        for _ in range(KILLS):
            await asyncio.sleep(rng.uniform(10, 60))
            kills.append(await _kill_leader(sim, rng))
        await asyncio.sleep(90)
        until_ms = clock.now_ms()
        for worker in workers:
            worker.stop()
        await asyncio.gather(*serving)
        found = await slots_in(sim, "w.tick.schedule")
        assert found == list(range(found[0], found[-1] + 1, every_ms))
        assert until_ms - found[-1] < every_ms + 40_000 * factor
        hours = (found[-1] - found[0]) / 3_600_000
        assert hours > (0.2 if factor == 1 else 24)

    on_broker(test, nodes=3, overrides=THREE_COPIES, seed=seed, time_max=1e6)
    assert len(kills) == KILLS
    assert len(set(kills)) > 1


async def _kill_leader(sim: Sim, rng: random.Random) -> int:
    """Kills the node that leads the schedule's topic, its transactions or its record."""
    async with sim.client() as client:
        await committed_offsets(client.cluster, f"{GROUP_PREFIX}w.tick")
        topic = rng.choice(["w.tick.schedule", "__transaction_state", "__consumer_offsets"])
        info = await client.cluster.topic(topic)
        leader = info.partitions[0].leader_id
    host = sim.cluster.hosts[leader]
    if rng.random() < 0.5:
        host.cut_power()
    else:
        host.kill()
    await asyncio.sleep(rng.uniform(1, 20))
    await host.start()
    return leader
