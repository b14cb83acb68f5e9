"""Keys go where the Java client sends them; records without key stick, then move."""

import pytest

from penstock.client.producer.partitioner import StickyChoice, partition_for_key
from penstock.wire.rows import murmur2
from simulation.random import SimRandom

# org.apache.kafka.common.utils.UtilsTest, as signed 32-bit numbers.
JAVA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), JAVA_VECTORS.items())
def test_murmur2_equals_that_of_java(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_key_maps_to_one_existing_partition() -> None:
    assert partition_for_key(b"21", 1) == 0
    places = {partition_for_key(str(n).encode(), 7) for n in range(200)}
    assert places == set(range(7))


def test_every_tail_length_is_hashed() -> None:
    assert len({murmur2(b"x" * n) for n in range(9)}) == 9


def test_sticky_partition_stays_until_it_is_moved() -> None:
    choice = StickyChoice(SimRandom(1), [0, 1, 2])
    first = choice.partition
    assert choice.partition == first
    for _ in range(20):
        before = choice.partition
        choice.move()
        assert choice.partition != before
        assert choice.partition in (0, 1, 2)


def test_partition_without_a_leader_is_not_chosen() -> None:
    choice = StickyChoice(SimRandom(1), [0, 1, 2])
    gone = choice.partition
    choice.set_candidates([p for p in (0, 1, 2) if p != gone])
    assert choice.partition != gone


def test_single_partition_can_be_chosen() -> None:
    choice = StickyChoice(SimRandom(1), [4])
    choice.move()
    assert choice.partition == 4
