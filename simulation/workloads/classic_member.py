"""Member of the classic protocol: eager (revokes all partitions first) or cooperative.

The leader assigns round-robin; in a cooperative group only partitions revoked by their last owner.
"""

from typing import Any, Final

from penstock.base.errors import ErrorCode
from penstock.state.groups.consumer_protocol import (
    CONSUMER,
    Assignment,
    ProtocolTopicPartitions,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from penstock.wire.messages.classic_groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from simulation.checkers.groups import Place
from simulation.workloads.members import GROUP, MEMBERSHIP_LOST, RETRY_LATER, Member

JOIN_VERSION: Final = 9
ANSWER_S: Final = 5.0
"""Maximum delay of a JoinGroup reply after the rebalance timeout."""


def rows_of(owned: set[Place]) -> list[ProtocolTopicPartitions]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(owned):
        topics.setdefault(topic, []).append(index)
    return [ProtocolTopicPartitions(topic=t, partitions=p) for t, p in topics.items()]


class ClassicMember(Member):
    """Member that uses JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

    is_classic = True
    is_cooperative = False
    must_join = True

    async def step(self) -> None:
        if self.must_join:
            await self._join()
        else:
            await self._heartbeat()

    # -- joining ----------------------------------------------------------------------------

    async def _join(self) -> None:
        if not self.is_cooperative:
            self.owned = set()
        asked_at = self.world.now()
        reply = await self._ask_join()
        code = self.client.note_reply("JoinGroup", reply.error_code, GROUP, self.group)
        if code is ErrorCode.NONE:
            self.known(asked_at)
            is_mixed = self.context.is_mixed
            self.context.checker.numbered(reply.generation_id, asked_at, is_group_wide=not is_mixed)
            if not is_mixed:
                self.context.checker.led(reply.generation_id, reply.leader)
            self.learn(reply.member_id, reply.generation_id)
            await self._sync(reply)
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id, self.epoch = reply.member_id, 0
        elif code in MEMBERSHIP_LOST:
            self._membership_lost(code)
        else:
            assert code in (*RETRY_LATER, ErrorCode.REBALANCE_IN_PROGRESS), code

    async def _ask_join(self) -> JoinGroupResponse:
        timing = self.context.timing
        subscription = Subscription(
            topics=sorted(self.context.topics),
            owned_partitions=rows_of(self.owned),
            generation_id=self.epoch if self.owned else -1,
        )
        version = 3 if self.is_cooperative else 0
        name = "cooperative" if self.is_cooperative else "eager"
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=int(timing.session_s * 1000),
            rebalance_timeout_ms=int(timing.rebalance_s * 1000),
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=CONSUMER,
            protocols=[
                JoinGroupRequestProtocol(
                    name=name, metadata=write_subscription(subscription, version)
                )
            ],
        )
        return await self.client.ask_coordinator(
            GROUP,
            self.group,
            request,
            JoinGroupResponse,
            version=JOIN_VERSION,
            timeout_ms=int((timing.rebalance_s + ANSWER_S) * 1000),
        )

    async def _sync(self, joined: JoinGroupResponse) -> None:
        given: dict[str, bytes] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            given = self._assign(joined.members)
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=CONSUMER,
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=data)
                for member, data in given.items()
            ],
        )
        asked_at = self.world.now()
        reply = await self.client.ask_coordinator(
            GROUP,
            self.group,
            request,
            SyncGroupResponse,
            timeout_ms=int((self.context.timing.rebalance_s + ANSWER_S) * 1000),
        )
        code = self.client.note_reply("SyncGroup", reply.error_code, GROUP, self.group)
        if code is not ErrorCode.NONE:
            self._react(code)
            return
        self.known(asked_at)
        rows = read_assignment(reply.assignment).assigned_partitions
        assigned = {(row.topic, index) for row in rows for index in row.partitions}
        # A member that revoked partitions rejoins, so that they can be reassigned.
        self.must_join = bool(self.owned - assigned)
        self.own(assigned)

    def _assign(self, members: Any) -> dict[str, bytes]:
        subscriptions = {m.member_id: read_subscription(m.metadata)[1] for m in members}
        held = {
            (row.topic, index): member
            for member, subscription in subscriptions.items()
            for row in subscription.owned_partitions
            for index in row.partitions
        }
        given: dict[str, set[Place]] = {member: set() for member in subscriptions}
        turn = 0
        for topic, count in sorted(self.context.topics.items()):
            takers = sorted(
                m for m, subscription in subscriptions.items() if topic in subscription.topics
            )
            for index in range(count if takers else 0):
                taker = takers[turn % len(takers)]
                turn += 1
                if held.get((topic, index), taker) == taker:
                    given[taker].add((topic, index))
        return {
            member: write_assignment(Assignment(assigned_partitions=rows_of(owned)), 0)
            for member, owned in given.items()
        }

    # -- heartbeats and leaving -------------------------------------------------------------

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        asked_at, owned = self.world.now(), set(self.owned)
        reply = await self.client.ask_coordinator(GROUP, self.group, request, HeartbeatResponse)
        code = self.client.note_reply("Heartbeat", reply.error_code, GROUP, self.group)
        if code is ErrorCode.NONE:
            self.known(asked_at)
            self.context.checker.confirmed(self.member_id, owned, asked_at)
        else:
            self._react(code)

    def _react(self, code: ErrorCode) -> None:
        if code in RETRY_LATER:
            return
        self.must_join = True
        if code in MEMBERSHIP_LOST:
            self._membership_lost(code)
        elif code is ErrorCode.ILLEGAL_GENERATION:
            self._retire_identity()
            self.owned = set()
        else:
            assert code is ErrorCode.REBALANCE_IN_PROGRESS, code
            if not self.is_cooperative:
                self.owned = set()

    def _membership_lost(self, code: ErrorCode) -> None:
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.fenced()
        if code is ErrorCode.UNKNOWN_MEMBER_ID and self.epoch > 0:
            self.unknown()
        self.must_join = True
        self.lose()

    async def leave(self) -> None:
        if self.member_id:
            who = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
            request = LeaveGroupRequest(group_id=self.group, members=[who])
            await self.client.ask_coordinator(GROUP, self.group, request, LeaveGroupResponse)
        self.lose()
        self.must_join = True
