"""AppendAudit (api 30032), version 0: Penstock's own API between its nodes.

Needs CLUSTER_ACTION.
"""

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.call import Call
from penstock.broker.api.context import SecurityContext
from penstock.broker.api.response_rows import may_cluster
from penstock.broker.api.route_row import Operation
from penstock.wire.messages.internal.audit import AppendAuditRequest, AppendAuditResponse
from penstock.wire.records import check_batch


async def append_audit(
    ctx: SecurityContext, call: Call, request: AppendAuditRequest
) -> AppendAuditResponse:
    if not may_cluster(ctx, call, Operation.CLUSTER_ACTION):
        return AppendAuditResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    batch = memoryview(bytearray(request.batch))
    try:
        check_batch(batch)
        await ctx.audit.append(batch)
    except Refused as refused:
        return AppendAuditResponse(error_code=refused.code, error_message=refused.message)
    return AppendAuditResponse()
