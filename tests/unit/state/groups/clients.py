"""Consumers in miniature, as real ones behave, for scenarios and property tests.

A client does one thing per `step`: join, sync or heartbeat, and reacts to the answer as a Kafka
consumer does. `owned` is what it would be reading right now. `old` are identities (member id,
generation or epoch) that it knows to be over: nothing that is committed under them may count.
"""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.state_machine import Token
from penstock.state.groups.consumer_protocol import (
    Assignment,
    ProtocolTopicPartitions,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from tests.unit.state.groups.driver import Driver

Place = tuple[str, int]
NO_MEMBER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


def by_topic(owned: set[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(owned):
        found.setdefault(topic, []).append(partition)
    return found


def rows_of(owned: set[Place]) -> list[ProtocolTopicPartitions]:
    return [ProtocolTopicPartitions(topic=t, partitions=p) for t, p in by_topic(owned).items()]


class Client:
    """Common part of both protocols."""

    def __init__(
        self,
        driver: Driver,
        name: str,
        group: str,
        topics: tuple[str, ...],
        instance: str | None = None,
    ) -> None:
        self.driver = driver
        self.name = name
        self.group = group
        self.topics = topics
        self.instance = instance
        self.member = ""
        self.epoch = 0
        self.owned: set[Place] = set()
        self.old: list[tuple[str, int]] = []
        self.is_silent = False

    @property
    def is_in(self) -> bool:
        return bool(self.member) and self.epoch > 0

    def learn(self, member: str, epoch: int) -> None:
        """Applies the member id and epoch in the coordinator's response."""
        if self.is_in and (member, epoch) != (self.member, self.epoch):
            self.old.append((self.member, self.epoch))
        self.member, self.epoch = member, epoch

    def lose(self) -> None:
        """Resets the client after its membership ended."""
        if self.is_in:
            self.old.append((self.member, self.epoch))
        self.member, self.epoch = "", 0
        self.owned.clear()

    def step(self) -> None:
        raise NotImplementedError

    def commit(self, offset: int, identity: tuple[str, int] | None = None) -> ErrorCode:
        member, epoch = identity or (self.member, self.epoch)
        return self.driver.commit(self.group, offset, member=member, epoch=epoch, topic="t")


class ClassicClient(Client):
    """A consumer of the classic protocol: cooperative, or eager (revokes everything first)."""

    session_ms = 10_000
    rebalance_ms = 20_000

    def __init__(self, *args: Any, is_cooperative: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self.is_cooperative = is_cooperative
        self.join_token: Token | None = None
        self.sync_token: Token | None = None
        self.must_join = True
        self.assigned_topics: Any = None

    def step(self) -> None:
        if self.assigned_topics not in (None, self.driver.topics):
            # The leader is the one who notices that there is more to assign.
            self.must_join = True
        if self.join_token is not None:
            self._take_join()
        elif self.sync_token is not None:
            self._take_sync()
        elif self.must_join:
            self._join()
        else:
            self._heartbeat()

    def _join(self) -> None:
        if not self.is_cooperative:
            self.owned.clear()
        told = Subscription(topics=list(self.topics), owned_partitions=rows_of(self.owned))
        version = 3 if self.is_cooperative else 0
        self.join_token = self.driver.join(
            self.group,
            self.member,
            protocols=(("cooperative", write_subscription(told, version)),),
            instance=self.instance,
            session_ms=self.session_ms,
            rebalance_ms=self.rebalance_ms,
        )
        self._take_join()

    def _take_join(self) -> None:
        reply = self.driver.replies.get(self.join_token)
        if reply is None:
            return
        self.join_token = None
        code = ErrorCode(reply.error_code)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member = reply.member_id
        elif code in NO_MEMBER:
            self.lose()
        elif code == ErrorCode.NONE:
            self.learn(reply.member_id, reply.generation_id)
            self.must_join = False
            self._sync(reply)
        else:
            assert code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.GROUP_MAX_SIZE_REACHED), code

    def _sync(self, reply: Any) -> None:
        given = {}
        self.assigned_topics = None
        if reply.leader == reply.member_id:
            self.assigned_topics = self.driver.topics
            if not reply.skip_assignment:
                given = self._assign(reply.members)
        self.sync_token = self.driver.sync(
            self.group,
            self.member,
            self.epoch,
            given,
            instance=self.instance,
            protocol=reply.protocol_name,
        )
        self._take_sync()

    def _assign(self, members: list[Any]) -> dict[str, bytes]:
        """Assigns round robin; a partition of another member is assigned once it is revoked."""
        told = {m.member_id: read_subscription(m.metadata)[1] for m in members}
        held = {
            (row.topic, partition): member
            for member, subscription in told.items()
            for row in subscription.owned_partitions
            for partition in row.partitions
        }
        given: dict[str, set[Place]] = {member: set() for member in told}
        for topic, (_, count) in sorted(self.driver.topics.items()):
            takers = sorted(m for m, subscription in told.items() if topic in subscription.topics)
            for partition in range(count if takers else 0):
                taker = takers[partition % len(takers)]
                if held.get((topic, partition), taker) == taker:
                    given[taker].add((topic, partition))
        return {
            member: write_assignment(Assignment(assigned_partitions=rows_of(owned)), 0)
            for member, owned in given.items()
        }

    def _take_sync(self) -> None:
        reply = self.driver.replies.get(self.sync_token)
        if reply is None:
            return
        self.sync_token = None
        code = ErrorCode(reply.error_code)
        if code == ErrorCode.NONE:
            rows = read_assignment(reply.assignment).assigned_partitions
            given = {(row.topic, p) for row in rows for p in row.partitions}
            # A client that revoked a partition joins again, so that another can be assigned it.
            self.must_join = bool(self.owned - given)
            self.owned = given
        else:
            self._react(code)

    def _heartbeat(self) -> None:
        code = self.driver.heartbeat(self.group, self.member, self.epoch, self.instance)
        if code != ErrorCode.NONE:
            self._react(code)

    def _react(self, code: ErrorCode) -> None:
        self.must_join = True
        if code in NO_MEMBER:
            self.lose()
        elif code == ErrorCode.ILLEGAL_GENERATION:
            self.old.append((self.member, self.epoch))
            self.owned.clear()
        else:
            assert code == ErrorCode.REBALANCE_IN_PROGRESS, code
            if not self.is_cooperative:
                self.owned.clear()

    def leave(self) -> None:
        if self.member:
            self.driver.leave(self.group, self.member)
        self.lose()
        self.join_token = self.sync_token = None
        self.must_join = True

    def disconnect(self) -> None:
        """Breaks the connection; pending requests are never answered."""
        for token in (self.join_token, self.sync_token):
            if token is not None:
                self.driver.shard.dropped(token)
        self.join_token = self.sync_token = None
        self.must_join = True


class ConsumerClient(Client):
    """A consumer of KIP-848; a slow one delays revocations."""

    def __init__(self, *args: Any, is_slow: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self.is_slow = is_slow
        self.wanted: set[Place] = set()
        self.lives = 0

    def step(self) -> None:
        if not self.member:
            self.lives += 1
            self.member = f"{self.name}{self.lives}"
        if self.is_slow:
            # The first thing to give up goes now, one per step.
            for place in sorted(self.owned - self.wanted)[:1]:
                self.owned.remove(place)
        is_joining = self.epoch == 0
        reply = self.driver.beat(
            self.group,
            self.member,
            self.epoch,
            topics=self.topics,
            owned={} if is_joining else by_topic(self.owned),
            instance=self.instance,
            rebalance_ms=15_000,
        )
        code = ErrorCode(reply.error_code)
        if code == ErrorCode.NONE:
            self.learn(reply.member_id, reply.member_epoch)
            if reply.assignment is not None:
                owned = self.driver.owned(reply)
                self.wanted = {(topic, p) for topic, rows in owned.items() for p in rows}
            kept = self.owned if self.is_slow else self.owned & self.wanted
            self.owned = kept | self.wanted
        elif code == ErrorCode.UNRELEASED_INSTANCE_ID:
            self.member = ""
        else:
            assert code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            ), code
            self.lose()

    def lose(self) -> None:
        super().lose()
        self.wanted.clear()

    def leave(self, epoch: int = -1) -> None:
        if self.is_in:
            self.driver.beat(self.group, self.member, epoch, instance=self.instance)
        self.lose()
