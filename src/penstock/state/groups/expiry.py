"""Positions that nobody needs any more go, and groups with nothing left go with them.

Kafka's rules since 2.1 (KIP-211). A group without members: all its positions, once it has been
empty for `offsets.retention.minutes`; a group that only ever committed: each position, so long
after its commit. A group with members: positions of topics nobody in it reads, so long after their
commit. A position that waits for a transaction stays. A position in a topic that was deleted while
nobody coordinated the group goes at once, though another topic has its name now.

A sweep looks at a bounded number of positions per tick, so that a million of them do not hold up
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
    """One round over all groups, a stretch at a time."""

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
        """The next stretch; a new round begins where the last one has ended."""
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
    """Tombstones, and whether nothing of the group's positions is left after them."""
    base = _base(group)
    records: list[Record] = []
    is_all = group_id not in offsets.waiting
    for place, value in offsets.of(group_id).items():
        if not value.is_in(topics.id_of(place[0])):
            # What waits to replace it may be a position in the topic that has the name now.
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
    """From when retention counts: a time, -1 for each commit's own, None for never."""
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
