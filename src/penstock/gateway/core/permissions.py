"""Permission checks of the gateways, against the node's authorizer.

Identity of the client behind a gateway request: principal, host and client id. Permissions are
checked by principal and host, quotas by principal and client id, as for a Kafka connection.
"""

from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.context import Context
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.security.acl_types import ANONYMOUS, WILDCARD


@dataclass(frozen=True, slots=True)
class Principal:
    """Principal on whose behalf a gateway acts."""

    name: str = ANONYMOUS
    """For example `User:ann`."""
    host: str = WILDCARD
    """Client's address; without one, only permissions for every host apply."""
    client_id: str = ""
    """Name the client gives itself; empty if it gives none."""

    @property
    def holder(self) -> str:
        """Holder of a share of a bounded resource: the user, or an anonymous client's address."""
        return self.host if self.name == ANONYMOUS else self.name

    def __str__(self) -> str:
        return self.name


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
