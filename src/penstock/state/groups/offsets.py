"""Committed offsets of one shard's groups.

Owns: committed offsets by group; offsets pending on a transaction, by producer; the epoch with
which each producer last ended a transaction. Only `apply_*` changes them.
Every commit has a sequence number. When a transaction commits, its pending offset takes effect
only if no later commit has replaced it meanwhile; until then the partition is unstable.

Decisions are made in `offset_commits` and `expiry`.
"""

from typing import Any, Final

from penstock.state.groups.records import (
    OffsetValue,
    PendingValue,
    ProducerValue,
    read_offset,
    read_offset_key,
    read_pending,
    read_pending_key,
    read_producer,
    read_producer_key,
)
from penstock.wire.encodable import INT64_MAX

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
