"""Penstock's own administrative APIs, version 0 each: registry, audit log, encryption keys.

AskRegistry (30010) and AppendAudit (30032) are calls between nodes; they need CLUSTER_ACTION.
DescribeKeys (30030) and RotateKeys (30031) apply to this node only. Each request rotates some logs;
the caller repeats it until done.
"""

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.call import Call
from penstock.broker.api.context import AdminContext, ProduceContext, SecurityContext
from penstock.broker.api.response_rows import may_cluster
from penstock.broker.api.route_row import Operation
from penstock.security.keyring import KeyTrouble
from penstock.wire.messages.internal.admin import (
    AppendAuditRequest,
    AppendAuditResponse,
    AskRegistryRequest,
    AskRegistryResponse,
    DescribeKeysRequest,
    DescribeKeysResponse,
    KekUse,
    RotateKeysRequest,
    RotateKeysResponse,
)
from penstock.wire.records import check_batch

NO_SOURCE = "this node has no encryption key: set encryption.kek.source"


def describe_keys(
    ctx: AdminContext, call: Call, request: DescribeKeysRequest
) -> DescribeKeysResponse:
    if not may_cluster(ctx, call, Operation.DESCRIBE):
        return DescribeKeysResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    encryption = ctx.encryption
    if encryption is None:
        return DescribeKeysResponse(
            error_code=ErrorCode.NONE, plain_logs=sum(1 for _ in ctx.partitions.replicas())
        )
    uses = encryption.uses()
    current = encryption.keyring.current.id
    return DescribeKeysResponse(
        error_code=ErrorCode.NONE,
        keys=[
            KekUse(id=kek_id, is_current=kek_id == current, logs=uses[kek_id])
            for kek_id in encryption.keyring.ids
        ],
        plain_logs=encryption.plain,
    )


async def rotate_keys(
    ctx: AdminContext, call: Call, request: RotateKeysRequest
) -> RotateKeysResponse:
    if not may_cluster(ctx, call, Operation.ALTER):
        return RotateKeysResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    encryption = ctx.encryption
    if encryption is None:
        return RotateKeysResponse(error_code=ErrorCode.INVALID_CONFIG, error_message=NO_SOURCE)
    try:
        if request.reload:
            await encryption.reload()
        progress = await encryption.rotate(request.logs_max)
    except KeyTrouble as trouble:
        return RotateKeysResponse(error_code=ErrorCode.INVALID_CONFIG, error_message=str(trouble))
    except OSError as error:
        return RotateKeysResponse(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=f"key file failed: {error}"
        )
    return RotateKeysResponse(
        error_code=ErrorCode.NONE,
        key_id=encryption.keyring.current.id,
        rewrapped=progress.rewrapped,
        remaining=progress.remaining,
    )


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


async def ask_registry(
    ctx: ProduceContext, call: Call, request: AskRegistryRequest
) -> AskRegistryResponse:
    if not may_cluster(ctx, call, Operation.CLUSTER_ACTION):
        return AskRegistryResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return await ctx.registry.answer_peer(request)
