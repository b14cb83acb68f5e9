"""The node's gateway: publish, receive and settle, whichever nodes lead the partitions.

Protocols (HTTP, SQS) translate their requests into these calls and the results back; they implement
no semantics. Every call names its principal, and is refused if the principal lacks the permission.
An error of the whole call is raised as Refused; an error of one message is in its place in the
result.

Bounds: `publish.MESSAGES_MAX`, `RECORDS_MAX`, `SETTLEMENTS_MAX`, `WAIT_MS_MAX`, `LOCK_MS_MAX`.

Prefetch limit of a stream: its flow control. A stream pushes messages. Without a limit a slow
consumer would hold leases on messages that it has not started with, until they expire. A
delivered message counts until it is settled through this node or its lease ends.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.base.tracing import Tracer
from penstock.broker.api.context import Context
from penstock.broker.api.queues.share_fetch import count_delivery
from penstock.broker.api.quota import GatewayQuota
from penstock.broker.api.route_row import Operation
from penstock.cluster.metadata.image import TopicImage
from penstock.coordinator.queues.receive import ReceiveRequest, Taken, nothing
from penstock.coordinator.queues.record_reader import leased_records
from penstock.coordinator.queues.settle import SettleAction, SettleCommand
from penstock.coordinator.runtime.steady_clock import SteadyTime
from penstock.gateway.core.background_jobs import BackgroundJobs
from penstock.gateway.core.coordinator_calls import CoordinatorCalls
from penstock.gateway.core.dead_letters import DeadLetterAdmin
from penstock.gateway.core.fanouts import Fanouts
from penstock.gateway.core.groups import (
    Groups,
    GroupScaling,
    ShareGroupRegistration,
    check_group_name,
)
from penstock.gateway.core.in_process_calls import InProcessCalls
from penstock.gateway.core.leader_calls import LeaderCalls
from penstock.gateway.core.log_reader import GatewayLogReader
from penstock.gateway.core.messages import (
    DELAY_MS_MAX,
    HANDED_BYTES_MAX,
    OutgoingMessage,
    Placed,
    ReceivedMessage,
    size_of,
)
from penstock.gateway.core.permissions import Principal, require_group, require_topic
from penstock.gateway.core.publish import Publisher
from penstock.gateway.core.queues import Queues
from penstock.gateway.core.receipts import MEMBER_BYTES, Receipts, new_member
from penstock.gateway.core.topics import Configs, TopicAdmin
from penstock.gateway.core.tracing import NO_ANSWER, GatewayTracing
from penstock.security.quotas import QuotaKind
from penstock.state.queues.delivery_headers import PRIORITY
from penstock.state.queues.state_shard import QueueKey

EXTENSION_MS = 30_000
"""Assumed duration of an extension without one."""


class Prefetch:
    """Messages that one stream has delivered and that are not settled."""

    def __init__(self, by_receipt: dict[str, "Prefetch"], limit: int, time: SteadyTime) -> None:
        """`by_receipt`: shared by all streams; the gateway finds a receipt's stream in it."""
        self._by_receipt = by_receipt
        self._limit = limit
        self._time = time
        self._until_ms: dict[str, int] = {}
        self._news = asyncio.Event()

    def handed_out(self, messages: Iterable[ReceivedMessage]) -> None:
        for message in messages:
            self._until_ms[message.receipt] = message.lock_until_ms
            self._by_receipt[message.receipt] = self

    def settled(self, receipt: str) -> None:
        self._until_ms.pop(receipt, None)
        self._by_receipt.pop(receipt, None)
        self._news.set()

    def extended(self, receipt: str, lock_ms: int | None) -> None:
        self._until_ms[receipt] = self._time.now_ms() + (
            EXTENSION_MS if lock_ms is None else lock_ms
        )

    async def capacity(self) -> int:
        """Returns how many more may be delivered; waits until that is at least one."""
        while True:
            now_ms = self._time.now_ms()
            for receipt in [key for key, until in self._until_ms.items() if until <= now_ms]:
                self.settled(receipt)
            if len(self._until_ms) < self._limit:
                return self._limit - len(self._until_ms)
            self._news.clear()
            next_ms = min(self._until_ms.values()) - now_ms
            timer = asyncio.get_running_loop().call_later(next_ms / 1000, self._news.set)
            try:
                await self._news.wait()
            finally:
                timer.cancel()

    def close(self) -> list[str]:
        """Ends the stream; returns the receipts that are not settled."""
        left = list(self._until_ms)
        for receipt in left:
            self.settled(receipt)
        return left


