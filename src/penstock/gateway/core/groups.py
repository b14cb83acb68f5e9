"""Groups for the gateway protocols: list, describe, delete; read and commit consumer offsets.

Every node coordinates some groups; any node can answer for all of them.

Registers the groups of gateways with their coordinators, so they can be listed and deleted. A
gateway's client is not a member: it holds leases, and may be gone after each message. Still a
group that reads is a share group. So before a group first reads a topic through a gateway, one
call declares it to its coordinator. The name of a consumer group is refused: the two kinds would
not see each other's progress.

Bounds: a registration is cached for `FRESH_SECONDS`, at most `KNOWN_MAX` of them.

Recommended consumer counts of groups and queues, for autoscalers that poll every few seconds.
Keeps samples of each group from earlier requests, to compute rates at the next one. Samples stay
on this node, for the `GROUPS_MAX` groups requested last. An autoscaler whose requests reach
different nodes gets the same result from a node's second request on.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, Protocol

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_scheduler import picked
from penstock.broker.api.context import Context
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.client.admin.scaling import (
    GroupProgress,
    PartitionLag,
    Scaling,
    ScalingTarget,
    group_progress,
    scale,
)
from penstock.client.errors import code_of
from penstock.cluster.metadata.image import TopicImage
from penstock.gateway.core.coordinator_calls import MOVING, CoordinatorCalls, raise_for
from penstock.gateway.core.in_process_calls import InProcessCalls
from penstock.gateway.core.permissions import Principal, may, require_group, require_topic
from penstock.gateway.core.queues import Queues
from penstock.gateway.core.topics import LATEST, TopicAdmin
from penstock.wire.encodable import INT64_MAX
from penstock.wire.messages.classic_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from penstock.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from penstock.wire.messages.share import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

FRESH_SECONDS = 600.0
KNOWN_MAX = 10_000
JOIN = 0
MEMBER = "penstock-door-"
"""Prefix of the member id; the node's id follows. Coordinators of older versions let this member
join, for one session timeout."""


class ShareGroupRegistration:
    """Groups that read through this node's gateways."""

    def __init__(self, node_id: int, coordinators: CoordinatorCalls) -> None:
        self._member = f"{MEMBER}{node_id}"
        self._coordinators = coordinators
        self._known: dict[tuple[str, str], float] = {}

    async def ensure(self, principal: Principal, group: str, topic: str) -> bool:
        """Returns once the coordinator knows that the group reads the topic; raises Refused if it
        may not.

        The result is True if that was new, as far as this node remembers.
        """
        now = asyncio.get_running_loop().time()
        known = self._known
        if known.get((group, topic), 0.0) > now:
            return False
        try:
            await self._make_known(principal, group, topic)
        except Refused as refused:
            if refused.code not in MOVING:
                raise
            return True  # Reading does not depend on it; the next call retries.
        if len(known) >= KNOWN_MAX:
            known.clear()
        known[group, topic] = now + FRESH_SECONDS
        return True

    def forget(self, group: str) -> None:
        """Drops the cache entries of a deleted group."""
        for key in [key for key in self._known if key[0] == group]:
            del self._known[key]

    async def _make_known(self, principal: Principal, group: str, topic: str) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=self._member,
            member_epoch=JOIN,
            subscribed_topic_names=[topic],
            is_declaration=True,
        )
        response = await self._coordinators.ask(
            principal, group, request, ShareGroupHeartbeatResponse, lambda one: [one.error_code]
        )
        code = code_of(response.error_code)
        if code is ErrorCode.GROUP_ID_NOT_FOUND:
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"{group} is a consumer group, which reads a log: choose another name for the "
                "share group",
            )
        if code not in (ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED):
            raise Refused(code, response.error_message)


NO_MEMBER = -1
DEAD = "Dead"
GROUP_CHARS_MAX = 249
"""Maximum length of the name of a group created here, as for topics. Kafka clients may use longer
names."""


def check_group_name(group: str) -> None:
    if not 1 <= len(group) <= GROUP_CHARS_MAX:
        raise Refused(
            ErrorCode.INVALID_GROUP_ID,
            f"invalid group name: must have 1 to {GROUP_CHARS_MAX} characters, has {len(group)}",
        )


