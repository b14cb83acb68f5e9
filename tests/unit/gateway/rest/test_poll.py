"""Receiving over HTTP: as a queue with receipts, as a log with offsets."""

import asyncio
import errno

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.queues.state_store import STATES
from penstock.coordinator.runtime.shard_host import RELOAD_SECONDS
from tests.run_with import run_with
from tests.unit.coordinator.queueing import counted_looks
from tests.unit.gateway.http.web import Web, on_web


@run_with(on_web)
async def test_each_message_is_delivered_to_one_poll(web: Web) -> None:
    await web.publish(*range(10))
    first, second = await web.poll(max=4), await web.poll(max=10)
    assert [one["payload"] for one in first + second] == list(range(10))
    assert len({one["receipt"] for one in first + second}) == 10
    assert all(one["delivery_count"] == 1 for one in first)
    assert await web.poll() == []


@run_with(on_web)
async def test_two_groups_both_get_all_messages(web: Web) -> None:
    await web.publish("x")
    assert len(await web.poll(group="a")) == len(await web.poll(group="b")) == 1


@run_with(on_web)
async def test_higher_priorities_come_first_in_a_response(web: Web) -> None:
    for priority in (0, 5, 9, 5, 0):
        await web.post("/topics/t/messages", {"payload": priority, "priority": priority})
    assert [one["payload"] for one in await web.poll(max=10)] == [9, 5, 5, 0, 0]


@run_with(on_web)
async def test_long_poll_ends_with_the_first_message(web: Web) -> None:
    await web.publish("x")
    await web.poll()
    request = web.begin("GET", "/topics/t/poll?group=g&wait_ms=60000")
    await asyncio.sleep(5)
    assert not request.answer.status
    await web.publish("y")
    answer = await request.ended()
    assert [one["payload"] for one in answer.json["messages"]] == ["y"]


@run_with(on_web)
async def test_long_poll_without_messages_ends_empty(web: Web) -> None:
    await web.publish("x")
    await web.poll()
    started = asyncio.get_running_loop().time()
    assert await web.poll(wait_ms=2_000) == []
    assert 1.999 < asyncio.get_running_loop().time() - started < 2.5


@run_with(on_web)
async def test_empty_long_poll_reads_the_queue_once(
    web: Web, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = counted_looks(monkeypatch)

    await web.publish("x")
    await web.poll()
    looks.clear()
    assert await web.poll(wait_ms=2_000) == []
    assert looks == ["g"]


@run_with(on_web)
async def test_woken_long_poll_reads_the_queue_at_most_twice(
    web: Web, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = counted_looks(monkeypatch)

    await web.publish("x")
    await web.poll()
    looks.clear()
    request = web.begin("GET", "/topics/t/poll?group=g&wait_ms=60000")
    await asyncio.sleep(5)
    await web.publish("y")
    assert len((await request.ended()).json["messages"]) == 1
    assert len(looks) <= 2


@run_with(on_web)
async def test_disconnected_poll_leases_nothing(web: Web) -> None:
    await web.publish("x")
    await web.poll()
    request = web.begin("GET", "/topics/t/poll?group=g&wait_ms=60000")
    await asyncio.sleep(1)
    await request.disconnect()
    await web.publish("y")
    (message,) = await web.poll(wait_ms=1_000)
    assert message["delivery_count"] == 1


@run_with(on_web)
async def test_lease_has_the_requested_duration(web: Web) -> None:
    await web.publish("x")
    (first,) = await web.poll(lock_ms=1_500)
    assert await web.poll() == []
    (again,) = await web.poll(wait_ms=10_000)
    assert (again["delivery_count"], again["retry_count"]) == (2, 1)
    assert again["receipt"] != first["receipt"]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "group=",
        "group=g&max=0",
        "group=g&max=x",
        "group=g&max=99999999999999999999999",
        "group=g&wait_ms=-1",
        "group=g&mode=pile",
        "group=g&lock_ms=0",
        f"group={'x' * 300}",
    ],
)
@run_with(on_web)
async def test_invalid_parameters_are_refused(web: Web, *, query: str) -> None:
    await web.publish("x")
    answer = await web.ask("GET", f"/topics/t/poll?{query}")
    assert answer.status == 422
    assert answer.code in ("INVALID_REQUEST", "INVALID_GROUP_ID")


