"""Lag in records and in time, where a record, a marker, a hole or nothing is the next to read."""

from penstock.client.admin.lag import Lag, measure_lag
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import Committed
from penstock.client.metadata import TopicPartition
from penstock.wire.control_batches import encode_marker
from penstock.wire.records import Record, encode
from simulation.loop import SimLoop
from tests.run_with import run_with
from tests.unit.client.model import ModelBroker, ModelLog, with_model

NOW_MS = 1_000_000


def place(index: int) -> TopicPartition:
    return TopicPartition("t", index)


def write(log: ModelLog, *stamps: int, value: bytes = b"v") -> None:
    log.append(encode([Record(0, stamp, None, value, ()) for stamp in stamps]))


def by_partition(lags: list[Lag]) -> dict[int, tuple[int | None, int | None]]:
    return {lag.where.partition: (lag.records, lag.age_ms(NOW_MS)) for lag in lags}


@run_with(with_model)
async def test_the_age_is_that_of_the_record_at_the_committed_offset(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    logs = broker.create("t", 5)
    write(logs[0], 1_000, 2_000, 3_000)
    write(logs[1], 5_000)
    write(logs[3], 9_000)
    committed = {place(0): Committed(1), place(1): Committed(1), place(4): Committed(0)}
    lags = await measure_lag(cluster, committed, [place(0), place(3)])
    assert by_partition(lags) == {
        0: (2, NOW_MS - 2_000),
        1: (0, 0),
        3: (None, None),  # Assigned, and nothing committed yet.
        4: (0, 0),
    }


@run_with(with_model)
async def test_reading_goes_on_past_what_is_no_data(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    logs = broker.create("t", 2)
    for log in logs:
        # A client may not write one, so it is put there directly.
        log.batches.append(
            encode_marker(
                committed=True,
                producer_id=7,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=500,
            )
        )
        log.end_offset = 1
    # Too large to come in the fetch that brings the marker.
    write(logs[0], 4_000, value=bytes(100_000))
    committed = {place(0): Committed(0), place(1): Committed(0)}
    lags = await measure_lag(cluster, committed)
    assert by_partition(lags) == {0: (2, NOW_MS - 4_000), 1: (1, None)}


@run_with(with_model)
async def test_what_was_deleted_before_it_was_read_counts_but_the_first_left_gives_the_age(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    (log,) = broker.create("t")
    write(log, 1_000, 2_000)
    write(log, 3_000)
    log.start_offset = 2
    (lag,) = await measure_lag(cluster, {place(0): Committed(0)})
    assert (lag.records, lag.age_ms(NOW_MS), lag.start_offset) == (3, NOW_MS - 3_000, 2)


@run_with(with_model)
async def test_large_batches_in_many_partitions_are_all_reached(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    logs = broker.create("t", 20)
    for index, log in enumerate(logs):
        write(log, 1_000 + index, value=bytes(100_000))
        write(log, 9_000, value=bytes(100_000))
    committed = {place(index): Committed(0) for index in range(20)}
    lags = await measure_lag(cluster, committed)
    assert [lag.first_unread_ms for lag in lags] == [1_000 + index for index in range(20)]


@run_with(with_model)
async def test_a_topic_that_is_gone_and_a_commit_beyond_the_end_have_no_lag(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    broker.create("t")
    gone = TopicPartition("gone", 0)
    lags = await measure_lag(cluster, {gone: Committed(4), place(0): Committed(9)})
    assert [(lag.where, lag.records, lag.end_offset) for lag in lags] == [
        (gone, None, None),
        (place(0), 0, 0),
    ]
