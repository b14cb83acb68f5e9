"""Requests of other nodes about schemas: AskRegistry (api 30010), version 0.

Penstock's own API between its nodes; needs CLUSTER_ACTION.
"""

from penstock.base.errors import ErrorCode
from penstock.broker.api.call import Call
from penstock.broker.api.context import ProduceContext
from penstock.broker.api.response_rows import may_cluster
from penstock.broker.api.route_row import Operation
from penstock.wire.messages.internal.registry import AskRegistryRequest, AskRegistryResponse


async def ask_registry(
    ctx: ProduceContext, call: Call, request: AskRegistryRequest
) -> AskRegistryResponse:
    if not may_cluster(ctx, call, Operation.CLUSTER_ACTION):
        return AskRegistryResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return await ctx.registry.answer_peer(request)
