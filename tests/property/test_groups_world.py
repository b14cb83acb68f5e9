"""Groups under random joins, leaves, crashes, commits and changes of topics; rules in `World`."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.state.groups.world import MIXES, World, run

WHICH = st.integers(0, 7)


class GroupLife(RuleBasedStateMachine):
    """Hypothesis chooses what happens, and finds the shortest way to a broken rule."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.kinds: tuple[str, ...] = MIXES[-1]

    @initialize(kinds=st.sampled_from(MIXES))
    def choose(self, kinds: tuple[str, ...]) -> None:
        self.kinds = kinds

    @rule(n=WHICH, is_static=st.booleans())
    def add(self, n: int, is_static: bool) -> None:
        self.world.add(self.kinds[n % len(self.kinds)], is_static)

    @rule(n=WHICH)
    def step(self, n: int) -> None:
        self.world.step(n)

    @rule(times=st.integers(1, 4))
    def step_all(self, times: int) -> None:
        for _ in range(times):
            self.world.step_all()

    @rule(duration_ms=st.sampled_from((1, 500, 3_000, 9_000, 25_000)))
    def sleep(self, duration_ms: int) -> None:
        self.world.sleep(duration_ms)

    @rule(n=WHICH)
    def kill(self, n: int) -> None:
        self.world.kill(n)

    @rule(n=WHICH)
    def leave(self, n: int) -> None:
        self.world.leave(n)

    @rule(n=WHICH, other=WHICH)
    def restart(self, n: int, other: int) -> None:
        self.world.restart(n, self.kinds[other % len(self.kinds)])

    @rule(n=WHICH)
    def disconnect(self, n: int) -> None:
        self.world.disconnect(n)

    @rule()
    def crash(self) -> None:
        self.world.crash()

    @rule(partitions=st.integers(3, 7), has_other=st.booleans())
    def set_topics(self, partitions: int, has_other: bool) -> None:
        self.world.set_topics(partitions, has_other)

    @rule(n=WHICH)
    def commit(self, n: int) -> None:
        self.world.commit(n)

    @rule(n=WHICH)
    def commit_old(self, n: int) -> None:
        self.world.commit_old(n)

    @rule(producer=st.integers(0, 1))
    def begin_txn(self, producer: int) -> None:
        self.world.begin_txn(producer)

    @rule(producer=st.integers(0, 1), is_committed=st.booleans())
    def end_txn(self, producer: int, is_committed: bool) -> None:
        self.world.end_txn(producer, is_committed)

    @invariant()
    def the_rules_hold(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.heal()


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.parametrize("seed", range(12))
def test_random_history_keeps_the_invariants(seed: int) -> None:
    run(seed, 120)
