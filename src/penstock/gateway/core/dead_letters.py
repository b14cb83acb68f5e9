"""Dead letters and replay for the gateway protocols: list, redrive, purge, replay, copy.

`client.dead_letters.redrive` and `client.dead_letters.replay` do the work, as a client of the
cluster on the principal's behalf. Permissions are checked first: for the dead-letter topic, for the
group, and for every topic that is written to. If the caller goes away, the work stops. Dead letters
settled so far stay settled, and repeating the request continues with the rest. Workers decode what
is read, in pieces (`client.consumer.record_reader`), so that other clients of this node do not
wait.

Bounds: `OPERATIONS_MAX` operations at a time, `EACH_MAX` per principal, or per address of anonymous
clients; `RATE_MIN`, so that none holds its slot for good; `DEAD_LETTERS_MAX` messages per
operation, of which at most `SHOWN_BYTES_MAX` bytes are returned.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace

from penstock.base.cooperative_yield import CooperativeYield
from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_pool import FairPool
from penstock.base.fair_scheduler import picked
from penstock.broker.api.context import Context
from penstock.broker.api.quota import GatewayQuota
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.client.admin.groups import list_groups
from penstock.client.admin.queues import finish, list_queues, make_available, unfinished, withdraw
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import commit_offsets
from penstock.client.consumer.record_counts import count_records
from penstock.client.dead_letters.filters import DeadLetterFilter
from penstock.client.dead_letters.grouping import ASPECTS, DeadLetterKinds
from penstock.client.dead_letters.message import DeadLetterMessage
from penstock.client.dead_letters.open_messages import DEAD_LETTERS, open_dead_letters
from penstock.client.dead_letters.redrive import (
    RedrivenRecord,
    Redriver,
    RedriveReport,
    RedriveRequest,
)
from penstock.client.dead_letters.replay import (
    Copier,
    CopyPlan,
    finished_offsets,
    offsets_of,
    replay_share_group,
    unfinished_copy,
)
from penstock.client.dead_letters.topics import DeadLetterTopic, describe_dead_letter_topic
from penstock.client.list_offsets import OffsetSpan, partitions_of, resolve
from penstock.client.metadata import TopicPartition
from penstock.client.offset_syntax import OffsetRange
from penstock.cluster.metadata.image import TopicImage
from penstock.coordinator.groups_by_topic import GroupPosition, PositionKind
from penstock.coordinator.queues.policy import DEAD_LETTER_SUFFIX
from penstock.coordinator.queues.queue_metrics import NAME_CONFIG, dead_letter_topics
from penstock.gateway.core.background_jobs import ProgressCallback
from penstock.gateway.core.permissions import Principal, may, require_group, require_topic
from penstock.security.quotas import QuotaKind
from penstock.state.queues.inspection import RunState

OPERATIONS_MAX, EACH_MAX = 16, 4
RATE_MIN = 0.1
"""Minimum messages per second."""
NAME_CHARS_MAX = 200
DEAD_LETTERS_MAX = 100_000
SHOWN_BYTES_MAX = 16 << 20
YIELD_SECONDS = 0.001
RUN_BYTES = 6
TAKEN_BACK_AT_ONCE = 1_000
SHARE, CONSUMER, COPY = "share", "consumer", "copy"


def ignore_progress(count: int) -> None:
    """Progress callback that does nothing."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Result of a replay, or of its dry run."""

    kind: str
    spans: dict[TopicPartition, OffsetSpan]
    records: int
    is_done: bool
    is_resumed: bool = False


