"""Permission checks of a viewer, for the console's pages."""

from dataclasses import dataclass

from starlette.requests import Request

from penstock.broker.api.context import Context
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.gateway.core.caller import Principal
from penstock.gateway.core.permissions import may
from penstock.gateway.http.request_io import principal_of

CLUSTER_NAME = "kafka-cluster"


@dataclass(frozen=True, slots=True)
class Visibility:
    ctx: Context
    principal: Principal

    def topic(self, name: str, operation: Operation = Operation.DESCRIBE) -> bool:
        return may(self.ctx, self.principal, operation, ResourceType.TOPIC, name)

    def group(self, name: str, operation: Operation = Operation.DESCRIBE) -> bool:
        return may(self.ctx, self.principal, operation, ResourceType.GROUP, name)

    def cluster(self, operation: Operation = Operation.DESCRIBE) -> bool:
        return may(self.ctx, self.principal, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def visibility_of(ctx: Context, request: Request) -> Visibility:
    return Visibility(ctx, principal_of(request))
