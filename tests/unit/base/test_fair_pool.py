"""A bounded pool: no holder takes the share of another, and nothing is lost or made up."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.base.fair_pool import FairPool

HOLDERS = ("User:ann", "User:bob", "127.0.0.1")


def test_one_holder_leaves_capacity_for_others() -> None:
    shares = FairPool(8, 2)
    assert [shares.take("User:ann") for _ in range(4)] == [True, True, False, False]
    assert shares.take("User:bob")
    assert (shares.taken, shares.held("User:ann"), len(shares)) == (3, 2, 2)
    shares.give("User:ann")
    assert shares.take("User:ann")


def test_all_together_are_bounded() -> None:
    shares = FairPool(3, 2)
    assert [shares.take(str(at)) for at in range(5)] == [True] * 3 + [False] * 2
    assert len(shares) == 3


def test_oversized_request_is_granted_eventually() -> None:
    shares = FairPool(8, 2)
    assert shares.take("User:ann", 100)
    assert not shares.take("User:ann", 1)
    assert not shares.take("User:bob", 1)
    shares.give("User:ann", 100)
    assert shares.take("User:bob", 1)


@given(st.lists(st.tuples(st.sampled_from(HOLDERS), st.integers(1, 12)), max_size=60))
def test_held_amounts_match_takes_and_gives(steps: list[tuple[str, int]]) -> None:
    shares, held = FairPool(20, 8), dict.fromkeys(HOLDERS, 0)
    for holder, amount in steps:
        if held[holder] >= amount and amount % 2:
            shares.give(holder, amount)
            held[holder] -= amount
        elif shares.take(holder, amount):
            assert held[holder] == 0 or held[holder] + amount <= 8
            held[holder] += amount
        else:
            assert shares.taken + amount > 20 or held[holder] + amount > 8
        assert {one: shares.held(one) for one in HOLDERS} == held
        assert shares.taken == sum(held.values()) < 20 + 12
