"""DescribeUserScramCredentials (api 50) and AlterUserScramCredentials (51), version 0 (KIP-554).

Requests contain salted and hashed passwords, which cannot be reversed (`security.scram`). All
changes of one request to one user are applied together or not at all.

CreateAccessKey (api 30040), DescribeAccessKeys (30041), DeleteAccessKey (30042), version 0.
Penstock's own APIs. A key is only for signatures of AWS SDKs and authenticates the user it was
created for (ADR 20). As for passwords, listing keys needs DESCRIBE on the cluster, changing them
needs ALTER.
"""

import base64

from penstock.base.errors import ErrorCode, Refused, shortened
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
from penstock.cluster.access import users
from penstock.security import scram
from penstock.security.acl_types import NODE_USER
from penstock.security.scram import Credential
from penstock.wire.messages.internal.admin import (
    AccessKeyInfo,
    CreateAccessKeyRequest,
    CreateAccessKeyResponse,
    DeleteAccessKeyRequest,
    DeleteAccessKeyResponse,
    DescribeAccessKeysRequest,
    DescribeAccessKeysResponse,
)
from penstock.wire.messages.sasl import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialUpsertion,
)

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


DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NO_USER = ""
"""Name in the row of a request for all users that was refused: no user has this name."""
MAY_NOT_SEE = "listing credentials needs DESCRIBE on the cluster"
MAY_NOT_CHANGE = "changing credentials needs ALTER on the cluster"
SALT_BYTES_MAX = 256


def describe_user_scram_credentials(
    ctx: SecurityContext, call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    asked = [user.name for user in request.users or ()]
    if not may_cluster(ctx, call, Operation.DESCRIBE):
        # librdkafka frees the text of an error of the whole response, which it never allocated,
        # and crashes, with or without a text (as of 2.16). So each user's row is refused.
        return DescribeUserScramCredentialsResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            results=[
                DescribeUserScramCredentialsResult(
                    user=name, error_code=DENIED, error_message=MAY_NOT_SEE, credential_infos=()
                )
                for name in dict.fromkeys(asked or [NO_USER])
            ],
        )
    twice = duplicates(asked)
    have = sorted(name for name, user in ctx.image.users.items() if user.scram)
    names = list(dict.fromkeys(asked)) if asked else have
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[_described(ctx, name, name in twice) for name in names],
    )


def _described(
    ctx: SecurityContext, name: str, is_twice: bool
) -> DescribeUserScramCredentialsResult:
    user = ctx.image.users.get(name)
    who = shortened(repr(name))
    code, message = ErrorCode.NONE, None
    if is_twice:
        code, message = ErrorCode.DUPLICATE_RESOURCE, f"{who} occurs more than once in the request"
    elif user is None or not user.scram:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, f"{who} has no SCRAM credentials"
    kept = user.scram if user is not None and code is ErrorCode.NONE else {}
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=code,
        error_message=message,
        credential_infos=[
            CredentialInfo(mechanism=number, iterations=kept[mechanism].iterations)
            for number, mechanism in scram.NUMBERS.items()
            if mechanism in kept
        ],
    )


async def alter_user_scram_credentials(
    ctx: SecurityContext, call: Call, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    asked = [(row.name, row.mechanism) for row in request.deletions]
    asked += [(row.name, row.mechanism) for row in request.upsertions]
    names = list(dict.fromkeys(name for name, _ in asked))
    twice = {name for name, _ in duplicates(asked)}
    results, revision = [], 0
    for at, name in enumerate(names):
        code, message = ErrorCode.NONE, None
        try:
            if not may_cluster(ctx, call, Operation.ALTER):
                raise Refused(DENIED, MAY_NOT_CHANGE)
            if at >= ROWS_MAX:
                raise Refused(
                    ErrorCode.INVALID_REQUEST,
                    f"too many users: send at most {ROWS_MAX} per request",
                )
            if name in twice:
                raise Refused(ErrorCode.DUPLICATE_RESOURCE, f"{name!r} occurs twice in the request")
            wanted = _wanted(request, name)
            revision = max(revision, await users.alter(ctx.store, ctx.image, name, wanted))
        except Refused as refused:
            code, message = refused.code, refused.message
        results.append(
            AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message)
        )
    await settled(ctx, revision, WAIT_MS_MAX)
    return AlterUserScramCredentialsResponse(results=results)


def _wanted(request: AlterUserScramCredentialsRequest, name: str) -> dict[str, Credential | None]:
    if name == NODE_USER:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"user name {name} is reserved for nodes")
    if not name or len(name.encode()) > users.NAME_BYTES_MAX:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "user name is empty or too long")
    wanted: dict[str, Credential | None] = {}
    for deletion in request.deletions:
        if deletion.name == name:
            wanted[_mechanism(deletion.mechanism)] = None
    for upsertion in request.upsertions:
        if upsertion.name == name:
            mechanism = _mechanism(upsertion.mechanism)
            wanted[mechanism] = _credential(mechanism, upsertion)
    return wanted


def _credential(mechanism: str, row: ScramCredentialUpsertion) -> Credential:
    iterations = row.iterations
    if not scram.ITERATIONS_MIN <= iterations <= scram.ITERATIONS_MAX:
        raise Refused(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{iterations} iterations: not within {scram.ITERATIONS_MIN}..{scram.ITERATIONS_MAX}",
        )
    salt, salted = bytes(row.salt), bytes(row.salted_password)
    if not salt or len(salt) > SALT_BYTES_MAX or not salted or len(salted) > SALT_BYTES_MAX:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "salt or password is empty or too long")
    return scram.credential_of(mechanism, salted, salt, iterations)


def _mechanism(number: int) -> str:
    mechanism = scram.NUMBERS.get(number)
    if mechanism is None:
        raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"unknown SCRAM mechanism {number}")
    return mechanism
