"""Finds the member of a group that a request speaks for, classic or consumer."""

from collections.abc import Mapping
from typing import TypeVar

from penstock.base.errors import ErrorCode, Refused

Member = TypeVar("Member")


def find_member(
    members: Mapping[str, Member],
    statics: Mapping[str, str],
    member_id: str,
    instance_id: str | None,
) -> Member:
    """Raises Refused if the group does not know the member, or has fenced it (KIP-345).

    `statics`: the member ids of static members, by instance id.
    """
    if instance_id is not None:
        known = statics.get(instance_id)
        if known is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"no static member {instance_id}")
        if known != member_id:
            raise Refused(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} is now {known}")
    member = members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {member_id}")
    return member
