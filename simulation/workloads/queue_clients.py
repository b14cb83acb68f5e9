"""Publishers and members of a queue, and an administrator who redrives dead letters.

Publishers use the real producer and set delivery options in headers. Members lease messages from
leaders and settle them as gateways do (TakeFromQueues, SettleLeases): they accept, release with a
delay, reject, extend, return, settle late or not at all, and die. The redriver is killed in the
middle of its work and restarted. All report to `checkers.queue_deliveries`.

Every publisher has its own clock, up to `skew_s` ahead or behind, which changes at random.
"""

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.ids import TopicId
from penstock.client.dead_letters.redrive import REDRIVEN_FROM, Redriver, RedriveRequest
from penstock.client.errors import DeliveryTimeout, code_of
from penstock.client.metadata import TopicPartition
from penstock.client.producer.producer import Producer
from penstock.client.producer.sender import ProducerConfig
from penstock.coordinator.queues.settle import SettleAction
from penstock.state.queues import delivery_headers
from penstock.wire.messages.internal.queues import (
    LeaseRuling,
    SettleLeasesRequest,
    SettleLeasesResponse,
    TakeFromQueuesRequest,
    TakeFromQueuesResponse,
)
from penstock.wire.records import batches, decode, is_control
from simulation.checkers.queue_deliveries import DeliveryChecker, Place, Sent
from simulation.client import NO_REPLY, SimClient
from simulation.clock import EPOCH_MS, SimClock
from simulation.random import SimRandom

if TYPE_CHECKING:
    from simulation.world import World

TOPIC, GROUP = "jobs", "workers"
DEAD = f"{TOPIC}.dlq"
DELIVERY_TIMEOUT_MS = 600_000
WAIT_MS = 300
BYTES_MAX = 1 << 20
TROUBLE = (OSError, PeerError, Refused)
POISON = b"poison"
"""Prefix of messages that members reject; they accept redriven copies of them."""


@dataclass(slots=True)
class QueueRunContext:
    """State shared by publishers and members of one run."""

    world: "World"
    checker: DeliveryChecker
    partitions: int
    lock_ms: int
    """Lease duration of the group."""
    skew_s: float
    is_ordered: bool = False
    is_calm: bool = False
    """True at the end: members accept everything, and publishers stop."""
    topic_id: TopicId = field(default_factory=lambda: TopicId(bytes(16)))

    def epoch(self, index: int) -> int:
        """Highest leader epoch of the partition on any running node; -1 while an older leader may
        still answer."""
        partitions = [
            partition
            for node in self.world.cluster.nodes()
            if (partition := node.partitions.get(TOPIC, index)) is not None
        ]
        highest = max((one.leader_epoch for one in partitions), default=-1)
        has_older = any(one.is_leader and one.leader_epoch < highest for one in partitions)
        return -1 if has_older else highest


class Publisher:
    """Publisher that sends `count` messages at random intervals and ends."""

    def __init__(
        self, context: QueueRunContext, client: SimClient, count: int, pause_s: float
    ) -> None:
        self.context = context
        self.client = client
        self.is_done = False
        self._count = count
        self._pause_s = pause_s
        self._rng = context.world.rng(f"publisher/{client.name}")
        self._clock = SimClock(context.world.loop, epoch_ms=EPOCH_MS)
        self._skew_ms = 0

    async def run(self) -> None:
        self._set_clock()
        while True:
            try:
                await self.client.cluster.refresh({TOPIC})
                break
            except NO_REPLY:
                await asyncio.sleep(0.5)
        producer = Producer(
            self._clock,
            SimRandom(self._rng.getrandbits(64)),
            self.client.cluster,
            ProducerConfig(delivery_timeout_ms=DELIVERY_TIMEOUT_MS, auto_create=False),
        )
        async with asyncio.TaskGroup() as deliveries:
            for number in range(self._count):
                deliveries.create_task(self._send(producer, number))
                if self._rng.random() < 0.1:
                    self._set_clock()
                if self._rng.random() < 0.8:
                    await asyncio.sleep(self._rng.uniform(0, 2 * self._pause_s))
        await producer.close()
        self.is_done = True

    def _set_clock(self) -> None:
        skew_ms = int(self._rng.uniform(-1, 1) * self.context.skew_s * 1000)
        self._clock.jump(skew_ms - self._skew_ms)
        self._skew_ms = skew_ms

    async def _send(self, producer: Producer, number: int) -> None:
        world, rng = self.context.world, self._rng
        now_s, headers = world.now(), []
        delay_s, ttl_s, dedup_id = 0.0, None, None
        kind = rng.random()
        if kind < 0.25:
            delay_s = round(rng.uniform(0.2, 8.0), 3)
            name, value = delivery_headers.DELAY_MS, int(delay_s * 1000)
            if rng.random() < 0.3:
                name, value = delivery_headers.DELIVER_AT, EPOCH_MS + int((now_s + delay_s) * 1000)
            headers.append((name, b"%d" % value))
        elif kind < 0.5:
            dedup_id = b"id-%d" % rng.randrange(6)
            headers.append((delivery_headers.DEDUP_ID, dedup_id))
        elif kind < 0.6:
            ttl_s = round(rng.uniform(0.5, 6.0), 3)
            headers.append((delivery_headers.TTL_MS, b"%d" % int(ttl_s * 1000)))
        if rng.random() < 0.2:
            headers.append((delivery_headers.PRIORITY, b"%d" % rng.randint(0, 9)))
        word = POISON if rng.random() < 0.1 else b"job"
        value_of = b"%s %s-%d" % (word, self.client.name.encode(), number)
        self.context.checker.sends(value_of, Sent(now_s, delay_s, ttl_s, dedup_id))
        world.results.operations["publish"] += 1
        key = b"k%d" % rng.randrange(4) if rng.random() < 0.7 else None
        index = rng.randrange(self.context.partitions)
        try:
            delivery = await producer.send(TOPIC, value_of, key, partition=index, headers=headers)
            sent = await delivery
        except (DeliveryTimeout, Refused) as error:
            world.reached(f"publish failed: {type(error).__name__}")
            return
        self.context.checker.acknowledged(value_of, (sent.partition, sent.offset))


