"""Client quotas (KIP-546): DescribeClientQuotas (48), AlterClientQuotas (49)."""

from collections.abc import Sequence

from penstock.wire.schema import (
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
)


@struct()
class ComponentData:
    """Filter on one entity type: exact name (0), default (1) or any (2)."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable=True)


@message(key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasRequest:
    """Requests the quotas of matching entities."""

    components: Sequence[ComponentData] = array(ComponentData)
    strict: bool = boolean()


@struct()
class DescribeClientQuotasEntityData:
    """Entity type and name; a null name is the default entity."""

    entity_type: str = string()
    entity_name: str | None = string(nullable=True)


@struct()
class ValueData:
    """Quota and its value."""

    key: str = string()
    value: float = float64()


@struct()
class DescribeClientQuotasEntryData:
    """Quotas of an entity."""

    entity: Sequence[DescribeClientQuotasEntityData] = array(DescribeClientQuotasEntityData)
    values: Sequence[ValueData] = array(ValueData)


@message(key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasResponse:
    """Quotas of matching entities."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    entries: Sequence[DescribeClientQuotasEntryData] | None = array(
        DescribeClientQuotasEntryData, nullable=True
    )


@struct()
class AlterClientQuotasRequestEntityData:
    """Entity type and name; a null name is the default entity."""

    entity_type: str = string()
    entity_name: str | None = string(nullable=True)


@struct()
class OpData:
    """Quota to set or remove."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@struct()
class AlterClientQuotasRequestEntryData:
    """Entity and the quotas to change."""

    entity: Sequence[AlterClientQuotasRequestEntityData] = array(AlterClientQuotasRequestEntityData)
    ops: Sequence[OpData] = array(OpData)


@message(key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasRequest:
    """Sets and removes quotas."""

    entries: Sequence[AlterClientQuotasRequestEntryData] = array(AlterClientQuotasRequestEntryData)
    validate_only: bool = boolean()


@struct()
class AlterClientQuotasResponseEntityData:
    """Entity type and name; a null name is the default entity."""

    entity_type: str = string()
    entity_name: str | None = string(nullable=True)


@struct()
class AlterClientQuotasResponseEntryData:
    """Result of changing one entity's quotas."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    entity: Sequence[AlterClientQuotasResponseEntityData] = array(
        AlterClientQuotasResponseEntityData
    )


@message(key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasResponse:
    """Results of the changes."""

    throttle_time_ms: int = int32(default=0)
    entries: Sequence[AlterClientQuotasResponseEntryData] = array(
        AlterClientQuotasResponseEntryData
    )