class GroupSummary(NamedTuple):
    group: str
    kind: str
    state: str


class MemberDescription(NamedTuple):
    member_id: str
    client_id: str
    host: str


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """Description of a group of any kind."""

    group: str
    kind: str
    """share, consumer or classic."""
    state: str
    members: Sequence[MemberDescription]


class Commit(NamedTuple):
    """Offset to commit: the next one that the group reads."""

    topic: str
    partition: int
    offset: int
    metadata: str | None = None


class Groups:
    """Administers the groups of the cluster."""

    def __init__(
        self,
        ctx: Context,
        handlers: InProcessCalls,
        coordinators: CoordinatorCalls,
        share_groups: ShareGroupRegistration,
    ) -> None:
        self._ctx = ctx
        self._handlers = handlers
        self._coordinators = coordinators
        self._share_groups = share_groups

    async def all(self, principal: Principal) -> list[GroupSummary]:
        """Returns the groups that `principal` may describe, by name.

        Raises Refused if a node does not answer.
        """
        ctx = self._ctx
        request = ListGroupsRequest()
        answers = await asyncio.gather(
            *(
                self._handlers.ask(principal, request, ListGroupsResponse)
                if node_id == ctx.node_id
                else self._coordinators.ask_node(node_id, request, ListGroupsResponse)
                for node_id in ctx.image.brokers
            )
        )
        for answer in answers:
            raise_for(answer.error_code)

        def shown(row: ListedGroup) -> GroupSummary | None:
            if not may(ctx, principal, Operation.DESCRIBE, ResourceType.GROUP, row.group_id):
                return None
            return GroupSummary(row.group_id, row.group_type.lower() or "classic", row.group_state)

        rows = chain.from_iterable(answer.groups for answer in answers)
        summaries = await ctx.metadata.scheduler.do(principal.holder, picked(rows, shown))
        found = {summary.group: summary for summary in summaries}
        return [found[name] for name in sorted(found)]

    async def one(self, principal: Principal, group: str) -> GroupDescription:
        """Returns a group with its members; raises Refused (GROUP_ID_NOT_FOUND) if unknown."""
        require_group(self._ctx, principal, Operation.DESCRIBE, group)
        shared = await self._coordinators.ask(
            principal,
            group,
            ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False),
            ShareGroupDescribeResponse,
            lambda response: [row.error_code for row in response.groups],
        )
        row = shared.groups[0]
        if not row.error_code:
            return GroupDescription(
                group, "share", row.group_state, [_member(m) for m in row.members]
            )
        consumed = await self._coordinators.ask(
            principal,
            group,
            ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False),
            ConsumerGroupDescribeResponse,
            lambda response: [row.error_code for row in response.groups],
        )
        other = consumed.groups[0]
        if not other.error_code:
            members = [_member(member) for member in other.members]
            return GroupDescription(group, "consumer", other.group_state, members)
        classic = await self._coordinators.ask(
            principal,
            group,
            DescribeGroupsRequest(groups=[group]),
            DescribeGroupsResponse,
            lambda response: [row.error_code for row in response.groups],
        )
        last = classic.groups[0]
        if last.error_code or last.group_state == DEAD:
            code = code_of(last.error_code) if last.error_code else ErrorCode.GROUP_ID_NOT_FOUND
            raise Refused(code, last.error_message or f"group {group} does not exist")
        return GroupDescription(
            group, "classic", last.group_state, [_member(m) for m in last.members]
        )

    async def delete(self, principal: Principal, group: str) -> None:
        """Deletes a group that has no members, and its committed offsets."""
        require_group(self._ctx, principal, Operation.DELETE, group)
        response = await self._coordinators.ask(
            principal,
            group,
            DeleteGroupsRequest(groups_names=[group]),
            DeleteGroupsResponse,
            lambda answer: [row.error_code for row in answer.results],
        )
        self._share_groups.forget(group)
        raise_for(response.results[0].error_code)

    # -- committed offsets ------------------------------------------------------------------

    async def positions(
        self, principal: Principal, group: str, topic: TopicImage
    ) -> dict[int, int]:
        """Returns a consumer group's committed offsets in a topic, by partition."""
        ctx = self._ctx
        require_group(ctx, principal, Operation.DESCRIBE, group)
        require_topic(ctx, principal, Operation.DESCRIBE, topic.name)
        asked = OffsetFetchRequestTopics(
            name=topic.name,
            topic_id=topic.id,
            partition_indexes=list(range(len(topic.partitions))),
        )
        response = await self._coordinators.ask(
            principal,
            group,
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[asked])]),
            OffsetFetchResponse,
            lambda answer: [row.error_code for row in answer.groups],
        )
        row = response.groups[0]
        if code_of(row.error_code) is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise_for(row.error_code)
        return {
            place.partition_index: place.committed_offset
            for there in row.topics
            for place in there.partitions
            if not place.error_code and place.committed_offset >= 0
        }

    async def commit(
        self, principal: Principal, group: str, commits: Sequence[Commit]
    ) -> list[Refused | None]:
        """Commits offsets of a consumer group; None for each that was committed."""
        ctx = self._ctx
        check_group_name(group)
        require_group(ctx, principal, Operation.READ, group)
        answers: list[Refused | None] = [None] * len(commits)
        topics: dict[str, OffsetCommitRequestTopic] = {}
        places: dict[tuple[bytes, int], int] = {}
        for at, commit in enumerate(commits):
            try:
                topic = self._committable(principal, commit)
            except Refused as refused:
                answers[at] = refused
                continue
            row = topics.setdefault(
                commit.topic,
                OffsetCommitRequestTopic(name=topic.name, topic_id=topic.id, partitions=[]),
            )
            row.partitions = [
                *row.partitions,
                OffsetCommitRequestPartition(
                    partition_index=commit.partition,
                    committed_offset=commit.offset,
                    committed_metadata=commit.metadata,
                ),
            ]
            places[topic.id, commit.partition] = at
        if topics:
            await self._commit(principal, group, topics, places, answers)
        return answers

    async def _commit(
        self,
        principal: Principal,
        group: str,
        topics: Mapping[str, OffsetCommitRequestTopic],
        places: Mapping[tuple[bytes, int], int],
        answers: list[Refused | None],
    ) -> None:
        response = await self._coordinators.ask(
            principal,
            group,
            OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=NO_MEMBER,
                member_id="",
                topics=list(topics.values()),
            ),
            OffsetCommitResponse,
            lambda answer: [row.error_code for one in answer.topics for row in one.partitions],
        )
        for there in response.topics:
            for row in there.partitions:
                if row.error_code:
                    at = places[there.topic_id, row.partition_index]
                    answers[at] = _not_committed(group, code_of(row.error_code))

    def _committable(self, principal: Principal, commit: Commit) -> TopicImage:
        require_topic(self._ctx, principal, Operation.READ, commit.topic)
        topic = self._ctx.image.topics.get(commit.topic)
        if topic is None or not 0 <= commit.partition < len(topic.partitions):
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"partition {commit.topic}-{commit.partition} does not exist",
            )
        if not 0 <= commit.offset <= INT64_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"invalid offset {commit.offset}: must be 0 to 2^63-1"
            )
        return topic