@dataclass(slots=True)
class _Delivered:
    place: Place
    value: bytes
    count: int
    is_copy: bool


class Worker:
    """Member that leases messages from random leaders and settles them."""

    def __init__(self, context: QueueRunContext, client: SimClient) -> None:
        self.context = context
        self.client = client
        self._rng = context.world.rng(f"worker/{client.name}")

    async def run(self) -> None:
        rng = self._rng
        while True:
            index = rng.randrange(self.context.partitions)
            try:
                found = await self._take(index)
            except NO_REPLY:
                found = []
                await asyncio.sleep(rng.uniform(0.05, 0.3))
            if found:
                await self._settle(index, found)
            await asyncio.sleep(rng.uniform(0.01, 0.1))

    async def _take(self, index: int) -> list[_Delivered]:
        context, rng = self.context, self._rng
        is_calm = context.is_calm
        lock_ms = -1 if is_calm or rng.random() < 0.5 else rng.randint(1000, 2 * context.lock_ms)
        request = TakeFromQueuesRequest(
            group_id=GROUP,
            topic_id=context.topic_id,
            partitions=[index],
            member_id=self.client.name,
            records_max=10 if is_calm else rng.randint(1, 5),
            bytes_max=BYTES_MAX,
            wait_ms=rng.choice((0, WAIT_MS)),
            lock_ms=lock_ms,
            fills=rng.random() < 0.3,
            with_followers=context.is_ordered and rng.random() < 0.3,
        )
        asked_s, epoch = context.world.now(), context.epoch(index)
        answer = await self.client.ask_leader(
            TopicPartition(TOPIC, index), request, TakeFromQueuesResponse, version=0
        )
        assert not answer.error_code, answer
        if epoch != context.epoch(index):
            epoch = -1
        found: list[_Delivered] = []
        for row in answer.rows:
            self.client.note_reply("TakeFromQueues", row.error_code)
            counts = {
                offset: lease.delivery_count
                for lease in row.leases
                for offset in range(lease.first, lease.last + 1)
            }
            found += _read(row.records, counts, row.partition)
        held_s = (context.lock_ms if lock_ms < 0 else lock_ms) / 1000
        for one in found:
            context.checker.receives(
                self.client.name,
                one.place,
                one.value,
                one.count,
                asked_s,
                held_s,
                epoch,
                is_copy=one.is_copy,
            )
        return found

    async def _settle(self, index: int, found: list[_Delivered]) -> None:
        context, rng = self.context, self._rng
        if not context.is_calm:
            if rng.random() < 0.12:
                context.world.reached("member does not answer")
                return
            if rng.random() < 0.3:
                await asyncio.sleep(rng.uniform(0, 1.5 * context.lock_ms / 1000))
        rulings = [self._ruling(one) for one in found]
        asked_s, epoch, checker = context.world.now(), context.epoch(index), context.checker
        for one, ruling in zip(found, rulings, strict=True):
            accepts = ruling.verdict in (SettleAction.ACCEPT, SettleAction.FINISH)
            checker.answers(self.client.name, one.place, accepts=accepts)
            if ruling.verdict == SettleAction.GIVE_BACK:
                checker.gives_back(one.place, one.count)
        try:
            answer = await self.client.ask_leader(
                TopicPartition(TOPIC, index),
                SettleLeasesRequest(rulings=rulings),
                SettleLeasesResponse,
                version=0,
            )
        except NO_REPLY:
            context.world.reached("settlement unknown")
            return
        if epoch != context.epoch(index):
            epoch = -1
        for one, ruling, reply in zip(found, rulings, answer.answers, strict=True):
            code = self.client.note_reply(
                f"Settle {SettleAction(ruling.verdict).name}", reply.error_code
            )
            if code is ErrorCode.NONE:
                self._was_settled(one, ruling, asked_s, epoch)

    def _was_settled(
        self, one: _Delivered, ruling: LeaseRuling, asked_s: float, epoch: int
    ) -> None:
        checker = self.context.checker
        match ruling.verdict:
            case SettleAction.ACCEPT | SettleAction.FINISH:
                checker.was_accepted(one.place)
            case SettleAction.REJECT:
                checker.was_rejected(one.place)
            case SettleAction.RELEASE:
                delay_s = max(ruling.delay_ms, 0) / 1000
                checker.was_released(one.place, asked_s, delay_s, epoch)

    def _ruling(self, one: _Delivered) -> LeaseRuling:
        rng = self._rng
        verdict, delay_ms, error_class = SettleAction.ACCEPT, -1, ""
        if one.value.startswith(POISON) and not one.is_copy:
            verdict, error_class = SettleAction.REJECT, "Poisonous"
        elif not self.context.is_calm:
            drawn = rng.random()
            if drawn < 0.25:
                verdict = SettleAction.RELEASE
                delay_ms = rng.choice((-1, 0, 500, 3000))
            elif drawn < 0.3:
                verdict = SettleAction.GIVE_BACK
            elif drawn < 0.35:
                verdict = SettleAction.FINISH
        index, offset = one.place
        return LeaseRuling(
            group_id=GROUP,
            topic_id=self.context.topic_id,
            partition=index,
            member_id=self.client.name,
            first=offset,
            last=offset,
            verdict=verdict,
            delay_ms=delay_ms,
            error_class=error_class,
        )


