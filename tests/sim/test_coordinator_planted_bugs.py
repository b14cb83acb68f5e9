"""The coordinator runs can fail: each planted bug is found by a seed.

Every bug is a small change of the real code, undone at the end. `first` is a seed known to find it,
tried before the others, so that the suite stays quick; if it no longer does, all seeds up to
`SEEDS_MAX` are tried. A bug that none of them finds means that the workloads or the checkers no
longer see it, not that the bug is harmless.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.state_machine import Decision
from penstock.broker.api.data import fetch_reply
from penstock.cluster.replication.partition import Partition
from penstock.coordinator.runtime import shard_host
from penstock.coordinator.runtime.shard_runtime import ShardRuntime
from penstock.coordinator.txn_markers import MarkerWriter, _Ending
from penstock.log.log import Log
from penstock.log.producers import Producers
from penstock.state.groups import fencing, offsets, queries
from penstock.state.groups.classic import sync_heartbeat_leave
from penstock.state.groups.classic.group import ClassicGroup, Roster
from penstock.state.groups.consumer import heartbeat, reconciliation
from penstock.state.groups.consumer.group import ConsumerGroup
from penstock.state.groups.consumer.pending_change import PendingChange
from penstock.state.groups.timers import Timers
from penstock.state.transactions import transaction
from penstock.state.transactions.records import TRANSACTIONS_V0, TxnRecord, TxnState
from penstock.state.transactions.shard import TxnShard
from penstock.state.transactions.transaction import Txn
from simulation.coordinator_run import Options, run_seed
from simulation.faults import KINDS
from tests.sim.seeds import STALE, seed_that_finds

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS_MAX = 200
OPTIONS = Options(cut_ratio=0.05)
CUTS = Options(
    cut_ratio=0.0,
    pause_s=1.5,
    faults={"power cut in a request": KINDS["power cut in a request"]},
)
"""Options for bugs that only a power cut in a few chosen moments shows."""
MOVES = Options(
    cut_ratio=0.0, chaos_s=90.0, records=200, faults={"clock jumps": KINDS["clock jumps"]}
)
"""Options for bugs that need frequent leader changes and no machine failures."""

Patch = pytest.MonkeyPatch


class Bug(NamedTuple):
    """A change of the code, and a seed that finds it."""

    plant: Callable[[Patch], None]
    first: int
    options: Options = OPTIONS


# -- the host: runtimes, loading, markers ---------------------------------------------------------


def replies_go_out_before_the_commit(patch: Patch) -> None:
    def planted(self: ShardRuntime[Any], replies: Any, effect: Any) -> None:
        self._hand_out([(replies, None)])
        if effect is not None:
            promise(self, (), effect)

    promise = ShardRuntime._promise
    patch.setattr(ShardRuntime, "_promise", planted)


def markers_go_out_before_the_commit(patch: Patch) -> None:
    promise = ShardRuntime._promise

    def planted(self: ShardRuntime[Any], replies: Any, effect: Any) -> None:
        promise(self, replies, None)
        if effect is not None:
            effect()

    patch.setattr(ShardRuntime, "_promise", planted)


def markers_are_forgotten_by_a_crash(patch: Patch) -> None:
    loaded = TxnShard.loaded

    def planted(self: TxnShard, now_ms: int) -> None:
        loaded(self, now_ms)
        self._newly_prepared.clear()

    patch.setattr(TxnShard, "loaded", planted)


def a_marker_that_could_not_be_written_counts(patch: Patch) -> None:
    told = _Ending._told

    def planted(self: _Ending, topic: str, index: int, code: ErrorCode) -> None:
        told(self, topic, index, ErrorCode.NONE)

    patch.setattr(_Ending, "_told", planted)


def groups_are_not_told_of_the_end(patch: Patch) -> None:
    def planted(self: MarkerWriter, marker: Any, index: int, told: Any) -> None:
        told(ErrorCode.NONE)

    patch.setattr(MarkerWriter, "_write_to_group", planted)


def loading_stops_short(patch: Patch) -> None:
    real = shard_host.replay

    async def planted(log: Any, workers: Any, size: int, until: int, apply: Any) -> int:
        return await real(log, workers, size, max(until - 1, 0), apply)

    patch.setattr(shard_host, "replay", planted)


def no_timer_runs_after_loading(patch: Patch) -> None:
    activated = ShardRuntime.activated

    def planted(self: ShardRuntime[Any], shard: Any) -> None:
        activated(self, shard)
        if self._timer is not None:
            self._timer.cancel()

    patch.setattr(ShardRuntime, "activated", planted)


def a_failed_append_is_taken_for_done(patch: Patch) -> None:
    append = Partition.append

    def planted(self: Partition, *args: Any, **options: Any) -> Any:
        if not self.topic.startswith("__"):
            return append(self, *args, **options)
        try:
            return append(self, *args, **options)
        except OSError:
            return type("Appended", (), {"last_offset": self.log.end_offset - 1})()

    patch.setattr(Partition, "append", planted)


# -- groups -----------------------------------------------------------------------------------


def an_expired_member_is_kept(patch: Patch) -> None:
    def planted(group: ConsumerGroup, now_ms: int) -> list[str]:
        group.timers.take_due(now_ms)
        return []

    patch.setattr(heartbeat, "due_members", planted)


def an_expired_classic_member_is_kept(patch: Patch) -> None:
    patch.setattr(sync_heartbeat_leave, "_end_session", lambda *arguments: None)


def a_dead_leader_takes_others_with_it(patch: Patch) -> None:
    """As it was: of timers that are due at once, those count that the first one renewed."""
    take_due = Timers.take_due

    def planted(self: Timers[Any], now_ms: int) -> list[Any]:
        taken = take_due(self, now_ms)
        self.at = _Forgetful(self.at)
        return taken

    patch.setattr(Timers, "take_due", planted)


class _Forgetful(dict[Any, int]):
    """Deadlines that do not know which of them are set."""

    def __contains__(self, name: object) -> bool:
        return False


def an_old_generation_may_commit(patch: Patch) -> None:
    def planted(group: Any, member_id: str, *rest: Any) -> None:
        if isinstance(group, ClassicGroup) and group.members:
            return
        fencing.check_commit(group, member_id, *rest)

    patch.setattr(queries, "check_commit", planted)


def an_old_epoch_may_commit(patch: Patch) -> None:
    patch.setattr(fencing, "check_epoch", lambda group, member_id, epoch: None)


def the_generation_is_not_counted(patch: Patch) -> None:
    real = ClassicGroup.begin_generation

    def planted(self: ClassicGroup, outcome: Any, now_ms: int) -> None:
        self.generation -= 1
        real(self, outcome, now_ms)

    patch.setattr(ClassicGroup, "begin_generation", planted)


def the_generation_is_kept_only_when_synced(patch: Patch) -> None:
    real = ClassicGroup.keep

    def planted(self: ClassicGroup, outcome: Any) -> None:
        if self.state != "CompletingRebalance":
            real(self, outcome)

    patch.setattr(ClassicGroup, "keep", planted)


def what_others_own_is_given_away(patch: Patch) -> None:
    patch.setattr(PendingChange, "is_free", lambda self, slot, for_member: True)


def revocation_is_believed_at_once(patch: Patch) -> None:
    patch.setattr(reconciliation, "_owns_any", lambda reported, slots: False)


def a_member_that_left_is_not_struck_out(patch: Patch) -> None:
    real = PendingChange.records

    def planted(self: PendingChange) -> list[Any]:
        return [record for record in real(self) if record[1] is not None]

    patch.setattr(PendingChange, "records", planted)


def sessions_are_short_after_loading(patch: Patch) -> None:
    add = Roster.add

    def planted(self: Roster, member: Any, now_ms: int, timeout_ms: int) -> None:
        add(self, member, now_ms, timeout_ms if member.is_new else 500)

    patch.setattr(Roster, "add", planted)


def unstable_positions_are_told(patch: Patch) -> None:
    def planted(found: Any, unstable: frozenset[Any], *rest: Any) -> Any:
        return rows(found, frozenset(), *rest)

    rows = offsets._rows
    patch.setattr(offsets, "_rows", planted)


# -- transactions -----------------------------------------------------------------------------


def end_txn_does_not_bump_the_epoch(patch: Patch) -> None:
    prepare = Txn._prepare

    def planted(self: Txn, outcome: TxnState, version: int, *rest: Any) -> TxnRecord:
        record = prepare(self, outcome, TRANSACTIONS_V0, *rest)
        return type(record)(**{**_fields(record), "version": version})

    patch.setattr(Txn, "_prepare", planted)


def _fields(record: TxnRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def init_does_not_bump_the_epoch(patch: Patch) -> None:
    patch.setattr(transaction, "_bumped", lambda producer, take_id: producer)


def init_forgets_the_open_transaction(patch: Patch) -> None:
    def planted(self: Txn, now_ms: int, take_id: Any, previous: Any) -> TxnRecord:
        fields = _fields(self.record)
        fields.update(
            state=TxnState.EMPTY, producer_epoch=fields["producer_epoch"] + 1, partitions=()
        )
        return TxnRecord(**fields)

    patch.setattr(Txn, "fence", planted)


def a_transaction_never_times_out(patch: Patch) -> None:
    patch.setattr(TxnShard, "tick", lambda self, now_ms: Decision())
    patch.setattr(TxnShard, "deadline", lambda self: None)


def the_first_marker_completes_it(patch: Patch) -> None:
    def planted(self: _Ending, topic: str, index: int, code: ErrorCode) -> None:
        self._left.clear()
        self._report()

    patch.setattr(_Ending, "_told", planted)


def readers_see_what_is_not_committed(patch: Patch) -> None:
    patch.setattr(Log, "last_stable_offset", lambda self, high_watermark: high_watermark)


def readers_are_not_told_what_was_aborted(patch: Patch) -> None:
    patch.setattr(fetch_reply.Reply, "_aborted", lambda self, found: None)


def repetitions_are_written_again(patch: Patch) -> None:
    def planted(self: Producers, header: Any) -> None:
        return None

    patch.setattr(Producers, "check", planted)


BUGS = [
    Bug(replies_go_out_before_the_commit, 7),
    Bug(markers_go_out_before_the_commit, 11, CUTS),
    Bug(markers_are_forgotten_by_a_crash, 2, CUTS),
    Bug(a_marker_that_could_not_be_written_counts, 1),
    Bug(groups_are_not_told_of_the_end, 0),
    Bug(loading_stops_short, 0),
    Bug(no_timer_runs_after_loading, 0),
    Bug(a_failed_append_is_taken_for_done, 7),
    Bug(an_expired_member_is_kept, 0),
    Bug(an_expired_classic_member_is_kept, 1),
    Bug(a_dead_leader_takes_others_with_it, 54),
    Bug(an_old_generation_may_commit, 0),
    Bug(an_old_epoch_may_commit, 1),
    Bug(the_generation_is_not_counted, 1),
    Bug(the_generation_is_kept_only_when_synced, 6),
    Bug(what_others_own_is_given_away, 0),
    Bug(revocation_is_believed_at_once, 4),
    Bug(a_member_that_left_is_not_struck_out, 0),
    Bug(sessions_are_short_after_loading, 1),
    Bug(unstable_positions_are_told, 12, MOVES),
    Bug(end_txn_does_not_bump_the_epoch, 0),
    Bug(init_does_not_bump_the_epoch, 0),
    Bug(init_forgets_the_open_transaction, 0),
    Bug(a_transaction_never_times_out, 7),
    Bug(the_first_marker_completes_it, 1),
    Bug(readers_see_what_is_not_committed, 0),
    Bug(readers_are_not_told_what_was_aborted, 0),
    Bug(repetitions_are_written_again, 0),
]


@pytest.mark.filterwarnings(STALE)
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_planted_bug_is_found(bug: Bug, monkeypatch: Patch) -> None:
    bug.plant(monkeypatch)
    seed_that_finds(lambda seed: run_seed(seed, bug.options), bug, SEEDS_MAX)
