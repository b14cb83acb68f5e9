"""Large responses: work done by the event loop without yielding, in function calls."""

import pytest

from penstock.base.ids import TopicId, show_topic_id
from penstock.base.ports import Put
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import PartitionRecord, TopicRecord
from tests.run_with import run_with
from tests.unit.gateway.http.web import Web, on_web
from tests.unit.slices import Slices

ELSEWHERE = 9
TOPICS = 1_500
GROUPS, QUEUES = 1_000, 100
CALLS_AT_A_STRETCH = 6_000
"""Maximum calls without yielding. A hundred rows take about half; all rows take over 18,000."""


async def fill(web: Web) -> None:
    """Adds topics that another node leads: nothing of them is on this disk."""
    there = PartitionRecord((ELSEWHERE,), ELSEWHERE, (ELSEWHERE,))
    puts = []
    for number in range(1, TOPICS + 1):
        record = TopicRecord(show_topic_id(TopicId(number.to_bytes(16, "big"))), (there,))
        puts.append(Put(store_keys.topic_key(f"many-{number:04}"), store_keys.encode(record)))
    for first in range(0, TOPICS, 100):
        revision = await web.node.store.commit([], puts[first : first + 100])
        assert revision is not None
        await web.node.ctx.reached(revision)


@run_with(on_web)
async def test_wide_topic_is_described_in_steps(web: Web) -> None:
    there = PartitionRecord((ELSEWHERE,), ELSEWHERE, (ELSEWHERE,))
    record = TopicRecord(show_topic_id(TopicId(b"w" * 16)), (there,) * TOPICS)
    revision = await web.node.store.commit(
        [], [Put(store_keys.topic_key("wide"), store_keys.encode(record))]
    )
    assert revision is not None
    await web.node.ctx.reached(revision)
    with Slices() as slices:
        answer = await web.get("/topics/wide")
    assert answer.body.count(b'"isr"') == TOPICS
    assert slices.longest <= CALLS_AT_A_STRETCH


@run_with(on_web)
async def test_groups_and_queues_are_listed_in_steps(web: Web) -> None:
    await web.publish(1)
    for number in range(GROUPS):
        commit = {"group": f"many-{number}", "topic": "t", "partition": 0, "offset": 0}
        assert (await web.post("/offsets/commit", commit)).status == 200
    for number in range(QUEUES):
        assert (await web.get(f"/topics/t/poll?group=many-q{number}&wait_ms=0")).status == 200
    for path in ("/groups", "/queues", "/queues?group=many-q1", "/dlq"):
        with Slices() as slices:
            assert (await web.get(path)).status == 200
        assert slices.longest <= CALLS_AT_A_STRETCH, path


@pytest.mark.parametrize("path", ["/topics", "/metrics"])
@run_with(on_web)
async def test_long_list_is_rendered_in_steps(web: Web, *, path: str) -> None:
    await fill(web)
    gauge = web.state.catalogue.add("penstock_many", "gauge", "Numbers.", ("what",))
    for number in range(TOPICS):
        gauge.counter(str(number)).value = number
    with Slices() as slices:
        answer = await web.get(path)
    assert answer.status == 200
    assert answer.body.count(b"many") >= TOPICS, "the list is complete"
    assert slices.longest <= CALLS_AT_A_STRETCH
