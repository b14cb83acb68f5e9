"""All groups of one partition of the internal topic, as the host's single entry point.

`GroupShard` owns the groups, their committed offsets and the order of deadlines. It routes each
request to its group, converts groups from one type to the other, and drops those that have ended.
Membership requests are in `member_requests`, offsets and listings in `queries`; both work on this
object.

Contract with the host: `handle` (or `tick`, `topics_changed`, `complete_transaction`) returns a
Decision. The host calls `apply` for each of its records, appends them in one batch (perhaps with
those of other decisions), and sends the replies once they are committed. If the append fails, the
shard is discarded and reloaded: soft state may be ahead of what is persisted. After `Refused`
nothing has changed.

Applies a record to the group it belongs to. A group is of one type at a time: the records of the
old type are tombstoned in the same batch that writes the first of the new. Tombstones for a type
that the group no longer has change nothing.
"""

import heapq
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from penstock.base.ids import TopicId
from penstock.base.state_machine import Decision, Token
from penstock.state.groups import member_requests, queries
from penstock.state.groups.call_result import CallResult
from penstock.state.groups.classic.group import ClassicGroup
from penstock.state.groups.config import GroupCaller, GroupConfig, TopicCatalogue
from penstock.state.groups.consumer.group import ConsumerGroup
from penstock.state.groups.fencing import Group
from penstock.state.groups.offsets import (
    GroupOffsets,
    OffsetKey,
    Sweep,
    complete,
    expired,
    expired_producers,
    forget,
)
from penstock.state.groups.records import (
    OFFSET,
    OffsetValue,
    RecordKind,
    has_oversized_name,
    kind_of,
    read_classic_group,
    read_classic_member,
    read_consumer_group,
    read_consumer_member,
    read_current,
    read_group_key,
    read_member_key,
    read_share_group,
    read_share_member,
    read_target,
)
from penstock.state.groups.share import admin
from penstock.state.groups.share.group import ShareGroup
from penstock.state.groups.share.heartbeat import without_topics
from penstock.state.groups.topic_regex import (
    CompilePattern,
    MaySee,
    Patterns,
    refuse_patterns,
    see_everything,
)
from penstock.wire.encodable import STRING_BYTES_MAX

G = TypeVar("G", ClassicGroup, ConsumerGroup, ShareGroup)


def apply_to(
    groups: dict[str, Group], config: GroupConfig, kind: int, key: bytes, value: bytes | None
) -> None:
    if kind == RecordKind.CLASSIC_GROUP:
        group_id = read_group_key(key)[2]
        classic = _entry(groups, config, group_id, ClassicGroup, value)
        if classic is not None:
            classic.apply_group(None if value is None else read_classic_group(value))
            _drop_if_void(groups, classic, value)
    elif kind == RecordKind.CLASSIC_MEMBER:
        _, _, group_id, member_id = read_member_key(key)
        classic = _entry(groups, config, group_id, ClassicGroup, value)
        if classic is not None:
            member = None if value is None else read_classic_member(value)
            classic.apply_member(member_id, member)
            _drop_if_void(groups, classic, value)
    elif kind == RecordKind.CONSUMER_GROUP:
        group_id = read_group_key(key)[2]
        consumer = _entry(groups, config, group_id, ConsumerGroup, value)
        if consumer is not None:
            consumer.apply_group(None if value is None else read_consumer_group(value))
            _drop_if_void(groups, consumer, value)
    elif kind in (
        RecordKind.CONSUMER_MEMBER,
        RecordKind.CONSUMER_TARGET,
        RecordKind.CONSUMER_CURRENT,
    ):
        _apply_consumer_member(groups, config, kind, key, value)
    elif kind in (RecordKind.SHARE_GROUP, RecordKind.SHARE_MEMBER):
        _apply_share(groups, config, kind, key, value)


def _apply_share(
    groups: dict[str, Group], config: GroupConfig, kind: int, key: bytes, value: bytes | None
) -> None:
    is_group = kind == RecordKind.SHARE_GROUP
    group_id = read_group_key(key)[2] if is_group else read_member_key(key)[2]
    group = _entry(groups, config, group_id, ShareGroup, value)
    if group is None:
        return
    if is_group:
        group.apply_group(None if value is None else read_share_group(value))
    else:
        member_id = read_member_key(key)[3]
        group.apply_member(member_id, None if value is None else read_share_member(value))
    _drop_if_void(groups, group, value)


