"""Committing, fetching and deleting offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch,
OffsetDelete, and the end of a transaction.

The caller's generation, epoch and instance id were checked against its group before. An offset
belongs to a topic id. An offset of another topic than the one that has the name now (deleted while
the group had no coordinator) is ignored, and removed when offsets expire. Metadata longer than
`offset.metadata.max.bytes` refuses its own partition only, as in Kafka.

Committed offsets of one shard's groups. Owns: committed offsets by group; offsets pending on a
transaction, by producer; the epoch with which each producer last ended a transaction. Only
`apply_*` changes them. Every commit has a sequence number. When a transaction commits, its
pending offset takes effect only if no later commit has replaced it meanwhile; until then the
partition is unstable.

Expiry of committed offsets, and of groups that have none left. Kafka's rules since 2.1 (KIP-211).
A group without members loses all its offsets once it has been empty for
`offsets.retention.minutes`. A group that only ever committed loses each offset that long after
its commit. A group with members loses the offsets of topics that no member subscribes to, that
long after their commit. An offset that waits for a transaction stays. An offset of a topic that
was deleted while the group had no coordinator expires at once, even if another topic has the name
now.

A sweep handles a bounded number of offsets per tick, so that a million of them do not delay
heartbeats.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_scheduler import Steps
from penstock.base.ids import NO_TOPIC_ID, TopicId
from penstock.base.state_machine import Record
from penstock.state.groups.call_result import CallResult
from penstock.state.groups.classic.group import ClassicGroup
from penstock.state.groups.classic.member import EMPTY, STABLE
from penstock.state.groups.config import TopicCatalogue
from penstock.state.groups.consumer_protocol import CONSUMER
from penstock.state.groups.fencing import Group, is_subscribed
from penstock.state.groups.records import (
    OffsetValue,
    PendingValue,
    ProducerValue,
    encode,
    offset_key,
    offset_key_start,
    pending_key,
    producer_key,
    read_offset,
    read_offset_key,
    read_pending,
    read_pending_key,
    read_producer,
    read_producer_key,
)
from penstock.wire.encodable import INT64_MAX
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from penstock.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

OffsetKey = tuple[str, int]
"""Topic and partition."""

NO_OFFSETS: Final[dict[OffsetKey, OffsetValue]] = {}


class GroupOffsets:
    """Committed offsets by group, and pending ones by producer."""

    __slots__ = ("committed", "pending", "producers", "sequence", "waiting")

    def __init__(self) -> None:
        self.committed: dict[str, dict[OffsetKey, OffsetValue]] = {}
        self.pending: dict[int, dict[tuple[str, str, int], PendingValue]] = {}
        # Producers with a pending offset, by group and partition. The inner dict is an ordered set.
        self.waiting: dict[str, dict[OffsetKey, dict[int, None]]] = {}
        self.producers: dict[int, ProducerValue] = {}
        # At least the highest sequence number in the records that still exist.
        self.sequence = 0

    def apply_offset(self, key: bytes, value: bytes | None) -> None:
        _, _, group, topic, partition = read_offset_key(key)
        place = (topic, partition)
        if value is None:
            places = self.committed.get(group)
            if places is not None:
                places.pop(place, None)
                if not places:
                    del self.committed[group]
            return
        offset = read_offset(value)
        if offset.offset > INT64_MAX:
            return  # Once accepted over HTTP; no response could carry it.
        places = self.committed.get(group)
        if places is None:
            places = self.committed[group] = {}
        places[place] = offset
        if offset.sequence > self.sequence:
            self.sequence = offset.sequence

    def apply_offsets(
        self, group: str, positions: dict[OffsetKey, OffsetValue], sequence: int
    ) -> None:
        """Applies all records of one commit, as `apply_offset` would; keeps the passed dict."""
        places = self.committed.get(group)
        if places is None:
            self.committed[group] = positions
        else:
            places.update(positions)
        if sequence > self.sequence:
            self.sequence = sequence

    def apply_pending(self, key: bytes, value: bytes | None) -> None:
        _, _, producer_id, group, topic, partition = read_pending_key(key)
        place = (topic, partition)
        if value is None:
            self._forget_pending(producer_id, group, place)
            return
        pending = read_pending(value)
        self.pending.setdefault(producer_id, {})[group, topic, partition] = pending
        self.waiting.setdefault(group, {}).setdefault(place, {})[producer_id] = None
        self.sequence = max(self.sequence, pending.sequence)

    def apply_producer(self, key: bytes, value: bytes | None) -> None:
        producer_id = read_producer_key(key)[2]
        if value is None:
            self.producers.pop(producer_id, None)
        else:
            self.producers[producer_id] = read_producer(value)

    def _forget_pending(self, producer_id: int, group: str, place: OffsetKey) -> None:
        held = self.pending.get(producer_id)
        if held is None or held.pop((group, *place), None) is None:
            return
        if not held:
            del self.pending[producer_id]
        places = self.waiting[group]
        del places[place][producer_id]
        if not places[place]:
            del places[place]
        if not places:
            del self.waiting[group]

    def has(self, group: str) -> bool:
        return group in self.committed or group in self.waiting

    def of(self, group: str) -> dict[OffsetKey, OffsetValue]:
        return self.committed.get(group, NO_OFFSETS)

    def places(self, group: str) -> set[OffsetKey]:
        """Partitions with a committed or pending offset; sort them before use."""
        return self.of(group).keys() | self.waiting.get(group, {}).keys()

    def is_unstable(self, group: str, place: OffsetKey) -> bool:
        return group in self.waiting and place in self.waiting[group]

    def group_ids(self) -> set[str]:
        """Ids of groups with offsets; only for counting and sorting: a set has no order."""
        return self.committed.keys() | self.waiting.keys()

    def durable_state(self) -> dict[str, Any]:
        return {
            "committed": {group: dict(places) for group, places in self.committed.items()},
            "pending": {producer_id: dict(held) for producer_id, held in self.pending.items()},
            "waiting": {
                group: {place: sorted(who) for place, who in places.items()}
                for group, places in self.waiting.items()
            },
            "producers": dict(self.producers),
        }


_NONE: Final = int(ErrorCode.NONE)
_TOO_LARGE: Final = int(ErrorCode.OFFSET_METADATA_TOO_LARGE)
_UNKNOWN_ID: Final = int(ErrorCode.UNKNOWN_TOPIC_ID)
_DEFAULT_RETENTION: Final = -1
ROWS_REMEMBERED = 1_000


def commit(
    offsets: GroupOffsets,
    request: OffsetCommitRequest,
    topics: TopicCatalogue,
    metadata_bytes_max: int,
    outcome: CallResult,
    now_ms: int,
) -> OffsetCommitResponse:
    """Adds a record for every accepted offset; the response says which were accepted.

    A request that names a topic by id must mean the one in `topics`; a name stands for that one.
    """
    assert not outcome.records, "outcome.apply would leave out the records already collected"
    group_id, sequence = request.group_id, offsets.sequence + 1
    retention_ms = request.retention_time_ms
    expires_ms = -1 if retention_ms == _DEFAULT_RETENTION else now_ms + retention_ms
    positions: dict[OffsetKey, OffsetValue] = {}
    records = outcome.records
    answer = []
    for topic in request.topics:
        name = topic.name
        key_start = offset_key_start(group_id, name)
        topic_id = topics.id_of(name)
        is_other = topic.topic_id not in (NO_TOPIC_ID, topic_id)
        kept_id = _kept_id(topic_id)
        rows = []
        for partition in topic.partitions:
            metadata = partition.committed_metadata or ""
            index = partition.partition_index
            if is_other:
                rows.append(OffsetCommitResponsePartition(index, _UNKNOWN_ID))
                continue
            if metadata and _is_long(metadata, metadata_bytes_max):
                rows.append(OffsetCommitResponsePartition(index, _TOO_LARGE))
                continue
            value = positions[name, index] = OffsetValue(
                partition.committed_offset,
                partition.committed_leader_epoch,
                metadata,
                now_ms,
                sequence,
                expires_ms,
                kept_id,
            )
            records.append((key_start + encode(index), encode(value)))
            rows.append(_kept_row(index))
        answer.append(
            OffsetCommitResponseTopic(name=name, topic_id=topic.topic_id, partitions=rows)
        )
    if positions:
        outcome.apply = partial(offsets.apply_offsets, group_id, positions, sequence)
    return OffsetCommitResponse(topics=answer)


def _kept_id(topic_id: TopicId) -> bytes:
    return b"" if topic_id == NO_TOPIC_ID else topic_id


@lru_cache(maxsize=ROWS_REMEMBERED)
def _kept_row(index: int) -> OffsetCommitResponsePartition:
    """Success row, cached: nearly every row of every response is one. Treat it as immutable."""
    return OffsetCommitResponsePartition(index, _NONE)


def commit_pending(
    offsets: GroupOffsets,
    request: TxnOffsetCommitRequest,
    topics: TopicCatalogue,
    metadata_bytes_max: int,
    now_ms: int,
) -> tuple[list[Record], TxnOffsetCommitResponse]:
    """Like `commit`, for offsets that wait for the producer's transaction."""
    check_producer(offsets, request.producer_id, request.producer_epoch)
    records: list[Record] = []
    answer = []
    for topic in request.topics:
        kept_id = _kept_id(topics.id_of(topic.name))
        rows = []
        for partition in topic.partitions:
            metadata = partition.committed_metadata or ""
            index = partition.partition_index
            if _is_long(metadata, metadata_bytes_max):
                rows.append(
                    TxnOffsetCommitResponsePartition(partition_index=index, error_code=_TOO_LARGE)
                )
                continue
            key = pending_key(request.producer_id, request.group_id, topic.name, index)
            value = PendingValue(
                request.producer_epoch,
                partition.committed_offset,
                partition.committed_leader_epoch,
                metadata,
                now_ms,
                offsets.sequence + 1,
                kept_id,
            )
            records.append((key, encode(value)))
            rows.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=_NONE))
        answer.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows))
    return records, TxnOffsetCommitResponse(topics=answer)


