"""Buckets: what holds over time, and what one may take at once."""

import pytest

from penstock.security.token_bucket import SECONDS_MAX, Bucket


@pytest.mark.parametrize("helping", [1.0, 70.0, 450.0])
def test_a_rate_holds_within_a_tenth_over_thirty_seconds(helping: float) -> None:
    """Whoever waits as it is told gets what it may have: neither more nor much less."""
    rate, now_s, taken = 100.0, 0.0, 0.0
    bucket = Bucket(rate, 1.0, now_s)
    while now_s < 30:
        taken += helping
        now_s += bucket.take(helping, rate, 1.0, now_s)
    assert taken / now_s == pytest.approx(rate, rel=0.1)


def test_one_who_does_not_wait_owes_all_the_more() -> None:
    bucket = Bucket(10, 1.0, 0.0)
    waits = [bucket.take(10, 10, 1.0, 0.0) for _ in range(4)]
    assert waits == [0, 1, 2, 3]
    assert bucket.wait_s(10, 1.0, 2.5) == pytest.approx(0.5)
    assert bucket.wait_s(10, 1.0, 3.0) == 0


def test_silence_saves_up_one_bucket_and_no_more() -> None:
    bucket = Bucket(10, 1.0, 0.0)
    assert bucket.take(10, 10, 1.0, 0.0) == 0
    assert bucket.take(20, 10, 1.0, 500.0) == pytest.approx(1.0)


def test_a_new_rate_holds_at_once() -> None:
    bucket = Bucket(1_000_000, 1.0, 0.0)
    assert bucket.take(20, 10, 1.0, 0.0) == pytest.approx(1.0)


def test_a_clock_that_stands_still_or_a_rate_of_nothing_breaks_nothing() -> None:
    bucket = Bucket(0, 1.0, 5.0)
    assert bucket.take(1, 0, 1.0, 4.0) == SECONDS_MAX
