"""Moves messages from one queue to another in the background (StartMessageMoveTask).

A task is a record in the metadata store: any node lists and cancels it, the node that took it does
it, and goes on with it after a restart. Of the messages that are there at its start each is
received, published where it goes and then deleted: one that is moved twice is possible if the
node dies in between, one that is lost is not. Headers with which a message says something about
its own delivery stay behind, for they have had their say; so do those of its death.

Bounds: tasks under way, tasks that are remembered of each queue, messages in one step.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.fair_pool import FairPool
from penstock.base.ports import Delete, Put, StoreEntry, UnknownResult
from penstock.cluster.metadata import compare_and_swap, store_keys
from penstock.cluster.metadata.store_keys import MoveRecord
from penstock.coordinator.queues.policy import DEAD_LETTERS
from penstock.gateway.core.caller import Principal
from penstock.gateway.core.gateway import Gateway, SettleAction, Settlement
from penstock.gateway.core.messages import Headers, OutgoingMessage, ReceivedMessage
from penstock.gateway.http.request_io import ClientWatch
from penstock.gateway.sqs.call import AwsCall
from penstock.gateway.sqs.errors import Fault
from penstock.gateway.sqs.message_attributes import TRACE, TYPES, header
from penstock.gateway.sqs.queue_depths import depth_of
from penstock.gateway.sqs.receive import prepare_group
from penstock.state.queues import dead_letter_format, delivery_headers
from penstock.wire.messages.internal.queue_admin import (
    ChangedPartition,
    ChangeQueuesRequest,
    ChangeQueuesResponse,
    OffsetRun,
)

RUNNING, CANCELLING, CANCELLED = "RUNNING", "CANCELLING", "CANCELLED"
COMPLETED, FAILED = "COMPLETED", "FAILED"
ACTIVE = (RUNNING, CANCELLING)
TASKS_MAX, EACH_MAX = 64, 16
"""In the cluster, and of one principal, or one address where nobody has logged in."""
REMEMBERED_MAX = 10
STEP_MAX = 100
LOCK_MS = 60_000
WAIT_MS = 1_000
"""How long nothing may come until nothing is left."""
FINISH = 0
VERSION = 0
"""Of ChangeQueues."""
KEPT_HEADERS = frozenset({TYPES, TRACE, delivery_headers.PRIORITY})


def _no_client() -> ClientWatch:
    raise AssertionError("a task has no client")


def _holder_of(record: MoveRecord) -> str:
    return Principal(record.principal, record.host).holder


class MessageMoves:
    """The tasks of this node."""

    def __init__(self, door: Gateway) -> None:
        self.door = door
        self._store = door.ctx.admin.store
        self._new: asyncio.Queue[str] = asyncio.Queue(TASKS_MAX)

    async def run(self) -> None:
        """Goes on with what was under way, then takes what comes, until cancelled."""
        for handle, record in await self.records():
            if record.owner == self.door.ctx.node_id and record.status in ACTIVE:
                self._new.put_nowait(handle)
        async with asyncio.TaskGroup() as tasks:
            while True:
                handle = await self._new.get()
                tasks.create_task(self._do(handle))

    async def records(self) -> list[tuple[str, MoveRecord]]:
        """Every task that is remembered, by its handle, the newest first."""
        _, entries = await self._store.range(store_keys.MOVES)
        found = [
            (entry.key.removeprefix(store_keys.MOVES), store_keys.decode(MoveRecord, entry.value))
            for entry in entries
        ]
        return sorted(found, key=lambda item: (-item[1].started_ms, item[0]))

    async def add(self, record: MoveRecord) -> str:
        """Starts a task and answers with its handle; forgets the oldest ones of the same queue."""
        known = await self.records()
        active = [old for _, old in known if self.status_of(old) in ACTIVE]
        if any(old.source == record.source for old in active):
            raise Fault(
                "UnsupportedOperation",
                "There is already a task running. Only one active task is allowed for a source "
                "queue arn at a given time.",
            )
        places = FairPool(TASKS_MAX, EACH_MAX)
        for task in active:
            places.take(_holder_of(task))
        if not places.take(_holder_of(record)):
            why = f"At most {TASKS_MAX} tasks at a time, {EACH_MAX} of them of one user."
            raise Fault("OverLimit", why)
        handle = self.door.ctx.random.random_bytes(16).hex()
        old = [name for name, past in known if past.source == record.source]
        dropped = [Delete(store_keys.MOVES + name) for name in old[REMEMBERED_MAX - 1 :]]
        put = Put(store_keys.MOVES + handle, store_keys.encode(record))
        await compare_and_swap.swap(
            self._store, [put.key], lambda _: [put, *dropped[:REMEMBERED_MAX]]
        )
        self._new.put_nowait(handle)
        return handle

    async def change(self, handle: str, **fields: object) -> MoveRecord:
        """Changes a task's record, unless the task has ended; answers with what it is then."""
        after: list[MoveRecord] = []

        def decide(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
            entry = entries[0]
            if entry is None:
                raise Fault("ResourceNotFoundException", "There is no such task.")
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

    def status_of(self, record: MoveRecord) -> str:
        """As it is shown: a task of a node that is not there makes no progress."""
        is_there = record.owner in self.door.ctx.image.brokers
        return FAILED if record.status in ACTIVE and not is_there else record.status

    # -- doing ------------------------------------------------------------------------------

    async def _do(self, handle: str) -> None:
        try:
            record = await self.change(handle, status=RUNNING)
            status, reason = await self._move(handle, record), None
        except Fault as fault:
            status, reason = FAILED, fault.message
        except Refused as refused:
            status, reason = FAILED, refused.message or refused.code.name
        except (PeerError, OSError, UnknownResult) as error:
            status, reason = FAILED, str(error)
        try:
            await self.change(handle, status=status, reason=reason)
        except (Fault, Refused):
            return  # It was forgotten, or the store is away: the next start goes on with it.

    async def _move(self, handle: str, record: MoveRecord) -> str:
        """Moves what is there; answers how that ended."""
        loop = asyncio.get_running_loop()
        call = AwsCall(self.door, principal_of(record), "", "", self, _no_client)
        queue = call.queue_named(record.source)
        await prepare_group(call, queue.group)
        to_move = record.to_move or (await depth_of(call, queue)).visible
        moved = record.moved
        while moved < to_move and record.status == RUNNING:
            began = loop.time()
            received = await self.door.receive(
                principal_of(record),
                queue.name,
                queue.group,
                records_max=min(STEP_MAX, record.rate_max or STEP_MAX, to_move - moved),
                wait_ms=WAIT_MS,
                lock_ms=LOCK_MS,
            )
            if not received:
                break
            moved += await self._pass_on(record, received)
            record = await self.change(handle, moved=moved, to_move=to_move)
            if record.rate_max:
                await asyncio.sleep(len(received) / record.rate_max - (loop.time() - began))
        return CANCELLED if record.status == CANCELLING else COMPLETED

    async def _pass_on(self, record: MoveRecord, received: list[ReceivedMessage]) -> int:
        """Publishes messages where they go, and deletes those that are there."""
        by_target: dict[str, list[ReceivedMessage]] = {}
        lost: list[ReceivedMessage] = []
        for got in received:
            target = record.destination or source_of(got)
            if target is None or target not in self.door.ctx.image.topics:
                lost.append(got)
            else:
                by_target.setdefault(target, []).append(got)
        settlements = [Settlement(got.receipt, SettleAction.RELEASE, delay_ms=0) for got in lost]
        refused: Refused | None = None
        gone: list[ReceivedMessage] = []
        for target, some in by_target.items():
            messages = [outgoing_of(got) for got in some]
            placed = await self.door.publish(principal_of(record), target, messages)
            for got, place in zip(some, placed, strict=True):
                if isinstance(place, Refused):
                    refused = place
                    settlements.append(Settlement(got.receipt, SettleAction.RELEASE, delay_ms=0))
                else:
                    settlements.append(Settlement(got.receipt, SettleAction.ACCEPT))
                    gone.append(got)
        await self.door.settle(principal_of(record), settlements)
        await self._resolve(record, gone)
        if refused is not None:
            raise refused
        if lost:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "CouldNotDetermineMessageSource")
        return len(received)

    async def _resolve(self, record: MoveRecord, gone: list[ReceivedMessage]) -> None:
        """Tells those who keep account of dead letters (`penstock dlq`) that these are no more.

        A failure is of no consequence: a letter is then listed that has been redriven.
        """
        topic = self.door.ctx.image.topics.get(record.source)
        if topic is None:
            return
        runs: dict[int, list[OffsetRun]] = {}
        for got in gone:
            runs.setdefault(got.partition, []).append(OffsetRun(first=got.offset, last=got.offset))
        await self.door.leaders.ask(
            principal_of(record),
            topic,
            list(runs),
            lambda indexes: ChangeQueuesRequest(
                group_id=DEAD_LETTERS,
                topic=record.source,
                kind=FINISH,
                partitions=[ChangedPartition(partition=at, runs=runs[at]) for at in indexes],
            ),
            ChangeQueuesResponse,
            version=VERSION,
        )


def principal_of(record: MoveRecord) -> Principal:
    """On whose behalf it is done."""
    return Principal(record.principal, record.host)


def source_of(got: ReceivedMessage) -> str | None:
    """The queue that gave a message up."""
    source = header(got.headers, dead_letter_format.TOPIC)
    return None if source is None else source.decode("utf-8", "replace")


def outgoing_of(got: ReceivedMessage) -> OutgoingMessage:
    return OutgoingMessage(got.payload, got.key, tuple(_kept(got.headers)))


def _kept(headers: Headers) -> list[tuple[str, bytes | None]]:
    return [
        (name, value)
        for name, value in headers
        if not name.startswith(delivery_headers.PREFIX) or name in KEPT_HEADERS
    ]