RECORDS_MAX = 10_000
SETTLEMENTS_MAX = 10_000
WAIT_MS_MAX = 300_000
LOCK_MS_MAX = 12 * 3_600_000
RECEIVE_BYTES_MAX = 16 << 20
TOO_LARGE = "TooLarge"
EARLIEST = "earliest"
CATCH_UP_MS = 1_000
RESET = "share.auto.offset.reset"


@dataclass(frozen=True, slots=True)
class Settlement:
    """Request to settle a message, identified by its receipt."""

    receipt: str
    action: SettleAction
    delay_ms: int | None = None
    """Delay of a release; None: the queue's retry policy decides."""
    error_class: str | None = None
    error_message: str | None = None
    lock_ms: int | None = None
    """Duration of an extension from now on; None: the group's config decides."""
    traceback: str | None = None


class Gateway:
    """Gateway of a node; one instance per node."""

    def __init__(self, ctx: Context, tracer: Tracer | None = None) -> None:
        self.ctx = ctx
        self._tracing = GatewayTracing(tracer) if tracer is not None else None
        self.quota = GatewayQuota(ctx.meter)
        self.handlers = InProcessCalls(ctx)
        self.coordinators = CoordinatorCalls(ctx, self.handlers)
        self.leaders = LeaderCalls(ctx, self.handlers)
        self.share_groups = ShareGroupRegistration(ctx.node_id, self.coordinators)
        self.topics = TopicAdmin(ctx, self.handlers, self.leaders)
        self.groups = Groups(ctx, self.handlers, self.coordinators, self.share_groups)
        self.queues = Queues(ctx, self.leaders)
        self.scaling = GroupScaling(ctx, self.coordinators, self.topics, self.groups, self.queues)
        self.dead_letters = DeadLetterAdmin(ctx, self.quota)
        self.background_jobs = BackgroundJobs(ctx.clock, ctx.random)
        self.configs = Configs(ctx)
        self.fanouts = Fanouts(ctx)
        self.log = GatewayLogReader(ctx, self.topics, self.groups, self.leaders, self.quota)
        self._publisher = Publisher(ctx, self.handlers)
        self._router = ctx.queue.queue_router
        self._receipts = Receipts(ctx.image.cluster_id)
        self._prefetches: dict[str, Prefetch] = {}
        self._turn = 0
        self._sizes: tuple[Mapping[str, TopicImage], int, int] | None = None

    @property
    def message_bytes_max(self) -> int:
        """Largest batch size limit of all topics: gateways must accept messages of this size."""
        topics, generation = self.ctx.image.topics, self.ctx.configs.generation
        known = self._sizes
        if known is None or known[0] is not topics or known[1] != generation:
            largest = self.ctx.configs.integer("message.max.bytes")
            for topic in topics.values():
                own = topic.configs.get("max.message.bytes")
                largest = max(largest, int(own)) if own is not None else largest
            known = self._sizes = (topics, generation, largest)
        return known[2]

    async def publish(
        self,
        principal: Principal,
        topic: str,
        messages: Sequence[OutgoingMessage],
        *,
        all_or_none: bool = False,
    ) -> list[Placed | Refused]:
        """Publishes messages; returns the place of each once committed, or why it was refused.

        Creates the topic if `auto.create.topics.enable` is set. `all_or_none`: one message with
        invalid values refuses all, before anything is written.
        """
        quota = self.quota
        quota.require(principal, QuotaKind.PRODUCE)
        placed = await self._publish(principal, topic, messages, all_or_none)
        if quota.is_on:
            quota.charge(principal, QuotaKind.PRODUCE, sum(map(size_of, messages)))
        return placed

    async def _publish(
        self,
        principal: Principal,
        topic: str,
        messages: Sequence[OutgoingMessage],
        all_or_none: bool,
    ) -> list[Placed | Refused]:
        if self._tracing is None:
            return await self._publisher.publish(principal, topic, messages, all_or_none)
        span, messages = self._tracing.publishing(topic, messages)
        try:
            placed = await self._publisher.publish(principal, topic, messages, all_or_none)
            self._tracing.published(span, placed)
            return placed
        except BaseException as error:
            span.fail(error)
            raise
        finally:
            span.end()

    # -- receiving --------------------------------------------------------------------------

    async def receive(
        self,
        principal: Principal,
        topic: str,
        group: str,
        *,
        records_max: int,
        wait_ms: int,
        lock_ms: int | None = None,
        bytes_max: int = RECEIVE_BYTES_MAX,
        share_min: int = 1,
        with_followers: bool = False,
        on_wait: Callable[[], None] = nothing,
    ) -> list[ReceivedMessage]:
        """Leases messages of a topic to the caller; waits until there is at least one.

        Calls `on_wait` before it waits, not if there are messages.

        While other receivers wait, the caller gets at most its share, or `share_min`. In a topic
        with order by key, several messages of one key come together only if `with_followers`. A
        group without a position starts with the oldest message, unless its config says otherwise.
        If the call is cancelled, nothing counts as delivered.
        """
        ctx = self.ctx
        _check_receive(records_max, wait_ms, lock_ms)
        there = self.queue_topic(principal, topic, group)
        self.quota.require(principal, QuotaKind.FETCH)
        await self.begin(principal, there, group)
        member = new_member(ctx.random.random_bytes(MEMBER_BYTES))
        wanted = ReceiveRequest(
            member,
            records_max,
            self.quota.fetch_bytes_max(principal, bytes_max),
            wait_ms=wait_ms,
            lock_ms=lock_ms,
            fills=True,
            reset=self._reset_of(group),
            share_min=share_min,
            with_followers=with_followers,
            unpacks=True,
        )
        taken = await self._router.take(self._keys(there, group), wanted, on_wait)
        if taken.refused and not taken.found:
            raise next(iter(taken.refused.values()))
        self.quota.charge(
            principal, QuotaKind.FETCH, sum(leased.size for leased in taken.found.values())
        )
        not_handed_out: list[SettleCommand] = []
        found = list(self._received(there, member, taken, not_handed_out))
        if not_handed_out:
            await self._router.settle(not_handed_out)
        if len(found) > 1 and any(one.headers for one in found):
            found.sort(key=_urgency)
        if self._tracing is not None:
            self._tracing.received(group, found)
        return found

    async def begin(self, principal: Principal, topic: TopicImage, group: str) -> None:
        """Registers a group, and fixes its start offsets in all partitions of the topic now.

        Otherwise it would start in each partition when it first finds records there.
        """
        if await self.share_groups.ensure(principal, group, topic.name):
            wanted = ReceiveRequest("", 0, 1, reset=self._reset_of(group))
            await self._router.open(self._keys(topic, group), wanted)

    async def catch_up(self, topic: TopicImage, group: str) -> None:
        """Lets a group's queues read up to the log's end, so that duplicates are not counted.

        Waits at most `CATCH_UP_MS`. The caller has checked the permissions.
        """
        wanted = ReceiveRequest("", 0, 1, wait_ms=CATCH_UP_MS, reset=self._reset_of(group))
        await self._router.open(self._keys(topic, group), wanted)

    def _reset_of(self, group: str) -> str | None:
        """Returns where a group without a position starts: None if the group's config says so."""
        is_said = RESET in self.ctx.image.group_configs.get(group, {})
        return None if is_said else EARLIEST

    def queue_topic(self, principal: Principal, topic: str, group: str) -> TopicImage:
        """Returns the topic of a queue; refuses unless `principal` may receive from it."""
        ctx = self.ctx
        check_group_name(group)
        require_group(ctx, principal, Operation.READ, group)
        return self.topic_to(principal, Operation.READ, topic)

    def topic_to(self, principal: Principal, operation: Operation, name: str) -> TopicImage:
        """Returns the topic if `principal` may perform `operation`; otherwise does not reveal
        whether it exists."""
        require_topic(self.ctx, principal, operation, name)
        return self.topic(name)

    def topic(self, name: str) -> TopicImage:
        there = self.ctx.image.topics.get(name)
        if there is None:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {name} does not exist: create it first",
            )
        if there.is_internal:
            raise Refused(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name} is an internal topic, which clients cannot use: choose another one",
            )
        return there

    def _keys(self, topic: TopicImage, group: str) -> list[QueueKey]:
        """Returns all queues of a group in a topic, starting with another partition each time."""
        count = len(topic.partitions)
        self._turn += 1
        return [QueueKey(group, topic.id, (self._turn + at) % count) for at in range(count)]

    def _received(
        self, topic: TopicImage, member: str, taken: Taken, not_handed_out: list[SettleCommand]
    ) -> Iterator[ReceivedMessage]:
        """Yields leased messages. Gives back what exceeds the size limit of one response, and
        rejects messages too large for any gateway, by adding to `not_handed_out`."""
        write = self._receipts.write
        bytes_max = max(HANDED_BYTES_MAX, self.message_bytes_max)
        total = 0
        for key, leased in taken.found.items():
            count_delivery(self.ctx.share, topic, key, leased)
            for record, lease in leased_records(leased):
                size = len(record.key or b"") + len(record.value or b"")
                if size > bytes_max:
                    not_handed_out.append(_too_large(key, member, record.offset, size))
                    continue
                if total and total + size > 2 * bytes_max:
                    place = record.offset, record.offset
                    not_handed_out.append(
                        SettleCommand(key, member, *place, SettleAction.GIVE_BACK)
                    )
                    continue
                total += size
                yield ReceivedMessage(
                    topic.name,
                    key.partition,
                    record.offset,
                    record.key,
                    record.value,
                    record.headers,
                    record.timestamp,
                    lease.delivery_count,
                    write(key, member, record.offset),
                    lease.deadline_ms,
                )

    # -- settling ---------------------------------------------------------------------------

    async def settle(
        self,
        principal: Principal,
        settlements: Sequence[Settlement],
        topic_id: TopicId | None = None,
    ) -> list[Refused | None]:
        """Settles messages; None for each that was settled, else the error. See `_settle`.

        With `topic_id`, receipts of other topics are invalid.
        """
        if self._tracing is None:
            return await self._settle(principal, settlements, topic_id)
        actions = [(one.receipt, one.action) for one in settlements]
        spans = self._tracing.settling(actions)
        answers: list[Refused | None] = [NO_ANSWER] * len(settlements)
        try:
            answers = await self._settle(principal, settlements, topic_id)
            return answers
        finally:
            self._tracing.settled(actions, spans, answers)

    async def _settle(
        self,
        principal: Principal,
        settlements: Sequence[Settlement],
        topic_id: TopicId | None,
    ) -> list[Refused | None]:
        """Returns None for each settlement that was persisted, else the error.

        INVALID_REQUEST: not a receipt of this cluster, or an invalid value.
        INVALID_RECORD_STATE: the lease has expired, or was settled before.
        UNKNOWN_TOPIC_ID: the topic was deleted.
        """
        if len(settlements) > SETTLEMENTS_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"too many receipts: {len(settlements)}; send at most {SETTLEMENTS_MAX} at a time",
            )
        answers: list[Refused | None] = [None] * len(settlements)
        commands: list[SettleCommand] = []
        places: list[int] = []
        allowed: dict[tuple[str, bytes], Refused | None] = {}
        for at, settlement in enumerate(settlements):
            try:
                command = self._command(settlement)
                if topic_id not in (None, command.key.topic_id):
                    raise Refused(
                        ErrorCode.INVALID_REQUEST,
                        "the receipt is of a message of another queue: settle it there",
                    )
            except Refused as refused:
                answers[at] = refused
                continue
            queue = command.key[:2]
            if queue not in allowed:
                allowed[queue] = self._refusal(principal, command.key)
            answers[at] = allowed[queue]
            if answers[at] is None:
                commands.append(command)
                places.append(at)
        if commands:
            for at, answer in zip(places, await self._router.settle(commands), strict=True):
                answers[at] = answer
        self._tell_prefetches(settlements, answers)
        return answers

    def prefetch(self, limit: int) -> Prefetch:
        """Flow control for a stream: at most `limit` messages delivered and not settled."""
        return Prefetch(self._prefetches, limit, self.ctx.queue.queues.around.time)

    def _tell_prefetches(
        self, settlements: Sequence[Settlement], answers: Sequence[Refused | None]
    ) -> None:
        if not self._prefetches:
            return
        for settlement, answer in zip(settlements, answers, strict=True):
            prefetch = self._prefetches.get(settlement.receipt)
            if prefetch is not None and answer is None:
                if settlement.action is SettleAction.EXTEND:
                    prefetch.extended(settlement.receipt, settlement.lock_ms)
                else:
                    prefetch.settled(settlement.receipt)

    def _command(self, settlement: Settlement) -> SettleCommand:
        delay_ms, lock_ms = settlement.delay_ms, settlement.lock_ms
        if delay_ms is not None and not 0 <= delay_ms <= DELAY_MS_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"invalid delay_ms {delay_ms}: must be 0 to {DELAY_MS_MAX}",
            )
        if lock_ms is not None and not 0 <= lock_ms <= LOCK_MS_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"invalid lock_ms {lock_ms}: must be 0 to {LOCK_MS_MAX}"
            )
        receipt = self._receipts.read(settlement.receipt)
        return SettleCommand(
            receipt.key,
            receipt.member,
            receipt.offset,
            receipt.offset,
            settlement.action,
            delay_ms,
            lock_ms,
            settlement.error_class or "",
            settlement.error_message or "",
            traceback=settlement.traceback or "",
        )

    def _refusal(self, principal: Principal, key: QueueKey) -> Refused | None:
        """Returns why the caller may not settle in a queue; None if it may."""
        topic = self.ctx.image.topics_by_id.get(TopicId(key.topic_id))
        if topic is None:
            return Refused(
                ErrorCode.UNKNOWN_TOPIC_ID,
                "the topic of this receipt was deleted: there is nothing to settle",
            )
        try:
            require_group(self.ctx, principal, Operation.READ, key.group)
            require_topic(self.ctx, principal, Operation.READ, topic.name)
        except Refused as refused:
            return refused
        return None


def _too_large(key: QueueKey, member: str, offset: int, size: int) -> SettleCommand:
    why = (
        f"the message decompresses to {size} bytes, more than HTTP and SQS deliver: read it with a "
        "Kafka client"
    )
    return SettleCommand(
        key, member, offset, offset, SettleAction.REJECT, None, None, TOO_LARGE, why
    )


def _urgency(message: ReceivedMessage) -> int:
    """Sort key that puts higher priorities first; see `state.queues.delivery_headers`."""
    for name, value in message.headers:
        if name == PRIORITY and value is not None and value.isdigit() and len(value) == 1:
            return -int(value)
    return 0


def _check_receive(records_max: int, wait_ms: int, lock_ms: int | None) -> None:
    if not 1 <= records_max <= RECORDS_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"invalid max {records_max}: must be 1 to {RECORDS_MAX}"
        )
    if not 0 <= wait_ms <= WAIT_MS_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"invalid wait_ms {wait_ms}: must be 0 to {WAIT_MS_MAX}"
        )
    if lock_ms is not None and not 1 <= lock_ms <= LOCK_MS_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"invalid lock_ms {lock_ms}: must be 1 to {LOCK_MS_MAX}"
        )


__all__ = ["Gateway", "SettleAction", "Settlement"]