def _not_committed(group: str, code: ErrorCode) -> Refused:
    if code is ErrorCode.UNKNOWN_MEMBER_ID:
        return Refused(
            code,
            f"group {group} has members, which commit their own offsets: choose another group, or "
            "stop its members",
        )
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        return Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"{group} is a share group, which acknowledges single messages: settle their receipts",
        )
    return Refused(code)


class _Member(Protocol):
    """Fields that the members of all kinds of groups have."""

    member_id: str
    client_id: str
    client_host: str


def _member(row: _Member) -> MemberDescription:
    return MemberDescription(row.member_id, row.client_id, row.client_host)


GROUPS_MAX = 1_000
SAMPLE_INTERVAL_S = 10.0
"""Minimum time between two samples."""
SAMPLES_MAX = 4
SAMPLE_AGE_MAX_S = 300.0
SHARE = "share"


class Scaled(NamedTuple):
    """Scaling recommendation of a group with its inputs."""

    kind: str
    members: int
    now: GroupProgress
    scaling: Scaling


@dataclass(slots=True)
class _History:
    samples: list[GroupProgress] = field(default_factory=list)
    member_per_s: float | None = None
    """Last rate of a member measured while the members were busy."""

    def before(self, now_s: float) -> GroupProgress | None:
        """Returns the oldest sample of the last `SAMPLE_AGE_MAX_S`."""
        self.samples = [one for one in self.samples if now_s - one.at_s <= SAMPLE_AGE_MAX_S]
        return self.samples[0] if self.samples else None

    def add(self, now: GroupProgress) -> None:
        if self.samples and self.samples[-1].partitions != now.partitions:
            self.samples.clear()
        if not self.samples or now.at_s - self.samples[-1].at_s >= SAMPLE_INTERVAL_S:
            self.samples.append(now)
            del self.samples[:-SAMPLES_MAX]


