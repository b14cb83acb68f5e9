"""Administration of share groups: ShareGroupDescribe (api 77), version 1, and the list of topics in
which a group has delivery state.

The delivery state is stored beside its partitions. The group knows the topics that have any, so
that all of it can be described, and deleted with the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from penstock.base.errors import ErrorCode, Refused, shortened
from penstock.state.groups.call_result import CallResult
from penstock.state.groups.config import GroupCaller
from penstock.state.groups.descriptions import described_share, missing_share
from penstock.state.groups.queries import QueryHandler, check_groups_max, find, subscribed_topics
from penstock.state.groups.share.group import ShareGroup
from penstock.state.groups.share.heartbeat import with_topics, without_topics
from penstock.wire.messages.share import ShareGroupDescribeRequest, ShareGroupDescribeResponse

if TYPE_CHECKING:
    from penstock.state.groups.shard import GroupShard


@dataclass(frozen=True, slots=True)
class LookAtShareGroup:
    """Internal request, not on the wire: returns a share group's topics, and may change them."""

    NAME: ClassVar[str] = "LookAtShareGroup"

    group_id: str
    must_be_empty: bool = False
    creates: bool = False
    """Create the group if it does not exist."""
    add: tuple[bytes, ...] = ()
    """Topic ids in which the group has delivery state from now on."""
    remove: tuple[bytes, ...] = ()


class ShareGroupView(NamedTuple):
    topics: tuple[bytes, ...]
    """Ids of the topics in which the group has delivery state."""
    subscribed: frozenset[str]
    """Names of the topics that its members subscribe to."""


def describe_share(
    shard: GroupShard,
    request: ShareGroupDescribeRequest,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> ShareGroupDescribeResponse:
    rows = []
    for group_id in request.group_ids:
        group = find(shard, group_id)
        if isinstance(group, ShareGroup):
            rows.append(described_share(group, shard.topics))
        elif group is None:
            rows.append(missing_share(group_id, shortened(f"Group {group_id} not found.")))
        else:
            rows.append(
                missing_share(group_id, shortened(f"Group {group_id} is not a share group."))
            )
    return ShareGroupDescribeResponse(groups=rows)


def look_at_share(
    shard: GroupShard,
    request: LookAtShareGroup,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> ShareGroupView:
    """Returns the topics of a share group for its administration, and applies changes to them."""
    group = find(shard, request.group_id)
    if group is None and request.creates:
        check_groups_max(shard, request.group_id)
        group = shard.groups[request.group_id] = ShareGroup(request.group_id, shard.config)
    if not isinstance(group, ShareGroup):
        what = "not found" if group is None else "is not a share group"
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} {what}.")
    if request.must_be_empty and group.members:
        raise Refused(ErrorCode.NON_EMPTY_GROUP, f"Group {request.group_id} is not empty.")
    read = subscribed_topics(shard, group)
    outcome.records += with_topics(group, request.add) if request.add else ()
    outcome.records += without_topics(group, request.remove)
    topics = {*group.value.topics, *request.add}.difference(request.remove)
    return ShareGroupView(tuple(sorted(topics)), read)


HANDLERS: Final[dict[str, QueryHandler]] = {
    "ShareGroupDescribe": describe_share,
    LookAtShareGroup.NAME: look_at_share,
}
