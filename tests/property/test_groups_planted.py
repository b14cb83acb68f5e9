"""Bugs put in on purpose: the rules of `World` must find each within some lives.

Each is one small change of the real code, undone at the end. The rarest shows in one life of
thirty, so there are enough for it to be found whatever else changes; those that are known to find
the rare ones come first.
"""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.state.groups import fencing, offsets, queries
from penstock.state.groups.classic import sync_heartbeat_leave
from penstock.state.groups.classic.group import ClassicGroup
from penstock.state.groups.classic.member import ClassicMember
from penstock.state.groups.consumer import classic_members, heartbeat, reconciliation
from penstock.state.groups.consumer.group import ConsumerGroup
from penstock.state.groups.consumer.pending_change import PendingChange
from penstock.state.groups.offsets import GroupOffsets
from penstock.state.groups.records import CurrentValue
from tests.sim.seeds import STALE, tell_if_stale
from tests.unit.state.groups.world import run

SEEDS = 300
STEPS = 120

Plant = Callable[[pytest.MonkeyPatch], None]


def _give_what_others_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PendingChange, "is_free", lambda self, slot, for_member: True)


def _believe_in_revocation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconciliation, "_owns_any", lambda reported, slots: False)


def _keep_silent_members(patch: pytest.MonkeyPatch) -> None:
    def due(group: ConsumerGroup, now_ms: int) -> list[str]:
        group.timers.take_due(now_ms)
        return []

    patch.setattr(heartbeat, "due_members", due)


def _keep_silent_classic_members(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sync_heartbeat_leave, "_end_session", lambda *arguments: None)


def _take_commits_of_old_generations(patch: pytest.MonkeyPatch) -> None:
    def check(group: Any, member_id: str, *rest: Any) -> None:
        if isinstance(group, ClassicGroup):
            group.check_member(member_id, None)

    def lenient(group: Any, *rest: Any) -> None:
        if isinstance(group, ClassicGroup) and group.members and not rest[-1]:
            check(group, *rest)
        else:
            fencing.check_commit(group, *rest)

    patch.setattr(queries, "check_commit", lenient)


def _take_commits_of_old_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fencing, "check_epoch", lambda group, member_id, epoch: None)


def _forget_to_count_the_generation(patch: pytest.MonkeyPatch) -> None:
    real = ClassicGroup.begin_generation

    def begin(self: ClassicGroup, outcome: Any, now_ms: int) -> None:
        self.generation -= 1
        real(self, outcome, now_ms)

    patch.setattr(ClassicGroup, "begin_generation", begin)


def _keep_the_generation_only_when_synced(patch: pytest.MonkeyPatch) -> None:
    real = ClassicGroup.keep

    def keep(self: ClassicGroup, outcome: Any) -> None:
        if self.state != "CompletingRebalance":
            real(self, outcome)

    patch.setattr(ClassicGroup, "keep", keep)


def _change_state_without_a_record(patch: pytest.MonkeyPatch) -> None:
    real = PendingChange.advance

    def advance(self: PendingChange, member_id: str, reported: Any) -> CurrentValue:
        current = real(self, member_id, reported)
        self.group.currents[member_id] = current
        return current

    patch.setattr(PendingChange, "advance", advance)


def _forget_to_tombstone_members(patch: pytest.MonkeyPatch) -> None:
    real = PendingChange.records

    def records(self: PendingChange) -> list[Any]:
        return [record for record in real(self) if record[1] is not None]

    patch.setattr(PendingChange, "records", records)


def _let_old_transactions_undo_later_commits(patch: pytest.MonkeyPatch) -> None:
    real = offsets.complete

    def complete(offsets: GroupOffsets, *rest: Any) -> list[Any]:
        blind = GroupOffsets()
        blind.pending, blind.producers = offsets.pending, offsets.producers
        return real(blind, *rest)

    patch.setattr("penstock.state.groups.shard.complete", complete)


def _forget_the_producers_last_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupOffsets, "apply_producer", lambda self, key, value: None)


def _leave_syncs_unanswered_when_rebalancing(patch: pytest.MonkeyPatch) -> None:
    real = ClassicMember.answer_sync

    def answer(self: ClassicMember, outcome: Any, response: Any) -> None:
        if response.error_code:
            self.sync = None
        else:
            real(self, outcome, response)

    patch.setattr(ClassicMember, "answer_sync", answer)


def _wait_for_joins_without_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClassicGroup, "join_timer_fired", lambda self, outcome, now_ms: None)


def _skip_the_epoch_bump_on_leave(patch: pytest.MonkeyPatch) -> None:
    def remove(draft: PendingChange, member_ids: list[str]) -> None:
        for member_id in member_ids:
            draft.remove(member_id)

    patch.setattr(heartbeat, "remove", remove)


def _lose_track_of_an_owner(patch: pytest.MonkeyPatch) -> None:
    real = ConsumerGroup.apply_current

    def apply(self: ConsumerGroup, member_id: str, value: CurrentValue | None) -> None:
        real(self, member_id, value)
        if value is not None and member_id in self.owners.values():
            for slot in [s for s, owner in self.owners.items() if owner == member_id][:1]:
                del self.owners[slot]

    patch.setattr(ConsumerGroup, "apply_current", apply)


def _let_heartbeats_ignore_new_epochs(patch: pytest.MonkeyPatch) -> None:
    def beat(group: Any, request: Any, now_ms: int) -> Any:
        current = group.currents.get(request.member_id)
        if current is None or request.member_epoch != current.epoch:
            return None
        group.extend_session(request.member_id, now_ms)
        return heartbeat.beat_response(group.settings, request.member_id, current, False)

    patch.setattr(heartbeat, "beat", beat)


def _tell_classic_members_that_all_is_well(patch: pytest.MonkeyPatch) -> None:
    real = classic_members.heartbeat

    def quiet(group: Any, request: Any, now_ms: int) -> Any:
        response = real(group, request, now_ms)
        response.error_code = 0
        return response

    patch.setattr(classic_members, "heartbeat", quiet)


PLANTS: list[Plant] = [
    _give_what_others_own,
    _believe_in_revocation,
    _keep_silent_members,
    _keep_silent_classic_members,
    _take_commits_of_old_generations,
    _take_commits_of_old_epochs,
    _forget_to_count_the_generation,
    _keep_the_generation_only_when_synced,
    _change_state_without_a_record,
    _forget_to_tombstone_members,
    _let_old_transactions_undo_later_commits,
    _forget_the_producers_last_epoch,
    _leave_syncs_unanswered_when_rebalancing,
    _wait_for_joins_without_end,
    _skip_the_epoch_bump_on_leave,
    _lose_track_of_an_owner,
    _let_heartbeats_ignore_new_epochs,
    _tell_classic_members_that_all_is_well,
]


FIRST: dict[Plant, int] = {
    _take_commits_of_old_generations: 21,
    _leave_syncs_unanswered_when_rebalancing: 12,
    _let_old_transactions_undo_later_commits: 5,
}


@pytest.mark.filterwarnings(STALE)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__.strip("_"))
def test_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    first = FIRST.get(plant)
    for seed in dict.fromkeys((first or 0, *range(SEEDS))):
        try:
            run(seed, STEPS)
        except AssertionError:
            if first is not None:
                tell_if_stale(plant.__name__, first, seed)
            return
    raise AssertionError(f"not found in {SEEDS} lives")