def _apply_consumer_member(
    groups: dict[str, Group], config: GroupConfig, kind: int, key: bytes, value: bytes | None
) -> None:
    _, _, group_id, member_id = read_member_key(key)
    group = _entry(groups, config, group_id, ConsumerGroup, value)
    if group is None:
        return
    if kind == RecordKind.CONSUMER_MEMBER:
        group.apply_member(member_id, None if value is None else read_consumer_member(value))
    elif kind == RecordKind.CONSUMER_TARGET:
        group.apply_target(member_id, None if value is None else read_target(value))
    else:
        group.apply_current(member_id, None if value is None else read_current(value))
    _drop_if_void(groups, group, value)


def _entry(
    groups: dict[str, Group],
    config: GroupConfig,
    group_id: str,
    wanted: type[G],
    value: bytes | None,
) -> G | None:
    group = groups.get(group_id)
    if isinstance(group, wanted):
        return group
    if value is None:
        return None
    made = wanted(group_id, config)
    groups[group_id] = made
    return made


def _drop_if_void(groups: dict[str, Group], group: Group, value: bytes | None) -> None:
    """Removes a group after its last tombstone, unless members are about to join it again."""
    if value is not None or not group.is_void:
        return
    if not isinstance(group, ClassicGroup) or not (group.members or group.pending):
        del groups[group.group_id]


READING = queries.HANDLERS | admin.HANDLERS


