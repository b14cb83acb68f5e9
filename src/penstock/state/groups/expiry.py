"""Expiry of committed offsets, and of groups that have none left.

Kafka's rules since 2.1 (KIP-211). A group without members loses all its offsets once it has been
empty for `offsets.retention.minutes`. A group that only ever committed loses each offset that long
after its commit. A group with members loses the offsets of topics that no member subscribes to,
that long after their commit. An offset that waits for a transaction stays. An offset of a topic
that was deleted while the group had no coordinator expires at once, even if another topic has the
name now.

A sweep handles a bounded number of offsets per tick, so that a million of them do not delay
heartbeats.
"""

from typing import Final

from penstock.base.state_machine import Record
from penstock.state.groups.classic.group import ClassicGroup
from penstock.state.groups.classic.states import EMPTY, STABLE
from penstock.state.groups.config import TopicCatalogue
from penstock.state.groups.consumer_protocol import CONSUMER
from penstock.state.groups.fencing import Group, is_subscribed
from penstock.state.groups.offset_commits import forget
from penstock.state.groups.offsets import GroupOffsets
from penstock.state.groups.records import OffsetValue, offset_key, producer_key

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
