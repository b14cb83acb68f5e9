"""Start and end of a read, resolved to the offset of every partition."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.cluster import Cluster
from penstock.client.list_offsets import EARLIEST, LATEST
from penstock.client.metadata import TopicPartition
from penstock.spark.option_values import OptionError
from penstock.spark.settings import read_settings
from penstock.spark.source.start_and_end import ReadPosition, resolve
from penstock.spark.topics import partitions_to_read
from penstock.wire.records import Record, encode
from simulation.loop import SimLoop
from tests.run_with import run_with
from tests.unit.client.model import ModelBroker, with_model

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def ask(
    position: ReadPosition, check: Callable[[dict[TopicPartition, int]], object], **more: Any
) -> None:
    """Two partitions of ten records with timestamps 100, 110, ...; the second starts at 4."""

    async def scenario(loop: SimLoop, broker: ModelBroker, cluster: Cluster) -> None:
        for log in broker.create("t", 2):
            log.append(encode([Record(0, 100 + 10 * n, None, b"x") for n in range(10)]))
        broker.logs["t"][1].start_offset = 4
        await cluster.topic("t")
        check(await resolve(cluster, position, [T0, T1], isolation_level=0, **more))

    with_model(scenario)


def same(expected: dict[TopicPartition, int]) -> Callable[[dict[TopicPartition, int]], None]:
    def check(found: dict[TopicPartition, int]) -> None:
        assert found == expected

    return check


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (ReadPosition("o", everywhere=EARLIEST), {T0: 0, T1: 4}),
        (ReadPosition("o", everywhere=LATEST), {T0: 10, T1: 10}),
        (ReadPosition("o", offsets={"t": {0: 3, 1: -1}}), {T0: 3, T1: 10}),
        (ReadPosition("o", offsets={"t": {0: -2, 1: -2}}), {T0: 0, T1: 4}),
        (ReadPosition("o", offsets={"t": {0: 3}}), {T0: 3, T1: 4}),
        (ReadPosition("o", offsets={"t": {1: 7}}, is_end=True), {T0: 10, T1: 7}),
        (ReadPosition("o", timestamps_ms={"t": {0: 120}}), {T0: 2, T1: 4}),
        (ReadPosition("o", timestamps_ms={"t": {0: 120}}, is_end=True), {T0: 2, T1: 10}),
        (ReadPosition("o", timestamp_ms=145), {T0: 5, T1: 5}),
        (ReadPosition("o", timestamps_ms={"t": {0: 0, 1: 120}}), {T0: 0, T1: 2}),
        (ReadPosition("o", timestamp_ms=9_999, or_latest=True), {T0: 10, T1: 10}),
    ],
)
def test_position_resolves_to_an_offset_per_partition(
    position: ReadPosition, expected: dict[TopicPartition, int]
) -> None:
    ask(position, same(expected))


@pytest.mark.parametrize(
    ("position", "named"),
    [
        (ReadPosition("o", offsets={"t": {0: 3, 1: 1, 2: 1}}), r"t\[2\]"),
        (ReadPosition("o", timestamp_ms=9_999), "9999"),
    ],
)
def test_position_outside_the_read_is_refused(position: ReadPosition, named: str) -> None:
    with pytest.raises(OptionError, match=named):
        ask(position, same({}))


@run_with(with_model)
async def test_pattern_matches_whole_topic_names(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    for name in ("orders", "orders-eu", "old-orders"):
        broker.create(name)
    options = {"brokers": "b:1", "subscribePattern": "orders.*"}
    places = await partitions_to_read(cluster, read_settings(options, is_streaming=True))
    assert places == [TopicPartition("orders", 0), TopicPartition("orders-eu", 0)]


@run_with(with_model)
async def test_invalid_pattern_is_refused(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    options = {"brokers": "b:1", "subscribePattern": "orders["}
    with pytest.raises(OptionError, match="'subscribePattern'"):
        await partitions_to_read(cluster, read_settings(options, is_streaming=True))
