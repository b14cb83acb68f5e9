"""Plans for emptying, filling and resizing."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.controller import rebalance_plan
from penstock.cluster.controller.placement import place
from penstock.cluster.controller.rebalance_plan import Layout, Racks
from penstock.cluster.metadata.store_keys import BrokerRecord


def layout_of(
    count: int, brokers: int, factor: int, racks: int = 0
) -> dict[tuple[str, int], tuple[int, ...]]:
    born = place(
        {
            node: BrokerRecord(node, "h", node, rack=f"r{node % racks}" if racks else None)
            for node in range(1, brokers + 1)
        },
        count,
        factor,
    )
    return {("t", index): record.replicas for index, record in enumerate(born)}


def loads(layout: "Layout[tuple[str, int]]") -> Counter[int]:
    return Counter(node for replicas in layout.values() for node in replicas)


def test_evacuated_node_is_replaced_at_its_position() -> None:
    layout = {("t", 0): (1, 2, 3), ("t", 1): (2, 3, 4), ("u", 0): (3, 1, 4)}
    plan = rebalance_plan.evacuate(layout, dict.fromkeys((1, 2, 3, 4, 5)), {3})
    assert set(plan) == set(layout)
    for place_, replicas in plan.items():
        before = layout[place_]
        assert [n for n in replicas if n in before] == [n for n in before if n != 3]
        assert replicas.index(next(n for n in replicas if n not in before)) == before.index(3)


def test_replica_moves_to_an_unused_rack() -> None:
    racks = {1: "a", 2: "b", 3: "c", 4: "b", 5: "c"}
    plan = rebalance_plan.evacuate({("t", 0): (1, 2, 3)}, racks, {3})
    assert plan == {("t", 0): (1, 2, 5)}


def test_evacuation_without_enough_brokers_is_refused() -> None:
    with pytest.raises(Refused, match="only 2 broker") as refused:
        rebalance_plan.evacuate({("t", 0): (1, 2, 3)}, dict.fromkeys((1, 2, 3)), {3})
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_new_nodes_get_their_share_and_little_else_moves() -> None:
    layout = layout_of(300, 3, 3)
    plan = rebalance_plan.spread(layout, dict.fromkeys((1, 2, 3, 4, 5)))
    after = {**layout, **plan}
    counts = loads(after)
    assert max(counts.values()) - min(counts.values()) <= 1
    first = Counter(replicas[0] for replicas in after.values())
    assert max(first.values()) - min(first.values()) <= 2
    moved = sum(node not in layout[key] for key in after for node in after[key])
    assert moved <= counts[4] + counts[5]


def test_balanced_layout_is_unchanged() -> None:
    layout = layout_of(30, 3, 2)
    assert rebalance_plan.spread(layout, dict.fromkeys((1, 2, 3))) == {}


def test_leaders_are_spread_without_moving_data() -> None:
    layout = {("t", index): (1, 2, 3) for index in range(9)}
    plan = rebalance_plan.spread(layout, dict.fromkeys((1, 2, 3)))
    after = {**layout, **plan}
    assert all(set(replicas) == {1, 2, 3} for replicas in after.values())
    assert Counter(replicas[0] for replicas in after.values()) == {1: 3, 2: 3, 3: 3}


def test_resize_adds_on_the_best_nodes_and_removes_from_the_end() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    plan = rebalance_plan.resize({("t", 0): (1,), ("t", 1): (3,)}, racks, 2)
    assert plan == {("t", 0): (1, 3), ("t", 1): (3, 2)}
    assert rebalance_plan.resize({("t", 0): (1, 2, 3)}, racks, 1) == {("t", 0): (1,)}
    with pytest.raises(Refused):
        rebalance_plan.resize({("t", 0): (1,)}, racks, 4)


@settings(max_examples=100, deadline=None)
@given(
    count=st.integers(1, 40),
    brokers=st.integers(3, 6),
    factor=st.integers(1, 3),
    racks=st.integers(0, 3),
    gone=st.integers(1, 6),
)
def test_plans_keep_factors_and_racks(
    count: int, brokers: int, factor: int, racks: int, gone: int
) -> None:
    layout = layout_of(count, brokers, factor, racks)
    where: Racks = {node: f"r{node % racks}" if racks else None for node in range(1, brokers + 2)}
    for plan in (
        rebalance_plan.spread(layout, where),
        rebalance_plan.evacuate(layout, where, {gone}),
    ):
        for key, replicas in plan.items():
            assert len(set(replicas)) == len(replicas) == factor
            assert replicas != layout[key]
            assert set(replicas) <= set(where)
    assert all(
        gone not in replicas for replicas in rebalance_plan.evacuate(layout, where, {gone}).values()
    )
    after = {**layout, **rebalance_plan.spread(layout, where)}
    for key, replicas in after.items():
        used = len({where[node] for node in replicas})
        assert used >= len({where[node] for node in layout[key]})
