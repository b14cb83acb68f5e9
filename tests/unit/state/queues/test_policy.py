"""Backoff: doubles up to its cap, has jitter, and is deterministic per record."""

from penstock.state.queues.policy import QueuePolicy

POLICY = QueuePolicy(backoff_base_ms=100, backoff_cap_ms=1_000)


def test_backoff_doubles_up_to_the_cap() -> None:
    for count, grown_ms in ((1, 100), (2, 200), (3, 400), (4, 800), (5, 1_000), (60, 1_000)):
        for offset in range(50):
            assert grown_ms <= POLICY.backoff_ms(offset, count) < grown_ms + 100


def test_records_that_failed_together_do_not_come_back_together() -> None:
    assert len({POLICY.backoff_ms(offset, 1) for offset in range(100)}) > 50


def test_same_record_waits_the_same() -> None:
    assert POLICY.backoff_ms(7, 2) == POLICY.backoff_ms(7, 2)


def test_backoff_is_zero_without_a_base() -> None:
    assert QueuePolicy(backoff_base_ms=0).backoff_ms(5, 9) == 0