class DeadLetterAdmin:
    """Administers the dead letters of the cluster, and replays records."""

    def __init__(self, ctx: Context, quota: GatewayQuota) -> None:
        self._ctx = ctx
        self._quota = quota
        self._places = FairPool(OPERATIONS_MAX, EACH_MAX)

    @asynccontextmanager
    async def _client(self, principal: Principal) -> AsyncIterator[Cluster]:
        """Connects a client on behalf of `principal`, whose permissions have been checked."""
        if not self._places.take(principal.holder):
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"too many running operations on dead letters: at most {EACH_MAX} per principal "
                f"and {OPERATIONS_MAX} per node: try again later",
            )
        try:
            async with self._connected() as cluster:
                yield cluster
        finally:
            self._places.give(principal.holder)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Cluster]:
        try:
            peers = self._ctx.queue.queues.around.peers
            async with peers.client(self._ctx.random, self._ctx.workers) as cluster:
                yield cluster
        except OSError as error:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error

    # -- topics ------------------------------------------------------------------------------

    def topics(self) -> list[TopicImage]:
        """Returns the dead-letter topics: by their name, or because a group's config names them."""
        return list(dead_letter_topics(self._ctx.image))

    def topic_of(self, group: str, topic: str) -> str:
        """Returns the dead-letter topic of a group for a topic."""
        configured = self._ctx.image.group_configs.get(group, {}).get(NAME_CONFIG)
        return configured or f"{topic}{DEAD_LETTER_SUFFIX}"

    # -- looking ----------------------------------------------------------------------------

    async def describe_topics(self, principal: Principal) -> list[DeadLetterTopic]:
        """Returns the dead-letter topics that `principal` may describe."""
        listing = await self._ctx.queue.positions.everywhere(
            None, (PositionKind.SHARE,), principal.holder
        )

        def settled(row: GroupPosition) -> str | None:
            return row.topic if row.group == DEAD_LETTERS else None

        scheduler = self._ctx.metadata.scheduler
        names = set(await scheduler.do(principal.holder, picked(listing.positions, settled)))
        names |= {topic.name for topic in self.topics()}
        seen = [
            name
            for name in sorted(names)
            if name in self._ctx.image.topics and self._may_see(principal, name)
        ]
        if not seen:
            return []
        async with self._client(principal) as cluster:
            return [await describe_dead_letter_topic(cluster, name) for name in seen]

    def _may_see(self, principal: Principal, topic: str) -> bool:
        return may(self._ctx, principal, Operation.DESCRIBE, ResourceType.TOPIC, topic)

    async def some(
        self, principal: Principal, topic: str, chosen: DeadLetterFilter, limit: int
    ) -> tuple[list[DeadLetterMessage], bool]:
        """Returns at most `limit` open dead letters; and True if there are more."""
        require_topic(self._ctx, principal, Operation.READ, topic)
        self.check_limit(limit)
        found: list[DeadLetterMessage] = []
        size = 0
        async with (
            self._client(principal) as cluster,
            aclosing(open_dead_letters(cluster, topic, chosen)) as dead_letters,
        ):
            async for dead_letter in dead_letters:
                size += len(dead_letter.payload or b"")
                if len(found) >= limit or (found and size > SHOWN_BYTES_MAX):
                    return found, True
                found.append(dead_letter)
        return found, False

    async def kinds(
        self, principal: Principal, topic: str, aspect: str, chosen: DeadLetterFilter
    ) -> DeadLetterKinds:
        """Counts open dead letters by `aspect`."""
        require_topic(self._ctx, principal, Operation.READ, topic)
        if aspect not in ASPECTS:
            why = f"invalid by {aspect[:40]!r}: use one of {', '.join(ASPECTS)}"
            raise Refused(ErrorCode.INVALID_REQUEST, why)
        kinds = DeadLetterKinds(aspect)
        async with self._client(principal) as cluster:
            yielding = CooperativeYield(YIELD_SECONDS)
            async for dead_letter in open_dead_letters(cluster, topic, chosen):
                kinds.add(dead_letter)
                await yielding.draw()
        return kinds

    # -- settling ---------------------------------------------------------------------------

    async def redrive(
        self,
        principal: Principal,
        topic: str,
        chosen: DeadLetterFilter,
        *,
        to: str | None = None,
        limit: int = DEAD_LETTERS_MAX,
        rate_per_s: float | None = None,
        payload: bytes | None = None,
        on_progress: ProgressCallback = ignore_progress,
        on_copied: Callable[[list[RedrivenRecord]], None] = lambda copies: None,
    ) -> RedriveReport:
        """Redrives dead letters; `payload` replaces that of the one chosen dead letter.

        After each transaction calls `on_progress` with the number of dead letters sent, and
        `on_copied` with their copies.
        """
        require_topic(self._ctx, principal, Operation.READ, topic)
        if to is not None:
            require_topic(self._ctx, principal, Operation.WRITE, to)
        if payload is not None and len(chosen.ids) != 1:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"a payload replaces that of one dead letter, but {len(chosen.ids)} are named: "
                "name exactly one",
            )
        check_rate(rate_per_s)
        request = RedriveRequest(
            topic=topic,
            run=self._run_id(),
            who=principal.name,
            chosen=chosen,
            to=to,
            rate_per_s=rate_per_s,
            limit=limit,
            revise=None
            if payload is None
            else lambda dead_letter: replace(dead_letter, payload=payload),
            check_target=lambda target: require_topic(
                self._ctx, principal, Operation.WRITE, target
            ),
            charge=self._charge_to(principal),
        )
        return await self._carry_out(principal, request, limit, on_progress, on_copied)

    @asynccontextmanager
    async def redriver(
        self,
        principal: Principal,
        topic: str,
        run: str,
        *,
        to: str | None = None,
        rate_per_s: float | None = None,
    ) -> AsyncIterator[Redriver]:
        """Redriver for dead letters that a task of this node has received; the task limits them.

        Charges only for writing: receiving them was charged already.
        """
        request = RedriveRequest(
            topic,
            run,
            principal.name,
            to=to,
            rate_per_s=rate_per_s,
            check_target=lambda target: require_topic(
                self._ctx, principal, Operation.WRITE, target
            ),
            charge=lambda size: self._quota.pass_on(principal, size, (QuotaKind.PRODUCE,)),
        )
        async with self._connected() as cluster:
            redriver = Redriver(cluster, self._ctx.clock, request)
            yield redriver
            await redriver.end()

    async def purge(
        self,
        principal: Principal,
        topic: str,
        chosen: DeadLetterFilter,
        *,
        limit: int = DEAD_LETTERS_MAX,
    ) -> RedriveReport:
        """Settles dead letters without redriving them; retention deletes them from the log."""
        require_topic(self._ctx, principal, Operation.DELETE, topic)
        request = RedriveRequest(
            topic, self._run_id(), principal.name, chosen, purges=True, limit=limit
        )
        return await self._carry_out(principal, request, limit)

    def _charge_to(self, principal: Principal) -> Callable[[int], Awaitable[None]]:
        return lambda size: self._quota.pass_on(principal, size)

    async def _carry_out(
        self,
        principal: Principal,
        request: RedriveRequest,
        limit: int,
        on_progress: ProgressCallback = ignore_progress,
        on_copied: Callable[[list[RedrivenRecord]], None] = lambda copies: None,
    ) -> RedriveReport:
        self.check_limit(limit)
        async with self._client(principal) as cluster:
            return await Redriver(
                cluster, self._ctx.clock, request, on_progress, on_copied=on_copied
            ).run()

    async def take_back(
        self, principal: Principal, topic: str, copies: Sequence[RedrivenRecord]
    ) -> int:
        """Undoes a redrive for the copies not yet delivered to their dead letters' groups.

        Such a copy is finished for its group and its dead letter is open again. The dead letter is
        reopened first: a crash in between leaves both, and nothing is lost. Other groups that read
        the topic are not considered. A delivered copy stays, and its dead letter stays settled.
        Returns the number of copies withdrawn.
        """
        require_topic(self._ctx, principal, Operation.READ, topic)
        by_queue: dict[tuple[str, TopicPartition], list[RedrivenRecord]] = {}
        for copy in copies:
            if copy.message.group:
                by_queue.setdefault((copy.message.group, copy.target), []).append(copy)
        for group, where in by_queue:
            require_group(self._ctx, principal, Operation.READ, group)
            require_topic(self._ctx, principal, Operation.READ, where.topic)
        taken = 0
        async with self._client(principal) as cluster:
            for (group, where), some in by_queue.items():
                waiting = await _waiting(cluster, group, where, some)
                for start in range(0, len(waiting), TAKEN_BACK_AT_ONCE):
                    chunk = waiting[start : start + TAKEN_BACK_AT_ONCE]
                    await make_available(cluster, DEAD_LETTERS, _dead_letter_runs(topic, chunk))
                    taken += await self._withdraw(cluster, group, where, topic, chunk)
        return taken

    async def _withdraw(
        self,
        cluster: Cluster,
        group: str,
        where: TopicPartition,
        topic: str,
        some: list[RedrivenRecord],
    ) -> int:
        """Withdraws copies whose dead letters are open again; returns how many were withdrawn."""
        if await withdraw(cluster, group, where, [(copy.offset, copy.offset) for copy in some]):
            return len(some)
        if len(some) > 1:
            halves = some[: len(some) // 2], some[len(some) // 2 :]
            return sum(
                [await self._withdraw(cluster, group, where, topic, half) for half in halves]
            )
        async for run in unfinished(cluster, group, where, some[0].offset):
            if run.first <= some[0].offset <= run.last:
                # A consumer has received it meanwhile: settle its dead letter after all.
                await finish(cluster, DEAD_LETTERS, _dead_letter_runs(topic, some))
                return 0
            break
        # Finished meanwhile, by its group or by a withdrawal whose response was lost. Both look the
        # same from here, so the dead letter stays open.
        return 1

    def _run_id(self) -> str:
        return self._ctx.random.random_bytes(RUN_BYTES).hex()

    def check_limit(self, limit: int) -> None:
        if not 1 <= limit <= DEAD_LETTERS_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"invalid limit {limit}: must be 1 to {DEAD_LETTERS_MAX}"
            )

    # -- reading again ----------------------------------------------------------------------

    async def replay(
        self,
        principal: Principal,
        topic: str,
        group: str,
        wanted: OffsetRange,
        partitions: list[int] | None = None,
        *,
        is_dry: bool = False,
    ) -> ReplayResult:
        """Replays for one group: offers finished records again, or moves the committed offsets."""
        require_topic(self._ctx, principal, Operation.READ, topic)
        require_group(self._ctx, principal, Operation.READ, group)
        async with self._client(principal) as cluster:
            spans = await self._spans(cluster, topic, wanted, partitions)
            if await self._is_share_group(cluster, group, topic):
                finished = {
                    where: await finished_offsets(cluster, group, where, span)
                    for where, span in spans.items()
                }
                count = await count_records(cluster, finished)
                if not is_dry:
                    await replay_share_group(cluster, group, spans)
                return ReplayResult(SHARE, spans, count.total, is_done=not is_dry)
            if wanted.end is not None:
                raise Refused(
                    ErrorCode.INVALID_REQUEST,
                    f"{group} is a consumer group, which reads on from the new offset: leave out "
                    "the end of the range",
                )
            if not is_dry:
                starts = {where: span.start for where, span in spans.items()}
                await commit_offsets(cluster, group, starts)
            return ReplayResult(CONSUMER, spans, await _size(cluster, spans), is_done=not is_dry)

    async def copy(
        self,
        principal: Principal,
        topic: str,
        to: str,
        wanted: OffsetRange,
        partitions: list[int] | None = None,
        *,
        name: str | None = None,
        rate_per_s: float | None = None,
        is_dry: bool = False,
    ) -> ReplayResult:
        """Copies records into another topic; resumes an interrupted copy of the same name."""
        require_topic(self._ctx, principal, Operation.READ, topic)
        require_topic(self._ctx, principal, Operation.WRITE, to)
        check_rate(rate_per_s)
        if name is not None and not 1 <= len(name) <= NAME_CHARS_MAX:
            why = f"invalid name: must have 1 to {NAME_CHARS_MAX} characters, has {len(name)}"
            raise Refused(ErrorCode.INVALID_REQUEST, why)
        said = name or f"{topic}.{to}"
        name = f"{principal.name}/{said}"
        async with self._client(principal) as cluster:
            await cluster.topic(to)
            left = await unfinished_copy(cluster, name)
            if not left and await unfinished_copy(cluster, said):
                raise Refused(
                    ErrorCode.DUPLICATE_RESOURCE,
                    f"an unfinished copy {said} was started by `penstock replay` or by an older "
                    f"version: resume it with `penstock replay --name {said}`, or give this one "
                    "another name",
                )
            if any(where.topic != topic for where in left):
                raise Refused(
                    ErrorCode.INVALID_REQUEST,
                    f"{name} is an unfinished copy of another topic: choose another name",
                )
            spans = left or await self._spans(cluster, topic, wanted, partitions)
            size = await _size(cluster, spans)
            if is_dry or not size:
                return ReplayResult(COPY, spans, size, is_done=False, is_resumed=bool(left))
            report = await Copier(
                cluster, CopyPlan(name, to, spans, rate_per_s, self._charge_to(principal))
            ).run()
            return ReplayResult(
                COPY, spans, report.copied, is_done=True, is_resumed=report.is_resumed
            )

    async def _spans(
        self, cluster: Cluster, topic: str, wanted: OffsetRange, partitions: list[int] | None
    ) -> dict[TopicPartition, OffsetSpan]:
        places = await partitions_of(cluster, topic, partitions)
        return await resolve(cluster, places, wanted, must_end=True)

    async def _is_share_group(self, cluster: Cluster, group: str, topic: str) -> bool:
        if any(queue.group == group for queue in await list_queues(cluster, [topic])):
            return True
        kinds = {one.name: one.kind for one in await list_groups(cluster)}
        if kinds.get(group) == SHARE:
            raise Refused(
                ErrorCode.GROUP_ID_NOT_FOUND, f"share group {group} has never read topic {topic}"
            )
        return False


