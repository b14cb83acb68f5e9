"""Administration of client quotas (KIP-546)."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.cluster import Cluster
from penstock.client.errors import check
from penstock.security.quotas import DEFAULT, Default, Entity, EntityName, EntityType
from penstock.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    OpData,
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
