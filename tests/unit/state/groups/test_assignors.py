"""Uniform and range assignors."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.groups.assignors import ASSIGNORS, Spec, assign_uniform

Slots = set[tuple[bytes, int]]


def spec(
    subscriptions: dict[str, str],
    partitions: dict[str, int],
    previous: dict[str, Slots] | None = None,
) -> Spec:
    """Topics are single characters."""
    exists = {name.encode() for name in partitions}
    return Spec(
        {
            member: frozenset(t.encode() for t in topics) & exists
            for member, topics in subscriptions.items()
        },
        {name.encode(): count for name, count in sorted(partitions.items())},
        previous or {},
        {},
    )


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    partitions = draw(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 12)))
    members = draw(st.lists(st.sampled_from("mnopqrs"), unique=True, min_size=1))
    wanted = {m: draw(st.text("abcd", max_size=4)) for m in members}
    slots = st.sets(st.tuples(st.sampled_from([b"a", b"b", b"z"]), st.integers(0, 15)))
    previous = draw(st.dictionaries(st.sampled_from("mnxy"), slots))
    return spec(wanted, partitions, previous)


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(wanted=specs())
@settings(max_examples=200, deadline=None)
def test_every_partition_goes_to_exactly_one_subscriber(name: str, wanted: Spec) -> None:
    given_to = ASSIGNORS[name](wanted)
    counted = Counter(slot for slots in given_to.values() for slot in slots)
    subscribed = frozenset().union(*wanted.subscriptions.values())
    expected = {(t, p) for t in subscribed for p in range(wanted.partitions[t])}
    assert set(counted) == expected
    assert all(count == 1 for count in counted.values())
    for member, slots in given_to.items():
        assert all(topic in wanted.subscriptions[member] for topic, _ in slots)


@given(wanted=specs())
@settings(max_examples=200, deadline=None)
def test_uniform_leaves_no_move_that_would_balance_better(wanted: Spec) -> None:
    given_to = assign_uniform(wanted)
    for giver, slots in given_to.items():
        for topic, _ in slots:
            for taker in wanted.subscriptions:
                if topic in wanted.subscriptions[taker]:
                    assert len(slots) - len(given_to[taker]) <= 1, (giver, taker)


@given(wanted=specs())
@settings(max_examples=100, deadline=None)
def test_uniform_changes_nothing_when_nothing_changed(wanted: Spec) -> None:
    first = assign_uniform(wanted)
    again = Spec(wanted.subscriptions, wanted.partitions, first, {})
    assert assign_uniform(again) == first


@given(st.integers(1, 60), st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_joining_member_moves_no_more_than_its_share(count: int, size: int) -> None:
    members = {f"m{n:02}": "a" for n in range(size)}
    before = assign_uniform(spec(members, {"a": count}))
    after = assign_uniform(spec({**members, "new": "a"}, {"a": count}, before))
    moved = sum(len(after[m] - before[m]) for m in members) + len(after["new"])
    assert moved <= count // (size + 1) + 1
    assert all(after[m] <= before[m] for m in members)


@given(st.integers(1, 60), st.integers(2, 12))
@settings(max_examples=100, deadline=None)
def test_only_partitions_of_a_leaving_member_move(count: int, size: int) -> None:
    members = {f"m{n:02}": "a" for n in range(size)}
    before = assign_uniform(spec(members, {"a": count}))
    del members["m00"]
    after = assign_uniform(spec(members, {"a": count}, before))
    assert all(before[m] <= after[m] for m in members)


def test_range_keeps_copartitioned_topics_together() -> None:
    given_to = ASSIGNORS["range"](spec({"m": "ab", "n": "ab"}, {"a": 3, "b": 3}))
    assert given_to["m"] == {(b"a", 0), (b"a", 1), (b"b", 0), (b"b", 1)}
    assert given_to["n"] == {(b"a", 2), (b"b", 2)}


def test_static_members_come_first_in_order() -> None:
    wanted = spec({"m": "a", "z": "a"}, {"a": 1})
    static = Spec(wanted.subscriptions, wanted.partitions, {}, {"z": "i1", "m": None})
    assert ASSIGNORS["range"](static) == {"z": {(b"a", 0)}, "m": set()}