def _is_long(metadata: str, bytes_max: int) -> bool:
    # Kafka counts characters; counting bytes keeps the limit that the setting's name promises.
    return len(metadata) > bytes_max or len(metadata.encode()) > bytes_max


def check_producer(offsets: GroupOffsets, producer_id: int, epoch: int) -> None:
    """Refuses a late request of a transaction that has already ended."""
    ended = offsets.producers.get(producer_id)
    held = offsets.pending.get(producer_id, {})
    newest = max((value.producer_epoch for value in held.values()), default=-1)
    if epoch < newest or (ended is not None and epoch < ended.producer_epoch):
        raise Refused(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"epoch {epoch} of producer {producer_id} is fenced: its transaction has ended",
        )


def complete(
    offsets: GroupOffsets,
    producer_id: int,
    epoch: int,
    is_committed: bool,
    topics: TopicCatalogue,
    now_ms: int,
) -> list[Record]:
    """Records for the end of a transaction; idempotent.

    Committed offsets come first, then the tombstones of pending ones, then the producer's fence.
    Pending offsets of a newer epoch belong to a later transaction and stay. An offset of a deleted
    topic is not committed.
    """
    kept: list[Record] = []
    gone: list[Record] = []
    for (group, topic, partition), value in sorted(offsets.pending.get(producer_id, {}).items()):
        if value.producer_epoch > epoch:
            continue
        present = offsets.of(group).get((topic, partition))
        is_newest = present is None or present.sequence < value.sequence
        is_there = not value.topic_id or value.topic_id == topics.id_of(topic)
        if is_committed and is_newest and is_there:
            committed = OffsetValue(
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.committed_ms,
                value.sequence,
                topic_id=value.topic_id,
            )
            kept.append((offset_key(group, topic, partition), encode(committed)))
        gone.append((pending_key(producer_id, group, topic, partition), None))
    ended = offsets.producers.get(producer_id)
    if ended is None or ended.producer_epoch < epoch:
        gone.append((producer_key(producer_id), encode(ProducerValue(epoch, now_ms))))
    return kept + gone


