"""DescribeClientQuotas (api 48) and AlterClientQuotas (49), versions 0-1 (KIP-546).

Each entity is a separate change with its own row.
"""

from collections.abc import Sequence

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.call import Call
from penstock.broker.api.context import SecurityContext
from penstock.broker.api.response_rows import (
    ROWS_MAX,
    WAIT_MS_MAX,
    duplicates,
    may_cluster,
    settled,
)
from penstock.broker.api.route_row import Operation
from penstock.cluster.access import quotas
from penstock.cluster.access.quotas import EntityFilter
from penstock.security.quotas import DEFAULT, Default, Entity, EntityName, EntityType
from penstock.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
    ComponentData,
    DescribeClientQuotasEntityData,
    DescribeClientQuotasEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    ValueData,
)

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
EXACT, DEFAULT_NAME, ANY_NAME = 0, 1, 2


def describe_client_quotas(
    ctx: SecurityContext, call: Call, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        if not may_cluster(ctx, call, Operation.DESCRIBE_CONFIGS):
            raise Refused(DENIED)
        wanted = _filter(request.components, request.strict)
    except Refused as refused:
        return DescribeClientQuotasResponse(
            error_code=refused.code, error_message=refused.message, entries=None
        )
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        entries=[
            DescribeClientQuotasEntryData(
                entity=[
                    DescribeClientQuotasEntityData(entity_type=kind, entity_name=_told(name))
                    for kind, name in entity.parts()
                ],
                values=[ValueData(key=key, value=value) for key, value in sorted(values.items())],
            )
            for entity, values in quotas.matching(ctx.image, wanted)
        ],
    )


def _told(name: str | Default) -> str | None:
    return None if isinstance(name, Default) else name


def _filter(components: Sequence[ComponentData], is_strict: bool) -> EntityFilter:
    named: dict[EntityType, EntityName] = {}
    any_named: set[EntityType] = set()
    if duplicates(component.entity_type for component in components):
        raise Refused(
            ErrorCode.INVALID_REQUEST, "duplicate entity type in the filter: name each type once"
        )
    for component in components:
        kind = _type(component.entity_type)
        if component.match_type == ANY_NAME and component.match is None:
            any_named.add(kind)
        elif component.match_type == DEFAULT_NAME and component.match is None:
            named[kind] = DEFAULT
        elif component.match_type == EXACT and component.match is not None:
            named[kind] = component.match
        else:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"match type {component.match_type} is not valid with the name {component.match!r}",
            )
    kinds = named.keys() | any_named
    if EntityType.IP in kinds and len(kinds) > 1:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination: ip cannot be combined",
        )
    return EntityFilter(named, frozenset(any_named), is_strict)


def _type(name: str) -> EntityType:
    try:
        return EntityType(name)
    except ValueError:
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Custom entity type {name!r} is not supported: use one of {', '.join(EntityType)}",
        ) from None


async def alter_client_quotas(
    ctx: SecurityContext, call: Call, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    rows, revision = [], 0
    twice = duplicates(_identity(entry) for entry in request.entries)
    for at, entry in enumerate(request.entries):
        code, message = ErrorCode.NONE, None
        try:
            if not may_cluster(ctx, call, Operation.ALTER_CONFIGS):
                raise Refused(DENIED)
            if at >= ROWS_MAX:
                raise Refused(
                    ErrorCode.INVALID_REQUEST,
                    f"too many entities: send at most {ROWS_MAX} per request",
                )
            if _identity(entry) in twice:
                raise Refused(
                    ErrorCode.INVALID_REQUEST,
                    "duplicate entity in the request: name each entity once",
                )
            changed = await quotas.alter(
                ctx.store,
                ctx.image,
                _entity(entry.entity),
                {op.key: None if op.remove else op.value for op in entry.ops},
                validate_only=request.validate_only,
            )
            revision = max(revision, changed)
        except Refused as refused:
            code, message = refused.code, refused.message
        rows.append(
            AlterClientQuotasResponseEntryData(
                error_code=code,
                error_message=message,
                entity=[
                    AlterClientQuotasResponseEntityData(
                        entity_type=part.entity_type, entity_name=part.entity_name
                    )
                    for part in entry.entity
                ],
            )
        )
    if revision:
        await settled(ctx, revision, WAIT_MS_MAX)
    return AlterClientQuotasResponse(entries=rows)


def _identity(entry: AlterClientQuotasRequestEntryData) -> frozenset[tuple[str, str | None]]:
    return frozenset((part.entity_type, part.entity_name) for part in entry.entity)


def _entity(parts: Sequence[AlterClientQuotasRequestEntityData]) -> Entity:
    found: dict[EntityType, EntityName] = {}
    for part in parts:
        try:
            kind = EntityType(part.entity_type)
        except ValueError:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"Unhandled client quota entity type: {part.entity_type}",
            ) from None
        if kind in found:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"Invalid quota entity, contains {kind} more than once",
            )
        found[kind] = DEFAULT if part.entity_name is None else part.entity_name
    user, client_id, ip = (found.get(kind) for kind in EntityType)
    return Entity(user, client_id, ip)
