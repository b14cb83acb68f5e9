"""Consumer groups (KIP-848) byte for byte: members own partitions, offsets are stored and returned.

Members heartbeat, leave and return. A partition is a member's from the heartbeat that assigned it
until the member was told to revoke it, or could have been expired: its session after the latest
heartbeat that was answered. A second group has no members: any client commits its offsets.
"""

import itertools
import socket
import time
import uuid
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId
from penstock.wire.messages.classic_groups import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.chaos import raw
from tests.histories.workload import SURE, Workload

TOPIC = "positions"
MEMBERS_OF, NOBODYS = "with-members", "without-members"
PARTITIONS = 4
MEMBERS, COMMITTERS, ASKERS = 3, 2, 2
SESSION_MS = 4_000
ASK_S = 3.0
BEAT_S = 0.3
PAUSE_S = 0.1
LEAVES = 0.02
JOINS, STAYS_AWAY = 0, -1
REFUSED = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.ILLEGAL_GENERATION,
}
"""Answers to a commit that say that it was not and will not be kept."""
SETS = {
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 500,
}


class Groups(Workload):
    """Positions and owners of one topic's partitions."""

    model = "groups"
    watched = "__consumer_offsets"

    def prepare(self) -> None:
        self.create(TOPIC, PARTITIONS)
        self.numbers = itertools.count(1)
        # The offsets topic is created by the first request for it.
        asker, deadline = Asker(self, self._chance()), time.monotonic() + 60.0
        while not isinstance(asker.told(NOBODYS, list(range(PARTITIONS))), dict):
            if time.monotonic() > deadline:
                raise TimeoutError("no node coordinates groups")
            time.sleep(0.1)

    def begin(self) -> None:
        for n in range(MEMBERS):
            self._run(f"m{n}", _Member(self, f"m{n}").step, BEAT_S)
        for n in range(COMMITTERS):
            self._run(f"c{n}", _Commits(self, f"c{n}").step, PAUSE_S)
        for n in range(ASKERS):
            self._run(f"a{n}", _Asks(self, f"a{n}").step, PAUSE_S)

    def look(self) -> None:
        last = _Asks(self, "last")
        for group in (NOBODYS, MEMBERS_OF):
            deadline = time.monotonic() + 60.0
            while not last.ask(group):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no node returns where {group} is")
                time.sleep(0.1)


class Asker:
    """Connections to the coordinator of a group, found again when it moves."""

    def __init__(self, workload: Groups, chance: Any) -> None:
        self._workload, self.chance = workload, chance
        self._at: dict[str, socket.socket] = {}

    def ask(self, group: str, request: Any, kind: type[Any], version: int) -> Any:
        """The answer; raises OSError where there is none."""
        connection = self._at.pop(group, None) or self._found(group)
        raw.send(connection, request, version)
        try:
            answer = raw.receive(connection, kind, version)
        except OSError:
            connection.close()
            raise
        self._at[group] = connection
        return answer

    def forget(self, group: str) -> None:
        if connection := self._at.pop(group, None):
            connection.close()

    def _found(self, group: str) -> socket.socket:
        nodes = list(self._workload.cluster.nodes.values())
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        with raw.connect(self.chance.choice(nodes).address, ASK_S) as connection:
            raw.send(connection, request, 4)
            (found,) = raw.receive(connection, FindCoordinatorResponse, 4).coordinators
        if found.error_code:
            raise ConnectionError(ErrorCode(found.error_code).name)
        return raw.connect(f"{found.host}:{found.port}", ASK_S)

    def commit(
        self, process: str, group: str, partition: int, member: str = "", epoch: int = -1
    ) -> None:
        offset = next(self._workload.numbers)
        key = f"{group}/{partition}"
        call = self._workload.journal.call(process, "commit", key=key, offset=offset)
        row = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=None
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=epoch,
            member_id=member,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[row])],
        )
        try:
            answer: OffsetCommitResponse = self.ask(group, request, OffsetCommitResponse, 9)
        except OSError as error:
            call.info(type(error).__name__)
            return
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        if code is ErrorCode.NONE:
            call.ok()
        elif code in REFUSED:
            call.fail(code.name)
        else:
            call.info(code.name)
            self.forget(group)

    def told(self, group: str, partitions: list[int]) -> dict[int, int] | str:
        """The positions, or why not."""
        asked = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=partitions)]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=asked)])
        try:
            answer: OffsetFetchResponse = self.ask(group, request, OffsetFetchResponse, 9)
        except OSError as error:
            return type(error).__name__
        (found,) = answer.groups
        rows = [row for topic in found.topics for row in topic.partitions]
        if code := found.error_code or next((row.error_code for row in rows if row.error_code), 0):
            self.forget(group)
            return ErrorCode(code).name
        return {row.partition_index: row.committed_offset for row in rows}


