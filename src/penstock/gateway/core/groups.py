"""Groups for the gateway protocols: list, describe, delete; read and commit consumer offsets.

Every node coordinates some groups; any node can answer for all of them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.context import Context
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.client.errors import code_of
from penstock.cluster.metadata.image import TopicImage
from penstock.gateway.core.caller import Principal
from penstock.gateway.core.coordinator_calls import CoordinatorCalls, raise_for
from penstock.gateway.core.group_registration import ShareGroupRegistration
from penstock.gateway.core.in_process_calls import InProcessCalls
from penstock.gateway.core.permissions import may, require_group, require_topic
from penstock.wire.encodable import INT64_MAX
from penstock.wire.messages.classic_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
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
from penstock.wire.messages.share import ShareGroupDescribeRequest, ShareGroupDescribeResponse

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
        found = {}
        for answer in answers:
            raise_for(answer.error_code)
            for row in answer.groups:
                if may(ctx, principal, Operation.DESCRIBE, ResourceType.GROUP, row.group_id):
                    kind = row.group_type.lower() or "classic"
                    found[row.group_id] = GroupSummary(row.group_id, kind, row.group_state)
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
