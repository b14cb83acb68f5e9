"""Queues asked about and changed over the wire."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.admin.queues import (
    RUNS_AT_ONCE,
    QueueName,
    finish,
    inspect,
    list_queues,
    make_available,
    unfinished,
)
from penstock.client.dead_letters.open_messages import DEAD_LETTERS
from penstock.client.metadata import TopicPartition
from tests.run_with import run_with
from tests.unit.client.on_cluster import Desk, on_cluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@run_with(on_cluster)
async def test_queue_is_listed_once_a_group_has_a_position(desk: Desk) -> None:
    await desk.admin.create_topic("t", 2, 1)
    await desk.produce("t", [b"a", b"b"], partition=1)
    assert await list_queues(desk.cluster) == {}
    assert await finish(desk.cluster, DEAD_LETTERS, {T1: [(0, 0)]}) == 1
    assert await list_queues(desk.cluster) == {QueueName("t", DEAD_LETTERS): [1]}
    assert await list_queues(desk.cluster, ["other"]) == {}
    reports = await inspect(desk.cluster, DEAD_LETTERS, [T0, T1])
    assert [report.unfinished for report in reports.values()] == [0, 1]
    assert await make_available(desk.cluster, DEAD_LETTERS, {T1: [(0, 1)]}) == 1


@run_with(on_cluster)
async def test_unfinished_ranges_are_paged(desk: Desk) -> None:
    count = 2 * RUNS_AT_ONCE + 400
    await desk.admin.create_topic("t", 1, 1)
    await desk.produce("t", [b"x"] * (count + 1))
    odd = [(offset, offset) for offset in range(1, count, 2)]
    assert await finish(desk.cluster, DEAD_LETTERS, {T0: odd}) == len(odd)
    found = [run.first async for run in unfinished(desk.cluster, DEAD_LETTERS, T0)]
    assert found == list(range(0, count + 1, 2))


@run_with(on_cluster)
async def test_invalid_queue_changes_are_refused(desk: Desk) -> None:
    await desk.admin.create_topic("t", 1, 1)
    await desk.produce("t", [b"a"])
    with pytest.raises(Refused) as refused:
        await finish(desk.cluster, "unknown", {T0: [(0, 0)]})
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(Refused) as refused:
        await finish(desk.cluster, DEAD_LETTERS, {T0: [(0, 5)]})
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
