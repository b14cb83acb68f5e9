"""Redrive of dead letters, killed between any two of its steps: every message returns once.

A redriver talks to a real node in simulated time and is killed at one moment after another, its
connections with it. Another one takes over, perhaps while the first was only suspended and
continues. Invariants: every dead letter has exactly one copy, copies of one key are in order, and
no dead letter is open at the end.
"""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.base.errors import ErrorCode, Refused
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import Consumer, ConsumerConfig
from penstock.client.consumer.fetched import READ_COMMITTED, FetchedRecord
from penstock.client.dead_letters.filters import DeadLetterFilter
from penstock.client.dead_letters.redrive import AUDIT, Redriver, RedriveRequest
from penstock.client.dead_letters.replay import Copier, CopyPlan
from penstock.client.dead_letters.topics import describe_dead_letter_topic
from penstock.client.list_offsets import partitions_of, resolve
from penstock.client.offset_syntax import END, START, OffsetRange
from penstock.client.producer.producer import Producer
from penstock.state.queues import dead_letter_format as headers
from simulation.clock import SimClock
from simulation.cluster import SimCluster
from simulation.loop import SimLoop
from simulation.random import SimRandom
from tests.run_with import run_with

COUNT = 12
OVERRIDES = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


class Office:
    """A cluster with dead letters, and its redrivers."""

    def __init__(self, loop: SimLoop, nodes: SimCluster) -> None:
        self.loop = loop
        self.nodes = nodes
        self.clock = SimClock(loop)

    def cluster(self) -> Cluster:
        return Cluster(SimRandom(7), self.nodes.addresses)

    async def dead_letter(self, name: str) -> None:
        """Creates a topic and its dead letters: of two keys in each of two partitions, in order."""
        async with self.cluster() as cluster:
            await Admin(cluster).create_topic(name, 2, 1)
            await Admin(cluster).create_topic(f"{name}.dlq", 2, 1)
            async with Producer(self.clock, SimRandom(3), cluster) as producer:
                for number in range(COUNT):
                    where = number % 2
                    told = {
                        headers.TOPIC: name,
                        headers.PARTITION: str(where),
                        headers.OFFSET: str(number),
                        headers.ERROR_CLASS: "odd" if number % 3 else "even",
                    }
                    await producer.send(
                        f"{name}.dlq",
                        b"%d" % number,
                        b"k%d" % (number % 4),
                        partition=where,
                        headers=[(key, value.encode()) for key, value in told.items()],
                    )

    async def redrive(self, name: str, chosen: DeadLetterFilter | None = None) -> int:
        async with self.cluster() as cluster:
            request = RedriveRequest(f"{name}.dlq", "run", "operator", chosen or DeadLetterFilter())
            redriver = Redriver(cluster, self.clock, request, messages_max=4)
            return (await redriver.run()).settled

    async def kill_after(self, seconds: float, work: Awaitable[int]) -> bool:
        """Runs `work` for at most `seconds`; returns True if it had ended by then."""
        task = asyncio.ensure_future(work)
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if done:
            task.result()
            return True
        task.cancel()
        await asyncio.wait({task})
        return False

    async def read(self, topic: str) -> list[FetchedRecord]:
        async with self.cluster() as cluster:
            places = await partitions_of(cluster, topic)
            spans = await resolve(
                cluster,
                places,
                OffsetRange(START, END),
                isolation_level=READ_COMMITTED,
                must_end=True,
            )
            config = ConsumerConfig(isolation_level=READ_COMMITTED)
            found: list[FetchedRecord] = []
            async with Consumer(cluster, config) as consumer:
                consumer.assign({where: span.start for where, span in spans.items()})
                while any(consumer.positions[w] < (spans[w].end or 0) for w in places):
                    found += await consumer.poll()
            return found

    async def check_all_back(self, name: str, wanted: list[int] | None = None) -> None:
        copies = await self.read(name)
        numbers = [int(message.value or b"") for message in copies]
        assert sorted(numbers) == (list(range(COUNT)) if wanted is None else wanted)
        for key in (b"k0", b"k1", b"k2", b"k3"):
            of_key = [int(message.value or b"") for message in copies if message.key == key]
            assert of_key == sorted(of_key)
        assert all(message.partition == int(message.value or b"") % 2 for message in copies)
        async with self.cluster() as cluster:
            topic_info = await describe_dead_letter_topic(cluster, f"{name}.dlq")
        assert topic_info.messages == COUNT - len(numbers)


def play(scene: Callable[[Office], Awaitable[None]]) -> None:
    async def main() -> None:
        nodes = SimCluster(loop, 1, overrides=OVERRIDES)
        await nodes.start()
        office = Office(loop, nodes)
        # Objects made at first use exist before any redriver is killed.
        await office.dead_letter("warm")
        await office.redrive("warm")
        await scene(office)
        nodes.close()

    loop = SimLoop(1, time_max=36_000)
    loop.run(main())


@run_with(play)
async def test_redriver_killed_at_any_moment_leaves_one_copy_of_every_dead_letter(
    office: Office,
) -> None:
    moment, kills = 0.0, 0
    while True:
        name = f"t{kills}"
        await office.dead_letter(name)
        has_ended = await office.kill_after(moment, office.redrive(name))
        await office.redrive(name)
        await office.check_all_back(name)
        if has_ended:
            break
        kills += 1
        moment += 0.004
    assert kills > 20
    entries = [message.key for message in await office.read(AUDIT)]
    assert set(entries) == {b"warm.dlq", *(b"t%d.dlq" % number for number in range(kills + 1))}


@run_with(play)
async def test_suspended_redriver_cannot_continue_after_another_has_begun(office: Office) -> None:
    for number in range(12):
        name = f"t{number}"
        await office.dead_letter(name)
        first = asyncio.ensure_future(office.redrive(name))
        await asyncio.sleep(0.002 * number)
        ends = await asyncio.gather(first, office.redrive(name), return_exceptions=True)
        for end in ends:
            assert isinstance(end, int) or _is_fenced(end)
        await office.redrive(name)
        await office.check_all_back(name)


def _is_fenced(end: BaseException) -> bool:
    return isinstance(end, Refused) and end.code in (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    )


@run_with(play)
async def test_filtered_redrive_leaves_the_remaining_dead_letters(office: Office) -> None:
    await office.dead_letter("t")
    assert await office.redrive("t", DeadLetterFilter(error_class="even")) == 4
    await office.check_all_back("t", [0, 3, 6, 9])
    assert await office.redrive("t", DeadLetterFilter(error_class="even")) == 0
    assert await office.redrive("t") == 8


@run_with(play)
async def test_copy_killed_at_any_moment_has_every_record_once(office: Office) -> None:
    async def copy(name: str) -> int:
        async with office.cluster() as cluster:
            places = await partitions_of(cluster, "warm.dlq")
            spans = await resolve(cluster, places, OffsetRange(START), must_end=True)
            work = CopyPlan(name, name, spans)
            return (await Copier(cluster, work, records_max=3).run()).copied

    moment, kills = 0.0, 0
    while True:
        name = f"c{kills}"
        async with office.cluster() as cluster:
            await Admin(cluster).create_topic(name, 2, 1)
        has_ended = await office.kill_after(moment, copy(name))
        copied = await office.read(name)
        if not has_ended and len(copied) < COUNT:
            await copy(name)
            copied = await office.read(name)
        numbers = sorted(int(message.value or b"") for message in copied)
        assert numbers == list(range(COUNT))
        if has_ended:
            break
        kills += 1
        moment += 0.004
    assert kills > 10
