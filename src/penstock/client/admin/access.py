"""Administration of users, access keys and ACLs.

Passwords are salted and hashed here: the broker never receives one.

Administration of client quotas (KIP-546).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.client.cluster import Cluster
from penstock.client.errors import check, refusal
from penstock.security import scram
from penstock.security.acls import AclEntry, Filter, Resource
from penstock.security.quotas import DEFAULT, Default, Entity, EntityName, EntityType
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
    AccessKeyInfo,
    CreateAccessKeyRequest,
    CreateAccessKeyResponse,
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


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """Entity and its quotas, by Kafka's names."""

    entity: Entity
    values: Mapping[str, float]


class ClientQuotas:
    """Client quotas of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def list(self) -> list[ClientQuota]:
        connection = await self._cluster.any_connection()
        answer = await connection.call(
            DescribeClientQuotasRequest(components=(), strict=False), DescribeClientQuotasResponse
        )
        check(answer.error_code, answer.error_message)
        found = []
        for row in answer.entries or ():
            parts = {part.entity_type: part.entity_name for part in row.entity}
            names: list[EntityName] = [
                (DEFAULT if parts[kind] is None else parts[kind]) if kind in parts else None
                for kind in EntityType
            ]
            found.append(ClientQuota(Entity(*names), {one.key: one.value for one in row.values}))
        return found

    async def alter(self, entity: Entity, wanted: Mapping[str, float | None]) -> None:
        """Sets quotas by name; None removes a quota."""
        entry = AlterClientQuotasRequestEntryData(
            entity=[
                AlterClientQuotasRequestEntityData(
                    entity_type=kind, entity_name=None if isinstance(name, Default) else name
                )
                for kind, name in entity.parts()
            ],
            ops=[
                OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                for key, value in wanted.items()
            ],
        )
        connection = await self._cluster.any_connection()
        answer = await connection.call(
            AlterClientQuotasRequest(entries=[entry], validate_only=False),
            AlterClientQuotasResponse,
        )
        for row in answer.entries:
            check(row.error_code, row.error_message)


VERSION = 0
SALT_BYTES = 24
NUMBERS = {name: number for number, name in scram.NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class User:
    """User with its SCRAM credentials."""

    name: str
    mechanisms: dict[str, int]
    """Iterations by mechanism; passwords are not readable."""


Binding = tuple[Resource, AclEntry]
Answer = TypeVar("Answer")


class AccessAdmin:
    """Users, access keys and ACLs of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # -- users ------------------------------------------------------------------------------

    async def users(self) -> list[User]:
        connection = await self._cluster.any_connection()
        answer = await connection.call(
            DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse
        )
        check(answer.error_code, answer.error_message)
        for row in answer.results:
            check(row.error_code, row.error_message)
        return [
            User(
                row.user,
                {scram.NUMBERS[info.mechanism]: info.iterations for info in row.credential_infos},
            )
            for row in answer.results
        ]

    async def set_password(
        self, name: str, password: str, mechanisms: Sequence[str], iterations: int
    ) -> None:
        rows = []
        for mechanism in mechanisms:
            salt = self._cluster.random.random_bytes(SALT_BYTES)
            rows.append(
                ScramCredentialUpsertion(
                    name=name,
                    mechanism=NUMBERS[mechanism],
                    iterations=iterations,
                    salt=salt,
                    salted_password=scram.salted_password(mechanism, password, salt, iterations),
                )
            )
        await self._alter(AlterUserScramCredentialsRequest(deletions=(), upsertions=rows))

    async def delete_user(self, name: str, mechanisms: Sequence[str]) -> None:
        rows = [
            ScramCredentialDeletion(name=name, mechanism=NUMBERS[mechanism])
            for mechanism in mechanisms
        ]
        await self._alter(AlterUserScramCredentialsRequest(deletions=rows, upsertions=()))

    async def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        connection = await self._cluster.any_connection()
        answer = await connection.call(request, AlterUserScramCredentialsResponse)
        for row in answer.results:
            check(row.error_code, row.error_message)

    # -- access keys ------------------------------------------------------------------------

    async def create_key(self, user: str) -> tuple[str, str]:
        """Creates a key for a user; returns it with its secret, which cannot be read later."""
        answer = await self._call_internal(
            CreateAccessKeyRequest(user=user), CreateAccessKeyResponse
        )
        check(answer.error_code, answer.error_message)
        return answer.access_key, answer.secret

    async def access_keys(self, user: str | None = None) -> Sequence[AccessKeyInfo]:
        answer = await self._call_internal(
            DescribeAccessKeysRequest(user=user), DescribeAccessKeysResponse
        )
        check(answer.error_code, answer.error_message)
        return answer.keys

    async def delete_key(self, access_key: str) -> None:
        request = DeleteAccessKeyRequest(access_key=access_key)
        answer = await self._call_internal(request, DeleteAccessKeyResponse)
        check(answer.error_code, answer.error_message)

    async def _call_internal(self, request: object, answer: type[Answer]) -> Answer:
        """Calls one of Penstock's own APIs at a fixed version: ApiVersions does not list them."""
        connection = await self._cluster.any_connection()
        return await connection.call(request, answer, version=VERSION)

    # -- ACLs -------------------------------------------------------------------------------

    async def bindings(self, wanted: Filter) -> list[Binding]:
        connection = await self._cluster.any_connection()
        answer = await connection.call(
            DescribeAclsRequest(
                resource_type_filter=wanted.resource_type,
                resource_name_filter=wanted.name,
                pattern_type_filter=wanted.pattern,
                principal_filter=wanted.principal,
                host_filter=wanted.host,
                operation=wanted.operation,
                permission_type=wanted.permission,
            ),
            DescribeAclsResponse,
        )
        check(answer.error_code, answer.error_message)
        return [
            (
                Resource(row.resource_type, row.resource_name, row.pattern_type),
                AclEntry(acl.principal, acl.host, acl.operation, acl.permission_type),
            )
            for row in answer.resources
            for acl in row.acls
        ]

    async def add(self, bindings: Sequence[Binding]) -> None:
        connection = await self._cluster.any_connection()
        answer = await connection.call(
            CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        resource_pattern_type=resource.pattern,
                        principal=entry.principal,
                        host=entry.host,
                        operation=entry.operation,
                        permission_type=entry.permission,
                    )
                    for resource, entry in bindings
                ]
            ),
            CreateAclsResponse,
        )
        for row in answer.results:
            check(row.error_code, row.error_message)

    async def remove(self, wanted: Filter) -> list[Binding]:
        connection = await self._cluster.any_connection()
        asked = DeleteAclsFilter(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.name,
            pattern_type_filter=wanted.pattern,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )
        answer = await connection.call(DeleteAclsRequest(filters=[asked]), DeleteAclsResponse)
        row = answer.filter_results[0]
        if row.error_code:
            raise refusal(row.error_code, row.error_message)
        return [
            (
                Resource(acl.resource_type, acl.resource_name, acl.pattern_type),
                AclEntry(acl.principal, acl.host, acl.operation, acl.permission_type),
            )
            for acl in row.matching_acls
        ]