def _read(data: bytes, counts: dict[int, int], index: int) -> list[_Delivered]:
    """Leased messages in whole batches."""
    view, found = memoryview(data), []
    for position, header in batches(view):
        if is_control(header.attributes):
            continue
        for record in decode(view[position : position + header.size_bytes]):
            if record.offset in counts:
                assert record.value is not None
                is_copy = any(name == REDRIVEN_FROM for name, _ in record.headers)
                place = index, record.offset
                found.append(_Delivered(place, bytes(record.value), counts[record.offset], is_copy))
    return found


class WorkerPool:
    """Members, which are killed and replaced at random."""

    def __init__(self, context: QueueRunContext, count: int) -> None:
        self.context = context
        self._clients: dict[int, SimClient] = {}
        self._numbers = itertools.count(1)
        self._count = count

    def _start(self, slot: int) -> None:
        client = self.context.world.client(f"worker{slot}.{next(self._numbers)}")
        self._clients[slot] = client
        client.start(Worker(self.context, client).run())

    async def live(self) -> None:
        rng = self.context.world.rng("workforce")
        for slot in range(self._count):
            self._start(slot)
        while not self.context.is_calm:
            await asyncio.sleep(rng.uniform(2.0, 10.0))
            slot = rng.randrange(self._count)
            self.context.world.fault("member dies")
            self._clients[slot].kill(silent=rng.random() < 0.5)
            self._start(slot)


class Redrives:
    """Administrator's process that redrives dead letters and is killed at random."""

    def __init__(self, context: QueueRunContext) -> None:
        self.context = context
        self.rng = context.world.rng("redrives")
        self.finished = 0
        """Number of completed redrives."""
        self.client: SimClient | None = None
        self._numbers = itertools.count(1)

    def start(self) -> None:
        """Replaces the process by a new one."""
        if self.client is not None:
            self.client.kill(silent=self.rng.random() < 0.5)
        self.client = self.context.world.client(f"redriver.{next(self._numbers)}")
        self.client.start(self._run(self.client))

    async def _run(self, client: SimClient) -> None:
        clock = SimClock(self.context.world.loop)
        for number in itertools.count(1):
            try:
                await client.cluster.refresh({TOPIC})
                request = RedriveRequest(DEAD, f"{client.name}-{number}", "administrator")
                redriver = Redriver(client.cluster, clock, request, messages_max=3)
                report = await redriver.run()
                self.finished += 1
                self.context.world.results.operations["redrive"] += report.settled
                self.context.world.reached("redrive finished")
            except TROUBLE as error:
                name = code_of(error.code).name if isinstance(error, Refused) else "lost"
                self.context.world.reached(f"redrive {name}")
            await asyncio.sleep(self.rng.uniform(0.5, 3.0))

    async def live(self) -> None:
        while not self.context.is_calm:
            await asyncio.sleep(self.rng.uniform(3.0, 8.0))
            self.start()
