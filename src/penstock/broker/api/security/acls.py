"""DescribeAcls (api 29), CreateAcls (30), DeleteAcls (31), versions 1-3 (KIP-140, KIP-290).

Without an authorizer, ACLs can be stored, so that a cluster can be prepared; Kafka refuses this
with SECURITY_DISABLED. Describing them is refused with that code here, too, so that no user
believes that they apply.
"""

from collections.abc import Awaitable, Mapping, Sequence

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_scheduler import Steps
from penstock.broker.api.call import Call
from penstock.broker.api.context import SecurityContext
from penstock.broker.api.large_replies import in_steps
from penstock.broker.api.response_rows import (
    CLUSTER_NAME,
    ROWS_MAX,
    WAIT_MS_MAX,
    may_cluster,
    settled,
)
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.cluster.access import acls
from penstock.security.acl_types import ALL_OPERATIONS, ANY, Pattern, Permission
from penstock.security.acls import AclEntry, Filter, Resource
from penstock.wire.messages.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
OFF = Refused(
    ErrorCode.SECURITY_DISABLED,
    "No Authorizer is configured. Start with --set authorizer.class.name=acl to apply ACLs.",
)
APPLICABLE = {
    ResourceType.TOPIC: {3, 4, 5, 6, 7, 8, 10, 11},
    ResourceType.GROUP: {3, 6, 8, 10, 11},
    ResourceType.CLUSTER: {5, 7, 8, 9, 10, 11, 12},
    ResourceType.TRANSACTIONAL_ID: {4, 8, 12},
    ResourceType.DELEGATION_TOKEN: {8},
    ResourceType.USER: {13, 14},
}
"""Operations of each resource type."""


def describe_acls(
    ctx: SecurityContext, call: Call, request: DescribeAclsRequest
) -> DescribeAclsResponse | Awaitable[DescribeAclsResponse]:
    try:
        _check_caller(ctx, call, Operation.DESCRIBE)
        wanted = _filter(request)
    except Refused as refused:
        return DescribeAclsResponse(
            error_code=refused.code, error_message=refused.message, resources=()
        )
    return in_steps(ctx, call, _described(ctx.image.acls, wanted))


def _described(
    present: Mapping[Resource, Sequence[AclEntry]], wanted: Filter
) -> Steps[DescribeAclsResponse]:
    resources = []
    for resource in sorted(present):
        yield
        if not wanted.takes_resource(resource):
            continue
        entries = []
        for entry in present[resource]:
            yield
            if wanted.takes(entry):
                entries.append(
                    AclDescription(
                        principal=entry.principal,
                        host=entry.host,
                        operation=entry.operation,
                        permission_type=entry.permission,
                    )
                )
        if entries:
            resources.append(
                DescribeAclsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    pattern_type=resource.pattern,
                    acls=entries,
                )
            )
    return DescribeAclsResponse(error_code=ErrorCode.NONE, error_message=None, resources=resources)


async def create_acls(
    ctx: SecurityContext, call: Call, request: CreateAclsRequest
) -> CreateAclsResponse:
    results: list[AclCreationResult] = []
    wanted: dict[Resource, list[tuple[int, AclEntry]]] = {}
    for at, creation in enumerate(request.creations):
        results.append(AclCreationResult(error_code=ErrorCode.NONE, error_message=None))
        try:
            _check_caller(ctx, call, Operation.ALTER)
            if at >= ROWS_MAX:
                raise Refused(
                    ErrorCode.INVALID_REQUEST, f"too many ACLs: send at most {ROWS_MAX} per request"
                )
            resource, entry = _binding(creation)
            wanted.setdefault(resource, []).append((at, entry))
        except Refused as refused:
            results[at] = _result(refused)
    revision = 0
    for resource, entries in wanted.items():
        try:
            lines = [entry for _, entry in entries]
            revision = max(revision, await acls.add(ctx.store, ctx.image, resource, lines))
        except Refused as refused:
            for at, _ in entries:
                results[at] = _result(refused)
    await settled(ctx, revision, WAIT_MS_MAX)
    return CreateAclsResponse(results=results)


async def delete_acls(
    ctx: SecurityContext, call: Call, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    try:
        _check_caller(ctx, call, Operation.ALTER)
        if len(request.filters) > ROWS_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"too many filters: send at most {ROWS_MAX} per request"
            )
        filters = [_filter(asked) for asked in request.filters]
        matched, revision = await acls.remove(ctx.store, ctx.image, filters)
    except Refused as refused:
        return DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(
                    error_code=refused.code, error_message=refused.message, matching_acls=()
                )
                for _ in request.filters
            ]
        )
    await settled(ctx, revision, WAIT_MS_MAX)
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_code=ErrorCode.NONE, error_message=None, matching_acls=_matching(found)
            )
            for found in matched
        ]
    )


def _matching(found: Sequence[tuple[Resource, AclEntry]]) -> list[DeleteAclsMatchingAcl]:
    return [
        DeleteAclsMatchingAcl(
            error_code=ErrorCode.NONE,
            error_message=None,
            resource_type=resource.type,
            resource_name=resource.name,
            pattern_type=resource.pattern,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for resource, entry in found
    ]


def _check_caller(ctx: SecurityContext, call: Call, operation: Operation) -> None:
    if not ctx.authorizer.is_on:
        raise OFF
    if not may_cluster(ctx, call, operation):
        raise Refused(
            DENIED, f"{call.principal} lacks permission to {operation.name.lower()} the cluster"
        )


def _binding(creation: AclCreation) -> tuple[Resource, AclEntry]:
    kind, name, pattern = (
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
    )
    if kind not in APPLICABLE:
        raise Refused(ErrorCode.INVALID_REQUEST, f"unknown resource type {kind}")
    if pattern not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise Refused(
            ErrorCode.INVALID_REQUEST, "invalid pattern type: must be literal or prefixed"
        )
    if not name or len(name.encode()) > acls.NAME_BYTES_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, "resource name is empty or too long")
    if kind == ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER is {CLUSTER_NAME}"
        )
    operation = creation.operation
    if operation != ALL_OPERATIONS and operation not in APPLICABLE[ResourceType(kind)]:
        raise Refused(ErrorCode.INVALID_REQUEST, f"operation {operation} is not for this resource")
    if creation.permission_type not in (Permission.ALLOW, Permission.DENY):
        raise Refused(ErrorCode.INVALID_REQUEST, "invalid permission type: must be allow or deny")
    sort, colon, who = creation.principal.partition(":")
    if not (sort and colon and who) or len(creation.principal) > acls.NAME_BYTES_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"principal {creation.principal!r} must have the form User:name",
        )
    if not creation.host or len(creation.host) > acls.NAME_BYTES_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, "invalid host: must be an IP address or *")
    entry = AclEntry(creation.principal, creation.host, operation, creation.permission_type)
    return Resource(kind, name, pattern), entry


def _filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> Filter:
    for value in (
        asked.resource_type_filter,
        asked.pattern_type_filter,
        asked.operation,
        asked.permission_type,
    ):
        if value < ANY:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "invalid filter: unknown resource type, pattern type, operation or permission",
            )
    return Filter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _result(refused: Refused) -> AclCreationResult:
    return AclCreationResult(error_code=refused.code, error_message=refused.message)
