"""A leader and its followers, with proposals that land late or never: no possible next leader lacks
records that the leader called committed.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.cluster.controller import leader_elections
from penstock.cluster.controller.leader_elections import Rules
from penstock.cluster.metadata.store_keys import BrokerRecord, PartitionRecord
from penstock.cluster.replication.leader_state import LeaderState

LEADER = 1
LAG_SECONDS = 10.0
FOLLOWERS = st.integers(2, 3)


class Reign(RuleBasedStateMachine):
    """One leader epoch. The store's record is the truth; what the leader knows may be older."""

    @initialize(min_isr=st.integers(1, 2), isr=st.sets(FOLLOWERS), start=st.integers(0, 3))
    def begin(self, min_isr: int, isr: set[int], start: int) -> None:
        self.min_isr = min_isr
        replicas = (1, 2, 3)
        record = PartitionRecord(replicas, LEADER, (LEADER, *sorted(isr)), 5)
        self.stored = leader_elections.with_isr(record, record.isr, min_isr) or record
        self.revision = 1
        self.now_s = 0.0
        self.end = start
        self.ends = dict.fromkeys((2, 3), start)
        """Records that the followers really have on disk."""
        self.brokers = {node: BrokerRecord(node, "h", 1, epoch=node) for node in replicas}
        self.known_revision = 1
        self.leader_state = LeaderState(LEADER, self.stored, min_isr, start, self.now_s)
        self.high_watermark = start
        self.under_way: list[tuple[int, PartitionRecord]] = []

    # -- the world ----------------------------------------------------------------------------

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.end += count
        self.advance()

    @rule(node=FOLLOWERS, count=st.integers(1, 5))
    def copy(self, node: int, count: int) -> None:
        self.ends[node] = min(self.end, self.ends[node] + count)

    @rule(node=FOLLOWERS)
    def fetch(self, node: int) -> None:
        self.leader_state.fetched(node, node, self.ends[node], self.end, self.now_s)
        self.advance()

    @rule(seconds=st.sampled_from([0.1, 1.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.leader_state.note_time(self.end, self.now_s)
        self.advance()

    @rule(node=FOLLOWERS)
    def controller_fences(self, node: int) -> None:
        brokers = {n: b for n, b in self.brokers.items() if n != node}
        after = leader_elections.adapt(self.stored, brokers, Rules(self.min_isr))
        assert after is None or after.leader == LEADER
        if after is not None:
            self.stored = after
            self.revision += 1

    # -- the leader ---------------------------------------------------------------------------

    def advance(self) -> None:
        reached = self.leader_state.high_watermark(self.end, self.now_s)
        self.high_watermark = max(self.high_watermark, reached)

    @rule()
    def propose(self) -> None:
        wanted = self.leader_state.wanted_isr(
            self.high_watermark, self.end, self.now_s, LAG_SECONDS, self.brokers
        )
        after = leader_elections.with_isr(self.leader_state.record, wanted, self.min_isr)
        if after is not None:
            self.leader_state.propose(after.isr)
            self.under_way.append((self.known_revision, after))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), is_told=st.booleans())
    def a_proposal_arrives(self, data: st.DataObject, is_told: bool) -> None:
        expected, after = self.under_way.pop(
            data.draw(st.integers(0, len(self.under_way) - 1), label="which")
        )
        if expected == self.revision:
            self.stored = after
            self.revision += 1
            if is_told:
                self.learn()
        elif is_told and not self.under_way:
            self.leader_state.refused()
            self.advance()

    @precondition(lambda self: self.known_revision < self.revision)
    @rule()
    def learn(self) -> None:
        self.known_revision = self.revision
        self.leader_state.adopt(self.stored, self.min_isr, self.now_s)
        self.advance()

    # -- what must hold -----------------------------------------------------------------------

    @invariant()
    def every_possible_leader_has_all_committed_records(self) -> None:
        for node in (*self.stored.isr, *self.stored.elr):
            if node != LEADER:
                assert self.ends[node] >= self.high_watermark, f"node {node} lacks records"

    @invariant()
    def nothing_is_committed_that_is_not_there(self) -> None:
        assert self.high_watermark <= self.end

    @invariant()
    def the_leader_counts_at_least_the_recorded_isr(self) -> None:
        if self.known_revision == self.revision:
            assert set(self.stored.isr) <= set(self.leader_state.maximal_isr)


TestReign = Reign.TestCase
TestReign.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
