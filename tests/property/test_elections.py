"""Whatever dies, returns, moves or is reconfigured: a leader has everything that was committed.

A model of one partition: each node's log is a list of entries, the leader commits by the rule that
`elections` counts on, and steps are drawn at random. Logs of a durable topic survive everything but
a lost disk; those of a page-cache topic lose an end when their node dies without a clean stop.

Each node also has a high watermark. A log is cut below it only where `may_go_back` allows it, which
it never does to a replica that is in sync. In this model nothing is lost silently: a replica that
is not allowed to follow its leader would be one that was forgotten after an unclean election.
"""

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.base.errors import Refused
from penstock.cluster.controller import leader_elections, reassignment
from penstock.cluster.controller.controller_decisions import next_state
from penstock.cluster.controller.leader_elections import Election, Rules
from penstock.cluster.controller.placement import initial_record
from penstock.cluster.metadata.store_keys import NO_LEADER, BrokerRecord, PartitionRecord

NODES = (1, 2, 3, 4)
WEIGHTS = {
    "write": 8,
    "heal": 3,
    "append": 3,
    "copy": 3,
    "commit": 3,
    "shrink": 3,
    "expand": 3,
    "die": 4,
    "control": 4,
    "return": 6,
    "return empty": 1,
    "return old": 1,
    "older version": 1,
    "min isr": 1,
    "prefer": 1,
    "drain": 1,
    "cut": 3,
    "mend": 1,
    "move": 2,
    "cancel": 1,
    "damage": 1,
}

QUIET = ("heal", "min isr", "prefer", "drain", "cut", "mend", "move", "cancel", "return empty")
"""Actions that a partition with only deaths and returns does not see."""


