"""Draft of a change to a consumer group.

A draft begins as a shallow copy of the persisted state and is changed freely; `records` is the
difference. The group itself is unchanged until those records are applied. One draft serves one
call. Order of the records: tombstones, then subscriptions, epochs, targets, current assignments.
"""

import hashlib
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from penstock.base.ids import TopicId
from penstock.base.state_machine import Record
from penstock.state.groups.assignors import ASSIGNORS, Spec
from penstock.state.groups.config import TopicCatalogue
from penstock.state.groups.consumer.group import NO_TARGET, ConsumerGroup
from penstock.state.groups.consumer.reconciliation import JOINING, Slot, flat, packed, reconcile
from penstock.state.groups.records import (
    ConsumerGroupValue,
    ConsumerMemberValue,
    CurrentValue,
    RecordKind,
    TargetValue,
    encode,
    group_key,
    member_key,
)
from penstock.state.groups.topic_regex import Patterns

V = TypeVar("V", bound=msgspec.Struct)


class PendingChange:
    """State of the group after this call."""

    def __init__(self, group: ConsumerGroup, topics: TopicCatalogue, patterns: Patterns) -> None:
        self.group = group
        self.topics = topics
        self.patterns = patterns
        self.members = dict(group.members)
        self.targets = dict(group.targets)
        self.currents = dict(group.currents)
        self.statics = dict(group.statics)
        self.owners: Mapping[Slot, str] = group.owners
        value = group.value
        self.epoch = value.epoch
        self.assignment_epoch = value.assignment_epoch
        self.topics_hash = value.topics_hash

    # Members

    def put(self, member_id: str, member: ConsumerMemberValue) -> None:
        self.members[member_id] = member
        if member.instance_id is not None:
            self.statics[member.instance_id] = member_id

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self.targets.pop(member_id, None)
        self.currents.pop(member_id, None)
        if member.instance_id is not None and self.statics.get(member.instance_id) == member_id:
            del self.statics[member.instance_id]

    def replace(self, old_id: str, member_id: str) -> None:
        """Replaces a static member that came back under a new id; the new id inherits all."""
        member, target = self.members[old_id], self.targets.get(old_id)
        current = self.currents.get(old_id, JOINING)
        self.remove(old_id)
        self.put(member_id, member)
        if target is not None:
            self.targets[member_id] = target
        self.currents[member_id] = CurrentValue(0, 0, JOINING.state, current.assigned, ())

    def current(self, member_id: str) -> CurrentValue:
        return self.currents.get(member_id, JOINING)

    # Topics

    def topics_of(self, member: ConsumerMemberValue) -> frozenset[str]:
        """Names of the existing topics that the member subscribes to."""
        by_pattern = self.patterns.matching(member.regex, member.principal, member.client_host)
        named = by_pattern.union(member.topics)
        return named & self.topics.by_name.keys()

    def refresh(self, must_bump: bool) -> None:
        """Begins a new epoch if requested, or if the subscribed topics have changed."""
        names = frozenset[str]().union(*(self.topics_of(m) for m in self.members.values()))
        shape = [(name, *self.topics.by_name[name]) for name in sorted(names)]
        digest = hashlib.blake2b(encode(shape), digest_size=7).digest()
        topics_hash = int.from_bytes(digest, "big") if shape else 0
        if must_bump or topics_hash != self.topics_hash:
            self.topics_hash = topics_hash
            self.epoch += 1

    # Assignment

    def assignor(self) -> str:
        """Assignor that most members request, else the default."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.assignor is not None:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        known = self.group.config.consumer_assignors
        return max(sorted(votes), key=lambda name: votes[name], default=known[0])

    def wait_ms(self, now_ms: int) -> int:
        """Time until the next target may be computed (KIP-1263); 0: it may be computed now.

        Classic members are asked to rejoin until they have their target, so a group that has some
        does not wait.
        """
        assigned_ms = self.group.assigned_ms
        if assigned_ms is None or any(m.embedded is not None for m in self.members.values()):
            return 0
        return max(0, assigned_ms + self.group.settings.assignment_interval_ms - now_ms)

    def retarget(self, now_ms: int) -> None:
        """Computes the target of the newest epoch, unless it has one.

        The group's assignment interval must have passed since the last one: members that join in
        a burst are then assigned together, by a later heartbeat.
        """
        if self.assignment_epoch == self.epoch or self.wait_ms(now_ms):
            return
        self.group.assigned_ms = now_ms
        by_name = self.topics.by_name
        names = {member_id: self.topics_of(m) for member_id, m in self.members.items()}
        wanted = sorted(frozenset[str]().union(*names.values()))
        spec = Spec(
            {m: frozenset(by_name[name][0] for name in held) for m, held in names.items()},
            {by_name[name][0]: by_name[name][1] for name in wanted},
            {m: flat(target.owned) for m, target in self.targets.items()},
            {m: member.instance_id for m, member in self.members.items()},
        )
        given = ASSIGNORS[self.assignor()](spec)
        self.targets = {m: TargetValue(packed(given.get(m, ()))) for m in self.members}
        self.assignment_epoch = self.epoch

    def advance(self, member_id: str, reported: set[Slot] | None) -> CurrentValue:
        """Advances one member a step towards its target."""
        target = self.targets.get(member_id, NO_TARGET)
        owned = tuple((TopicId(topic_id), rows) for topic_id, rows in target.owned)
        current = reconcile(
            self.current(member_id),
            self.assignment_epoch,
            owned,
            reported,
            lambda slot: self.is_free(slot, member_id),
        )
        self.currents[member_id] = current
        return current

    def is_free(self, slot: Slot, for_member: str) -> bool:
        """True if no other member owns the partition or is still revoking it."""
        owner = self.owners.get(slot)
        if owner is None or owner == for_member:
            return True
        current = self.currents.get(owner)
        if current is None:
            return True
        if current is self.group.currents.get(owner):
            return False
        return slot not in flat(current.assigned) and slot not in flat(current.revoking)

    # Difference

    def records(self) -> list[Record]:
        group, group_id = self.group, self.group.group_id
        records: list[Record] = []
        for kind, old, new in (
            (RecordKind.CONSUMER_CURRENT, group.currents, self.currents),
            (RecordKind.CONSUMER_TARGET, group.targets, self.targets),
            (RecordKind.CONSUMER_MEMBER, group.members, self.members),
        ):
            gone = sorted(old.keys() - new.keys())
            records += [(member_key(kind, group_id, member_id), None) for member_id in gone]
        self._add(records, RecordKind.CONSUMER_MEMBER, group.members, self.members)
        value = ConsumerGroupValue(self.epoch, self.assignment_epoch, self.topics_hash)
        if value != group.kept:
            records.append((group_key(RecordKind.CONSUMER_GROUP, group_id), encode(value)))
        self._add(records, RecordKind.CONSUMER_TARGET, group.targets, self.targets)
        self._add(records, RecordKind.CONSUMER_CURRENT, group.currents, self.currents)
        return records

    def _add(
        self, records: list[Record], kind: RecordKind, old: Mapping[str, V], new: Mapping[str, V]
    ) -> None:
        changed = [m for m, value in new.items() if value is not old.get(m)]
        for member_id in sorted(changed):
            if new[member_id] != old.get(member_id):
                key = member_key(kind, self.group.group_id, member_id)
                records.append((key, encode(new[member_id])))
