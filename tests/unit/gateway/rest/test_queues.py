"""Queues over HTTP: list and message counts."""

import asyncio

from tests.run_with import run_with
from tests.unit.gateway.http.web import Web, on_web


@run_with(on_web)
async def test_queue_is_listed_with_its_counts(web: Web) -> None:
    await web.publish(*range(5))
    await web.post("/topics/t/messages", {"payload": "later", "delay_ms": 60_000})
    first, second, *_ = await web.poll(max=3)
    await web.post("/ack", {"receipt": first["receipt"]})
    await web.post("/nack", {"receipt": second["receipt"], "delay_ms": 60_000})
    assert (await web.get("/queues")).json["queues"] == [{"topic": "t", "group": "g"}]
    assert (await web.get("/queues", group="other")).json["queues"] == []
    queue = (await web.get("/topics/t/queues/g")).json
    counts = (queue["ready"], queue["leased"], queue["delayed"], queue["unfinished"])
    assert counts == (2, 1, 2, 5)
    assert queue["partitions"][0]["end_offset"] == 6


@run_with(on_web)
async def test_queue_of_an_unknown_topic_is_not_found(web: Web) -> None:
    answer = await web.get("/topics/nowhere/queues/g")
    assert (answer.status, answer.code) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


async def commit(web: Web, offset: int) -> None:
    position = {"group": "log", "topic": "t", "partition": 0, "offset": offset}
    assert (await web.post("/offsets/commit", position)).status < 300


@run_with(on_web)
async def test_consumer_group_is_scaled_by_lag_and_rate(web: Web) -> None:
    await web.publish(*range(40))
    await commit(web, 10)
    first = (await web.get("/groups/log/scaling?rate=1&target_delay=60")).json
    assert (first["desired_replicas"], first["lag"], first["partitions"]) == (1, 30, 1)
    assert first["read_per_second"] is None
    await asyncio.sleep(10)
    await commit(web, 30)
    second = (await web.get("/groups/log/scaling?min=2&max=5")).json
    assert (second["lag"], second["largest_partition_lag"]) == (10, 10)
    assert 1.9 < second["read_per_second"] < 2.1
    assert second["written_per_second"] == 0
    assert second["desired_replicas"] == 2


@run_with(on_web)
async def test_queue_may_have_more_consumers_than_partitions(web: Web) -> None:
    await web.publish(*range(20))
    await web.poll(group="queue")
    found = (await web.get("/groups/queue/scaling?rate=1&target_delay=2")).json
    assert found["kind"] == "share"
    assert found["lag"] == 20
    assert found["partitions"] == 1
    assert found["desired_replicas"] == 10


@run_with(on_web)
async def test_unknown_group_and_invalid_numbers_are_refused(web: Web) -> None:
    assert (await web.get("/groups/missing/scaling")).code == "GROUP_ID_NOT_FOUND"
    await web.publish(0)
    await commit(web, 0)
    assert (await web.get("/groups/log/scaling?target_delay=0")).code == "INVALID_REQUEST"
    assert (await web.get("/groups/log/scaling?rate=fast")).code == "INVALID_REQUEST"
