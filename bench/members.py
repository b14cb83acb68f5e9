"""Group members on raw connections, and the requests that benchmarks repeat for them.

Each member is alone in its own group, so that groups spread over a broker's shards as in
production. It joins once, over a connection that stays open; afterwards one frame is repeated,
with the same reply as the first one (see load/pipe.c). Messages are encoded with
Penstock's codecs for any broker.
"""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

from bench.probe import ProbeFailed, connect, receive
from penstock.wire.codec import reader, writer
from penstock.wire.framing import read_response_header, request_frame
from penstock.wire.messages import RESPONSES
from penstock.wire.messages.classic_groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
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
)

CORRELATION_ID = 7
MEMBER_ID_REQUIRED = 79
NO_ERROR = 0
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 300_000
TRIES = 100
TRY_AGAIN_S = 0.1
# The newest versions that identify topics by name, as most clients still do.
VERSIONS = {
    FindCoordinatorRequest: 4,
    JoinGroupRequest: 9,
    SyncGroupRequest: 5,
    HeartbeatRequest: 4,
    ConsumerGroupHeartbeatRequest: 1,
    OffsetCommitRequest: 9,
}

Prepared: TypeAlias = tuple[bytes, bytes]
"""Frames of a request and its reply."""


def exchange(connection: socket.socket, request: Any) -> tuple[Prepared, Any]:
    """Sends a request; returns both frames and the decoded reply."""
    declared = type(request)
    version = VERSIONS[declared]
    response = RESPONSES[declared.WIRE.key]
    parts: list[Any] = []
    writer(declared, version)(request, parts)
    asked = b"".join(request_frame(CORRELATION_ID, "bench", declared, version, parts))
    connection.sendall(asked)
    head = receive(connection, 4)
    answered = head + receive(connection, struct.unpack(">i", head)[0])
    view = memoryview(answered)
    _, at = read_response_header(view, 4, len(answered), response, version)
    return (asked, answered), reader(response, version)(view, at, len(answered))[0]


class Member:
    """Member of its own group, and the topic it reads."""

    def __init__(self, connection: socket.socket, group_id: str, topic: str) -> None:
        self.connection = connection
        self.group_id = group_id
        self.topic = topic
        self.member_id = ""
        self.epoch = -1
        """Generation of a classic group, or member epoch in a consumer group."""

    def ask(self, request: Any) -> Any:
        return exchange(self.connection, request)[1]

    def find_coordinator(self) -> None:
        """Waits until the group has a coordinator; the first request creates the internal topic."""
        asked = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group_id])
        for _ in range(TRIES):
            if self.ask(asked).coordinators[0].error_code == NO_ERROR:
                return
            time.sleep(TRY_AGAIN_S)
        raise ProbeFailed(f"{self.group_id} has no coordinator")

    def join_classic(self) -> None:
        for _ in range(TRIES):
            joined = self.ask(
                JoinGroupRequest(
                    group_id=self.group_id,
                    session_timeout_ms=SESSION_TIMEOUT_MS,
                    rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
                )
            )
            self.member_id = joined.member_id or self.member_id
            if joined.error_code == NO_ERROR:
                break
            if joined.error_code != MEMBER_ID_REQUIRED:
                time.sleep(TRY_AGAIN_S)
        self.epoch = joined.generation_id
        synced = self.ask(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.epoch,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"")],
            )
        )
        _require(synced.error_code, "SyncGroup")

    def join_consumer(self) -> None:
        """Joins by KIP-848, and takes assignments until they are stable."""
        self.member_id, self.epoch = f"{self.group_id}-member", 0
        owned: list[Any] = []
        for _ in range(TRIES):
            beaten = self.ask(
                ConsumerGroupHeartbeatRequest(
                    group_id=self.group_id,
                    member_id=self.member_id,
                    member_epoch=self.epoch,
                    rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                    subscribed_topic_names=[self.topic],
                    topic_partitions=owned,
                )
            )
            given = list(beaten.assignment.topic_partitions) if beaten.assignment else []
            if given and [(row.topic_id, row.partitions) for row in owned] == [
                (row.topic_id, row.partitions) for row in given
            ]:
                return
            if beaten.error_code == NO_ERROR:
                self.epoch = beaten.member_epoch
                owned = [
                    ConsumerGroupHeartbeatRequestTopicPartitions(
                        topic_id=row.topic_id, partitions=row.partitions
                    )
                    for row in given
                ]
            time.sleep(0 if owned else TRY_AGAIN_S)
        raise ProbeFailed(f"{self.group_id} never settled: error {beaten.error_code}")

    # Repeated requests.

    def heartbeat(self) -> Prepared:
        frames, answer = exchange(
            self.connection,
            HeartbeatRequest(
                group_id=self.group_id, generation_id=self.epoch, member_id=self.member_id
            ),
        )
        _require(answer.error_code, "Heartbeat")
        return frames

    def consumer_heartbeat(self) -> Prepared:
        frames, answer = exchange(
            self.connection,
            ConsumerGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=self.epoch,
                topic_partitions=None,
            ),
        )
        _require(answer.error_code, "ConsumerGroupHeartbeat")
        return frames

    def commit(self, partitions: int) -> Prepared:
        rows = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=1_000_000, committed_metadata=""
            )
            for index in range(partitions)
        ]
        frames, answer = exchange(
            self.connection,
            OffsetCommitRequest(
                group_id=self.group_id,
                generation_id_or_member_epoch=self.epoch,
                member_id=self.member_id,
                topics=[OffsetCommitRequestTopic(name=self.topic, partitions=rows)],
            ),
        )
        for topic in answer.topics:
            for row in topic.partitions:
                _require(row.error_code, "OffsetCommit")
        return frames


def _require(code: int, name: str) -> None:
    if code != NO_ERROR:
        raise ProbeFailed(f"{name} was refused with error {code}")


@contextmanager
def members(
    bootstrap: str, topic: str, count: int, join: Callable[[Member], None]
) -> Iterator[list[Member]]:
    """Creates `count` joined members, each in its own group."""
    run = time.monotonic_ns()
    with ExitStack() as stack:
        joined = []
        for number in range(count):
            connection = stack.enter_context(connect(bootstrap))
            member = Member(connection, f"bench-{run}-{number}", topic)
            member.find_coordinator()
            join(member)
            joined.append(member)
        yield joined
