"""Changes to the configs of topics, brokers, the cluster and groups (KIP-133, KIP-339, KIP-226).

Owns: the effect of SET, DELETE, APPEND and SUBTRACT on stored values, the configs that may change
at all, and the commands, one compare-and-swap each. Every change is validated as a whole before it
is stored, so stored values are always readable.
Elsewhere: names and types (`config_table`), permission to ask (`api`).
"""

import enum
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Delete, Put, Store, StoreEntry
from penstock.cluster.configs.config_types import UpdateMode, split_list
from penstock.cluster.configs.effective_configs import (
    BrokerConfigs,
    ConfigType,
    InvalidConfig,
    Scope,
    describe_group,
    find,
    require_key,
    validate,
)
from penstock.cluster.metadata import compare_and_swap, store_keys
from penstock.cluster.metadata.store_keys import ConfigsRecord, TopicRecord

log = logging.getLogger("penstock.configs")

ConfigEdit = Callable[[Mapping[str, str]], dict[str, str]]
"""Returns a resource's new values from its present ones, or raises Refused."""


class Op(enum.IntEnum):
    """Operations with the numbers of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Alteration:
    name: str
    op: Op
    value: str | None


def replacing(scope: Scope, values: Mapping[str, str | None]) -> ConfigEdit:
    """AlterConfigs: the given values replace all others."""
    missing = sorted(name for name, value in values.items() if value is None)
    if missing:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(missing)}"
        )
    wanted = {name: value for name, value in sorted(values.items()) if value is not None}

    def edit(present: Mapping[str, str]) -> dict[str, str]:
        changed = {name for name in {**present, **wanted} if present.get(name) != wanted.get(name)}
        return _checked(scope, wanted, changed)

    return edit


def altering(scope: Scope, alterations: Sequence[Alteration]) -> ConfigEdit:
    """IncrementalAlterConfigs: changes each name at most once; the others stay."""
    names = [alteration.name for alteration in alterations]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys : {','.join(twice)}"
        )
    missing = [a.name for a in alterations if a.value is None and a.op is not Op.DELETE]
    if missing:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(missing)}"
        )

    def edit(present: Mapping[str, str]) -> dict[str, str]:
        values = dict(present)
        for alteration in alterations:
            _alter(scope, values, alteration)
        return _checked(scope, values, set(names))

    return edit


def with_key(edit: ConfigEdit, broker: BrokerConfigs) -> ConfigEdit:
    """As `edit`, but refuses encryption while the broker has no key."""

    def checked(present: Mapping[str, str]) -> dict[str, str]:
        values = edit(present)
        try:
            require_key(values, broker)
        except InvalidConfig as wrong:
            raise Refused(ErrorCode.INVALID_CONFIG, str(wrong)) from wrong
        return values

    return checked


def _alter(scope: Scope, values: dict[str, str], alteration: Alteration) -> None:
    name, value = alteration.name, alteration.value
    if alteration.op is Op.DELETE:
        values.pop(name, None)
        return
    assert value is not None
    if alteration.op is Op.SET:
        values[name] = value
        return
    try:
        config = find(scope, name)
    except InvalidConfig as wrong:
        raise Refused(ErrorCode.INVALID_CONFIG, str(wrong)) from wrong
    if config.type is not ConfigType.LIST:
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"Can't {alteration.op.name} to key {name} because its type is not LIST.",
        )
    items = list(split_list(values.get(name, config.default or "")))
    given = split_list(value)
    if alteration.op is Op.APPEND:
        items.extend(item for item in dict.fromkeys(given) if item not in items)
    else:
        items = [item for item in items if item not in given]
    values[name] = ",".join(items)


def _checked(scope: Scope, values: dict[str, str], touched: set[str]) -> dict[str, str]:
    try:
        validate(scope, values)
        # Removing an unknown name is as invalid as setting one.
        rows = [find(scope, name) for name in sorted(touched)]
    except InvalidConfig as wrong:
        code = ErrorCode.INVALID_REQUEST if scope is Scope.BROKER else ErrorCode.INVALID_CONFIG
        raise Refused(code, str(wrong)) from wrong
    # Inert configs may be set to anything, with a warning, as topic configs may.
    idle = [row.name for row in rows if row.is_inert and row.name in values]
    if idle:
        log.warning("without effect here: %s", ", ".join(idle))
    fixed = [row.name for row in rows if row.mode is UpdateMode.READ_ONLY and not row.is_inert]
    if fixed:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically: {','.join(fixed)}",
        )
    return values


async def alter_topic(
    store: Store, name: str, edit: ConfigEdit, *, validate_only: bool = False
) -> int:
    def decide(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
        entry = entries[0]
        if entry is None:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
        record = store_keys.decode(TopicRecord, entry.value)
        values = edit(record.configs)
        if validate_only or values == record.configs:
            return []
        changed = TopicRecord(id=record.id, partitions=record.partitions, configs=values)
        return [Put(store_keys.topic_key(name), store_keys.encode(changed))]

    return await compare_and_swap.swap(store, [store_keys.topic_key(name)], decide)


async def alter_broker(
    store: Store, node_id: int | None, edit: ConfigEdit, *, validate_only: bool = False
) -> int:
    """Changes dynamic configs of one broker, or of all (None)."""
    key = store_keys.CLUSTER_CONFIGS if node_id is None else store_keys.broker_configs_key(node_id)
    return await _alter_key(store, key, edit, validate_only)


async def alter_group(
    store: Store,
    group: str,
    edit: ConfigEdit,
    broker: BrokerConfigs,
    *,
    validate_only: bool = False,
) -> int:
    def bounded(present: Mapping[str, str]) -> dict[str, str]:
        values = edit(present)
        check_group(values, broker)
        return values

    return await _alter_key(store, store_keys.group_configs_key(group), bounded, validate_only)


async def _alter_key(store: Store, key: str, edit: ConfigEdit, validate_only: bool) -> int:
    def decide(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
        entry = entries[0]
        present = store_keys.decode(ConfigsRecord, entry.value).values if entry else {}
        values = edit(present)
        if validate_only or values == present:
            return []
        if not values:
            return [Delete(key)]
        return [Put(key, store_keys.encode(ConfigsRecord(values=values)))]

    return await compare_and_swap.swap(store, [key], decide)


# Broker configs that limit a group config from below and above.
_GROUP_BOUNDS = {
    f"{kind}.{what}": (f"group.{kind}.min.{what}", f"group.{kind}.max.{what}")
    for kind in ("consumer", "share", "streams")
    for what in ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms")
} | {
    f"share.{what}": (f"group.share.min.{what}", f"group.share.max.{what}")
    for what in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms")
}


def check_group(values: Mapping[str, str], broker: BrokerConfigs) -> None:
    """Raises Refused(INVALID_CONFIG) if a group exceeds the broker's limits."""
    for name, text in values.items():
        if name not in _GROUP_BOUNDS:
            continue
        low, high = _GROUP_BOUNDS[name]
        if int(text) < broker.integer(low):
            raise Refused(
                ErrorCode.INVALID_CONFIG, f"{name} must be greater than or equal to {low}"
            )
        if int(text) > broker.integer(high):
            raise Refused(ErrorCode.INVALID_CONFIG, f"{name} must be less than or equal to {high}")
    for kind in ("consumer", "share", "streams"):
        heartbeat = describe_group(f"{kind}.heartbeat.interval.ms", values, broker).text
        session = describe_group(f"{kind}.session.timeout.ms", values, broker).text
        assert heartbeat is not None
        assert session is not None
        if int(session) <= int(heartbeat):
            raise Refused(
                ErrorCode.INVALID_CONFIG,
                f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms",
            )