@run_with(on_web)
async def test_unknown_topic_is_not_found(web: Web) -> None:
    for mode in ("queue", "log"):
        answer = await web.get("/topics/nowhere/poll", group="g", mode=mode)
        assert (answer.status, answer.code) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


# -- as a log ---------------------------------------------------------------------------------


@run_with(on_web)
async def test_log_is_read_from_the_committed_offset(web: Web) -> None:
    await web.publish(*range(6))
    for _ in range(2):
        found = await web.poll(mode="log", max=3)
        assert [one["payload"] for one in found] == [0, 1, 2]
        assert all("receipt" not in one for one in found)
    commit = {"group": "g", "topic": "t", "partition": 0, "offset": 3}
    assert (await web.post("/offsets/commit", commit)).json["committed"] == 1
    assert [one["payload"] for one in await web.poll(mode="log")] == [3, 4, 5]


@run_with(on_web)
async def test_log_is_read_from_any_offset_without_a_group(web: Web) -> None:
    await web.publish(*range(4))
    answer = await web.get("/topics/t/poll", mode="log", partition=0, offset=2)
    assert [one["payload"] for one in answer.json["messages"]] == [2, 3]
    answer = await web.get("/topics/t/poll", mode="log", offset=2)
    assert answer.status == 422


@run_with(on_web)
async def test_waiting_log_read_returns_the_next_message(web: Web) -> None:
    await web.publish(0)
    request = web.begin("GET", "/topics/t/poll?group=g&mode=log&reset=latest&wait_ms=60000")
    await asyncio.sleep(2)
    await web.publish(1)
    answer = await request.ended()
    assert [one["payload"] for one in answer.json["messages"]] == [1]


@run_with(on_web)
async def test_group_of_the_other_kind_is_refused(web: Web) -> None:
    await web.publish(0)
    commit = {"group": "log", "topic": "t", "partition": 0, "offset": 0}
    assert (await web.post("/offsets/commit", commit)).status == 200
    answer = await web.get("/topics/t/poll", group="log")
    assert (answer.status, answer.code) == (409, "INCONSISTENT_GROUP_PROTOCOL")
    await web.poll(group="queue")
    answer = await web.post("/offsets/commit", commit | {"group": "queue"})
    assert (answer.status, answer.code) == (409, "INCONSISTENT_GROUP_PROTOCOL")


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/topics/t/poll?group=g&maxx=1", "unknown parameter maxx: did you mean max?"),
        ("/topics/t/poll?group=g&wait=5", "unknown parameter wait: did you mean wait_ms?"),
        ("/offsets?group=g&topic=t&zzz=", "unknown parameter zzz: allowed are group, topic"),
        ("/groups?zzz", "unknown parameter zzz: this route takes none"),
    ],
)
@run_with(on_web)
async def test_unknown_parameter_is_refused(web: Web, *, path: str, detail: str) -> None:
    await web.publish("x")
    answer = await web.ask("GET", path)
    assert (answer.status, answer.json["detail"]) == (422, detail)
    assert len(await web.poll()) == 1, "nothing was leased"


@pytest.mark.parametrize("wait_ms", [0, 3_000])
@run_with(on_web, {"share.coordinator.state.topic.num.partitions": "1"})
async def test_poll_reports_an_unreadable_queue_state(web: Web, *, wait_ms: int) -> None:
    await web.publish("x")
    (given,) = await web.poll()
    damage(web)
    await asyncio.sleep(2 * RELOAD_SECONDS)
    for group in ("g", "h"):
        answer = await web.get("/topics/t/poll", group=group, wait_ms=wait_ms)
        assert (answer.status, answer.code) == (503, "KAFKA_STORAGE_ERROR")
        assert answer.headers["retry-after"]
        assert "the state of this queue cannot be read" in answer.json["detail"]
        assert "__share_group_state-0" in answer.json["detail"]
        assert "the log of node 1" in answer.json["detail"]
    acked = await web.post("/ack", {"receipt": given["receipt"]})
    assert acked.json["errors"][0]["code"] == "KAFKA_STORAGE_ERROR", acked


def damage(web: Web) -> None:
    """Marks the state log as damaged, so that its shard must be read again."""
    ctx = web.node.ctx
    partition = ctx.partitions.get(STATES.name, 0)
    assert partition is not None
    ctx.partitions.read_failed(partition, OSError(errno.EIO, "bad sector"))
    ctx.queue.queues.keeping.host.runtime(0).discard("its log is damaged")
    for queue in list(ctx.queue.queues.queues()):
        queue.close(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
