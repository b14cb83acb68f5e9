"""Who may do what through a door: the node's one authorizer, asked with the visitor's principal."""

from penstock.api.context import Context
from penstock.api.route import Operation, ResourceType
from penstock.base.errors import ErrorCode, Refused


def require_topic(ctx: Context, principal: str, operation: Operation, topic: str) -> None:
    if not ctx.authorizer.allows(principal, operation, ResourceType.TOPIC, topic):
        raise Refused(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{principal} may not {operation.name.lower()} topic {topic}",
        )


def require_group(ctx: Context, principal: str, operation: Operation, group: str) -> None:
    if not ctx.authorizer.allows(principal, operation, ResourceType.GROUP, group):
        raise Refused(
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            f"{principal} may not {operation.name.lower()} group {group}",
        )
