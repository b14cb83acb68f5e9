"""Permission checks of the gateways, against the node's authorizer."""

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.context import Context
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.gateway.core.caller import Principal


def may(
    ctx: Context, principal: Principal, operation: Operation, resource: ResourceType, name: str
) -> bool:
    return ctx.authorizer.allows(principal.name, operation, resource, name, principal.host)


def require_topic(ctx: Context, principal: Principal, operation: Operation, topic: str) -> None:
    if not may(ctx, principal, operation, ResourceType.TOPIC, topic):
        raise Refused(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{principal} lacks {operation.name} permission on topic {topic}: ask an administrator "
            "to grant it",
        )


def require_group(ctx: Context, principal: Principal, operation: Operation, group: str) -> None:
    if not may(ctx, principal, operation, ResourceType.GROUP, group):
        raise Refused(
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            f"{principal} lacks {operation.name} permission on group {group}: ask an administrator "
            "to grant it",
        )
