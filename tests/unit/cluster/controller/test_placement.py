"""Replica placement: spread, on different racks, never twice on one broker."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Change
from penstock.cluster.controller.placement import (
    CORDONED,
    alternate_racks,
    initial_record,
    open_brokers,
    place,
)
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import EMPTY
from penstock.cluster.metadata.store_keys import BrokerRecord, ConfigsRecord, PartitionRecord


def brokers(racks: list[str | None]) -> dict[int, BrokerRecord]:
    return {node: BrokerRecord(node, "h", 1, rack=rack) for node, rack in enumerate(racks)}


def test_one_broker_holds_all_replicas() -> None:
    assert place(brokers([None]), 3, 1) == (PartitionRecord(replicas=(0,), leader=0, isr=(0,)),) * 3


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(Refused) as refused:
        place(brokers([None, None]), 1, 3)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "only 2 broker(s)" in str(refused.value)


def test_draining_broker_gets_no_new_replicas() -> None:
    cluster = brokers([None, None])
    cluster[0] = BrokerRecord(0, "h", 1, is_draining=True)
    assert {record.leader for record in place(cluster, 4, 1)} == {1}


def test_neighbours_in_the_ring_are_in_different_racks() -> None:
    ring = alternate_racks(brokers(["a", "a", "b", "b", "c", "c"]))
    assert ring == [0, 2, 4, 1, 3, 5]


@given(
    st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=9),
    st.integers(1, 40),
    st.integers(0, 2**32),
    st.data(),
)
def test_placement_spreads_replicas_and_leaders_evenly(
    racks: list[str | None], count: int, start: int, data: st.DataObject
) -> None:
    cluster = brokers(racks)
    factor = data.draw(st.integers(1, len(racks)))
    placed = place(cluster, count, factor, start=start)
    assert len(placed) == count
    for record in placed:
        assert len(set(record.replicas)) == factor
        assert record.leader == record.replicas[0]
        assert record.isr == record.replicas
    leaders = Counter(record.leader for record in placed)
    most, least = max(leaders.values()), min(leaders.get(node, 0) for node in cluster)
    assert most - least <= 1


def test_replicas_are_in_different_racks_when_racks_are_even() -> None:
    cluster = brokers(["a", "b", "c"] * 3)
    for record in place(cluster, 9, 3):
        assert len({cluster[node].rack for node in record.replicas}) == 3


def test_added_partitions_continue_the_placement_of_the_topic() -> None:
    cluster = brokers([None] * 3)
    whole = place(cluster, 6, 2, start=1)
    assert place(cluster, 2, 2, first=4, start=1) == whole[4:]


def test_only_live_replicas_are_in_sync_initially() -> None:
    record = initial_record([3, 1, 2], live=[1, 2])
    assert (record.leader, record.isr, record.replicas) == (1, (1, 2), (3, 1, 2))


def test_new_replicas_avoid_draining_and_cordoned_brokers() -> None:
    changes = [
        Change(store_keys.broker_key(1), store_keys.encode(BrokerRecord(1, "h", 1)), 1),
        Change(
            store_keys.broker_key(2),
            store_keys.encode(BrokerRecord(2, "h", 2, is_draining=True)),
            1,
        ),
        Change(store_keys.broker_key(3), store_keys.encode(BrokerRecord(3, "h", 3)), 1),
        Change(
            store_keys.broker_configs_key(3), store_keys.encode(ConfigsRecord({CORDONED: "*"})), 1
        ),
        Change(store_keys.broker_key(4), store_keys.encode(BrokerRecord(4, "h", 4)), 1),
        Change(
            store_keys.broker_configs_key(4), store_keys.encode(ConfigsRecord({CORDONED: ""})), 1
        ),
    ]
    image = EMPTY.apply(changes)
    assert sorted(open_brokers(image)) == [1, 4]
    everywhere = Change(
        store_keys.CLUSTER_CONFIGS, store_keys.encode(ConfigsRecord({CORDONED: "*"})), 2
    )
    assert sorted(open_brokers(image.apply([everywhere]))) == [4]
