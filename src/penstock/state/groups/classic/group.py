"""One classic group and its transition from one generation to the next.

States: Empty (no members), PreparingRebalance (members are asked to rejoin), CompletingRebalance
(all have joined; the leader's assignment is awaited), Stable.

A generation is persisted when all members have joined and again when the leader has assigned, so
that its number is never used twice. A loaded group starts from what was persisted, with fresh
sessions.

Requests are handled in `join` and `sync_heartbeat_leave`; members and their records in `members`.
"""

from typing import Any, Final

from penstock.base.errors import ErrorCode
from penstock.state.groups.call_result import CallResult
from penstock.state.groups.classic.member import ClassicMember, joined, sync_error
from penstock.state.groups.classic.members import Roster
from penstock.state.groups.classic.states import (
    COMPLETING,
    EMPTY,
    JOIN_TIMER,
    PREPARING,
    SYNC_TIMER,
)
from penstock.state.groups.config import GroupConfig
from penstock.wire.messages.classic_groups import JoinGroupResponseMember, SyncGroupResponse

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
