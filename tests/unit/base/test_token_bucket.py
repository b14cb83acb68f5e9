"""Token bucket: what holds over time, and what may be taken at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.token_bucket import TokenBucket


@pytest.mark.parametrize("amount", [1.0, 70.0, 450.0])
def test_rate_holds_within_a_tenth_over_thirty_seconds(amount: float) -> None:
    """A client that waits for its throttle time gets its quota: neither more nor much less."""
    rate, now_s, taken = 100.0, 0.0, 0.0
    bucket = TokenBucket(rate, rate)
    while now_s < 30:
        taken += amount
        now_s += bucket.take(amount, now_s)
    assert taken / now_s == pytest.approx(rate, rel=0.1)


def test_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    bucket = TokenBucket(10, burst=3)
    waits = [bucket.take(1, 0.0) for _ in range(6)]
    assert waits == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3])


def test_client_that_does_not_wait_owes_all_the_more() -> None:
    bucket = TokenBucket(10, burst=10)
    assert [bucket.take(10, 0.0) for _ in range(4)] == [0, 1, 2, 3]
    assert bucket.wait_s(2.5) == pytest.approx(0.5)
    assert bucket.wait_s(2.5, amount=10) == pytest.approx(1.5)
    assert bucket.wait_s(3.0) == 0


def test_unused_tokens_accumulate_up_to_the_burst() -> None:
    bucket = TokenBucket(10, burst=5)
    bucket.take(5, 0.0)
    assert bucket.available(0.3) == pytest.approx(3)
    assert bucket.available(500.0) == pytest.approx(5)
    assert bucket.take(15, 500.0) == pytest.approx(1.0)


def test_returned_tokens_are_available_up_to_the_burst() -> None:
    bucket = TokenBucket(10, burst=5)
    bucket.take(7, 0.0)
    bucket.give_back(3)
    assert bucket.available(0.0) == pytest.approx(1)
    bucket.give_back(30)
    assert bucket.available(0.0) == pytest.approx(5)


def test_more_than_a_burst_at_once_waits_until_so_many_would_have_come() -> None:
    assert TokenBucket(10, burst=2).take(12, 0.0) == pytest.approx(1.0)


def test_new_rate_holds_at_once() -> None:
    bucket = TokenBucket(1_000_000, 1_000_000)
    bucket.available(0.0)
    bucket.adjust(10, 10)
    assert bucket.take(20, 0.0) == pytest.approx(1.0)


def test_clock_that_goes_back_brings_nothing_and_takes_nothing() -> None:
    bucket = TokenBucket(10, burst=1)
    bucket.take(1, 10.0)
    assert bucket.available(5.0) == pytest.approx(0)
    assert bucket.available(10.0) == pytest.approx(0)
    assert bucket.available(10.1) == pytest.approx(1)


def test_rate_of_nothing_never_brings_anything() -> None:
    bucket = TokenBucket(0, 0)
    assert bucket.wait_s(5.0) == 0
    assert bucket.take(1, 5.0) == float("inf")
    assert bucket.wait_s(1e6) == float("inf")


@given(
    rate=st.floats(0.5, 1000),
    burst=st.integers(1, 50),
    asks=st.lists(st.tuples(st.floats(0, 5), st.integers(1, 10)), max_size=60),
)
def test_any_interval_passes_at_most_rate_and_burst(
    rate: float, burst: int, asks: list[tuple[float, int]]
) -> None:
    bucket, now_s = TokenBucket(rate, burst), 0.0
    goes: list[tuple[float, int]] = []
    for pause_s, count in asks:
        now_s += pause_s
        goes.append((now_s + bucket.take(count, now_s), count))
    assert goes == sorted(goes, key=lambda go: go[0]), "callers go in the order they asked in"
    for first in range(len(goes)):
        passed = 0
        for at_s, count in goes[first:]:
            passed += count
            # The first of them may have been waited for: its own tokens came before.
            allowed = max(burst, goes[first][1]) + rate * (at_s - goes[first][0])
            assert passed <= allowed * (1 + 1e-9) + 1e-6
