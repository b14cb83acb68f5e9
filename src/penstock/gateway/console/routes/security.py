"""Users, ACLs and quotas, through Kafka's APIs.

Every request goes to the handler of the Kafka API with the caller's principal, so the permissions
are those of Kafka's command-line tools. Sections that the caller may not see are null.
"""

from collections.abc import Awaitable
from enum import IntEnum
from typing import TypeVar

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import ErrorCode, Refused
from penstock.gateway.console.console import Console, ConsoleRow
from penstock.gateway.core.coordinator_calls import raise_for
from penstock.gateway.core.permissions import Principal
from penstock.gateway.http.audit import set_audited_resources
from penstock.gateway.http.request_io import json_answer, no_content, principal_of, read_json
from penstock.security import scram
from penstock.security.acl_types import ANY, WILDCARD, Operation, Pattern, Permission, ResourceType
from penstock.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from penstock.wire.messages.internal.admin import (
    DeleteAccessKeyRequest,
    DeleteAccessKeyResponse,
    DescribeAccessKeysRequest,
    DescribeAccessKeysResponse,
)
from penstock.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    OpData,
)
from penstock.wire.messages.sasl import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

SALT_BYTES = 16
PASSWORD_CHARS_MAX = 1_024
ALL = "ALL"
ALL_NUMBER = 2
MECHANISM_NUMBERS = {name: number for number, name in scram.NUMBERS.items()}
T = TypeVar("T")
Kind = TypeVar("Kind", bound=IntEnum)


class UserRow(Struct):
    name: str
    mechanisms: list[str]


class AclRow(Struct, forbid_unknown_fields=True):
    resource: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str


class QuotaRow(Struct):
    entity: dict[str, str | None]
    """Entity by type (user, client-id, ip); a null name stands for the default of that type."""
    values: dict[str, float]


class SecurityAnswer(Struct):
    is_guarded: bool
    """True if authorization is enabled."""
    has_logins: bool
    users: list[UserRow] | None
    acls: list[AclRow] | None
    quotas: list[QuotaRow] | None
    """`users`, `acls` and `quotas` are None if the caller may not see them."""


class PasswordBody(Struct, forbid_unknown_fields=True):
    name: str
    password: str


class UserBody(Struct, forbid_unknown_fields=True):
    name: str


class QuotaBody(Struct, forbid_unknown_fields=True):
    entity: dict[str, str | None]
    key: str
    value: float | None
    """None removes the quota."""


async def show(console: Console, request: Request) -> Response:
    principal = principal_of(request)
    return json_answer(
        SecurityAnswer(
            console.ctx.authorizer.is_on,
            console.users is not None,
            await _if_visible(_users(console, principal)),
            await _if_visible(_acls(console, principal)),
            await _if_visible(_quotas(console, principal)),
        )
    )


async def _if_visible(work: Awaitable[T]) -> T | None:
    """Awaits `work`; None if the caller may not see the result."""
    try:
        return await work
    except Refused as refused:
        if refused.code.name.endswith("AUTHORIZATION_FAILED") or (
            refused.code is ErrorCode.SECURITY_DISABLED
        ):
            return None
        raise


# -- users ------------------------------------------------------------------------------------


async def _users(console: Console, principal: Principal) -> list[UserRow]:
    answer = await console.gateway.handlers.ask(
        principal,
        DescribeUserScramCredentialsRequest(users=None),
        DescribeUserScramCredentialsResponse,
    )
    raise_for(answer.error_code, answer.error_message)
    for row in answer.results:
        raise_for(row.error_code, row.error_message)
    return [
        UserRow(row.user, sorted(scram.NUMBERS[one.mechanism] for one in row.credential_infos))
        for row in answer.results
    ]


async def set_password(console: Console, request: Request) -> Response:
    body = await read_json(request, PasswordBody)
    set_audited_resources(request, f"user:{body.name}")
    if not 1 <= len(body.password) <= PASSWORD_CHARS_MAX or not body.name:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"invalid user: send a name, and a password of 1 to {PASSWORD_CHARS_MAX} characters",
        )
    rows = []
    for mechanism, number in MECHANISM_NUMBERS.items():
        salt = console.ctx.random.random_bytes(SALT_BYTES)
        salted = await console.ctx.workers.run(
            scram.salted_password, mechanism, body.password, salt, scram.ITERATIONS
        )
        rows.append(
            ScramCredentialUpsertion(
                name=body.name,
                mechanism=number,
                iterations=scram.ITERATIONS,
                salt=salt,
                salted_password=salted,
            )
        )
    return await _alter_users(
        console, request, AlterUserScramCredentialsRequest(deletions=(), upsertions=rows)
    )