def check_rate(rate_per_s: float | None) -> None:
    """Refuses a rate so low that the operation would hold its slot for years."""
    if rate_per_s is not None and not rate_per_s >= RATE_MIN:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"invalid rate {rate_per_s}: must be at least {RATE_MIN} messages per second",
        )


async def _waiting(
    cluster: Cluster, group: str, where: TopicPartition, some: list[RedrivenRecord]
) -> list[RedrivenRecord]:
    """Returns the copies that were not delivered to the group yet."""
    by_offset = {copy.offset: copy for copy in some}
    first, last = min(by_offset), max(by_offset)
    found: list[RedrivenRecord] = []
    async for run in unfinished(cluster, group, where, first):
        if run.first > last:
            break
        if run.state == RunState.WAITING and not run.delivery_count:
            inside = range(max(run.first, first), min(run.last, last) + 1)
            found += [by_offset[offset] for offset in inside if offset in by_offset]
    return found


def _dead_letter_runs(
    topic: str, some: list[RedrivenRecord]
) -> dict[TopicPartition, list[tuple[int, int]]]:
    dead_letters: dict[TopicPartition, list[tuple[int, int]]] = {}
    for copy in some:
        place = TopicPartition(topic, copy.message.partition)
        dead_letters.setdefault(place, []).append((copy.message.offset, copy.message.offset))
    return dead_letters


async def _size(cluster: Cluster, spans: dict[TopicPartition, OffsetSpan]) -> int:
    wanted = {where: offsets_of(span) for where, span in spans.items()}
    return (await count_records(cluster, wanted)).total
