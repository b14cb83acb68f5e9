"""Planted bugs in the handling of cut networks, one at a time: see `test_cut_planted_bugs`.

`BUGS` has the checker that names each bug, and the cut in which it shows. Most leave a partition
without writes although a node could lead it: preventing that is the purpose of the rules.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from penstock.client.connection import Connection
from penstock.cluster.controller import controller, leader_elections
from penstock.cluster.metadata import peer_reachability
from penstock.cluster.metadata.peer_liveness import PeerLiveness
from penstock.cluster.metadata.store_keys import NO_LEADER, PartitionRecord
from penstock.cluster.replication.leader_state import ALL_REACHABLE, LeaderState
from simulation.network_cuts import Cut

Patch = pytest.MonkeyPatch


class CutBug(NamedTuple):
    plant: Callable[[Patch], None]
    checker: str
    cut: Cut


def reports_are_ignored(patch: Patch) -> None:
    """As it was: who has a lease and leads goes on leading."""
    patch.setattr(controller, "broken_links_of", lambda reports, brokers: {})


def a_link_that_is_there_counts_as_an_answer(patch: Patch) -> None:
    """As it was: a connection was evidence until it ended."""

    async def planted(self: PeerLiveness, record: Any, connection: Connection) -> None:
        while not connection.is_closed:
            self._probes.answered(record.node_id, record.epoch)
            await asyncio.sleep(0.5)

    patch.setattr(PeerLiveness, "_probe", planted)


def the_first_in_order_takes_over(patch: Patch) -> None:
    """The first replica in order leads, even if it does not reach the other nodes."""

    def planted(
        node_id: int, draft: PartitionRecord, brokers: Any, rules: Any, cuts: Any
    ) -> leader_elections._LeaderRank:
        is_leader = node_id == draft.leader
        return leader_elections._LeaderRank(0 if is_leader and cuts.get(node_id) else 1, 0, 0)

    patch.setattr(leader_elections, "_leader_rank", planted)


def a_silent_follower_may_lag_as_long_as_a_slow_one(patch: Patch) -> None:
    real: Any = LeaderState._lags

    def planted(self: LeaderState, *arguments: Any) -> bool:
        return bool(real(self, *arguments[:-1], ALL_REACHABLE))

    patch.setattr(LeaderState, "_lags", planted)


def a_new_leader_puts_all_it_reaches_in_sync(patch: Patch) -> None:
    """Also those that have left the ISR, and may lack what was committed since."""
    real = leader_elections._prefer_connected

    def planted(record: PartitionRecord, draft: PartitionRecord, *rest: Any) -> PartitionRecord:
        after = real(record, draft, *rest)
        if after.leader in (draft.leader, NO_LEADER):
            return after
        away: Collection[int] = rest[-1].get(after.leader, ())
        isr = tuple(node for node in after.replicas if node not in away)
        return replace(after, isr=isr, elr=())

    patch.setattr(leader_elections, "_prefer_connected", planted)


def one_answer_is_enough_for_ever(patch: Patch) -> None:
    """A node that has answered once is never silent."""
    tick = peer_reachability._Known.tick

    def planted(self: Any) -> None:
        self.has_answered = True
        tick(self)

    patch.setattr(peer_reachability._Known, "tick", planted)


LEADER_ALONE = Cut(3, frozenset({(1, 2), (1, 3)}))
LEADER_DEAF = Cut(3, frozenset({(2, 1), (3, 1)}))
ONE_PAIR = Cut(3, frozenset({(2, 1)}))
TWO_ALONE = Cut(5, frozenset({(a, b) for a in (1, 2) for b in (3, 4, 5)}))
IN_TWO_STEPS = Cut(5, frozenset({(1, 2), (1, 3)}), frozenset({4}))
"""Two followers leave the ISR, and when another one's lease ends, they are needed again."""

BUGS = [
    CutBug(reports_are_ignored, "unavailable", LEADER_ALONE),
    CutBug(a_link_that_is_there_counts_as_an_answer, "unavailable", LEADER_DEAF),
    CutBug(one_answer_is_enough_for_ever, "unavailable", LEADER_DEAF),
    CutBug(the_first_in_order_takes_over, "unavailable", TWO_ALONE),
    CutBug(a_silent_follower_may_lag_as_long_as_a_slow_one, "unavailable", ONE_PAIR),
    CutBug(a_new_leader_puts_all_it_reaches_in_sync, "undurable", IN_TWO_STEPS),
]
