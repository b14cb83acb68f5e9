"""Salting recommendations for hot keys, and their effect."""

import pytest

from penstock.client.producer.partitioner import partition_for_key
from penstock.jobs.skew import KeyShare, Skew, advise, spread

PARTITIONS = 8


def skewed(hot_records: int, others: int) -> Skew:
    place = partition_for_key(b"hot", PARTITIONS)
    held = [others // PARTITIONS] * PARTITIONS
    held[place] += hot_records
    total = sum(held)
    top = [KeyShare(b"hot", hot_records, hot_records, hot_records / total, place)]
    return Skew("clicks", PARTITIONS, total, 100, held, top=top)


@pytest.mark.parametrize("hot_records", [2_000, 8_000, 50_000])
def test_recommended_salting_balances_partitions(hot_records: int) -> None:
    found = skewed(hot_records, 8_000)
    advise(found)
    assert [one.key for one in found.hot] == [b"hot"]
    assert sum(found.salted) == found.records
    assert found.imbalance_salted < found.imbalance
    assert f"buckets={found.buckets}" in found.code()


def test_balanced_keys_need_no_salting() -> None:
    found = skewed(100, 8_000)
    advise(found)
    assert found.hot == []
    assert found.buckets == 0
    assert found.imbalance < 1.1


def test_single_partition_needs_no_salting() -> None:
    found = Skew("clicks", 1, 10, 1, [10], top=[KeyShare(b"k", 10, 10, 1.0, 0)])
    advise(found)
    assert found.hot == []
    assert found.salted == []


def test_spread_keeps_every_record() -> None:
    hot = {b"a": KeyShare(b"a", 101, 0, 0.5, 1), b"b": KeyShare(b"b", 7, 0, 0.1, 2)}
    held = spread([50, 151, 57, 50], hot, buckets=3)
    assert sum(held) == 308
