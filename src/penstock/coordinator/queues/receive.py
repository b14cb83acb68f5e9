"""Receive for one member from several queues at once, for every protocol.

Asks the queues in the given order until there is enough, else waits for the first one with records;
then takes what is ready in the rest as well. Leased records are read from the logs, and those that
do not fit are released, uncounted; so are all of them if the client disconnects before its
response. The response is sent when the leases are persisted.

Queues of other nodes are not here: `router` asks their leaders.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.coordinator.queues.open_queue import OpenQueue
from penstock.coordinator.queues.open_queues import QueueCoordinator
from penstock.coordinator.queues.record_reader import LeasedBatches, read_leased
from penstock.state.queues.delivery import Delivery, DeliveryOutcome
from penstock.state.queues.delivery_state import LeaseState
from penstock.state.queues.state_shard import QueueKey

TRANSIENT = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
)
"""The queue cannot be opened for now: there are no records, and the client may retry."""
CATCH_UP_SECONDS = 1.0
POLL_SECONDS = 0.002
FENCED = (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(frozen=True, slots=True)
class ReceiveRequest:
    """Limits and options of a receive."""

    member: str
    records_max: int
    """0: the queues are opened, so that the group has an offset in all of them; and if there is
    time to wait, they read their logs."""
    bytes_max: int
    bytes_min: int = 1
    """Estimated bytes to wait for."""
    wait_ms: int = 0
    lock_ms: int | None = None
    """Lease duration in ms; None: by the group's config."""
    fills: bool = False
    """True if queues are asked again for records of lower priority, until the response is full."""
    reset: str | None = None
    """Start of a group without an offset; None: by its config."""
    share_min: int = 1
    """Minimum number of records, if available, however many consumers wait."""
    with_followers: bool = False
    """True if several of one key may be among them, where queues keep an order by key."""
    unpacks: bool = False
    """True if batches are returned decompressed, and `bytes_max` limits their decompressed size."""


@dataclass(slots=True)
class Taken:
    """Result of a receive."""

    found: dict[QueueKey, LeasedBatches] = field(default_factory=dict)
    refused: dict[QueueKey, Refused] = field(default_factory=dict)
    is_partial: bool = False
    """True if some queue could not be asked for now: it may have records."""


def nothing() -> None:
    """Does nothing when a wait begins."""


async def take(
    queues: QueueCoordinator,
    keys: Iterable[QueueKey],
    wanted: ReceiveRequest,
    no_wait: "asyncio.Future[None] | None" = None,
    *,
    on_wait: Callable[[], None] = nothing,
    partial_waits: bool = True,
) -> Taken:
    """Leases records to a member, as soon as there are any; those available once `no_wait` is done.

    `on_wait` is called once, before the first wait. Without `partial_waits` it does not wait while
    some queue cannot be asked.
    """
    taking = _Taking(queues, wanted, on_wait, partial_waits)
    if no_wait is not None:
        no_wait.add_done_callback(taking.end_wait)
    return await taking.run(list(keys))


