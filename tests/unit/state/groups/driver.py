"""A host in miniature: gives a shard calls and time, appends, applies, collects the replies.

With `replays=True` every step is followed by a replay of all records into a new shard, whose kept
state must equal the live one's: the crash that may come at any moment loses nothing.
"""

import itertools
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.base.state_machine import Decision, Token
from penstock.state.groups.config import GroupCaller, GroupConfig
from penstock.state.groups.consumer_protocol import Subscription, write_subscription
from penstock.state.groups.error_replies import refusal
from penstock.state.groups.shard import GroupShard
from penstock.state.groups.topic_regex import MaySee, refuse_patterns, see_everything
from penstock.wire.codec import writer
from penstock.wire.messages import RESPONSES
from penstock.wire.messages.classic_groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from penstock.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

START_MS = 1_000_000
VERSIONS = {
    "JoinGroup": 9,
    "SyncGroup": 5,
    "Heartbeat": 4,
    "LeaveGroup": 5,
    "OffsetCommit": 9,
    "TxnOffsetCommit": 5,
    "OffsetFetch": 9,
    "OffsetDelete": 0,
    "ListGroups": 5,
    "DescribeGroups": 6,
    "ConsumerGroupDescribe": 1,
    "DeleteGroups": 2,
    "ConsumerGroupHeartbeat": 1,
    "ShareGroupHeartbeat": 1,
    "ShareGroupDescribe": 1,
}
_RESPONSE_NAMES = {kind.__name__: kind for kind in RESPONSES.values()}


def topic_id(n: int) -> TopicId:
    return TopicId(n.to_bytes(16, "big"))


def subscription(*topics: str, version: int = 3) -> bytes:
    return write_subscription(Subscription(topics=list(topics)), version)


