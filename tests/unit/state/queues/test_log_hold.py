"""Retention hold: delayed records are kept, and for the retention time after they are due."""

import random

from penstock.state.queues.delayed_offsets import Delays
from penstock.state.queues.log_hold import STEP_MS, STEPS_MAX, Holding


def test_what_came_due_is_kept_as_long_as_retention_keeps_anything() -> None:
    holding = Holding()
    holding.came_due(7, 1_000)
    holding.came_due(9, 2_000)
    holding.came_due(3, 10 * STEP_MS)
    assert holding.first(10 * STEP_MS, 5 * STEP_MS) == 3
    assert holding.first(17 * STEP_MS, 5 * STEP_MS) is None
    holding.came_due(8, 20 * STEP_MS)
    assert holding.first(99 * STEP_MS, -1) == 8


def test_it_is_bounded_and_never_too_early() -> None:
    holding = Holding()
    for step in range(2 * STEPS_MAX):
        holding.came_due(1_000 - step, step * STEP_MS)
        assert len(holding._came) <= STEPS_MAX
    now_ms = 2 * STEPS_MAX * STEP_MS
    assert holding.first(now_ms, now_ms) == 1_000 - 2 * STEPS_MAX + 1


def test_the_first_of_those_that_wait_is_known_and_what_is_gone_forgotten() -> None:
    rng = random.Random(6)
    delays = Delays()
    assert delays.first_offset() is None
    waiting = {offset: rng.randint(1, 200_000_000) for offset in rng.sample(range(9_000), 3_000)}
    for offset, due_ms in waiting.items():
        delays.add(due_ms, offset, offset % 10)
    for now_ms in (50_000_000, 50_030_000, 150_000_000):
        for offset, _ in delays.due(now_ms):
            assert waiting.pop(offset) <= now_ms
        assert delays.first_offset() == min(waiting)
        below = sorted(waiting)[len(waiting) // 3]
        delays.forget_below(below)
        waiting = {offset: due_ms for offset, due_ms in waiting.items() if offset >= below}
        assert len(delays) == len(waiting)
        assert delays.first_offset() == below
    assert sorted(offset for offset, _ in delays.due(1 << 40)) == sorted(waiting)
