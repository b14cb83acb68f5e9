"""One share group: its persisted state and its timers (KIP-932).

Persisted: its epoch, the topics in which it has delivery state, and per member its subscription.
Assignments follow from these and the cluster's topics (`assign_simple`), and are computed on
demand. Soft: session deadlines, the epoch last sent to each member, and `is_stale`, which makes
the next heartbeat check the topics again.

Delivery state is not here: it is stored beside each partition (`penstock.state.queues`).
Decisions are made in `heartbeat`.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from penstock.base.errors import ErrorCode, Refused
from penstock.state.groups.assignors import assign_simple
from penstock.state.groups.config import GroupConfig, ShareGroupConfig, TopicCatalogue
from penstock.state.groups.consumer.reconciliation import packed
from penstock.state.groups.records import (
    Owned,
    RecordKind,
    ShareGroupValue,
    ShareMemberValue,
    encode,
    group_key,
    member_key,
)
from penstock.state.groups.timers import Timers

NEW: Final = ShareGroupValue(0, 0, ())
ASSIGNOR: Final = "simple"


class ShareGroup:
    """A share group. Only `apply_*` changes persisted state."""

    type_name: Final = "Share"

    def __init__(self, group_id: str, config: GroupConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.kept: ShareGroupValue | None = None
        self.members: dict[str, ShareMemberValue] = {}
        # Soft state from here on.
        self.timers: Timers[str] = Timers()
        self.told: dict[str, int] = {}
        self.is_stale = False
        self._assigned: tuple[int, dict[str, Owned]] | None = None

    # Persisted state

    def apply_group(self, value: ShareGroupValue | None) -> None:
        self.kept = value
        self._assigned = None

    def apply_member(self, member_id: str, value: ShareMemberValue | None) -> None:
        self._assigned = None
        if value is None:
            self.members.pop(member_id, None)
            self.told.pop(member_id, None)
        else:
            self.members[member_id] = value

    @property
    def is_void(self) -> bool:
        return self.kept is None and not self.members

    def durable_state(self) -> Any:
        return (self.kept, dict(sorted(self.members.items())))

    def settle(self, now_ms: int) -> None:
        """Restarts sessions after loading."""
        self.is_stale = True
        for member_id in sorted(self.members):
            self.extend_session(member_id, now_ms)

    def tombstones(self) -> Iterable[tuple[bytes, None]]:
        for member_id in sorted(self.members):
            yield member_key(RecordKind.SHARE_MEMBER, self.group_id, member_id), None
        if self.kept is not None:
            yield group_key(RecordKind.SHARE_GROUP, self.group_id), None

    # Queries

    @property
    def value(self) -> ShareGroupValue:
        return self.kept or NEW

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def settings(self) -> ShareGroupConfig:
        return self.config.share_config_of(self.group_id)

    def check_member(self, member_id: str) -> ShareMemberValue:
        member = self.members.get(member_id)
        if member is None:
            raise Refused(
                ErrorCode.UNKNOWN_MEMBER_ID, f"unknown member {member_id}: rejoin the group"
            )
        return member

    def extend_session(self, member_id: str, now_ms: int) -> None:
        self.timers.set(member_id, now_ms + self.settings.session_timeout_ms)

    def assignment(self, member_id: str, topics: TopicCatalogue) -> Owned:
        """Partitions of a member at the group's epoch."""
        epoch = self.value.epoch
        if self._assigned is None or self._assigned[0] != epoch:
            self._assigned = epoch, assignments(self.members, topics)
        return self._assigned[1].get(member_id, ())


def subscribed(members: Iterable[ShareMemberValue], topics: TopicCatalogue) -> list[str]:
    """Names of existing topics with at least one subscriber, sorted."""
    wanted = {name for member in members for name in member.topics}
    return sorted(wanted & topics.by_name.keys())


def topics_hash(names: Iterable[str], topics: TopicCatalogue) -> int:
    shape = [(name, *topics.by_name[name]) for name in names]
    digest = hashlib.blake2b(encode(shape), digest_size=7).digest()
    return int.from_bytes(digest, "big") if shape else 0


def assignments(members: dict[str, ShareMemberValue], topics: TopicCatalogue) -> dict[str, Owned]:
    by_name = topics.by_name
    given = assign_simple(
        {
            member_id: frozenset(by_name[name][0] for name in member.topics if name in by_name)
            for member_id, member in members.items()
        },
        {by_name[name][0]: by_name[name][1] for name in subscribed(members.values(), topics)},
    )
    return {member_id: packed(slots) for member_id, slots in given.items()}
