"""Causes of write pressure, and the refusals that producers get."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.storage.write_pressure import (
    SLOW_SECONDS_MAX,
    Full,
    Policy,
    WritePressure,
    slowness,
)


def refusal(pressure: WritePressure, topic: str = "t") -> ErrorCode | None:
    try:
        pressure.check(topic, 0)
    except Refused as refused:
        return refused.code
    return None


def test_pressure_is_off_without_a_cause() -> None:
    pressure = WritePressure()
    assert not pressure.is_on
    pressure.set_disk(None, 0.5)
    assert pressure.is_on
    assert refusal(pressure) is None
    pressure.set_disk(None)
    assert not pressure.is_on


def test_full_disk_refuses_all_writes() -> None:
    pressure = WritePressure()
    pressure.set_disk("full")
    assert refusal(pressure) is ErrorCode.KAFKA_STORAGE_ERROR


def test_full_backlog_refuses_its_producers_by_policy() -> None:
    pressure = WritePressure()
    pressure.set_full_backlogs(
        {("t", 0): Full(Policy.BLOCK, "?"), ("u", 0): Full(Policy.REJECT, "?")}
    )
    assert refusal(pressure, "t") is ErrorCode.KAFKA_STORAGE_ERROR
    assert refusal(pressure, "u") is ErrorCode.POLICY_VIOLATION
    assert refusal(pressure, "v") is None
    pressure.set_full_backlogs({})
    assert not pressure.is_on


@pytest.mark.parametrize(
    ("used", "seconds"), [(94.9, 0.0), (95.0, 0.1), (97.0, 0.5), (99.0, 1.0), (100.0, 1.0)]
)
def test_delay_grows_with_disk_usage(used: float, seconds: float) -> None:
    assert slowness(used, 95, 99) == pytest.approx(seconds * SLOW_SECONDS_MAX)


def test_inverted_watermarks_slow_to_the_maximum() -> None:
    assert slowness(98, 97, 96) == SLOW_SECONDS_MAX
