"""One classic group and its transition from one generation to the next.

States: Empty (no members), PreparingRebalance (members are asked to rejoin), CompletingRebalance
(all have joined; the leader's assignment is awaited), Stable.

A generation is persisted when all members have joined and again when the leader has assigned, so
that its number is never used twice. A loaded group starts from what was persisted, with fresh
sessions.

Requests are handled in `join` and `sync_heartbeat_leave`.

Members of a classic group: their protocols, subscriptions and persisted records. Persisted: the
last generation (`kept`, `kept_members`); only `apply_*` changes it. Everything else is soft: the
current members, those that have an id but have not joined (`pending`), timers. Generations are
driven by `group`.
"""

from collections.abc import Iterable
from typing import Any, Final

from penstock.base.errors import ErrorCode, PeerError
from penstock.base.state_machine import Token
from penstock.state.groups.call_result import CallResult
from penstock.state.groups.classic.member import (
    COMPLETING,
    EMPTY,
    JOIN_TIMER,
    PREPARING,
    SYNC_TIMER,
    ClassicMember,
    join_error,
    joined,
    session_timer,
    sync_error,
)
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
from penstock.wire.messages.classic_groups import JoinGroupResponseMember, SyncGroupResponse


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


RETRY_MS_MIN: Final = 1_000
"""Minimum time between two attempts to complete a rebalance that no member joins."""


class ClassicGroup(Roster):
    """A classic group."""

    type_name: Final = "Classic"

    def __init__(self, group_id: str, config: GroupConfig) -> None:
        super().__init__(group_id, config)
        self.pending_sync: dict[str, None] = {}
        self.is_first_rebalance = False
        self.has_new_member = False
        self.initial_remaining_ms = 0
        self.initial_delay_ms = 0

    def settle(self, now_ms: int) -> None:
        """Restores the persisted state after loading, or after a migration from a consumer group.

        An interrupted generation continues: its members may join or sync again.
        """
        kept = self.kept
        if kept is None:
            return
        self.generation = kept.generation
        self.protocol_type = kept.protocol_type
        self.protocol = kept.protocol
        self.leader = kept.leader
        self.since_ms = kept.since_ms
        self.state = kept.state
        for member_id, value in sorted(self.kept_members.items()):
            self.add(ClassicMember(member_id, value), now_ms, value.session_timeout_ms)
        self.subscribed = self.read_topics()
        if not self.members:
            self.state = EMPTY
        elif self.state == PREPARING:
            self.timers.set(JOIN_TIMER, now_ms + self.rebalance_timeout_ms())
        elif self.state == COMPLETING:
            self._await_syncs(now_ms)

    def remove(self, member_id: str, outcome: CallResult) -> None:
        """Removes a member and answers its waiting requests."""
        self.pending_sync.pop(member_id, None)
        super().remove(member_id, outcome)

    # From one generation to the next

    def rebalance(self, outcome: CallResult, now_ms: int) -> None:
        """Asks every member to rejoin; an empty group first waits for more members."""
        if self.state == COMPLETING:
            for member in self.members.values():
                if member.sync is not None:
                    member.answer_sync(outcome, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
                    self.extend_session(member, now_ms)
        self._stop_awaiting_syncs()
        self.is_first_rebalance = self.state == EMPTY
        self.state = PREPARING
        if self.is_first_rebalance:
            delay_ms = self.config.initial_rebalance_delay_ms
            self.has_new_member = False
            self.initial_delay_ms = delay_ms
            self.initial_remaining_ms = max(self.rebalance_timeout_ms() - delay_ms, 0)
            self.timers.set(JOIN_TIMER, now_ms + delay_ms)
        elif self._have_all_joined():
            self.begin_generation(outcome, now_ms)
        else:
            self.timers.set(JOIN_TIMER, now_ms + self.rebalance_timeout_ms())

    def rebalance_or_complete(self, outcome: CallResult, now_ms: int) -> None:
        if self.state == PREPARING:
            self.complete_if_all_joined(outcome, now_ms)
        else:
            self.rebalance(outcome, now_ms)

    def complete_if_all_joined(self, outcome: CallResult, now_ms: int) -> None:
        if self.state == PREPARING and not self.is_first_rebalance and self._have_all_joined():
            self.begin_generation(outcome, now_ms)

    def _have_all_joined(self) -> bool:
        return not self.pending and all(m.join is not None for m in self.members.values())

    def join_timer_fired(self, outcome: CallResult, now_ms: int) -> None:
        """Completes the join phase; the first rebalance waits while new members arrive, up to the
        rebalance timeout."""
        if self.is_first_rebalance and self.has_new_member and self.initial_remaining_ms > 0:
            self.has_new_member = False
            delay_ms = min(self.config.initial_rebalance_delay_ms, self.initial_remaining_ms)
            self.initial_remaining_ms = max(self.initial_remaining_ms - self.initial_delay_ms, 0)
            self.initial_delay_ms = delay_ms
            self.timers.set(JOIN_TIMER, now_ms + delay_ms)
        else:
            self.begin_generation(outcome, now_ms)

    def begin_generation(self, outcome: CallResult, now_ms: int) -> None:
        """Starts a generation: removes members that have not joined, and answers those that have.

        Static members stay without having joined: only the end of their session removes them.
        """
        self.timers.cancel(JOIN_TIMER)
        for member in list(self.members.values()):
            if member.join is None and member.value.instance_id is None:
                self.remove(member.member_id, outcome)
        if self.members and not self._elect_leader():
            # Only static members are left and none has joined: their sessions decide.
            self.timers.set(JOIN_TIMER, now_ms + max(self.rebalance_timeout_ms(), RETRY_MS_MIN))
            return
        self.is_first_rebalance = False
        self.generation += 1
        self.since_ms = now_ms
        if not self.members:
            self.state, self.protocol, self.leader = EMPTY, None, None
            self.subscribed = self.read_topics()
            self.keep(outcome)
            return
        self.state = COMPLETING
        self.protocol = self.select_protocol()
        self.subscribed = self.read_topics()
        for member in self.members.values():
            members = self.roster() if member.member_id == self.leader else []
            member.answer_join(outcome, self.joined_response(member, members))
            member.is_new = False
            self.extend_session(member, now_ms)
        self._await_syncs(now_ms)
        self.keep(outcome)

    def joined_response(
        self,
        member: ClassicMember,
        members: list[JoinGroupResponseMember],
        leader: str | None = None,
        skip_assignment: bool = False,
    ) -> Any:
        return joined(
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            leader or self.leader,
            members,
            skip_assignment,
        )

    def _elect_leader(self) -> bool:
        """Keeps the leader if it has joined, else elects the first member that has."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join is None:
            leader = next((m for m in self.members.values() if m.join is not None), None)
            if leader is None:
                return False
            self.leader = leader.member_id
        return True

    def _await_syncs(self, now_ms: int) -> None:
        self.pending_sync = dict.fromkeys(self.members)
        self.timers.set(SYNC_TIMER, now_ms + self.rebalance_timeout_ms())

    def _stop_awaiting_syncs(self) -> None:
        self.pending_sync.clear()
        self.timers.cancel(SYNC_TIMER)

    def synced(self, member_id: str) -> None:
        self.pending_sync.pop(member_id, None)
        if not self.pending_sync:
            self.timers.cancel(SYNC_TIMER)

    def assigned_response(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=int(ErrorCode.NONE),
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=member.value.assignment,
        )
