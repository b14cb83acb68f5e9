"""Producers fight over transactional ids while everything that can go wrong does.

Two drivers of one world (`tests.unit.state.transactions.world`): hypothesis, which shrinks what it
finds, and seeded walks, which go deeper.
"""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.state.transactions.records import Partition
from tests.unit.state.transactions.walk import EPOCHS, walk
from tests.unit.state.transactions.world import PARTITIONS, TIMEOUT_MS, World

CLIENTS = st.integers(0, 4)
AT_ONCE = st.sampled_from((True, True, False))


class Transactions(RuleBasedStateMachine):
    @initialize(epoch=st.sampled_from(EPOCHS))
    def begin(self, epoch: int) -> None:
        self.world = World(epoch)
        for at in (0, 3, 4):
            self.world.initialise(at, recover=False, at_once=True)

    @rule(at=CLIENTS, recover=st.booleans(), at_once=AT_ONCE)
    def initialise(self, at: int, recover: bool, at_once: bool) -> None:
        self.world.initialise(at, recover, at_once)

    @rule(at=CLIENTS, partition=st.sampled_from(PARTITIONS), at_once=AT_ONCE)
    def produce(self, at: int, partition: Partition, at_once: bool) -> None:
        self.world.produce(at, partition, at_once)

    @rule(at=CLIENTS, committed=st.booleans(), at_once=AT_ONCE)
    def finish(self, at: int, committed: bool, at_once: bool) -> None:
        self.world.finish(at, committed, at_once)

    @precondition(lambda self: self.world.network)
    @rule(at=st.integers(0, 99), again=st.booleans())
    def arrive(self, at: int, again: bool) -> None:
        self.world.arrive(at % len(self.world.network), again)

    @rule(count=st.none() | st.integers(1, 3))
    def commit(self, count: int | None) -> None:
        self.world.commit(count)

    @precondition(lambda self: self.world.writes)
    @rule(at=st.integers(0, 99))
    def append(self, at: int) -> None:
        self.world.append(at % len(self.world.writes))

    @precondition(lambda self: self.world.host.markers)
    @rule(at=st.integers(0, 99), again=st.booleans(), only_first=st.booleans())
    def write_markers(self, at: int, again: bool, only_first: bool) -> None:
        self.world.write_markers(at % len(self.world.host.markers), again, only_first)

    @precondition(lambda self: self.world.reports)
    @rule(at=st.integers(0, 99), again=st.booleans())
    def report(self, at: int, again: bool) -> None:
        self.world.report(at % len(self.world.reports), again)

    @rule(ms=st.sampled_from((1, 300, TIMEOUT_MS)))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)

    @rule(kept=st.integers(0, 4))
    def crash(self, kept: int) -> None:
        self.world.crash(kept)

    @invariant()
    def check(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_random_histories_keep_the_invariants(first: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(first, first + 100):
        try:
            seen += walk(seed)
        except AssertionError as failure:
            failure.add_note(f"seed {seed}")
            raise
    # A walk in which nothing happens proves nothing.
    for what in (
        "write committed",
        "write aborted",
        "late write refused",
        "late marker refused",
        "CONCURRENT_TRANSACTIONS",
        "PRODUCER_FENCED",
        "INVALID_TXN_STATE",
    ):
        assert seen[what] > 0, f"{what} never happened"