@dataclass
class World:
    rules: Rules
    record: PartitionRecord
    logs: dict[int, list[int]] = field(default_factory=lambda: {node: [] for node in NODES})
    up: dict[int, BrokerRecord] = field(
        default_factory=lambda: {node: BrokerRecord(node, "h", node) for node in NODES}
    )
    cuts: dict[int, frozenset[int]] = field(default_factory=dict)
    is_clean: dict[int, bool] = field(default_factory=dict)
    committed: list[int] = field(default_factory=list)
    following: dict[int, int] = field(default_factory=dict)
    """The leader epoch in which a node last copied: before that it may not join the ISR."""
    entries: int = 0
    epochs: dict[int, int] = field(default_factory=dict)
    """The leader epoch of each entry."""
    high_watermarks: dict[int, int] = field(default_factory=lambda: dict.fromkeys(NODES, 0))
    copies: dict[int, list[tuple[list[int], int]]] = field(
        default_factory=lambda: {node: [] for node in NODES}
    )
    """Contents of each disk when its node died."""
    has_lost_disks: bool = False

    def leader(self) -> int | None:
        leader = self.record.leader
        return leader if leader in self.up else None

    def become(self, after: PartitionRecord | None) -> None:
        if after is None:
            return
        before, self.record = self.record, after
        check(before, after, self.rules.min_isr)
        for node in NODES:
            if node not in after.replicas:
                self.wipe(node)
        kind = leader_elections.kind_of(before, after)
        if kind is Election.UNCLEAN:
            assert self.rules.unclean
        if kind is Election.LAST_KNOWN and not self.rules.unclean:
            assert not self.rules.is_durable or self.has_lost_disks
            assert (after.isr, after.elr) == ((after.leader,), ())
        if kind in (Election.UNCLEAN, Election.LAST_KNOWN):
            self.committed = common(self.committed, self.logs[after.leader])
        elif kind is Election.CLEAN:
            assert common(self.committed, self.logs[after.leader]) == self.committed

    def act(self, action: str, node: int, amount: int) -> None:
        record, rules = self.record, self.rules
        leader = self.leader()
        if action == "write":
            self.write(amount)
        elif action == "heal":
            self.heal()
        elif action == "append" and leader:
            self.entries += 1
            self.logs[leader].append(self.entries)
            self.epochs[self.entries] = record.leader_epoch
        elif action == "copy" and leader and node in record.replicas and node in self.up:
            self.copy(node, leader, amount)
        elif action == "commit" and leader:
            self.commit(leader)
        elif action == "shrink" and leader:
            isr = [member for member in record.isr if member == leader or member != node]
            self.become(leader_elections.with_isr(record, isr, rules.min_isr))
        elif action == "expand" and leader and node in record.replicas and node in self.up:
            if (
                self.following.get(node) == record.leader_epoch
                and self.logs[node] == self.logs[leader]
            ):
                self.become(leader_elections.with_isr(record, (*record.isr, node), rules.min_isr))
        elif action == "die" and node in self.up:
            del self.up[node]
            self.following.pop(node, None)
            self.copies[node].append((list(self.logs[node]), self.high_watermarks[node]))
            self.is_clean[node] = amount == 0
        elif action == "control":
            after = next_state(record, self.up, rules, self.cuts)
            self.become(after)
            if after is None:
                self.check_reach()
        elif action == "cut":
            self.cut(node, (node + amount) % len(NODES) + 1)
        elif action == "mend":
            self.cuts.clear()
        elif action.startswith("return") and node not in self.up:
            self.after_unclean_restart(node, action, amount)
        elif action == "min isr":
            self.rules = Rules(1 + amount % 3, rules.unclean, rules.is_durable)
        elif action == "prefer":
            self.become(leader_elections.prefer(record, self.up))
        elif action == "drain" and node in self.up:
            self.up[node] = BrokerRecord(node, "h", node, is_draining=amount % 2 == 0)
        elif action == "damage" and node in self.up and node in record.replicas:
            self.become(leader_elections.without(record, node, self.up, rules))
            self.wipe(node)
            self.has_lost_disks = True
        elif action == "older version":
            self.record = replace(record, unreconciled=())
        elif action in ("move", "cancel"):
            self.move(action, node, amount)

    def cut(self, one: int, other: int) -> None:
        for near, far in ((one, other), (other, one)):
            self.cuts[near] = self.cuts.get(near, frozenset()) | ({far} - {near})

    def check_reach(self) -> None:
        """No possible leader could do more than the leader."""
        record, leader = self.record, self.leader()
        if leader is None:
            return
        level = self.level(leader)
        for node in record.isr + record.elr:
            if node in self.up and not self.up[node].is_draining:
                assert self.level(node) <= level

    def level(self, node: int) -> int:
        found = leader_elections._leader_rank(node, self.record, self.up, self.rules, self.cuts)
        return found.level

    def write(self, amount: int) -> None:
        """The most common action: the ISR copies appended entries."""
        for _ in range(amount):
            self.act("append", 0, 0)
        for member in self.record.isr:
            self.act("copy", member, 10_000)
        self.act("commit", 0, 0)

    def heal(self) -> None:
        """All live replicas catch up, and the controller sees it."""
        self.cuts.clear()
        self.act("control", 0, 0)
        for node in NODES:
            self.act("copy", node, 10_000)
            self.act("expand", node, 0)
        self.act("control", 0, 0)

    def commit(self, leader: int) -> None:
        record = self.record
        if record.elr or len(record.isr) < leader_elections.effective_min_isr(
            self.rules.min_isr, record
        ):
            return
        shared = self.logs[leader]
        for member in record.isr:
            shared = common(shared, self.logs[member])
        if len(shared) > len(self.committed):
            assert shared[: len(self.committed)] == self.committed
            self.committed = list(shared)
        self.high_watermarks[leader] = max(self.high_watermarks[leader], len(self.committed))

    def copy(self, node: int, leader: int, amount: int) -> None:
        log, known = self.logs[node], self.high_watermarks
        shared = common(log, self.logs[leader])
        if len(shared) < known[node]:
            last_epoch = self.epochs[log[-1]]
            assert leader_elections.may_go_back(self.record, node, last_epoch)
            known[node] = len(shared)
        self.logs[node] = log = self.logs[leader][: len(shared) + amount]
        known[node] = max(known[node], min(known[leader], len(log)))
        self.following[node] = self.record.leader_epoch

    def wipe(self, node: int) -> None:
        self.logs[node] = []
        self.high_watermarks[node] = 0
        self.copies[node].clear()

    def after_unclean_restart(self, node: int, action: str, amount: int) -> None:
        is_empty = action == "return empty"
        if is_empty:
            self.wipe(node)
            self.has_lost_disks = True
        elif action == "return old" and self.copies[node]:
            log, self.high_watermarks[node] = self.copies[node][amount % len(self.copies[node])]
            self.logs[node] = list(log)
            self.has_lost_disks = is_empty = True
        elif not self.is_clean[node] and not self.rules.is_durable:
            log = self.logs[node]
            del log[max(len(log) - amount, 0) :]
            self.high_watermarks[node] = min(self.high_watermarks[node], len(log))
        if is_empty or not self.is_clean[node]:
            self.become(
                leader_elections.after_unclean_restart(
                    self.record, node, self.up, self.rules, is_empty=is_empty
                )
            )
        self.up[node] = BrokerRecord(node, "h", node)

    def move(self, action: str, node: int, amount: int) -> None:
        try:
            if action == "cancel":
                self.become(reassignment.cancel(self.record, self.up, self.rules))
            else:
                target = [(node + step) % len(NODES) + 1 for step in range(1 + amount % 3)]
                self.become(reassignment.begin(self.record, target, self.up, self.rules))
        except Refused:
            return


