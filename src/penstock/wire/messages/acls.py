"""Access control: DescribeAcls (29), CreateAcls (30), DeleteAcls (31), versions 1-3.

v1 brought prefixed patterns (KIP-290), v2 is flexible, v3 adds the user resource type.
"""

from collections.abc import Sequence

from penstock.wire.schema import array, int8, int16, int32, message, string, struct


@message(key=29, versions=(1, 3), flexible=2)
class DescribeAclsRequest:
    """Requests the bindings that match a filter; null matches anything."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=True)
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable=True)
    host_filter: str | None = string(nullable=True)
    operation: int = int8()
    permission_type: int = int8()


@struct()
class AclDescription:
    """One binding of a resource."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@struct()
class DescribeAclsResource:
    """A resource pattern and its bindings."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    acls: Sequence[AclDescription] = array(AclDescription)


@message(key=29, versions=(1, 3), flexible=2)
class DescribeAclsResponse:
    """The bindings that match."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    resources: Sequence[DescribeAclsResource] = array(DescribeAclsResource)


@struct()
class AclCreation:
    """A binding to create."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message(key=30, versions=(1, 3), flexible=2)
class CreateAclsRequest:
    """Creates bindings."""

    creations: Sequence[AclCreation] = array(AclCreation)


@struct()
class AclCreationResult:
    """Result of creating one binding."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)


@message(key=30, versions=(1, 3), flexible=2)
class CreateAclsResponse:
    """Results of the bindings, in the order of the request."""

    throttle_time_ms: int = int32(default=0)
    results: Sequence[AclCreationResult] = array(AclCreationResult)


@struct()
class DeleteAclsFilter:
    """Bindings to delete; null matches anything."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=True)
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable=True)
    host_filter: str | None = string(nullable=True)
    operation: int = int8()
    permission_type: int = int8()


@message(key=31, versions=(1, 3), flexible=2)
class DeleteAclsRequest:
    """Deletes the bindings that match filters."""

    filters: Sequence[DeleteAclsFilter] = array(DeleteAclsFilter)


@struct()
class DeleteAclsMatchingAcl:
    """Binding that matched, and the result of deleting it."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@struct()
class DeleteAclsFilterResult:
    """Bindings that one filter deleted."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    matching_acls: Sequence[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@message(key=31, versions=(1, 3), flexible=2)
class DeleteAclsResponse:
    """Deleted bindings per filter, in the order of the request."""

    throttle_time_ms: int = int32(default=0)
    filter_results: Sequence[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