async def delete_user(console: Console, request: Request) -> Response:
    """Deletes the user's passwords and access keys, so that no credential stays valid."""
    body = await read_json(request, UserBody)
    set_audited_resources(request, f"user:{body.name}")
    principal = principal_of(request)
    known = {row.name: row.mechanisms for row in await _users(console, principal)}
    ask = console.gateway.handlers.ask
    listed = await ask(
        principal, DescribeAccessKeysRequest(user=body.name), DescribeAccessKeysResponse
    )
    raise_for(listed.error_code, listed.error_message)
    for key in listed.keys:
        gone = await ask(
            principal, DeleteAccessKeyRequest(access_key=key.access_key), DeleteAccessKeyResponse
        )
        raise_for(gone.error_code, gone.error_message)
    rows = [
        ScramCredentialDeletion(name=body.name, mechanism=MECHANISM_NUMBERS[mechanism])
        for mechanism in known.get(body.name, ())
    ]
    if not rows and not listed.keys:
        raise Refused(ErrorCode.RESOURCE_NOT_FOUND, f"user {body.name} does not exist")
    if not rows:
        return no_content()
    return await _alter_users(
        console, request, AlterUserScramCredentialsRequest(deletions=rows, upsertions=())
    )


async def _alter_users(
    console: Console, request: Request, change: AlterUserScramCredentialsRequest
) -> Response:
    answer = await console.gateway.handlers.ask(
        principal_of(request), change, AlterUserScramCredentialsResponse
    )
    for row in answer.results:
        raise_for(row.error_code, row.error_message)
    return no_content()


# -- ACLs -------------------------------------------------------------------------------------


async def _acls(console: Console, principal: Principal) -> list[AclRow]:
    answer = await console.gateway.handlers.ask(
        principal,
        DescribeAclsRequest(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        ),
        DescribeAclsResponse,
    )
    raise_for(answer.error_code, answer.error_message)
    return [
        AclRow(
            ResourceType(row.resource_type).name,
            row.resource_name,
            Pattern(row.pattern_type).name,
            acl.principal,
            acl.host,
            ALL if acl.operation == ALL_NUMBER else Operation(acl.operation).name,
            Permission(acl.permission_type).name,
        )
        for row in answer.resources
        for acl in row.acls
    ]


async def add_acl(console: Console, request: Request) -> Response:
    body = await read_json(request, AclRow)
    set_audited_resources(request, f"acl:{body.resource}:{body.name} {body.principal}")
    creation = AclCreation(
        resource_type=_number(ResourceType, body.resource),
        resource_name=body.name,
        resource_pattern_type=_number(Pattern, body.pattern),
        principal=body.principal,
        host=body.host or WILDCARD,
        operation=_operation(body.operation),
        permission_type=_number(Permission, body.permission),
    )
    answer = await console.gateway.handlers.ask(
        principal_of(request), CreateAclsRequest(creations=[creation]), CreateAclsResponse
    )
    raise_for(answer.results[0].error_code, answer.results[0].error_message)
    return no_content()


async def remove_acl(console: Console, request: Request) -> Response:
    body = await read_json(request, AclRow)
    set_audited_resources(request, f"acl:{body.resource}:{body.name} {body.principal}")
    wanted = DeleteAclsFilter(
        resource_type_filter=_number(ResourceType, body.resource),
        resource_name_filter=body.name,
        pattern_type_filter=_number(Pattern, body.pattern),
        principal_filter=body.principal,
        host_filter=body.host,
        operation=_operation(body.operation),
        permission_type=_number(Permission, body.permission),
    )
    answer = await console.gateway.handlers.ask(
        principal_of(request), DeleteAclsRequest(filters=[wanted]), DeleteAclsResponse
    )
    row = answer.filter_results[0]
    raise_for(row.error_code, row.error_message)
    return no_content()


def _operation(name: str) -> int:
    return ALL_NUMBER if name == ALL else _number(Operation, name)


def _number(kind: type[Kind], name: str) -> int:
    if name not in kind.__members__:
        known = ", ".join(kind.__members__)
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"invalid value {name[:40]!r}: must be one of {known}"
        )
    return int(kind[name])


# -- quotas -----------------------------------------------------------------------------------


async def _quotas(console: Console, principal: Principal) -> list[QuotaRow]:
    answer = await console.gateway.handlers.ask(
        principal,
        DescribeClientQuotasRequest(components=(), strict=False),
        DescribeClientQuotasResponse,
    )
    raise_for(answer.error_code, answer.error_message)
    return [
        QuotaRow(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


async def set_quota(console: Console, request: Request) -> Response:
    body = await read_json(request, QuotaBody)
    entity = ",".join(f"{kind}={name or '<default>'}" for kind, name in body.entity.items())
    set_audited_resources(request, f"quota:{entity} {body.key}")
    entry = AlterClientQuotasRequestEntryData(
        entity=[
            AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name)
            for kind, name in body.entity.items()
        ],
        ops=[OpData(key=body.key, value=body.value or 0.0, remove=body.value is None)],
    )
    answer = await console.gateway.handlers.ask(
        principal_of(request),
        AlterClientQuotasRequest(entries=[entry], validate_only=False),
        AlterClientQuotasResponse,
    )
    raise_for(answer.entries[0].error_code, answer.entries[0].error_message)
    return no_content()


ROWS = (
    ConsoleRow("GET", "/security", "list users, ACLs and quotas", show),
    ConsoleRow("POST", "/security/users", "add a user, or change its password", set_password),
    ConsoleRow("DELETE", "/security/users", "delete a user", delete_user),
    ConsoleRow("POST", "/security/acls", "add an ACL", add_acl),
    ConsoleRow("DELETE", "/security/acls", "remove an ACL", remove_acl),
    ConsoleRow("POST", "/security/quotas", "set or remove a quota", set_quota),
)
