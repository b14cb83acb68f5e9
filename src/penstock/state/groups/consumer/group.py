"""One consumer group: its persisted state, its partition owners and its timers.

Persisted: the group's epochs, and per member its subscription, target and current assignment
(`reconciliation`). Only `apply_*` changes them. Derived from them: the owner of every partition,
the static members. Soft: session, rebalance, join and sync deadlines, the time of the last target
(unknown after loading), and `is_stale`, which makes the next heartbeat check the topics again.

Decisions are drafted in `pending_change` and made in `heartbeat` and `classic_members`.
"""

from collections.abc import Iterable
from typing import Any, Final

from penstock.state.groups.config import ConsumerGroupConfig, GroupConfig
from penstock.state.groups.consumer.reconciliation import (
    JOINING,
    MEMBER_STABLE,
    UNREVOKED,
    Slot,
    flat,
)
from penstock.state.groups.member_lookup import find_member
from penstock.state.groups.records import (
    ConsumerGroupValue,
    ConsumerMemberValue,
    CurrentValue,
    RecordKind,
    TargetValue,
    group_key,
    member_key,
)
from penstock.state.groups.timers import Timers

NEW: Final = ConsumerGroupValue(0, 0, 0)
NO_TARGET: Final = TargetValue(())

LEFT_FOR_NOW: Final = -2
"""Epoch of a static member that left and announced that it will be back."""


class ConsumerGroup:
    """A consumer group. Only `apply_*` changes persisted state."""

    type_name: Final = "Consumer"

    def __init__(self, group_id: str, config: GroupConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.kept: ConsumerGroupValue | None = None
        self.members: dict[str, ConsumerMemberValue] = {}
        self.targets: dict[str, TargetValue] = {}
        self.currents: dict[str, CurrentValue] = {}
        self.statics: dict[str, str] = {}
        self.owners: dict[Slot, str] = {}
        # Soft state from here on.
        self.timers: Timers[tuple[str, str]] = Timers()
        self.is_stale = False
        self.assigned_ms: int | None = None

    # Persisted state

    def apply_group(self, value: ConsumerGroupValue | None) -> None:
        self.kept = value

    def apply_member(self, member_id: str, value: ConsumerMemberValue | None) -> None:
        old = self.members.pop(member_id, None)
        if old is not None and self.statics.get(old.instance_id or "") == member_id:
            del self.statics[old.instance_id or ""]
        if value is not None:
            self.members[member_id] = value
            if value.instance_id is not None:
                self.statics[value.instance_id] = member_id

    def apply_target(self, member_id: str, value: TargetValue | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = value

    def apply_current(self, member_id: str, value: CurrentValue | None) -> None:
        old = self.currents.pop(member_id, None)
        if old is not None:
            for slot in flat(old.assigned) | flat(old.revoking):
                if self.owners.get(slot) == member_id:
                    del self.owners[slot]
        if value is not None:
            self.currents[member_id] = value
            for slot in flat(value.assigned) | flat(value.revoking):
                self.owners[slot] = member_id

    @property
    def is_void(self) -> bool:
        return self.kept is None and not (self.members or self.targets or self.currents)

    def durable_state(self) -> Any:
        return (
            self.kept,
            dict(sorted(self.members.items())),
            dict(sorted(self.targets.items())),
            dict(sorted(self.currents.items())),
            dict(sorted(self.statics.items())),
            dict(sorted(self.owners.items())),
        )

    def settle(self, now_ms: int) -> None:
        """Restarts sessions and revocation timeouts after loading."""
        self.is_stale = True
        for member_id, member in sorted(self.members.items()):
            self.extend_session(member_id, now_ms)
            is_revoking = self.currents.get(member_id, JOINING).state == UNREVOKED
            if is_revoking and member.embedded is None:
                self.timers.set(("rebalance", member_id), now_ms + member.rebalance_timeout_ms)

    def tombstones(self) -> Iterable[tuple[bytes, None]]:
        for kind, held in (
            (RecordKind.CONSUMER_CURRENT, self.currents),
            (RecordKind.CONSUMER_TARGET, self.targets),
            (RecordKind.CONSUMER_MEMBER, self.members),
        ):
            for member_id in sorted(held):
                yield member_key(kind, self.group_id, member_id), None
        if self.kept is not None:
            yield group_key(RecordKind.CONSUMER_GROUP, self.group_id), None

    # Queries

    @property
    def value(self) -> ConsumerGroupValue:
        return self.kept or NEW

    @property
    def settings(self) -> ConsumerGroupConfig:
        return self.config.consumer_config_of(self.group_id)

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.value.epoch > self.value.assignment_epoch:
            return "Assigning"
        for member_id in self.members:
            current = self.currents.get(member_id, JOINING)
            if current.state != MEMBER_STABLE or current.epoch != self.value.assignment_epoch:
                return "Reconciling"
        return "Stable"

    def check_member(self, member_id: str, instance_id: str | None) -> ConsumerMemberValue:
        """The member that speaks, or why it may not."""
        return find_member(self.members, self.statics, member_id, instance_id)

    def session_timeout_of(self, member: ConsumerMemberValue) -> int:
        if member.embedded is not None:
            return member.embedded.session_timeout_ms
        return self.settings.session_timeout_ms

    def extend_session(self, member_id: str, now_ms: int) -> None:
        timeout_ms = self.session_timeout_of(self.members[member_id])
        self.timers.set(("session", member_id), now_ms + timeout_ms)

    def cancel_timers(self, member_id: str) -> None:
        for kind in ("session", "rebalance", "join", "sync"):
            self.timers.cancel((kind, member_id))