def forget(offsets: GroupOffsets, group: str, place: OffsetKey) -> list[Record]:
    """Tombstones for a committed offset and for all pending ones that would replace it."""
    records: list[Record] = []
    if place in offsets.of(group):
        records.append((offset_key(group, *place), None))
    if offsets.is_unstable(group, place):
        records += [
            (pending_key(producer_id, group, *place), None)
            for producer_id in sorted(offsets.waiting[group][place])
        ]
    return records


def forget_all(offsets: GroupOffsets, group: str) -> list[Record]:
    places = sorted(offsets.places(group))
    return [record for place in places for record in forget(offsets, group, place)]


def delete(
    offsets: GroupOffsets, request: OffsetDeleteRequest, is_subscribed: Callable[[str], bool]
) -> tuple[list[Record], OffsetDeleteResponse]:
    """Deletes committed offsets, except those of topics that the group subscribes to."""
    records: list[Record] = []
    topics = []
    for topic in request.topics:
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed(topic.name) else _NONE
        rows = []
        for partition in topic.partitions:
            if code == _NONE:
                place = (topic.name, partition.partition_index)
                records += forget(offsets, request.group_id, place)
            rows.append(
                OffsetDeleteResponsePartition(
                    partition_index=partition.partition_index, error_code=int(code)
                )
            )
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=rows))
    return records, OffsetDeleteResponse(error_code=_NONE, topics=topics)


WantedOffsets = Iterable[tuple[str, Any, Sequence[int]]]
"""Topic name, topic id and partitions."""


def fetch(
    offsets: GroupOffsets,
    group: str,
    wanted: WantedOffsets | None,
    is_stable_required: bool,
    topics: TopicCatalogue,
) -> Steps[list[OffsetFetchResponseTopics]]:
    """Returns the requested offsets, or all of them; -1 where there is none.

    The steps read a copy of the group's offsets, made by this call: they may run later.
    """
    unstable = offsets.waiting.get(group) if is_stable_required else None
    return _rows(dict(offsets.of(group)), frozenset(unstable or ()), wanted, topics)