class Driver:
    """One shard, its log and its clock."""

    shard_type: type[GroupShard] = GroupShard

    def __init__(
        self,
        config: GroupConfig | None = None,
        *,
        compile_pattern: Any = refuse_patterns,
        may_see: MaySee = see_everything,
        replays: bool = True,
        shard_type: type[GroupShard] | None = None,
    ) -> None:
        self.config = config or GroupConfig(initial_rebalance_delay_ms=0)
        self.compile_pattern = compile_pattern
        self.may_see = may_see
        self.replays = replays
        self.shard_type = shard_type or self.shard_type
        self.now_ms = START_MS
        self.log: list[tuple[bytes, bytes | None]] = []
        self.replies: dict[Token, Any] = {}
        self.topics: dict[str, tuple[TopicId, int]] = {}
        self._topics_made = 0
        self._asked: dict[Token, tuple[str, int]] = {}
        self._tokens = itertools.count(1)
        self._fresh = itertools.count(1)
        self.shard = self._new_shard()
        self.shard.loaded(self.now_ms)

    def _new_shard(self) -> GroupShard:
        return self.shard_type(self.config, self.compile_pattern, self.may_see)

    # Time and faults

    def take(self, decision: Decision) -> None:
        self.log += decision.records
        if decision.apply is not None:
            decision.apply()
        else:
            for key, value in decision.records:
                self.shard.apply(key, value)
        for token, response in decision.replies:
            assert token not in self.replies, f"{token} was answered twice"
            self._answer(token, response)
        if self.replays:
            self.check_replay()

    def _answer(self, token: Token, response: Any) -> None:
        """Checks that every reply can be encoded in its version."""
        self.replies[token] = response
        if token in self._asked:
            name, version = self._asked[token]
            writer(_RESPONSE_NAMES[name + "Response"], version)(response, [])

    def replayed(self) -> GroupShard:
        shard = self._new_shard()
        for key, value in self.log:
            shard.apply(key, value)
        return shard

    def compacted(self) -> GroupShard:
        """Replays the last record of each key only, in order, without tombstones."""
        last = {key: n for n, (key, _) in enumerate(self.log)}
        shard = self._new_shard()
        for n, (key, value) in enumerate(self.log):
            if last[key] == n and value is not None:
                shard.apply(key, value)
        return shard

    def check_replay(self) -> None:
        live = self.shard.durable_state()
        assert self.replayed().durable_state() == live
        assert self.compacted().durable_state() == live

    def crash(self) -> None:
        """Replaces the shard by a newly loaded one; waiting callers are gone."""
        self.shard = self.replayed()
        # As the host does it: what it knew before it read the log, and what it knows then.
        self.shard.topics_changed(self.topics, self.now_ms)
        self.shard.loaded(self.now_ms)
        self.take(self.shard.topics_changed(self.topics, self.now_ms))

    def sleep(self, duration_ms: int) -> None:
        """Advances the time and ticks at every deadline on the way."""
        end_ms = self.now_ms + duration_ms
        for _ in range(10_000):
            at_ms = self.shard.deadline()
            if at_ms is None or at_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, at_ms)
            self.take(self.shard.tick(self.now_ms))
        else:
            raise AssertionError("the shard asks for ticks without end")
        self.now_ms = end_ms

    def set_topics(self, **partitions: int) -> None:
        ids = {name: found[0] for name, found in self.topics.items()}
        for name in partitions:
            if name not in ids:
                self._topics_made += 1
                ids[name] = topic_id(self._topics_made)
        self.topics = {name: (ids[name], count) for name, count in partitions.items()}
        self.take(self.shard.topics_changed(self.topics, self.now_ms))

    # Calls

    def send(
        self, name: str, request: Any, *, version: int | None = None, client: str = "c"
    ) -> Token:
        version = VERSIONS[name] if version is None else version
        token = f"t{next(self._tokens)}"
        self._asked[token] = (name, version)
        fresh_id = f"id{next(self._fresh)}"
        caller = GroupCaller(client, "/10.0.0.1", version, fresh_id, f"User:{client}")
        before = self.shard.durable_state() if self.replays else None
        try:
            decision = self.shard.handle(name, request, token, caller, self.now_ms)
        except Refused as refused:
            if self.replays:
                assert self.shard.durable_state() == before
            self._answer(token, refusal(name, request, refused, version))
        else:
            self.take(decision)
        return token

    def call(self, name: str, request: Any, **options: Any) -> Any:
        """The reply, or None if the call waits."""
        return self.replies.get(self.send(name, request, **options))

    # Classic members

    def join(
        self,
        group: str = "g",
        member: str = "",
        *,
        topics: tuple[str, ...] = ("t",),
        protocols: tuple[tuple[str, bytes], ...] | None = None,
        instance: str | None = None,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        protocol_type: str = "consumer",
        version: int = 9,
    ) -> Token:
        offered = (("range", subscription(*topics)),) if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in offered],
        )
        return self.send("JoinGroup", request, version=version)

    def enter(self, group: str = "g", **options: Any) -> tuple[str, Token]:
        """Joins as a new dynamic member: first for an id, then with it."""
        first = self.replies[self.join(group, **options)]
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(group, first.member_id, **options)

    def sync(
        self,
        group: str,
        member: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol: str = "range",
    ) -> Token:
        rows = [
            SyncGroupRequestAssignment(member_id=m, assignment=a)
            for m, a in (assignments or {}).items()
        ]
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=rows,
        )
        return self.send("SyncGroup", request)

    def heartbeat(
        self, group: str, member: str, generation: int, instance: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
        )
        return ErrorCode(self.call("Heartbeat", request).error_code)

    def leave(self, group: str, *members: str, instances: tuple[str, ...] = ()) -> list[ErrorCode]:
        ids = [MemberIdentity(member_id=m) for m in members]
        ids += [MemberIdentity(member_id="", group_instance_id=i) for i in instances]
        response = self.call("LeaveGroup", LeaveGroupRequest(group_id=group, members=ids))
        assert response.error_code == 0
        return [ErrorCode(row.error_code) for row in response.members]

    def stable_group(
        self, group: str = "g", size: int = 1, **options: Any
    ) -> tuple[int, list[str]]:
        """A generation with this many members; the first leads. Each is assigned its own id."""
        entered = [self.enter(group, **options) for _ in range(size)]
        self.sleep(self.config.initial_rebalance_delay_ms * 2 + 1)
        return self.finish_rebalance(group, [token for _, token in entered])

    def finish_rebalance(self, group: str, tokens: list[Token]) -> tuple[int, list[str]]:
        joined = [self.replies[token] for token in tokens]
        assert all(reply.error_code == 0 for reply in joined), joined
        generation = joined[0].generation_id
        leader = next(reply for reply in joined if reply.leader == reply.member_id)
        given = {row.member_id: row.member_id.encode() for row in leader.members}
        self.sync(group, leader.member_id, generation, given, protocol=leader.protocol_name)
        for reply in joined:
            if reply is not leader:
                token = self.sync(group, reply.member_id, generation, protocol=leader.protocol_name)
                assert self.replies[token].assignment == reply.member_id.encode()
        return generation, [reply.member_id for reply in joined]

    # Consumer members

    def beat(
        self,
        group: str = "g",
        member: str = "m",
        epoch: int = 0,
        *,
        topics: tuple[str, ...] | None = None,
        regex: str | None = None,
        owned: dict[str, list[int]] | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = -1,
        version: int = 1,
        client: str = "c",
    ) -> Any:
        if epoch == 0:
            owned = {} if owned is None else owned
            rebalance_ms = 30_000 if rebalance_ms == -1 else rebalance_ms
        rows = None
        if owned is not None:
            rows = [
                ConsumerGroupHeartbeatRequestTopicPartitions(
                    topic_id=self.topics[name][0], partitions=partitions
                )
                for name, partitions in owned.items()
                if name in self.topics
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            instance_id=instance,
            rebalance_timeout_ms=rebalance_ms,
            subscribed_topic_names=None if topics is None else list(topics),
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=rows,
        )
        return self.call("ConsumerGroupHeartbeat", request, version=version, client=client)

    def owned(self, response: Any) -> dict[str, list[int]]:
        """The assignment in a heartbeat's answer, by topic name."""
        names = {found[0]: name for name, found in self.topics.items()}
        return {
            names[row.topic_id]: list(row.partitions)
            for row in response.assignment.topic_partitions
            if row.topic_id in names
        }

    # Positions

    def commit(
        self,
        group: str,
        offset: int,
        *,
        topic: str = "t",
        partition: int = 0,
        member: str = "",
        epoch: int = -1,
        instance: str | None = None,
        metadata: str | None = "",
        retention_ms: int = -1,
        version: int = 9,
    ) -> ErrorCode:
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=epoch,
            member_id=member,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata=metadata,
                        )
                    ],
                )
            ],
        )
        response = self.call("OffsetCommit", request, version=version)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def fetch(
        self,
        group: str,
        *,
        topic: str = "t",
        partition: int = 0,
        member: str | None = None,
        epoch: int = -1,
        is_stable: bool = False,
    ) -> int | ErrorCode:
        """The committed offset, or the error code."""
        asked = OffsetFetchRequestGroup(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])],
        )
        request = OffsetFetchRequest(groups=[asked], require_stable=is_stable)
        found = self.call("OffsetFetch", request).groups[0]
        if found.error_code:
            return ErrorCode(found.error_code)
        row = found.topics[0].partitions[0]
        return ErrorCode(row.error_code) if row.error_code else int(row.committed_offset)
