"""Applies a record to the group it belongs to.

A group is of one type at a time: the records of the old type are tombstoned in the same batch that
writes the first of the new. Tombstones for a type that the group no longer has change nothing.
"""

from typing import TypeVar

from penstock.state.groups.classic.group import ClassicGroup
from penstock.state.groups.config import GroupConfig
from penstock.state.groups.consumer.group import ConsumerGroup
from penstock.state.groups.fencing import Group
from penstock.state.groups.records import (
    RecordKind,
    read_classic_group,
    read_classic_member,
    read_consumer_group,
    read_consumer_member,
    read_current,
    read_group_key,
    read_member_key,
    read_share_group,
    read_share_member,
    read_target,
)
from penstock.state.groups.share.group import ShareGroup

G = TypeVar("G", ClassicGroup, ConsumerGroup, ShareGroup)


def apply_to(
    groups: dict[str, Group], config: GroupConfig, kind: int, key: bytes, value: bytes | None
) -> None:
    if kind == RecordKind.CLASSIC_GROUP:
        group_id = read_group_key(key)[2]
        classic = _entry(groups, config, group_id, ClassicGroup, value)
        if classic is not None:
            classic.apply_group(None if value is None else read_classic_group(value))
            _drop_if_void(groups, classic, value)
    elif kind == RecordKind.CLASSIC_MEMBER:
        _, _, group_id, member_id = read_member_key(key)
        classic = _entry(groups, config, group_id, ClassicGroup, value)
        if classic is not None:
            member = None if value is None else read_classic_member(value)
            classic.apply_member(member_id, member)
            _drop_if_void(groups, classic, value)
    elif kind == RecordKind.CONSUMER_GROUP:
        group_id = read_group_key(key)[2]
        consumer = _entry(groups, config, group_id, ConsumerGroup, value)
        if consumer is not None:
            consumer.apply_group(None if value is None else read_consumer_group(value))
            _drop_if_void(groups, consumer, value)
    elif kind in (
        RecordKind.CONSUMER_MEMBER,
        RecordKind.CONSUMER_TARGET,
        RecordKind.CONSUMER_CURRENT,
    ):
        _apply_consumer_member(groups, config, kind, key, value)
    elif kind in (RecordKind.SHARE_GROUP, RecordKind.SHARE_MEMBER):
        _apply_share(groups, config, kind, key, value)


def _apply_share(
    groups: dict[str, Group], config: GroupConfig, kind: int, key: bytes, value: bytes | None
) -> None:
    is_group = kind == RecordKind.SHARE_GROUP
    group_id = read_group_key(key)[2] if is_group else read_member_key(key)[2]
    group = _entry(groups, config, group_id, ShareGroup, value)
    if group is None:
        return
    if is_group:
        group.apply_group(None if value is None else read_share_group(value))
    else:
        member_id = read_member_key(key)[3]
        group.apply_member(member_id, None if value is None else read_share_member(value))
    _drop_if_void(groups, group, value)


def _apply_consumer_member(
    groups: dict[str, Group], config: GroupConfig, kind: int, key: bytes, value: bytes | None
) -> None:
    _, _, group_id, member_id = read_member_key(key)
    group = _entry(groups, config, group_id, ConsumerGroup, value)
    if group is None:
        return
    if kind == RecordKind.CONSUMER_MEMBER:
        group.apply_member(member_id, None if value is None else read_consumer_member(value))
    elif kind == RecordKind.CONSUMER_TARGET:
        group.apply_target(member_id, None if value is None else read_target(value))
    else:
        group.apply_current(member_id, None if value is None else read_current(value))
    _drop_if_void(groups, group, value)


def _entry(
    groups: dict[str, Group],
    config: GroupConfig,
    group_id: str,
    wanted: type[G],
    value: bytes | None,
) -> G | None:
    group = groups.get(group_id)
    if isinstance(group, wanted):
        return group
    if value is None:
        return None
    made = wanted(group_id, config)
    groups[group_id] = made
    return made


def _drop_if_void(groups: dict[str, Group], group: Group, value: bytes | None) -> None:
    """Removes a group after its last tombstone, unless members are about to join it again."""
    if value is not None or not group.is_void:
        return
    if not isinstance(group, ClassicGroup) or not (group.members or group.pending):
        del groups[group.group_id]
