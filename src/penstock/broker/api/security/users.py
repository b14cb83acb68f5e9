"""DescribeUserScramCredentials (api 50) and AlterUserScramCredentials (51), version 0 (KIP-554).

The password comes salted and hashed; what is kept cannot be turned back (`security.scram`).
Whatever one request asks for one user is done as a whole or not at all.
"""

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

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NOBODY = ""
"""Whose row says that all were asked for in vain: no user can be called that."""
MAY_NOT_SEE = "you may not see who has credentials: that takes DESCRIBE of the cluster"
MAY_NOT_CHANGE = "you may not change credentials: that takes ALTER of the cluster"
SALT_BYTES_MAX = 256


def describe_user_scram_credentials(
    ctx: SecurityContext, call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    asked = [user.name for user in request.users or ()]
    if not may_cluster(ctx, call, Operation.DESCRIBE):
        # librdkafka frees the text of an error of the whole answer, which it never allocated, and
        # ends its process, with or without one (as of 2.16). So each row is refused, by its user.
        return DescribeUserScramCredentialsResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            results=[
                DescribeUserScramCredentialsResult(
                    user=name, error_code=DENIED, error_message=MAY_NOT_SEE, credential_infos=()
                )
                for name in dict.fromkeys(asked or [NOBODY])
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
        code, message = ErrorCode.DUPLICATE_RESOURCE, f"{who} is asked for more than once"
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
                raise Refused(ErrorCode.INVALID_REQUEST, f"more than {ROWS_MAX} users at once")
            if name in twice:
                raise Refused(ErrorCode.DUPLICATE_RESOURCE, f"{name!r} is changed twice")
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
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"{name} is what nodes are called")
    if not name or len(name.encode()) > users.NAME_BYTES_MAX:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "a user name is empty or too long")
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
            f"{iterations} iterations; take {scram.ITERATIONS_MIN} to {scram.ITERATIONS_MAX}",
        )
    salt, salted = bytes(row.salt), bytes(row.salted_password)
    if not salt or len(salt) > SALT_BYTES_MAX or not salted or len(salted) > SALT_BYTES_MAX:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salt or password is empty or long")
    return scram.credential_of(mechanism, salted, salt, iterations)


def _mechanism(number: int) -> str:
    mechanism = scram.NUMBERS.get(number)
    if mechanism is None:
        raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {number}")
    return mechanism
