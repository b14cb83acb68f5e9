"""Move tasks: background tasks that redrive messages of a dead-letter queue, exactly once.

A task is a record in the metadata store. Any node can list and cancel it; the node that accepted it
runs it, and resumes it after a restart. A task moves the messages that are in the queue at its
start. It leases each from the queue, so that consumers do not get it meanwhile, lets the redrive
engine (`client.dead_letters.redrive`) send it, and finishes it in the queue. A message that the
engine has settled is not sent again: if the node dies in between, the resumed task only finishes
it. The same holds for a message still in the queue that was redriven or purged by other means.

Bounds: running tasks, finished tasks kept per queue, messages per step.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.fair_pool import FairPool
from penstock.base.ports import Delete, Put, StoreEntry, UnknownResult
from penstock.broker.api.quota import Throttled
from penstock.broker.api.route_row import Operation
from penstock.client.consumer.fetched import FetchedRecord
from penstock.client.dead_letters.message import DeadLetterMessage, dead_letter_of
from penstock.client.dead_letters.redrive import Redriver, is_record_lost
from penstock.cluster.metadata import compare_and_swap, store_keys
from penstock.cluster.metadata.store_keys import MoveRecord
from penstock.gateway.core.gateway import Gateway, SettleAction, Settlement
from penstock.gateway.core.messages import ReceivedMessage
from penstock.gateway.core.permissions import Principal, require_topic
from penstock.gateway.core.queues import queue_group

RUNNING, CANCELLING, CANCELLED = "RUNNING", "CANCELLING", "CANCELLED"
COMPLETED, FAILED = "COMPLETED", "FAILED"
ACTIVE = (RUNNING, CANCELLING)
TASKS_MAX, EACH_MAX = 64, 16
"""Running tasks in the cluster, and per principal, or per address of anonymous clients."""
REMEMBERED_MAX = 10
STEP_MAX = 100
LOCK_MS = 60_000
WAIT_MS = 1_000
"""The queue counts as empty after this time without messages."""
RETRY_SECONDS = 1.0
"""Pause after a step that could not move anything yet because of an open transaction."""
NO_SOURCE = "CouldNotDetermineMessageSource"

__all__ = ["MoveRecord", "MoveTasks"]


def _holder_of(record: MoveRecord) -> str:
    return principal_of(record).holder


def principal_of(record: MoveRecord) -> Principal:
    """Returns the principal on whose behalf a task runs."""
    return Principal(record.principal, record.host)


@dataclass(slots=True)
class _Step:
    """Leased messages of one step: those to move and those to leave."""

    dead_letters: dict[str, tuple[ReceivedMessage, DeadLetterMessage]] = field(default_factory=dict)
    """Messages that can be moved, by id."""
    left: list[ReceivedMessage] = field(default_factory=list)
    reason: str | None = None
    """Reason for the first one left."""

    def leave(self, got: ReceivedMessage, reason: str) -> None:
        self.left.append(got)
        self.reason = self.reason or reason


class MoveTasks:
    """Move tasks of the cluster; runs those of this node."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._store = gateway.ctx.admin.store
        self._new: asyncio.Queue[tuple[str, bool]] = asyncio.Queue(TASKS_MAX)

    async def run(self) -> None:
        """Resumes this node's unfinished tasks, then runs new ones, until cancelled."""
        for handle, record in await self.records():
            if record.owner == self.gateway.ctx.node_id and record.status in ACTIVE:
                self._new.put_nowait((handle, True))
        async with asyncio.TaskGroup() as tasks:
            while True:
                handle, is_resumed = await self._new.get()
                tasks.create_task(self._do(handle, is_resumed))

    async def records(self) -> list[tuple[str, MoveRecord]]:
        """Returns all stored tasks with their handles, newest first."""
        _, entries = await self._store.range(store_keys.MOVES)
        found = [
            (entry.key.removeprefix(store_keys.MOVES), store_keys.decode(MoveRecord, entry.value))
            for entry in entries
        ]
        return sorted(found, key=lambda item: (-item[1].started_ms, item[0]))

    def status_of(self, record: MoveRecord) -> str:
        """Status as shown to users: an active task of an absent node counts as failed."""
        is_there = record.owner in self.gateway.ctx.image.brokers
        return FAILED if record.status in ACTIVE and not is_there else record.status

    async def start(
        self,
        principal: Principal,
        source: str,
        *,
        to_move: int,
        destination: str | None = None,
        rate_max: int | None = None,
    ) -> str:
        """Starts a task and returns its handle; the caller has checked the permissions.

        Without a destination each message goes back to the topic it came from.
        """
        ctx = self.gateway.ctx
        return await self.add(
            MoveRecord(
                source=source,
                started_ms=ctx.clock.now_ms(),
                owner=ctx.node_id,
                principal=principal.name,
                host=principal.host,
                destination=destination,
                rate_max=rate_max,
                to_move=to_move,
            )
        )

    async def add(self, record: MoveRecord) -> str:
        """Persists a task and starts it; drops the oldest ones of the same queue.

        Raises Refused: DUPLICATE_RESOURCE while the queue has an active task, POLICY_VIOLATION if
        too many tasks are active.
        """
        known = await self.records()
        active = [old for _, old in known if self.status_of(old) in ACTIVE]
        if any(old.source == record.source for old in active):
            why = (
                f"a task already moves messages of {record.source}: wait for it, or cancel it first"
            )
            raise Refused(ErrorCode.DUPLICATE_RESOURCE, why)
        places = FairPool(TASKS_MAX, EACH_MAX)
        for task in active:
            places.take(_holder_of(task))
        if not places.take(_holder_of(record)):
            why = (
                f"too many active move tasks: at most {TASKS_MAX} in the cluster and {EACH_MAX} "
                "per user; wait for one to end, or cancel one"
            )
            raise Refused(ErrorCode.POLICY_VIOLATION, why)
        handle = self.gateway.ctx.random.random_bytes(16).hex()
        old = [name for name, past in known if past.source == record.source]
        dropped = [Delete(store_keys.MOVES + name) for name in old[REMEMBERED_MAX - 1 :]]
        put = Put(store_keys.MOVES + handle, store_keys.encode(record))
        await compare_and_swap.swap(
            self._store, [put.key], lambda _: [put, *dropped[:REMEMBERED_MAX]]
        )
        self._new.put_nowait((handle, False))
        return handle

    async def cancel(self, principal: Principal, handle: str) -> MoveRecord:
        """Stops a task after its current step; refuses (RESOURCE_NOT_FOUND) if it has ended."""
        record = dict(await self.records()).get(handle)
        if record is None or record.status not in ACTIVE:
            raise Refused(ErrorCode.RESOURCE_NOT_FOUND, "the task does not exist, or has ended")
        require_topic(self.gateway.ctx, principal, Operation.READ, record.source)
        is_running = self.status_of(record) in ACTIVE
        return await self._change(handle, status=CANCELLING if is_running else CANCELLED)

    async def _change(self, handle: str, **fields: object) -> MoveRecord:
        """Changes a task's record, unless the task has ended; returns the record."""
        after: list[MoveRecord] = []

        def decide(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
            entry = entries[0]
            if entry is None:
                raise Refused(ErrorCode.RESOURCE_NOT_FOUND, "the task does not exist")
            record = store_keys.decode(MoveRecord, entry.value)
            wanted = dict(fields)
            if record.status == CANCELLING and wanted.get("status") == RUNNING:
                del wanted["status"]
            if record.status in ACTIVE:
                record = msgspec.structs.replace(record, **wanted)
            after.append(record)
            value = store_keys.encode(record)
            return [] if value == entry.value else [Put(entry.key, value)]

        await compare_and_swap.swap(self._store, [store_keys.MOVES + handle], decide)
        return after[-1]

    # -- running ----------------------------------------------------------------------------

    async def _do(self, handle: str, is_resumed: bool) -> None:
        try:
            record = await self._change(handle, status=RUNNING)
            status, reason = await self._move(handle, record, is_resumed), None
        except Refused as refused:
            status, reason = FAILED, refused.message or refused.code.name
        except (PeerError, OSError, UnknownResult) as error:
            status, reason = FAILED, str(error)
        try:
            await self._change(handle, status=status, reason=reason)
        except Refused:
            return  # It was dropped, or the store is unavailable: the next start resumes it.

    async def _move(self, handle: str, record: MoveRecord, is_resumed: bool) -> str:
        """Moves the queue's messages; returns the final status."""
        gateway, principal = self.gateway, principal_of(record)
        there = gateway.topic_to(principal, Operation.READ, record.source)
        group = queue_group(there, gateway.ctx.configs)
        loop = asyncio.get_running_loop()
        # Messages leased before a restart of this node return when those leases expire.
        patient_until = loop.time() + (LOCK_MS / 1000 if is_resumed else 0)
        async with gateway.dead_letters.redriver(
            principal, record.source, handle, to=record.destination, rate_per_s=record.rate_max
        ) as redriver:
            while record.moved < record.to_move and record.status == RUNNING:
                most = min(STEP_MAX, record.rate_max or STEP_MAX, record.to_move - record.moved)
                received = await self._receive(principal, record.source, group, most)
                if not received and loop.time() >= patient_until:
                    break
                moved, reason = await self._step(record, redriver, received)
                record = await self._change(handle, moved=record.moved + moved)
                if reason is not None:
                    raise Refused(ErrorCode.INVALID_REQUEST, reason)
                if received and not moved:
                    await asyncio.sleep(RETRY_SECONDS)
        return CANCELLED if record.status == CANCELLING else COMPLETED

    async def _receive(
        self, principal: Principal, topic: str, group: str, most: int
    ) -> list[ReceivedMessage]:
        """Leases messages; waits while the principal is above its quota."""
        while True:
            try:
                return await self.gateway.receive(
                    principal, topic, group, records_max=most, wait_ms=WAIT_MS, lock_ms=LOCK_MS
                )
            except Throttled as throttled:
                await asyncio.sleep(throttled.wait_s)

    async def _step(
        self, record: MoveRecord, redriver: Redriver, received: list[ReceivedMessage]
    ) -> tuple[int, str | None]:
        """Moves leased messages; returns how many left the queue, and why others stay."""
        step = self._sorted(record, received)
        if not step.dead_letters:
            await self._settle(record, [], step.left)
            return 0, step.reason
        dead_letters = [dead_letter for _, dead_letter in step.dead_letters.values()]
        try:
            settled = await redriver.settle(dead_letters)
        except (Refused, PeerError, OSError):
            # Messages settled before the failure are recognized when they are received again.
            await self._settle(record, [], received)
            raise
        gone = [got for name, (got, _) in step.dead_letters.items() if name in settled]
        left = [got for name, (got, _) in step.dead_letters.items() if name not in settled]
        await self._settle(record, gone, step.left + left)
        too_large = (redriver.report.too_large.get(dead_letter.id) for dead_letter in dead_letters)
        return len(gone), next((why for why in too_large if why is not None), step.reason)

    def _sorted(self, record: MoveRecord, received: list[ReceivedMessage]) -> _Step:
        """Separates the messages that have an existing target from the others."""
        step = _Step()
        topics = self.gateway.ctx.image.topics
        for got in received:
            dead_letter = _dead_letter_of(got)
            source = None if dead_letter.source is None else dead_letter.source.topic
            if (record.destination or source) not in topics:
                step.leave(got, NO_SOURCE)
            elif is_record_lost(dead_letter):
                step.leave(
                    got, f"the record of message {dead_letter.id} was lost before it was copied"
                )
            else:
                step.dead_letters[dead_letter.id] = got, dead_letter
        return step

    async def _settle(
        self, record: MoveRecord, gone: Sequence[ReceivedMessage], left: Sequence[ReceivedMessage]
    ) -> None:
        """Finishes the moved messages; gives back the others as if never received."""
        finished = [Settlement(got.receipt, SettleAction.FINISH) for got in gone]
        given_back = [Settlement(got.receipt, SettleAction.GIVE_BACK) for got in left]
        if finished or given_back:
            await self.gateway.settle(principal_of(record), finished + given_back)


def _dead_letter_of(got: ReceivedMessage) -> DeadLetterMessage:
    """Returns a message of a dead-letter queue in the form that the redrive engine uses."""
    return dead_letter_of(
        FetchedRecord(
            got.topic,
            got.partition,
            got.offset,
            got.timestamp_ms,
            got.key,
            got.payload,
            got.headers,
        )
    )