class _Commits:
    """A client that commits offsets of the group without members."""

    def __init__(self, workload: Groups, name: str) -> None:
        self._name, self._asker = name, Asker(workload, workload._chance())

    def step(self) -> None:
        partition = self._asker.chance.randrange(PARTITIONS)
        self._asker.commit(self._name, NOBODYS, partition)


class _Asks:
    """A client that reads the offsets of either group."""

    def __init__(self, workload: Groups, name: str) -> None:
        self._workload, self._name = workload, name
        self._asker = Asker(workload, workload._chance())

    def step(self) -> None:
        self.ask(self._asker.chance.choice((MEMBERS_OF, NOBODYS)))

    def ask(self, group: str) -> bool:
        journal, partitions = self._workload.journal, list(range(PARTITIONS))
        keys = [f"{group}/{partition}" for partition in partitions]
        calls = [journal.call(self._name, "fetch", key=key) for key in keys]
        told = self._asker.told(group, partitions)
        for partition, call in zip(partitions, calls, strict=True):
            if isinstance(told, str):
                call.info(told)
            else:
                call.ok(offset=told[partition])
        return not isinstance(told, str)


class _Member:
    """One member of the group that has some."""

    def __init__(self, workload: Groups, name: str) -> None:
        self._workload, self._name = workload, name
        self._asker = Asker(workload, workload._chance())
        self._id = str(uuid.UUID(int=self._asker.chance.getrandbits(128)))
        self._epoch = JOINS
        self._topic_id: TopicId | None = None
        self._owned: dict[int, dict[str, Any]] = {}
        """By partition: the line that says so."""

    def step(self) -> None:
        journal, chance = self._workload.journal, self._asker.chance
        began_ns = journal.now_ns()
        if any(line["until"] <= began_ns for line in self._owned.values()):
            self._lose()  # No answer for as long as the session is.
        is_leaving = self._epoch != JOINS and chance.random() < LEAVES
        if is_leaving:
            self._give_up(list(self._owned))
            self._epoch = STAYS_AWAY
        try:
            answer = self._beat()
        except OSError as error:
            journal.call(self._name, "beat").info(type(error).__name__)
            answer = None
        if is_leaving:
            self._epoch = JOINS
        elif answer is not None:
            self._take(answer, began_ns)
        if self._owned and chance.random() < 0.7:
            partition = chance.choice(list(self._owned))
            self._asker.commit(self._name, MEMBERS_OF, partition, self._id, self._epoch)

    def _beat(self) -> ConsumerGroupHeartbeatResponse:
        owned = []
        if self._owned:
            assert self._topic_id is not None
            rows = sorted(self._owned)
            owned = [
                ConsumerGroupHeartbeatRequestTopicPartitions(
                    topic_id=self._topic_id, partitions=rows
                )
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=MEMBERS_OF,
            member_id=self._id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=5_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=owned,
        )
        found: ConsumerGroupHeartbeatResponse = self._asker.ask(
            MEMBERS_OF, request, ConsumerGroupHeartbeatResponse, 0
        )
        return found

    def _take(self, answer: ConsumerGroupHeartbeatResponse, began_ns: int) -> None:
        journal = self._workload.journal
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            journal.call(self._name, "beat").fail(code.name)
            if code in REFUSED:
                self._lose()
            else:
                self._asker.forget(MEMBERS_OF)
            return
        self._epoch = answer.member_epoch
        until = began_ns + int(SESSION_MS * SURE * 1_000_000)
        for line in self._owned.values():
            line["until"] = until
        if answer.assignment is None:
            return
        given: set[int] = set()
        for topic in answer.assignment.topic_partitions:
            self._topic_id = topic.topic_id
            given |= set(topic.partitions)
        self._give_up([partition for partition in self._owned if partition not in given])
        for partition in sorted(given - self._owned.keys()):
            lease = f"{self._name} in epoch {self._epoch}"
            key = f"{MEMBERS_OF}/{partition}"
            fields = {"key": key, "lease": f"{lease} at {began_ns}", "until": until}
            self._owned[partition] = journal.done(began_ns, self._name, "own", **fields)

    def _give_up(self, partitions: list[int]) -> None:
        now_ns = self._workload.journal.now_ns()
        for partition in partitions:
            line = self._owned.pop(partition)
            line["until"] = min(line["until"], now_ns)

    def _lose(self) -> None:
        self._give_up(list(self._owned))
        self._epoch = JOINS
