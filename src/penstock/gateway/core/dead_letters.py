"""Dead letters and replay through a door: looked at, redriven, purged, read again, copied.

The work is that of `client.dead_letters.redrive` and `client.dead_letters.replay`, done here as a
client of the cluster on somebody's behalf: their rights are checked first, for the topic of the
letters, for the group, and for every topic that something is written to. If whoever asked is gone,
the work stops; what was settled is settled, and asking again goes on from there. What is read is
opened by workers, a piece at a time (`client.consumer.record_reader`): other clients of this node
do not wait for it.

Bounds: `ERRANDS_MAX` of them at a time, `EACH_MAX` for one principal, or one address where nobody
has logged in; none so slow that it holds its place for good; `LETTERS_MAX` messages each, of which
`SHOWN_BYTES_MAX` are shown.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_pool import FairPool
from penstock.broker.api.context import Context
from penstock.broker.api.quota import GatewayQuota
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.client.admin.groups import list_groups
from penstock.client.admin.queues import finish, list_queues, offer_again, unfinished, withdraw
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import commit_offsets
from penstock.client.consumer.record_counts import count_records
from penstock.client.dead_letters.message import DeadLetterFilter, DeadLetterMessage
from penstock.client.dead_letters.open import DEAD_LETTERS, open_dead_letters
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
from penstock.client.dead_letters.topics import (
    ASPECTS,
    DeadLetterKinds,
    DeadLetterTopic,
    list_dead_letter_topics,
)
from penstock.client.list_offsets import OffsetSpan, partitions_of, resolve
from penstock.client.metadata import TopicPartition
from penstock.client.offset_syntax import OffsetRange
from penstock.cluster.metadata.image import TopicImage
from penstock.coordinator.queues.gauges import NAME_CONFIG, letter_topics
from penstock.coordinator.queues.policy import DEAD_LETTER_SUFFIX
from penstock.gateway.core.background_jobs import Told
from penstock.gateway.core.caller import Principal
from penstock.gateway.core.permissions import may, require_group, require_topic
from penstock.security.quotas import QuotaKind
from penstock.state.queues.inspection import RunState

ERRANDS_MAX, EACH_MAX = 16, 4
RATE_MIN = 0.1
"""A second."""
NAME_CHARS_MAX = 200
LETTERS_MAX = 100_000
SHOWN_BYTES_MAX = 16 << 20
RUN_BYTES = 6
TAKEN_BACK_AT_ONCE = 1_000
SHARE, CONSUMER, COPY = "share", "consumer", "copy"


def nobody(count: int) -> None:
    """Nobody looks at how far it is."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a replay came to, or would."""

    kind: str
    spans: dict[TopicPartition, OffsetSpan]
    records: int
    is_done: bool
    is_resumed: bool = False


