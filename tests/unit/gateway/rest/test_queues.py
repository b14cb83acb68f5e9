"""Queues over HTTP: list and message counts."""

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
