"""CreateAccessKey (api 30040), DescribeAccessKeys (30041), DeleteAccessKey (30042), version 0.

Penstock's own APIs. A key is only for signatures of AWS SDKs and authenticates the user it was
created for (ADR 20). As for passwords, listing keys needs DESCRIBE on the cluster, changing them
needs ALTER.
"""

import base64

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.call import Call
from penstock.broker.api.context import SecurityContext
from penstock.broker.api.response_rows import WAIT_MS_MAX, may_cluster, settled
from penstock.broker.api.route_row import Operation
from penstock.cluster.access import users
from penstock.security.acl_types import NODE_USER
from penstock.wire.messages.internal.admin import (
    AccessKeyInfo,
    CreateAccessKeyRequest,
    CreateAccessKeyResponse,
    DeleteAccessKeyRequest,
    DeleteAccessKeyResponse,
    DescribeAccessKeysRequest,
    DescribeAccessKeysResponse,
)

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
PREFIX = "PNSK"
ID_BYTES = 10
SECRET_BYTES = 30


async def create_access_key(
    ctx: SecurityContext, call: Call, request: CreateAccessKeyRequest
) -> CreateAccessKeyResponse:
    try:
        if not may_cluster(ctx, call, Operation.ALTER):
            raise Refused(DENIED)
        name = request.user
        if not name or name == NODE_USER or len(name.encode()) > users.NAME_BYTES_MAX:
            raise Refused(
                ErrorCode.UNACCEPTABLE_CREDENTIAL, "user name is empty, too long or reserved"
            )
        access_key = PREFIX + base64.b32encode(ctx.random.random_bytes(ID_BYTES)).decode()
        secret = base64.b64encode(ctx.random.random_bytes(SECRET_BYTES)).decode()
        revision = await users.add_key(
            ctx.store, ctx.image, name, access_key, secret, ctx.clock.now_ms()
        )
    except Refused as refused:
        return CreateAccessKeyResponse(error_code=refused.code, error_message=refused.message)
    await settled(ctx, revision, WAIT_MS_MAX)
    return CreateAccessKeyResponse(error_code=ErrorCode.NONE, access_key=access_key, secret=secret)


def describe_access_keys(
    ctx: SecurityContext, call: Call, request: DescribeAccessKeysRequest
) -> DescribeAccessKeysResponse:
    if not may_cluster(ctx, call, Operation.DESCRIBE):
        return DescribeAccessKeysResponse(error_code=DENIED)
    return DescribeAccessKeysResponse(
        error_code=ErrorCode.NONE,
        keys=[
            AccessKeyInfo(user=name, access_key=access_key, created_ms=record.created_ms)
            for name, user in sorted(ctx.image.users.items())
            if request.user in (None, name)
            for access_key, record in sorted(user.access_keys.items())
        ],
    )


async def delete_access_key(
    ctx: SecurityContext, call: Call, request: DeleteAccessKeyRequest
) -> DeleteAccessKeyResponse:
    try:
        if not may_cluster(ctx, call, Operation.ALTER):
            raise Refused(DENIED)
        revision = await users.remove_key(ctx.store, ctx.image, request.access_key)
    except Refused as refused:
        return DeleteAccessKeyResponse(error_code=refused.code, error_message=refused.message)
    await settled(ctx, revision, WAIT_MS_MAX)
    return DeleteAccessKeyResponse(error_code=ErrorCode.NONE)
