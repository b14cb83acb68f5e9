"""Key salting and the partitioner for hot keys."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.app.salting import Salting, merge, salted, spread_hot_keys, unsalt
from penstock.client.producer.partitioner import partition_for_key


@given(key=st.binary(max_size=50), bucket=st.integers(0, 255))
def test_salt_can_always_be_removed(key: bytes, bucket: int) -> None:
    assert unsalt(salted(key, bucket)) == key


@pytest.mark.parametrize("key", [b"", b"plain", b"#", b"#0", b"x#zz", b"x#0", b"x-00"])
def test_key_without_salt_is_rejected(key: bytes) -> None:
    with pytest.raises(ValueError, match="salt"):
        unsalt(key)


def test_hot_key_spreads_and_other_keys_stay_in_one_partition() -> None:
    salting = Salting(hot=[b"big"], buckets=16)
    hot = Counter(partition_for_key(salting.salt(b"big"), 12) for _ in range(1_600))
    assert len(hot) >= 7
    assert {salting.salt(b"small") for _ in range(100)} == {b"small#00"}
    assert set(hot) == set(salting.partitions(b"big", 12))
    assert len(salting.partitions(b"small", 12)) == 1


def test_salts_rotate_evenly() -> None:
    salting = Salting(hot=lambda key: key.startswith(b"vip-"), buckets=8)
    counts = Counter(salting.salt(b"vip-1") for _ in range(800))
    assert set(counts.values()) == {100}
    assert sorted(counts) == salting.salted_keys(b"vip-1")


def test_salt_by_value_is_deterministic() -> None:
    keys = {Salting(hot=[b"big"], buckets=8).salt(b"big", by="order-17") for _ in range(50)}
    assert len(keys) == 1
    one = Salting(hot=[b"big"], buckets=8)
    spread = Counter(one.salt(b"big", by=f"order-{number}") for number in range(8_000))
    assert len(spread) == 8
    assert max(spread.values()) < 1_300


def test_merge_combines_partial_results_by_key() -> None:
    salting = Salting(hot=[b"big"], buckets=4)
    partial: Counter[bytes] = Counter()
    for number in range(1_000):
        partial[salting.salt(b"big" if number % 10 else b"small")] += 1
    assert len(partial) == 5
    assert merge(partial, lambda one, other: one + other) == {b"big": 900, b"small": 100}
    assert merge(iter(partial.items()), max)[b"big"] == 225


def test_spread_partitioner_rotates_hot_keys_only() -> None:
    choose = spread_hot_keys([b"big"], buckets=3)
    chosen = [choose("t", b"big", 12) for _ in range(6)]
    assert chosen[:3] == chosen[3:]
    assert len(set(chosen)) == 3
    assert all(partition is not None and 0 <= partition < 12 for partition in chosen)
    assert choose("t", b"small", 12) is None
    assert choose("t", None, 12) is None
    assert choose("t", b"big", 1) == 0


@pytest.mark.parametrize("buckets", [0, -1, 257])
def test_invalid_bucket_count_is_rejected(buckets: int) -> None:
    with pytest.raises(ValueError, match="buckets"):
        Salting(hot=[], buckets=buckets)
    with pytest.raises(ValueError, match="buckets"):
        spread_hot_keys([], buckets)
