"""A host for a transaction shard, small enough to be obviously right, and requests to give it.

It appends to a list, applies, and lets replies and markers out when the list is committed up to
the decision's last record, as the real host does on a replicated log.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode, Refused
from penstock.base.state_machine import Decision, Record
from penstock.state.transactions.records import ProducerEpoch, TxnRecord
from penstock.state.transactions.shard import TxnConfig, TxnShard, WriteMarkers
from penstock.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
)

NOW_MS = 1_700_000_000_000
OFFSETS_PARTITION = 7


class Version(NamedTuple):
    api_version: int


class Waiting(NamedTuple):
    """Replies and markers to send once the log is committed up to `end`."""

    end: int
    replies: tuple[tuple[Any, Any], ...]
    markers: tuple[WriteMarkers, ...]


class Host:
    """Runs one shard; `commits` says whether an append is committed at once."""

    def __init__(self, config: TxnConfig | None = None, *, commits: bool = True) -> None:
        self.config = config or TxnConfig()
        self.commits = commits
        self.now_ms = NOW_MS
        self.log: list[Record] = []
        self.committed = 0
        self.replies: dict[Any, Any] = {}
        self.markers: list[WriteMarkers] = []
        """Markers that may be written."""
        self.waiting: deque[Waiting] = deque()
        self.next_id = 1000
        self.has_ids = True
        self._tokens = 0
        self.shard = self._load()
        self.start()

    def take_id(self) -> int:
        if not self.has_ids:
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self.next_id += 1
        return self.next_id - 1

    def _load(self) -> TxnShard:
        shard = TxnShard(self.config, self.take_id, lambda group: OFFSETS_PARTITION)
        for key, value in self.log:
            shard.apply(key, value)
        return shard

    def run(self, decision: Decision) -> None:
        for key, value in decision.records:
            self.log.append((key, value))
            self.shard.apply(key, value)
        self.waiting.append(Waiting(len(self.log), decision.replies, self.shard.take_markers()))
        if self.commits:
            self.commit()

    def commit(self, count: int | None = None) -> None:
        """Commits so many more records, or all."""
        end = len(self.log) if count is None else min(len(self.log), self.committed + count)
        self.committed = end
        while self.waiting and self.waiting[0].end <= end:
            done = self.waiting.popleft()
            self.replies.update(done.replies)
            self.markers += done.markers

    def call(self, name: str, request: Any, version: int) -> int:
        """Decides on a request and returns its token; `replies` has the answer when committed."""
        self._tokens += 1
        token = self._tokens
        self.run(self.shard.handle(name, request, token, Version(version), self.now_ms))
        return token

    def ask(self, name: str, request: Any, version: int) -> Any:
        return self.replies.pop(self.call(name, request, version))

    def crash(self, kept: int = 0) -> None:
        """Fails over to a new coordinator; `kept` uncommitted records survive."""
        del self.log[self.committed + kept :]
        self.waiting.clear()
        self.replies.clear()
        self.markers.clear()
        self.shard = self._load()
        self.start()

    def start(self) -> None:
        """Commits what was loaded before anything is sent."""
        self.shard.loaded(self.now_ms)
        self.waiting.append(Waiting(len(self.log), (), self.shard.take_markers()))
        self.commit()

    def wait(self, ms: int) -> None:
        """Advances the time, with the ticks that the shard requests."""
        self.now_ms += ms
        self.tick()

    def tick(self) -> None:
        while (at := self.shard.deadline()) is not None and at <= self.now_ms:
            self.run(self.shard.tick(self.now_ms))

    def write_all(self) -> None:
        """Writes and reports every marker that may be written."""
        while self.markers:
            self.report(self.markers.pop(0))

    def report(self, write: WriteMarkers) -> None:
        self.run(self.shard.marker_written(write, write.partitions, self.now_ms))

    def record(self, name: str = "t") -> TxnRecord:
        return self.shard.durable_state()[name]

    def replayed(self) -> dict[str, TxnRecord]:
        return self._load().durable_state()


# Requests.


def init(
    name: str = "t", expected: ProducerEpoch | None = None, timeout_ms: int = 60_000
) -> InitProducerIdRequest:
    producer = expected or ProducerEpoch(-1, -1)
    return InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
    )


def add(
    producer: ProducerEpoch,
    partitions: Iterable[tuple[str, int]],
    name: str = "t",
    *,
    verify_only: bool = False,
) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=indexes)
            for topic, indexes in topics.items()
        ],
    )


def add_offsets(
    producer: ProducerEpoch, name: str = "t", group: str = "g"
) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=name,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        group_id=group,
    )


def end(producer: ProducerEpoch, *, committed: bool, name: str = "t") -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=name,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        committed=committed,
    )
