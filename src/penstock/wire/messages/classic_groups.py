"""Classic group protocol, and FindCoordinator.

JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14), DescribeGroups (15), ListGroups
(16), DeleteGroups (42), FindCoordinator (10). Static members (KIP-345) came with
`group_instance_id`; LeaveGroup v3 removes several members at once; FindCoordinator v4 takes
several keys at once.
"""

from collections.abc import Sequence

from penstock.wire.schema import array, boolean, bytes_, int8, int16, int32, message, string, struct


@struct()
class JoinGroupRequestProtocol:
    """Assignor that the member supports, with its subscription in that assignor's format."""

    name: str = string()
    metadata: bytes = bytes_()


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupRequest:
    """Joins a group, or a new generation of it."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(since=1, default=-1)
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=True, default=None)
    protocol_type: str = string()
    protocols: Sequence[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(since=8, nullable=True, default=None)


@struct()
class JoinGroupResponseMember:
    """Member and its subscription, sent to the group leader only."""

    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=True, default=None)
    metadata: bytes = bytes_()


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupResponse:
    """Generation of the group, and for its leader the members to assign to."""

    throttle_time_ms: int = int32(since=2, default=0)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(since=7, nullable=True, default=None)
    protocol_name: str | None = string(nullable=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9, default=False)
    member_id: str = string()
    members: Sequence[JoinGroupResponseMember] = array(JoinGroupResponseMember)


@message(key=12, versions=(0, 4), flexible=4)
class HeartbeatRequest:
    """Keeps a member in its group."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=True, default=None)


@message(key=12, versions=(0, 4), flexible=4)
class HeartbeatResponse:
    """Error if the member must rejoin the group."""

    throttle_time_ms: int = int32(since=1, default=0)
    error_code: int = int16()


@struct()
class MemberIdentity:
    """Member that leaves, by its id or its group instance id."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable=True, default=None)
    reason: str | None = string(since=5, nullable=True, default=None)


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupRequest:
    """Removes members from a group."""

    group_id: str = string()
    member_id: str = string(until=2, default="")
    members: Sequence[MemberIdentity] = array(MemberIdentity, since=3, default=())


@struct()
class LeaveGroupMemberResponse:
    """Result for one leaving member."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable=True)
    error_code: int = int16()


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupResponse:
    """Results of the leaving members."""

    throttle_time_ms: int = int32(since=1, default=0)
    error_code: int = int16()
    members: Sequence[LeaveGroupMemberResponse] = array(
        LeaveGroupMemberResponse, since=3, default=()
    )


@struct()
class SyncGroupRequestAssignment:
    """Assignment that the group leader gives one member."""

    member_id: str = string()
    assignment: bytes = bytes_()


@message(key=14, versions=(0, 5), flexible=4)
class SyncGroupRequest:
    """Submits the group leader's assignments, and requests the member's own."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=True, default=None)
    protocol_type: str | None = string(since=5, nullable=True, default=None)
    protocol_name: str | None = string(since=5, nullable=True, default=None)
    assignments: Sequence[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message(key=14, versions=(0, 5), flexible=4)
class SyncGroupResponse:
    """Assignment of the member."""

    throttle_time_ms: int = int32(since=1, default=0)
    error_code: int = int16()
    protocol_type: str | None = string(since=5, nullable=True, default=None)
    protocol_name: str | None = string(since=5, nullable=True, default=None)
    assignment: bytes = bytes_()


@message(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsRequest:
    """Requests descriptions of classic groups."""

    groups: Sequence[str] = array(string, default=())
    include_authorized_operations: bool = boolean(since=3, default=False)


@struct()
class DescribedGroupMember:
    """Member of a classic group."""

    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable=True, default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = bytes_()
    member_assignment: bytes = bytes_()


@struct()
class DescribedGroup:
    """Classic group and its members."""

    error_code: int = int16()
    error_message: str | None = string(since=6, nullable=True, default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: Sequence[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=-2147483648)


@message(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsResponse:
    """Descriptions of classic groups."""

    throttle_time_ms: int = int32(since=1, default=0)
    groups: Sequence[DescribedGroup] = array(DescribedGroup)


@message(key=16, versions=(0, 5), flexible=3)
class ListGroupsRequest:
    """Requests a list of groups, by state and type."""

    states_filter: Sequence[str] = array(string, since=4, default=())
    types_filter: Sequence[str] = array(string, since=5, default=())


@struct()
class ListedGroup:
    """Summary of a group."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4, default="")
    group_type: str = string(since=5, default="")


@message(key=16, versions=(0, 5), flexible=3)
class ListGroupsResponse:
    """Groups that this broker coordinates."""

    throttle_time_ms: int = int32(since=1, default=0)
    error_code: int = int16()
    groups: Sequence[ListedGroup] = array(ListedGroup)


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsRequest:
    """Deletes empty groups."""

    groups_names: Sequence[str] = array(string, default=())


@struct()
class DeletableGroupResult:
    """Result of deleting one group."""

    group_id: str = string()
    error_code: int = int16()


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsResponse:
    """Results of the deletions."""

    throttle_time_ms: int = int32(default=0)
    results: Sequence[DeletableGroupResult] = array(DeletableGroupResult)


@message(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorRequest:
    """Requests the coordinators of groups (0), transactions (1) or share groups (2)."""

    key: str = string(until=3, default="")
    key_type: int = int8(since=1, default=0)
    coordinator_keys: Sequence[str] = array(string, since=4, default=())


@struct()
class Coordinator:
    """Coordinator of one key."""

    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)


@message(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorResponse:
    """Coordinators; a single one before v4, a list from v4 on."""

    throttle_time_ms: int = int32(since=1, default=0)
    error_code: int = int16(until=3, default=0)
    error_message: str | None = string(since=1, until=3, nullable=True, default=None)
    node_id: int = int32(until=3, default=0)
    host: str = string(until=3, default="")
    port: int = int32(until=3, default=0)
    coordinators: Sequence[Coordinator] = array(Coordinator, since=4, default=())
