"""HTTP beside Kafka clients: one message, one lease, whichever protocol receives it."""

import json
import urllib.parse
import urllib.request
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests.brokers import PenstockProcess
from tests.clients.shares import ShareMember
from tests.conftest import FreshBroker

pytestmark = pytest.mark.clients
SETS = {"share.coordinator.state.topic.num.partitions": 1, "offsets.topic.num.partitions": 1}


def ask(broker: PenstockProcess, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(broker.http + path, data, method=method)
    with urllib.request.urlopen(request, timeout=90) as response:
        return json.load(response)


def poll(broker: PenstockProcess, topic: str, **query: Any) -> list[dict[str, Any]]:
    path = f"/topics/{topic}/poll?{urllib.parse.urlencode(query)}"
    messages: list[dict[str, Any]] = ask(broker, "GET", path)["messages"]
    return messages


def test_message_published_over_http_is_a_plain_record(fresh_broker: FreshBroker) -> None:
    broker = fresh_broker(sets=SETS)
    body = {"key": "k", "payload": {"a": 1}, "headers": {"h": "x"}, "dedup_id": "d"}
    placed = ask(broker, "POST", "/topics/t/messages", body)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe(["t"])
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        assert (message.key(), json.loads(message.value() or b"")) == (b"k", {"a": 1})
        assert (message.partition(), message.offset()) == (placed["partition"], placed["offset"])
        headers = dict(message.headers() or [])
        assert (headers["h"], headers["penstock-dedup-id"]) == (b"x", b"d")
        assert headers["message_id"].decode() == placed["message_id"]
    finally:
        consumer.close()


def test_http_and_a_share_consumer_share_one_group(fresh_broker: FreshBroker) -> None:
    broker = fresh_broker(sets=SETS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(20):
        producer.produce("t", b"%d" % number, key=b"k", headers={"h": b"x"})
    assert producer.flush(30) == 0
    mine = poll(broker, "t", group="g", max=10, wait_ms=30_000, lock_ms=60_000)
    assert len(mine) == 10
    assert all((one["key"], one["headers"]["h"]) == ("k", "x") for one in mine)
    with ShareMember(broker.bootstrap, "g", "t") as member:
        theirs = member.read(10)
        member.commit()
        # A message released by one of them goes to the other, and counts as delivered.
        ask(broker, "POST", "/nack", {"receipt": mine[0]["receipt"], "delay_ms": 0})
        (again,) = member.read(1)
        member.commit()
    assert again.value() == mine[0]["payload"].encode()
    values = {one["payload"] for one in mine} | {(one.value() or b"").decode() for one in theirs}
    assert values == {str(number) for number in range(20)}
    settled = ask(broker, "POST", "/ack", {"receipts": [one["receipt"] for one in mine[1:]]})
    assert settled["settled"] == 9
    queue = ask(broker, "GET", "/topics/t/queues/g")
    assert (queue["unfinished"], queue["leased"]) == (0, 0)


def test_large_payloads_arrive_complete_in_both_modes(fresh_broker: FreshBroker) -> None:
    broker = fresh_broker(sets=SETS)
    large = [str(number) * 300_000 for number in range(5)]
    for payload in large:
        ask(broker, "POST", "/topics/t/messages", {"payload": payload})
    queued: list[str] = []
    while len(queued) < len(large):
        found = poll(broker, "t", group="g", wait_ms=30_000)
        queued += [one["payload"] for one in found]
    assert queued == large
    logged: list[str] = []
    while len(logged) < len(large):
        found = poll(broker, "t", group="l", mode="log", partition=0, offset=len(logged))
        logged += [one["payload"] for one in found]
    assert logged == large


def test_leases_and_offsets_survive_a_crash(fresh_broker: FreshBroker) -> None:
    broker = fresh_broker(sets=SETS)
    ask(broker, "POST", "/topics/t/messages", {"messages": [{"payload": n} for n in range(4)]})
    found = poll(broker, "t", group="g", max=2, wait_ms=30_000, lock_ms=600_000)
    ask(broker, "POST", "/ack", {"receipt": found[0]["receipt"]})
    commit = {"group": "log", "topic": "t", "partition": 0, "offset": 3}
    ask(broker, "POST", "/offsets/commit", commit)
    broker.kill()
    broker.start()
    rest = poll(broker, "t", group="g", wait_ms=30_000)
    assert [one["payload"] for one in rest] == [2, 3]
    assert ask(broker, "POST", "/ack", {"receipt": found[1]["receipt"]})["settled"] == 1
    assert [one["payload"] for one in poll(broker, "t", group="log", mode="log")] == [3]
