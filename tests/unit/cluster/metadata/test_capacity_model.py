"""The model: more load never needs less, and each resource can be the one that decides."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.metadata.capacity_model import Costs, Load, cpu_of, plan

TARGET = Load(messages_per_s=100_000, message_bytes=1024)


def test_target_load_is_limited_by_disk_space() -> None:
    made = plan(TARGET)
    assert made.why == "disk space"
    stored_gb = 100_000 * 1024 / 1e9 * 86_400 * 7 * 3
    assert made.nodes * 2_000 * 0.75 >= stored_gb
    assert any("only the disks need" in note for note in made.notes)


@pytest.mark.parametrize(
    ("load", "why"),
    [
        (replace(TARGET, disk_gb=1e6), "replication"),
        (replace(TARGET, disk_gb=1e6, disk_mb_per_s=1e4, messages_per_s=3e6), "cpu"),
        (replace(TARGET, disk_gb=1e6, disk_mb_per_s=10), "disk writes"),
        (replace(TARGET, disk_gb=1e6, network_mb_per_s=20), "network"),
    ],
)
def test_scarcest_resource_decides_the_node_count(load: Load, why: str) -> None:
    made = plan(load)
    assert made.why == why
    assert made.nodes >= max(made.wants.values())


def test_larger_cluster_gets_a_spare_node() -> None:
    made = plan(replace(TARGET, disk_gb=1e6, messages_per_s=3e6))
    assert made.nodes == max(made.wants.values()) + 1


def test_consumer_count_follows_from_the_time_per_message() -> None:
    made = plan(replace(TARGET, consume_ms=7.0))
    assert made.consumers == 1_000
    assert made.partitions >= made.consumers
    assert made.partitions % made.nodes == 0


def test_cpu_counts_bytes_in_every_role_and_requests() -> None:
    costs = Costs(produce_s_per_gb=1, serve_s_per_gb=2, copy_s_per_gb=3, request_us=10)
    load = Load(messages_per_s=1e6, message_bytes=1000, replication=3, groups=2, batch_bytes=1e4)
    assert cpu_of(load, costs) == pytest.approx(1 + 2 * (2 + 3) + 2 * 2 + 1e5 * 10e-6)


def test_notes_name_what_was_not_measured() -> None:
    made = plan(replace(TARGET, disk_gb=1e6, consume_ms=100.0, replication=2, batch_bytes=100))
    said = " ".join(made.notes)
    for word in ("extrapolated", "exceed the measured", "min.insync.replicas", "small batches"):
        assert word in said


loads = st.builds(
    Load,
    messages_per_s=st.floats(1, 1e7),
    message_bytes=st.floats(1, 1e6),
    retention_days=st.floats(0.01, 400),
    replication=st.integers(1, 5),
    groups=st.integers(0, 20),
)


@given(loads, st.floats(1, 10))
def test_more_load_never_needs_fewer_nodes_or_partitions(load: Load, factor: float) -> None:
    small = plan(load)
    large = plan(replace(load, messages_per_s=load.messages_per_s * factor))
    assert large.nodes >= small.nodes >= load.replication
    assert large.partitions >= large.nodes