def common(one: list[int], other: list[int]) -> list[int]:
    shared = []
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        shared.append(left)
    return shared


def check(before: PartitionRecord, after: PartitionRecord, min_isr: int) -> None:
    replicas = set(after.replicas)
    assert set(after.isr) <= replicas
    assert set(after.elr) <= replicas
    assert set(after.last_known_elr) <= replicas
    assert not set(after.isr) & set(after.elr)
    assert set(after.adding) <= replicas
    assert set(after.removing) <= replicas
    assert not set(after.adding) & set(after.removing)
    assert len(replicas) == len(after.replicas)
    assert after.leader == NO_LEADER or after.leader in after.isr
    assert after.partition_epoch == before.partition_epoch + 1
    assert after.leader_epoch == before.leader_epoch + (after.leader != before.leader)
    if len(after.isr) >= leader_elections.effective_min_isr(min_isr, after):
        # A minimum that was lowered counts with the next change of either.
        assert not after.elr or (after.isr, after.elr) == (before.isr, before.elr)
    unreconciled = leader_elections.unreconciled_in(after)
    assert set(unreconciled) <= replicas - set(after.isr)
    for node in after.isr:
        assert not leader_elections.may_go_back(after, node, -1)
    if after.unclean_epoch == before.unclean_epoch and before.unreconciled:
        assert len(set(unreconciled) - set(before.unreconciled)) <= 1, "one that returns old"


def begin(seed: int) -> tuple[World, random.Random]:
    rng = random.Random(seed)
    rules = Rules(rng.randint(1, 3), rng.random() < 0.2, rng.random() < 0.5)
    return World(rules, initial_record(NODES[: rng.randint(1, 3)])), rng


def step(world: World, rng: random.Random, without: tuple[str, ...] = ()) -> None:
    (action,) = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
    if action not in without:
        world.act(action, rng.choice(NODES), rng.randrange(5))


@settings(max_examples=800, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_leader_has_all_committed_records(seed: int) -> None:
    world, rng = begin(seed)
    for _ in range(60):
        step(world, rng)
        leader = world.leader()
        if leader is not None:
            assert common(world.committed, world.logs[leader]) == world.committed


@settings(max_examples=800, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_replica_truncates_committed_records_only_after_an_unclean_election(seed: int) -> None:
    """With nothing but deaths and returns there are many of those."""
    rng = random.Random(seed)
    world = World(Rules(1, unclean=True), initial_record(NODES[:3]))
    for _ in range(60):
        step(world, rng, without=QUIET)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_partition_recovers_when_all_replicas_return(seed: int) -> None:
    world, rng = begin(seed)
    for _ in range(40):
        step(world, rng, without=("damage", "return empty", "return old"))
    for node in NODES:
        world.act("return", node, 0)
        world.act("drain", node, 1)
    for _ in range(3):
        world.heal()
    assert world.leader() is not None
    assert sorted(world.record.isr) == sorted(world.record.replicas)
    assert not reassignment.is_moving(world.record)
    world.act("control", 0, 0)
    settled = world.record
    world.act("control", 0, 0)
    assert world.record is settled