def _rows(
    found: Mapping[OffsetKey, OffsetValue],
    unstable: frozenset[OffsetKey],
    wanted: WantedOffsets | None,
    topics: TopicCatalogue,
) -> Steps[list[OffsetFetchResponseTopics]]:
    if wanted is None:
        by_topic: dict[str, list[int]] = {}
        for (name, partition), held in found.items():
            yield
            if held.is_in(topics.id_of(name)):
                by_topic.setdefault(name, []).append(partition)
        wanted = [(name, topics.id_of(name), sorted(by_topic[name])) for name in sorted(by_topic)]
    answer = []
    for name, topic_id, partitions in wanted:
        rows = []
        present_id = topics.id_of(name)
        yield
        for partition in partitions:
            yield
            place = (name, partition)
            value = found.get(place)
            if value is not None and not value.is_in(present_id):
                value = None
            if place in unstable:
                rows.append(_row(partition, None, int(ErrorCode.UNSTABLE_OFFSET_COMMIT)))
            else:
                rows.append(_row(partition, value, _NONE))
        answer.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=rows))
    return answer


def _row(partition: int, value: OffsetValue | None, code: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=-1 if value is None else value.offset,
        committed_leader_epoch=-1 if value is None else value.leader_epoch,
        metadata="" if value is None else value.metadata,
        error_code=code,
    )


POSITIONS_PER_TICK: Final = 2_000
PAUSE_MS: Final = 20


class Sweep:
    """One pass over all groups, in bounded steps."""

    def __init__(self, interval_ms: int) -> None:
        self.interval_ms = interval_ms
        self.at_ms: int | None = None
        self._left: list[str] = []

    def start(self, now_ms: int) -> None:
        self._left = []
        self.at_ms = now_ms + self.interval_ms

    def is_due(self, now_ms: int) -> bool:
        return self.at_ms is not None and self.at_ms <= now_ms

    def next_groups(self, group_ids: set[str], offsets: GroupOffsets, now_ms: int) -> list[str]:
        """Groups of the next step; a new pass begins after the last one has ended."""
        if not self._left:
            self._left = sorted(group_ids, reverse=True)
        stretch: list[str] = []
        seen = 0
        while self._left and seen < POSITIONS_PER_TICK:
            group_id = self._left.pop()
            stretch.append(group_id)
            seen += 1 + len(offsets.of(group_id))
        self.at_ms = now_ms + (PAUSE_MS if self._left else self.interval_ms)
        return stretch

    @property
    def is_round_over(self) -> bool:
        return not self._left


def expired(
    offsets: GroupOffsets,
    group_id: str,
    group: Group,
    subscribed: frozenset[str],
    topics: TopicCatalogue,
    retention_ms: int,
    now_ms: int,
) -> tuple[list[Record], bool]:
    """Tombstones for expired offsets, and True if the group has no offsets left after them."""
    base = _base(group)
    records: list[Record] = []
    is_all = group_id not in offsets.waiting
    for place, value in offsets.of(group_id).items():
        if not value.is_in(topics.id_of(place[0])):
            # The pending offset that will replace it may belong to the topic that has the name now.
            records.append((offset_key(group_id, *place), None))
            continue
        is_old = base is not None and _is_old(value, base, retention_ms, now_ms)
        is_kept = is_subscribed(group, place[0], subscribed)
        if is_old and not is_kept and not offsets.is_unstable(group_id, place):
            records += forget(offsets, group_id, place)
        else:
            is_all = False
    return records, is_all


def _base(group: Group) -> int | None:
    """Start of the retention time: a timestamp, -1 for each commit's own time, None for never."""
    if not isinstance(group, ClassicGroup) or group.protocol_type is None:
        return -1
    if group.state == EMPTY:
        return group.since_ms
    if group.protocol_type == CONSUMER and group.subscribed is not None and group.state == STABLE:
        return -1
    return None


def _is_old(value: OffsetValue, base: int, retention_ms: int, now_ms: int) -> bool:
    if value.expires_ms >= 0:
        return now_ms >= value.expires_ms
    return now_ms - (value.committed_ms if base < 0 else base) >= retention_ms


def expired_producers(offsets: GroupOffsets, expiration_ms: int, now_ms: int) -> list[Record]:
    return [
        (producer_key(producer_id), None)
        for producer_id, value in sorted(offsets.producers.items())
        if now_ms - value.ended_ms >= expiration_ms and producer_id not in offsets.pending
    ]