class GroupScaling:
    """Recommends consumer counts; one instance per gateway."""

    def __init__(
        self,
        ctx: Context,
        coordinators: CoordinatorCalls,
        topics: TopicAdmin,
        groups: Groups,
        queues: Queues,
    ) -> None:
        self._ctx = ctx
        self._coordinators = coordinators
        self._topics = topics
        self._groups = groups
        self._queues = queues
        self._histories: OrderedDict[str, _History] = OrderedDict()

    async def one(self, principal: Principal, group: str, target: ScalingTarget) -> Scaled:
        """Returns a group's recommendation; refuses (GROUP_ID_NOT_FOUND) if it is unknown."""
        described = await self._groups.one(principal, group)
        is_queue = described.kind == SHARE
        rows = await (self._queue if is_queue else self._log)(principal, group)
        now = group_progress(asyncio.get_running_loop().time(), rows)
        history = self._history(group)
        members = len(described.members)
        before = history.before(now.at_s)
        found = scale(
            before, now, members, target, is_queue=is_queue, known_rate=history.member_per_s
        )
        if before is not None and before.lag and now.lag and members and found.read_per_s:
            history.member_per_s = found.read_per_s / members
        history.add(now)
        return Scaled(described.kind, members, now, found)

    def _history(self, group: str) -> _History:
        history = self._histories.setdefault(group, _History())
        self._histories.move_to_end(group)
        while len(self._histories) > GROUPS_MAX:
            self._histories.popitem(last=False)
        return history

    async def _log(self, principal: Principal, group: str) -> dict[tuple[str, int], PartitionLag]:
        """Returns a consumer group's committed offsets and the end offsets."""
        require_group(self._ctx, principal, Operation.DESCRIBE, group)
        response = await self._coordinators.ask(
            principal,
            group,
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]),
            OffsetFetchResponse,
            lambda answer: [row.error_code for row in answer.groups],
        )
        raise_for(response.groups[0].error_code)
        rows: dict[tuple[str, int], PartitionLag] = {}
        for committed in response.groups[0].topics:
            topic = self._ctx.image.topics.get(committed.name)
            if topic is None or not may(
                self._ctx, principal, Operation.DESCRIBE, ResourceType.TOPIC, topic.name
            ):
                continue
            ends = await self._topics.offsets_at(principal, topic, LATEST)
            for place in committed.partitions:
                index = place.partition_index
                if not place.error_code and place.committed_offset >= 0 and index in ends:
                    rows[topic.name, index] = PartitionLag(place.committed_offset, ends[index])
        return rows

    async def _queue(self, principal: Principal, group: str) -> dict[tuple[str, int], PartitionLag]:
        """Returns a share group's progress in each partition."""
        rows: dict[tuple[str, int], PartitionLag] = {}
        for topic, _ in await self._queues.all(principal, group=group):
            for report in (await self._queues.one(principal, topic, group)).partitions:
                end = report.high_watermark
                rows[topic, report.partition] = PartitionLag(end - report.unfinished, end)
        return rows