class DeadLetterAdmin:
    """The dead letters of the cluster, and reading again."""

    def __init__(self, ctx: Context, charging: GatewayQuota) -> None:
        self._ctx = ctx
        self._charging = charging
        self._places = FairPool(ERRANDS_MAX, EACH_MAX)

    @asynccontextmanager
    async def _client(self, principal: Principal) -> AsyncIterator[Cluster]:
        """For somebody who may do what it is for: that has been asked by now."""
        if not self._places.take(principal.holder):
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{EACH_MAX} of these at a time for each, {ERRANDS_MAX} in all: try again later",
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
        """Topics of dead letters: by their name, or because a group says so."""
        return list(letter_topics(self._ctx.image))

    def topic_of(self, group: str, topic: str) -> str:
        """Where a group's dead letters of a topic go."""
        configured = self._ctx.image.group_configs.get(group, {}).get(NAME_CONFIG)
        return configured or f"{topic}{DEAD_LETTER_SUFFIX}"

    # -- looking ----------------------------------------------------------------------------

    async def boxes(self, principal: Principal) -> list[DeadLetterTopic]:
        """Topics of dead letters that the caller may see."""
        if not any(self._may_see(principal, topic) for topic in self._ctx.image.topics):
            return []
        async with self._client(principal) as cluster:
            found = await list_dead_letter_topics(cluster)
        return [box for box in found if self._may_see(principal, box.topic)]

    def _may_see(self, principal: Principal, topic: str) -> bool:
        return may(self._ctx, principal, Operation.DESCRIBE, ResourceType.TOPIC, topic)

    async def some(
        self, principal: Principal, topic: str, chosen: DeadLetterFilter, limit: int
    ) -> tuple[list[DeadLetterMessage], bool]:
        """Open letters, at most so many; and whether there are more."""
        require_topic(self._ctx, principal, Operation.READ, topic)
        self.check_limit(limit)
        found: list[DeadLetterMessage] = []
        size = 0
        async with (
            self._client(principal) as cluster,
            aclosing(open_dead_letters(cluster, topic, chosen)) as letters,
        ):
            async for letter in letters:
                size += len(letter.payload or b"")
                if len(found) >= limit or (found and size > SHOWN_BYTES_MAX):
                    return found, True
                found.append(letter)
        return found, False

    async def kinds(
        self, principal: Principal, topic: str, aspect: str, chosen: DeadLetterFilter
    ) -> DeadLetterKinds:
        """Open letters, counted by what they have in common."""
        require_topic(self._ctx, principal, Operation.READ, topic)
        if aspect not in ASPECTS:
            raise Refused(ErrorCode.INVALID_REQUEST, f"by is one of {', '.join(ASPECTS)}")
        kinds = DeadLetterKinds(aspect)
        async with self._client(principal) as cluster:
            async for letter in open_dead_letters(cluster, topic, chosen):
                kinds.add(letter)
        return kinds

    # -- settling ---------------------------------------------------------------------------

    async def redrive(
        self,
        principal: Principal,
        topic: str,
        chosen: DeadLetterFilter,
        *,
        to: str | None = None,
        limit: int = LETTERS_MAX,
        rate_per_s: float | None = None,
        payload: bytes | None = None,
        told: Told = nobody,
        copied: Callable[[list[RedrivenRecord]], None] = lambda copies: None,
    ) -> RedriveReport:
        """Sends letters back; `payload` instead of its own, where one letter is chosen.

        `told` is called with how many more were sent, after each transaction, and `copied` with
        where their copies are.
        """
        require_topic(self._ctx, principal, Operation.READ, topic)
        if to is not None:
            require_topic(self._ctx, principal, Operation.WRITE, to)
        if payload is not None and len(chosen.ids) != 1:
            raise Refused(ErrorCode.INVALID_REQUEST, "a payload is for one letter: name it")
        check_rate(rate_per_s)
        errand = RedriveRequest(
            topic=topic,
            run=self._run_id(),
            who=principal.name,
            chosen=chosen,
            to=to,
            rate_per_s=rate_per_s,
            limit=limit,
            revise=None if payload is None else lambda letter: replace(letter, payload=payload),
            check_target=lambda target: require_topic(
                self._ctx, principal, Operation.WRITE, target
            ),
            charge=self._charge_to(principal),
        )
        return await self._carry_out(principal, errand, limit, told, copied)

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
        """Sends on letters that a task of this node has received; it bounds how many it has.

        Receiving them was charged for, so only writing them is.
        """
        errand = RedriveRequest(
            topic,
            run,
            principal.name,
            to=to,
            rate_per_s=rate_per_s,
            check_target=lambda target: require_topic(
                self._ctx, principal, Operation.WRITE, target
            ),
            charge=lambda size: self._charging.pass_on(principal, size, (QuotaKind.PRODUCE,)),
        )
        async with self._connected() as cluster:
            redriver = Redriver(cluster, self._ctx.clock, errand)
            yield redriver
            await redriver.end()

    async def purge(
        self,
        principal: Principal,
        topic: str,
        chosen: DeadLetterFilter,
        *,
        limit: int = LETTERS_MAX,
    ) -> RedriveReport:
        """Settles letters without sending them back; they stay in the log until it lets go."""
        require_topic(self._ctx, principal, Operation.DELETE, topic)
        errand = RedriveRequest(
            topic, self._run_id(), principal.name, chosen, purges=True, limit=limit
        )
        return await self._carry_out(principal, errand, limit)

    def _charge_to(self, principal: Principal) -> Callable[[int], Awaitable[None]]:
        return lambda size: self._charging.pass_on(principal, size)

    async def _carry_out(
        self,
        principal: Principal,
        errand: RedriveRequest,
        limit: int,
        told: Told = nobody,
        copied: Callable[[list[RedrivenRecord]], None] = lambda copies: None,
    ) -> RedriveReport:
        self.check_limit(limit)
        async with self._client(principal) as cluster:
            return await Redriver(cluster, self._ctx.clock, errand, told, on_copied=copied).run()

    async def take_back(
        self, principal: Principal, topic: str, copies: Sequence[RedrivenRecord]
    ) -> int:
        """Undoes what a redrive did, as far as the letters' groups were not handed the copies yet.

        Such a copy is finished for its group and its letter is open again. The letter is opened
        first: a crash in between leaves both, and nothing is lost. Other groups that read the
        topic are not asked; a copy that was delivered stays, and its letter stays settled.
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
                    await offer_again(cluster, DEAD_LETTERS, _letters_of(topic, chunk))
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
        """Of copies whose letters are open again; how many are not delivered now."""
        if await withdraw(cluster, group, where, [(copy.offset, copy.offset) for copy in some]):
            return len(some)
        if len(some) > 1:
            halves = some[: len(some) // 2], some[len(some) // 2 :]
            return sum(
                [await self._withdraw(cluster, group, where, topic, half) for half in halves]
            )
        async for run in unfinished(cluster, group, where, some[0].offset):
            if run.first <= some[0].offset <= run.last:
                # Somebody has just been handed it: it is settled after all.
                await finish(cluster, DEAD_LETTERS, _letters_of(topic, some))
                return 0
            break
        # Finished meanwhile, by its group or by a withdrawal whose answer was lost: nobody knows,
        # so the letter stays open.
        return 1

    def _run_id(self) -> str:
        return self._ctx.random.random_bytes(RUN_BYTES).hex()

    def check_limit(self, limit: int) -> None:
        if not 1 <= limit <= LETTERS_MAX:
            raise Refused(ErrorCode.INVALID_REQUEST, f"limit is 1 to {LETTERS_MAX}")

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
        """For one group: finished records are offered again, or the position is moved."""
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
                    "a consumer group reads on from where it is put: the range has no end",
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
        """Into another topic; one that was interrupted under the same name goes on."""
        require_topic(self._ctx, principal, Operation.READ, topic)
        require_topic(self._ctx, principal, Operation.WRITE, to)
        check_rate(rate_per_s)
        if name is not None and not 1 <= len(name) <= NAME_CHARS_MAX:
            why = f"a copy's name has 1 to {NAME_CHARS_MAX} characters"
            raise Refused(ErrorCode.INVALID_REQUEST, why)
        said = name or f"{topic}.{to}"
        name = f"{principal.name}/{said}"
        async with self._client(principal) as cluster:
            await cluster.topic(to)
            left = await unfinished_copy(cluster, name)
            if not left and await unfinished_copy(cluster, said):
                raise Refused(
                    ErrorCode.DUPLICATE_RESOURCE,
                    f"a copy {said} was begun by `penstock replay` or by an older version and is "
                    f"not finished: go on with it by `penstock replay --name {said}`, or give this "
                    "one another name",
                )
            if any(where.topic != topic for where in left):
                raise Refused(ErrorCode.INVALID_REQUEST, f"{name} is a copy of another topic")
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
                ErrorCode.GROUP_ID_NOT_FOUND, f"share group {group} has never read {topic}"
            )
        return False


def check_rate(rate_per_s: float | None) -> None:
    """Whoever goes on for years holds a place for years."""
    if rate_per_s is not None and not rate_per_s >= RATE_MIN:
        raise Refused(ErrorCode.INVALID_REQUEST, f"rate is {RATE_MIN} a second or more")


async def _waiting(
    cluster: Cluster, group: str, where: TopicPartition, some: list[RedrivenRecord]
) -> list[RedrivenRecord]:
    """Copies that the group was not handed yet."""
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


def _letters_of(
    topic: str, some: list[RedrivenRecord]
) -> dict[TopicPartition, list[tuple[int, int]]]:
    letters: dict[TopicPartition, list[tuple[int, int]]] = {}
    for copy in some:
        place = TopicPartition(topic, copy.message.partition)
        letters.setdefault(place, []).append((copy.message.offset, copy.message.offset))
    return letters


async def _size(cluster: Cluster, spans: dict[TopicPartition, OffsetSpan]) -> int:
    wanted = {where: offsets_of(span) for where, span in spans.items()}
    return (await count_records(cluster, wanted)).total
