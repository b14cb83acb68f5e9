"""Members of a classic group: their protocols, subscriptions and persisted records.

Persisted: the last generation (`kept`, `kept_members`); only `apply_*` changes it. Everything else
is soft: the current members, those that have an id but have not joined (`pending`), timers.
Generations are driven by `group`.
"""

from collections.abc import Iterable
from typing import Any

from penstock.base.errors import ErrorCode, PeerError
from penstock.base.state_machine import Token
from penstock.state.groups.call_result import CallResult
from penstock.state.groups.classic.member import ClassicMember, join_error, sync_error
from penstock.state.groups.classic.states import EMPTY, session_timer
from penstock.state.groups.config import GroupConfig
from penstock.state.groups.consumer_protocol import CONSUMER, read_assignment, read_subscription
from penstock.state.groups.member_lookup import find_member
from penstock.state.groups.records import (
    ClassicGroupValue,
    ClassicMemberValue,
    RecordKind,
    encode,
    group_key,
    member_key,
)
from penstock.state.groups.timers import Timers
from penstock.wire.messages.classic_groups import JoinGroupResponseMember


class Roster:
    """Members of a classic group. Only `apply_*` changes persisted state."""

    def __init__(self, group_id: str, config: GroupConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.kept: ClassicGroupValue | None = None
        self.kept_members: dict[str, ClassicMemberValue] = {}
        # Soft state from here on.
        self.state = EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.since_ms = -1
        self.members: dict[str, ClassicMember] = {}
        self.statics: dict[str, str] = {}
        self.pending: dict[str, None] = {}
        self.timers: Timers[tuple[str, str]] = Timers()
        self.subscribed: frozenset[str] | None = None

    # Persisted state

    def apply_group(self, value: ClassicGroupValue | None) -> None:
        self.kept = value

    def apply_member(self, member_id: str, value: ClassicMemberValue | None) -> None:
        if value is None:
            self.kept_members.pop(member_id, None)
        else:
            self.kept_members[member_id] = value

    @property
    def is_void(self) -> bool:
        """True if nothing of the group is persisted."""
        return self.kept is None and not self.kept_members

    def durable_state(self) -> Any:
        return (self.kept, dict(sorted(self.kept_members.items())))

    def keep(self, outcome: CallResult) -> None:
        """Adds records for everything that differs from the persisted state."""
        group = self.group_id
        for member_id in sorted(self.kept_members.keys() - self.members.keys()):
            outcome.keep(member_key(RecordKind.CLASSIC_MEMBER, group, member_id), None)
        for member_id, member in self.members.items():
            if self.kept_members.get(member_id) != member.value:
                key = member_key(RecordKind.CLASSIC_MEMBER, group, member_id)
                outcome.keep(key, encode(member.value))
        value = ClassicGroupValue(
            self.generation,
            self.state,
            self.protocol_type,
            self.protocol,
            self.leader,
            self.since_ms,
        )
        if value != self.kept:
            outcome.keep(group_key(RecordKind.CLASSIC_GROUP, group), encode(value))

    def tombstones(self) -> Iterable[tuple[bytes, None]]:
        for member_id in sorted(self.kept_members):
            yield member_key(RecordKind.CLASSIC_MEMBER, self.group_id, member_id), None
        if self.kept is not None:
            yield group_key(RecordKind.CLASSIC_GROUP, self.group_id), None

    # Members

    def add(self, member: ClassicMember, now_ms: int, timeout_ms: int) -> None:
        self.members[member.member_id] = member
        if member.value.instance_id is not None:
            self.statics[member.value.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.pending.pop(member.member_id, None)
        self.timers.set(session_timer(member.member_id), now_ms + timeout_ms)

    def remove(self, member_id: str, outcome: CallResult) -> None:
        """Removes a member and answers its waiting requests."""
        self.pending.pop(member_id, None)
        self.timers.cancel(session_timer(member_id))
        member = self.members.pop(member_id, None)
        if member is None:
            return
        member.answer_join(outcome, join_error(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        member.answer_sync(outcome, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        if member.value.instance_id is not None:
            self.statics.pop(member.value.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member that speaks, or why it may not."""
        return find_member(self.members, self.statics, member_id, instance_id)

    def extend_session(self, member: ClassicMember, now_ms: int) -> None:
        self.timers.set(session_timer(member.member_id), now_ms + member.value.session_timeout_ms)

    def rebalance_timeout_ms(self) -> int:
        return max((m.value.rebalance_timeout_ms for m in self.members.values()), default=0)

    def count_joined(self) -> int:
        return sum(member.join is not None for member in self.members.values())

    def speaks(self, protocol_type: str, names: list[str]) -> bool:
        """True if a member with these protocols is compatible with the group."""
        if self.state == EMPTY:
            return bool(protocol_type) and bool(names)
        if self.protocol_type != protocol_type:
            return False
        if not self.members:
            return bool(names)
        common = self._common_protocols()
        return any(name in common for name in names)

    def _common_protocols(self) -> set[str]:
        sets = [set(member.protocol_names) for member in self.members.values()]
        return set.intersection(*sets) if sets else set()

    def select_protocol(self) -> str:
        """Elects the protocol: each member votes for its first one that all support; ties go to the
        member order."""
        candidates = self._common_protocols()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def roster(self) -> list[JoinGroupResponseMember]:
        """Members as the leader receives them."""
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.value.instance_id,
                metadata=member.metadata(self.protocol),
            )
            for member in self.members.values()
        ]

    # Topics

    def read_topics(self) -> frozenset[str] | None:
        """Topics that the group's consumers subscribe to; None if unknown."""
        if self.protocol_type != CONSUMER:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(read_subscription(member.metadata(self.protocol))[1].topics)
        except PeerError:
            return None
        return frozenset(topics)

    def is_subscribed(self, topic: str) -> bool:
        if self.subscribed is None:
            return self.protocol_type == CONSUMER
        return topic in self.subscribed

    # Partitions

    def has_revoked(self, member: ClassicMember) -> bool:
        """True if this generation took partitions from a cooperative member, which is to join
        again to have them assigned. False where the group does not say."""
        if self.protocol_type != CONSUMER:
            return False
        try:
            owned = read_subscription(member.metadata(self.protocol))[1].owned_partitions
            assigned = read_assignment(member.value.assignment).assigned_partitions
        except PeerError:
            return False
        kept = {(row.topic, index) for row in assigned for index in row.partitions}
        return any((row.topic, index) not in kept for row in owned for index in row.partitions)

    # Calls that end

    def forget(self, token: Token) -> None:
        for member in self.members.values():
            member.forget(token)