class _Taking:
    """One attempt; an `open_queue.Taker` at every queue it asks."""

    def __init__(
        self,
        queues: QueueCoordinator,
        wanted: ReceiveRequest,
        on_wait: Callable[[], None],
        partial_waits: bool,
    ) -> None:
        self._queues = queues
        self._wanted = wanted
        self._on_wait = on_wait
        self._partial_waits = partial_waits
        self._records_left = wanted.records_max
        self._bytes = 0
        self._unkept = 0
        self._asked: dict[OpenQueue, None] = {}
        self._granted: dict[OpenQueue, list[LeaseState]] = {}
        self._taken = Taken()
        self._unreadable: dict[QueueKey, Refused] = {}
        """Queues that no node can serve before a repair: the wait is for the rest."""
        self._is_over = False
        self._is_wait_over = False
        self._news = asyncio.Event()

    def end_wait(self, done: "asyncio.Future[None]") -> None:
        self._wait_no_more()

    def _wait_no_more(self) -> None:
        """Ends the wait when the timer fires, which may be a little early by the loop's clock."""
        self._is_wait_over = True
        self._news.set()

    # -- being handed records ----------------------------------------------------------------

    @property
    def member(self) -> str:
        return self._wanted.member

    @property
    def lock_ms(self) -> int | None:
        return self._wanted.lock_ms

    @property
    def share_min(self) -> int:
        return self._wanted.share_min

    @property
    def with_followers(self) -> bool:
        return self._wanted.with_followers

    def capacity(self, queue: OpenQueue) -> int:
        if self._is_over:
            return 0
        fitting = (self._wanted.bytes_max - self._bytes) // _record_bytes(queue)
        return min(self._records_left, max(fitting, 0 if self._bytes else 1))

    def taken(self, queue: OpenQueue, leases: tuple[LeaseState, ...]) -> None:
        self._unkept += 1
        self._granted.setdefault(queue, []).extend(leases)
        count = sum(lease.last - lease.first + 1 for lease in leases)
        self._records_left -= count
        self._bytes += count * _record_bytes(queue)
        self._news.set()

    def kept(
        self, queue: OpenQueue, leases: tuple[LeaseState, ...], refused: Refused | None
    ) -> None:
        self._unkept -= 1
        if refused is not None:
            self._granted.pop(queue, None)
            self._taken.found.pop(queue.key, None)
            self._refuse(queue.key, refused)
        self._news.set()

    def turned_away(self, queue: OpenQueue, why: Refused) -> None:
        self._refuse(queue.key, why)
        self._news.set()

    def _refuse(self, key: QueueKey, refused: Refused) -> None:
        if refused.code in TRANSIENT:
            self._taken.is_partial = True
            return
        if refused.code in FENCED:
            refused = Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, refused.message)
        self._taken.refused[key] = refused

    # -- procedure --------------------------------------------------------------------------

    async def run(self, keys: list[QueueKey]) -> Taken:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wanted.wait_ms / 1000
        is_answered = False
        try:
            await self._stand_in_line(keys)
            if self._wanted.records_max > 0:
                await self._wait(deadline)
                await self._catch_up()
                self._sweep()
            elif self._wanted.wait_ms:
                await self._catch_up()
            self._leave()
            await self._read_all()
            while self._unkept:
                self._news.clear()
                await self._news.wait()
            self._drop_expired()
            self._taken.refused |= self._unreadable
            is_answered = True
        finally:
            self._leave()
            if not is_answered:
                for queue, leases in self._granted.items():
                    give_back(queue, leases)
        return self._taken

    async def _stand_in_line(self, keys: list[QueueKey]) -> None:
        """Asks every queue in turn, until there is enough."""
        reset = self._wanted.reset
        for key in keys:
            try:
                queue = self._queues.find(key) or await self._queues.open(key, reset=reset)
                self._asked[queue] = None
                if not self._is_enough or (self._wanted.fills and self.capacity(queue)):
                    queue.take(self)
            except Refused as refused:
                if refused.code is ErrorCode.KAFKA_STORAGE_ERROR:
                    self._unreadable[key] = refused
                else:
                    self._refuse(key, refused)
            except (Corrupt, OSError) as error:
                self._refuse(key, Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        if self._wanted.fills:
            self._fill()

    def _fill(self) -> None:
        """Takes what the first round left: a queue hands out records of one priority at a time."""
        left = self._records_left + 1
        while self._bytes and self._records_left < left:
            left = self._records_left
            for queue in self._asked:
                if queue.machine.ready_count and self.capacity(queue) > 0:
                    with contextlib.suppress(Refused):  # It was closed meanwhile.
                        queue.take(self)

    def _sweep(self) -> None:
        """Takes what is ready in the remaining queues as well: else records of each would wait for
        a response of their own, and for all those before it."""
        for queue in self._asked:
            if not self._bytes or self._records_left <= 0:
                return
            if (
                queue not in self._granted
                and queue.machine.ready_count
                and self.capacity(queue) > 0
            ):
                with contextlib.suppress(Refused):  # It was closed meanwhile.
                    queue.take(self)

    @property
    def _is_enough(self) -> bool:
        return self._bytes >= self._wanted.bytes_min or self._records_left <= 0

    async def _wait(self, deadline: float) -> None:
        if self._wanted.wait_ms <= 0 or self._is_enough:
            return
        if self._taken.is_partial and not self._partial_waits:
            return
        self._on_wait()
        timer = asyncio.get_running_loop().call_at(deadline, self._wait_no_more)
        try:
            while not (self._is_enough or self._taken.refused or self._is_wait_over):
                self._news.clear()
                await self._news.wait()
                if not self._is_enough:
                    self._wait_on()
        finally:
            timer.cancel()

    async def _catch_up(self) -> None:
        """Waits for newly opened queues to read their logs: without it, a receive without wait
        would find nothing there."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CATCH_UP_SECONDS
        while not (self._bytes or self._taken.refused or loop.time() >= deadline):
            if not any(queue.is_behind for queue in self._asked):
                break
            await asyncio.sleep(POLL_SECONDS)

    def _wait_on(self) -> None:
        """Waits again where it got records, but too few."""
        for queue in self._asked:
            if not queue.is_closed and not queue.is_waiting(self):
                queue.take(self)

    def _leave(self) -> None:
        self._is_over = True
        for queue in self._asked:
            queue.forget(self)

    async def _read_all(self) -> None:
        """Reads the leased records, and releases those that do not fit."""
        left = self._wanted.bytes_max
        for queue, leases in list(self._granted.items()):
            found = await self._read(queue, leases, left) if left > 0 else None
            if queue not in self._granted:
                continue  # It could not be persisted meanwhile.
            if found is None:
                del self._granted[queue]
                give_back(queue, leases)
                continue
            left -= found.size
            give_back(queue, found.left)
            self._granted[queue] = found.leases
            self._taken.found[queue.key] = found

    def _drop_expired(self) -> None:
        """Leaves out leases that ended while they were persisted: another member may already hold
        their records. They count as expired."""
        for queue in self._granted:
            found = self._taken.found.get(queue.key)
            if found is None:
                continue
            now_ms = queue.time.now_ms()
            found.leases = [lease for lease in found.leases if lease.deadline_ms > now_ms]
            if not found.leases:
                del self._taken.found[queue.key]

    async def _read(
        self, queue: OpenQueue, leases: Sequence[LeaseState], bytes_max: int
    ) -> LeasedBatches | None:
        around = self._queues.around
        try:
            return await read_leased(
                queue.partition,
                around.workers,
                leases,
                bytes_max,
                unpacks=self._wanted.unpacks,
            )
        except Refused as refused:
            self._refuse(queue.key, refused)
        except (Corrupt, OSError) as error:
            around.partitions.read_failed(queue.partition, error)
            self._refuse(queue.key, Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        return None


def _record_bytes(queue: OpenQueue) -> int:
    """Returns the average size of a record in this partition."""
    files = queue.partition.log
    return max(1, files.size_bytes // max(1, files.end_offset - files.start_offset))


def give_back(queue: OpenQueue, leases: Iterable[LeaseState]) -> None:
    """Releases leases that do not reach their member, as if they had not been handed out."""
    for lease in leases:
        try:
            queue.change(_returning(lease), lambda refused: None)
        except Refused:
            continue  # It has expired, or the queue is closed, which handles it.


def _returning(lease: LeaseState) -> Callable[[Delivery, int], DeliveryOutcome]:
    return lambda machine, now_ms: machine.give_back(lease.member, lease.first, lease.last, now_ms)
