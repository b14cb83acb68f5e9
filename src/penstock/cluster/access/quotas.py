"""Changes to client quotas and queries (KIP-546): one key per entity, replaced as a whole.

Owns: the commands, the allowed values, and the bounds. An entity exists while it has a quota.
Elsewhere: the quota in force for a client (`security.quotas`), permission to ask (`api`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Delete, Put, Store, StoreEntry
from penstock.cluster.metadata import compare_and_swap, store_keys
from penstock.cluster.metadata.image import Image, path_of
from penstock.cluster.metadata.store_keys import QuotaRecord
from penstock.security.quotas import CLIENT_KINDS, Entity, EntityName, EntityType, QuotaKind

ENTITIES_MAX = 10_000
NAME_BYTES_MAX = 255
ROUNDING = 1e-6
WHOLE = (QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.CONNECTION)
"""Quotas that must be integers."""
VALUE_MAX = float(2**63 - 1)


def check_entity(entity: Entity) -> None:
    """Raises Refused for an entity that cannot have quotas."""
    if entity == Entity():
        raise Refused(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    if entity.ip is not None and entity != Entity(ip=entity.ip):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "Invalid quota entity combination: an ip stands alone, without a user or a client-id",
        )
    for kind, name in entity.parts():
        if isinstance(name, str) and not 0 < len(name.encode()) <= NAME_BYTES_MAX:
            raise Refused(ErrorCode.INVALID_REQUEST, f"a {kind} has 1 to {NAME_BYTES_MAX} bytes")


def check_value(entity: Entity, name: str, value: float) -> None:
    """Raises Refused for a quota that this entity cannot have."""
    kinds = CLIENT_KINDS if entity.ip is None else (QuotaKind.CONNECTION,)
    if name not in kinds:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Invalid configuration key {name}; there are {', '.join(kinds)}",
        )
    if not math.isfinite(value) or value <= 0:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Quota {name} must be greater than 0")
    if value > VALUE_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Proposed value for {name} is too large")
    if name in WHOLE and abs(round(value) - value) > ROUNDING:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{name} cannot be a fractional value.")


async def alter(
    store: Store,
    image: Image,
    entity: Entity,
    wanted: Mapping[str, float | None],
    *,
    validate_only: bool = False,
) -> int:
    """Sets quotas by name, None removes; returns the revision at which they are in force."""
    check_entity(entity)
    for name, value in wanted.items():
        # A quota may be removed although its value could not be set today.
        check_value(entity, name, value if value is not None else 1.0)
    if entity not in image.quotas and len(image.quotas) >= ENTITIES_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{ENTITIES_MAX} entities have quotas already")
    if validate_only:
        return 0
    key = store_keys.QUOTAS + path_of(entity)

    def decide(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
        entry = entries[0]
        present = store_keys.decode(QuotaRecord, entry.value).values if entry else {}
        values = dict(present)
        for name, value in wanted.items():
            if value is None:
                values.pop(name, None)
            else:
                values[name] = value
        if values == present:
            return []
        return [Put(key, store_keys.encode(QuotaRecord(values)))] if values else [Delete(key)]

    return await compare_and_swap.swap(store, [key], decide)


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """Filter of entities: those with these parts, and without others if it is strict."""

    named: Mapping[EntityType, EntityName] = field(default_factory=dict)
    """Parts by exact name, or the default."""
    any_named: frozenset[EntityType] = frozenset()
    """Parts with any name, or the default."""
    is_strict: bool = False

    def takes(self, entity: Entity) -> bool:
        parts = dict(entity.parts())
        if self.is_strict and len(parts) != len(self.named) + len(self.any_named):
            return False
        return self.any_named <= parts.keys() and all(
            parts.get(kind) == name for kind, name in self.named.items()
        )


def matching(image: Image, wanted: EntityFilter) -> list[tuple[Entity, Mapping[str, float]]]:
    """Matching entities and their quotas, in the order of their paths."""
    found = [entity for entity in image.quotas if wanted.takes(entity)]
    return [(entity, image.quotas[entity]) for entity in sorted(found, key=path_of)]
