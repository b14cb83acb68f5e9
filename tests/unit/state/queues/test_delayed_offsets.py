"""Delayed offsets: none early, in order, in a few bytes each."""

import random
import tracemalloc
from array import array

from penstock.state.queues.delayed_offsets import Delays


def test_nothing_comes_before_its_time_and_everything_comes_then() -> None:
    delays = Delays()
    for due_ms, offset in ((5_000, 1), (1_500, 2), (1_499, 3)):
        delays.add(due_ms, offset)
    assert delays.due(1_498) == []
    assert delays.due(1_500) == [(3, 0), (2, 0)]
    assert delays.due(4_999) == []
    assert delays.due(5_000) == [(1, 0)]
    assert len(delays) == 0
    assert delays.next_ms() is None


def test_a_tag_travels_along() -> None:
    delays = Delays()
    delays.add(10, 7, 9)
    assert delays.due(10) == [(7, 9)]


def test_what_is_added_to_the_present_bucket_is_not_lost() -> None:
    delays = Delays()
    delays.add(1_900, 1)
    assert delays.due(1_100) == []
    delays.add(1_200, 2)
    delays.add(1_000, 3)
    assert delays.due(1_200) == [(3, 0), (2, 0)]
    assert delays.due(1_900) == [(1, 0)]


def test_the_next_look_is_never_too_late() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        delays, left = Delays(), {}
        now_ms = 0
        for offset in range(300):
            due_ms = now_ms + rng.randrange(20_000)
            delays.add(due_ms, offset)
            left[offset] = due_ms
            if rng.random() < 0.3:
                next_ms = delays.next_ms()
                assert next_ms is not None
                assert next_ms <= min(left.values())
                now_ms = max(now_ms, next_ms)
                found = [offset for offset, _ in delays.due(now_ms)]
                assert sorted(found) == sorted(o for o, due in left.items() if due <= now_ms)
                for offset in found:
                    del left[offset]
        assert len(delays) == len(left)


def test_however_far_ahead_they_take_less_than_forty_bytes_each() -> None:
    rng = random.Random(1)
    count = 100_000
    for span_ms in (60_000, 86_400_000):
        tracemalloc.start()
        delays = Delays()
        for offset in range(count):
            delays.add(rng.randrange(span_ms), offset)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(delays) == count
        assert used / count < 40, span_ms


def test_those_of_one_moment_are_no_more_when_it_comes_near() -> None:
    count = 20_000
    tracemalloc.start()
    delays = Delays()
    for offset in range(count):
        delays.add(100_000 + offset % 900, offset)
    assert delays.due(99_999) == []
    assert len(delays.due(100_000)) == len(range(0, count, 900))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / count < 64
    assert len(delays.due(100_900)) == count - len(range(0, count, 900))


def test_neighbours_come_as_if_they_had_been_added_one_by_one() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        together, singly = Delays(), Delays()
        now_ms = first = 0
        for _ in range(30):
            times = array("q", [now_ms + rng.randrange(-500, 60_000) for _ in range(50)])
            together.add_run(first, times)
            for offset, due_ms in enumerate(times, first):
                singly.add(due_ms, offset)
            first += len(times)
            now_ms += rng.randrange(5_000)
            assert together.due(now_ms) == singly.due(now_ms)
            assert together.next_ms() == singly.next_ms()
            assert len(together) == len(singly)