class GroupShard:
    """State machine behind one partition of `__consumer_offsets`."""

    def __init__(
        self,
        config: GroupConfig,
        compile_pattern: CompilePattern = refuse_patterns,
        may_see: MaySee = see_everything,
    ) -> None:
        self.config = config
        self.groups: dict[str, Group] = {}
        self.offsets = GroupOffsets()
        self.topics = TopicCatalogue()
        self.patterns = Patterns(compile_pattern, may_see)
        self.parked: dict[Token, str] = {}
        self._sweep = Sweep(config.offsets_check_interval_ms)
        # Deadlines by group, and a heap of them in which outdated entries are skipped.
        self._due_at: dict[str, int] = {}
        self._due: list[tuple[int, str]] = []

    # Requests

    def handle(
        self, name: str, request: Any, token: Token, caller: GroupCaller, now_ms: int
    ) -> Decision:
        """Handles a request by its Kafka name; without a reply in the decision, parks its token."""
        outcome = CallResult()
        answer = member_requests.HANDLERS.get(name)
        if answer is None:
            outcome.reply(token, READING[name](self, request, caller, outcome, now_ms))
            return outcome.decision()
        group_id: str = request.group_id
        try:
            answer(self, request, token, caller, outcome, now_ms)
        finally:
            self.settle(group_id)
        is_answered = False
        for waiting, _ in outcome.replies:
            if waiting == token:
                is_answered = True
            else:
                self.parked.pop(waiting, None)
        if not is_answered:
            self.parked[token] = group_id
        return outcome.decision()

    def complete_transaction(
        self, producer_id: int, producer_epoch: int, is_committed: bool, token: Token, now_ms: int
    ) -> Decision:
        """Applies a transaction marker; the reply to the token is None."""
        records = complete(
            self.offsets, producer_id, producer_epoch, is_committed, self.topics, now_ms
        )
        return Decision(tuple(records), ((token, None),))

    def topics_changed(self, view: Mapping[str, tuple[TopicId, int]], now_ms: int) -> Decision:
        """Updates the cluster's topics or the permissions on them; deletes the offsets of topics
        that are gone."""
        before, self.topics = self.topics, TopicCatalogue.of(view)
        self.patterns.topics_changed(self.topics)
        for group in self.groups.values():
            if not isinstance(group, ClassicGroup):
                group.is_stale = True
        gone = {
            name for topic_id, name in before.names.items() if self.topics.id_of(name) != topic_id
        }
        outcome = CallResult()
        for group_id in sorted(self.offsets.group_ids()) if gone else ():
            places = (
                self.offsets.of(group_id).keys() | self.offsets.waiting.get(group_id, {}).keys()
            )
            for place in sorted(place for place in places if place[0] in gone):
                outcome.records += forget(self.offsets, group_id, place)
        for _, group in sorted(self.groups.items()) if gone else ():
            if isinstance(group, ShareGroup):
                outcome.records += without_topics(group, before.names.keys() - self.topics.names)
        return outcome.decision()

    def positions(self) -> Iterator[tuple[str, list[tuple[OffsetKey, OffsetValue]]]]:
        """Groups with their committed offsets in existing topics; concurrent changes may be
        missed."""
        for group_id, places in list(self.offsets.committed.items()):
            id_of = self.topics.id_of
            yield group_id, [row for row in places.items() if row[1].is_in(id_of(row[0][0]))]

    def dropped(self, token: Token) -> None:
        """Forgets a client that no longer waits for its response; the member stays."""
        group = self.groups.get(self.parked.pop(token, ""))
        if isinstance(group, ClassicGroup):
            group.forget(token)

    # Records

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Applies one record to the state; unknown kinds are skipped."""
        kind = kind_of(key)
        if len(key) > STRING_BYTES_MAX and has_oversized_name(key):
            return  # No client could name it, and no client could read a response that lists it.
        if kind == OFFSET:
            self.offsets.apply_offset(key, value)
        elif kind == RecordKind.PENDING_OFFSET:
            self.offsets.apply_pending(key, value)
        elif kind == RecordKind.PRODUCER:
            self.offsets.apply_producer(key, value)
        else:
            apply_to(self.groups, self.config, kind, key, value)

    def loaded(self, now_ms: int) -> None:
        for group_id, group in sorted(self.groups.items()):
            group.settle(now_ms)
            self.settle(group_id)
        self._sweep.start(now_ms)

    def durable_state(self) -> dict[str, Any]:
        """All state that replay must restore; for comparison."""
        groups = {
            group_id: (group.type_name, group.durable_state())
            for group_id, group in sorted(self.groups.items())
            if not group.is_void
        }
        return {"groups": groups, "offsets": self.offsets.durable_state()}

    # Time

    def deadline(self) -> int | None:
        due, sweep_ms = self._due, self._sweep.at_ms
        while due:
            at_ms, group_id = due[0]
            if self._due_at.get(group_id) == at_ms:
                return at_ms if sweep_ms is None or at_ms < sweep_ms else sweep_ms
            heapq.heappop(due)
        return sweep_ms

    def tick(self, now_ms: int) -> Decision:
        outcome = CallResult()
        late = []
        while self._due and self._due[0][0] <= now_ms:
            at_ms, group_id = heapq.heappop(self._due)
            if self._due_at.get(group_id) == at_ms:
                del self._due_at[group_id]
                late.append(group_id)
        for group_id in late:
            group = self.groups.get(group_id)
            if group is not None:
                member_requests.tick(self, group, outcome, now_ms)
                self.settle(group_id)
        if self._sweep.is_due(now_ms):
            self._expire(outcome, now_ms)
        for waiting, _ in outcome.replies:
            self.parked.pop(waiting, None)
        return outcome.decision()

    def settle(self, group_id: str) -> None:
        """Updates the deadline of a changed group, or drops the group if nothing is left."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup) and member_requests.is_over(group):
            del self.groups[group_id]
            group = None
        at_ms = None if group is None else group.timers.floor
        if at_ms is None:
            self._due_at.pop(group_id, None)
        elif self._due_at.get(group_id) != at_ms:
            self._due_at[group_id] = at_ms
            heapq.heappush(self._due, (at_ms, group_id))

    def _expire(self, outcome: CallResult, now_ms: int) -> None:
        known = self.groups.keys() | self.offsets.group_ids()
        touched = {key for key, _ in outcome.records}
        for group_id in self._sweep.next_groups(known, self.offsets, now_ms):
            group = queries.find(self, group_id)
            if group is None or isinstance(group, ShareGroup):
                continue  # A share group stays until it is deleted.
            subscribed = queries.subscribed_topics(self, group)
            retention_ms = self.config.offsets_retention_ms
            records, is_all = expired(
                self.offsets, group_id, group, subscribed, self.topics, retention_ms, now_ms
            )
            if is_all and queries.is_deletable(group):
                records += group.tombstones()
            # A group that this tick has emptied is left for the next pass.
            if not touched.intersection(key for key, _ in records):
                outcome.records += records
        if self._sweep.is_round_over:
            expiration_ms = self.config.producer_expiration_ms
            outcome.records += expired_producers(self.offsets, expiration_ms, now_ms)
