"""Kafka's answers about what a node has stored, asked for and encoded in every version."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.broker.api.call import Prepared
from penstock.broker.api.context import Context
from penstock.broker.api.routes import ROUTES
from penstock.gateway.core.in_process_calls import InProcessCalls
from penstock.gateway.core.permissions import Principal
from penstock.security.acl_types import ANY
from penstock.wire.codec import reader, writer
from penstock.wire.messages.acls import DescribeAclsRequest
from penstock.wire.messages.classic_groups import DescribeGroupsRequest, ListGroupsRequest
from penstock.wire.messages.cluster import DescribeClusterRequest
from penstock.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ListConfigResourcesRequest,
)
from penstock.wire.messages.consumer_groups import ConsumerGroupDescribeRequest
from penstock.wire.messages.log_dirs import DescribeLogDirsRequest
from penstock.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopicRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from penstock.wire.messages.quotas import DescribeClientQuotasRequest
from penstock.wire.messages.sasl import DescribeUserScramCredentialsRequest
from penstock.wire.messages.share import ShareGroupDescribeRequest
from penstock.wire.messages.share_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from penstock.wire.messages.transactions import ListTransactionsRequest

TOPIC_KIND, GROUP_KIND = 2, 32
Questions = Callable[[int], Iterator[object]]


class _Versioned(InProcessCalls):
    """Calls a handler in the version of the caller's choice."""

    def prepare(self, request: type, version: int) -> type:
        (route,) = [one for one in ROUTES if one.request is request]
        prepared = self._prepare(request)
        self._prepared[request] = Prepared(
            route, version, prepared.read, prepared.write, prepared.metrics, prepared.context
        )
        return route.response  # type: ignore[no-any-return]


async def commit_offset(
    ctx: Context, version: int, group: str, offset: int, metadata: str | None
) -> None:
    """Commits an offset of partition 0 of topic `t`, as a Kafka client of that version would."""
    calls = _Versioned(ctx)
    answer_type: Any = calls.prepare(OffsetCommitRequest, version)
    topic = ctx.image.topics["t"]
    row = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=metadata
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="t", topic_id=topic.id, partitions=[row])],
    )
    await calls.ask(Principal(), request, answer_type)


async def require_encodable(ctx: Context) -> None:
    """Asks for everything that is listed, in every version of every API, as clients would.

    The reader is the one that bounds texts.
    """
    calls, caller = _Versioned(ctx), Principal()

    async def ask(question: object, version: int) -> Any:
        answer_type: Any = calls.prepare(type(question), version)
        answer: Any = await calls.ask(caller, question, answer_type)
        parts: list[Any] = []
        writer(answer_type, version)(answer, parts)
        frame = memoryview(b"".join(parts))
        decoded: Any
        decoded, _ = reader(answer_type, version)(frame, 0, len(frame))
        return decoded

    newest = ListGroupsRequest.WIRE.versions[1]  # type: ignore[attr-defined]
    listed = await ask(ListGroupsRequest(), newest)
    groups = [row.group_id for row in listed.groups]
    topics = list(ctx.image.topics)
    for question_type, questions in _questions(groups, topics).items():
        first, last = question_type.WIRE.versions
        for version in range(first, last + 1):
            for question in questions(version):
                await ask(question, version)


def _questions(groups: Sequence[str], topics: Sequence[str]) -> dict[Any, Questions]:
    def always(*questions: object) -> Questions:
        return lambda version: iter(questions)

    def offset_fetch(version: int) -> Iterator[object]:
        if version >= 8:
            rows = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in groups]
            yield OffsetFetchRequest(groups=rows)
            return
        named = [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in topics]
        for group in groups:
            yield OffsetFetchRequest(group_id=group, topics=named if version < 2 else None)

    def metadata(version: int) -> Iterator[object]:
        named = [MetadataRequestTopic(name=name) for name in topics]
        yield MetadataRequest(topics=named if version < 1 else None)

    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, names in ((TOPIC_KIND, topics), (GROUP_KIND, groups))
        for name in names
    ]
    acls = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    consumers = ConsumerGroupDescribeRequest(group_ids=groups, include_authorized_operations=False)
    shares = ShareGroupDescribeRequest(group_ids=groups, include_authorized_operations=False)
    share_offsets = [
        DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None) for name in groups
    ]
    named = [DescribeTopicPartitionsTopicRequest(name=name) for name in topics]
    return {
        ListGroupsRequest: always(ListGroupsRequest()),
        DescribeGroupsRequest: always(DescribeGroupsRequest(groups=groups)),
        ConsumerGroupDescribeRequest: always(consumers),
        ShareGroupDescribeRequest: always(shares),
        OffsetFetchRequest: offset_fetch,
        DescribeShareGroupOffsetsRequest: always(
            DescribeShareGroupOffsetsRequest(groups=share_offsets)
        ),
        MetadataRequest: metadata,
        DescribeTopicPartitionsRequest: always(DescribeTopicPartitionsRequest(topics=named)),
        DescribeConfigsRequest: always(
            DescribeConfigsRequest(
                resources=resources, include_synonyms=True, include_documentation=True
            )
        ),
        ListConfigResourcesRequest: always(ListConfigResourcesRequest()),
        DescribeAclsRequest: always(acls),
        DescribeUserScramCredentialsRequest: always(
            DescribeUserScramCredentialsRequest(users=None)
        ),
        DescribeClientQuotasRequest: always(
            DescribeClientQuotasRequest(components=(), strict=False)
        ),
        DescribeLogDirsRequest: always(DescribeLogDirsRequest(topics=None)),
        DescribeClusterRequest: always(
            DescribeClusterRequest(include_cluster_authorized_operations=False)
        ),
        ListTransactionsRequest: always(ListTransactionsRequest()),
    }
