"""Replay over HTTP: `POST /topics/{name}/replay`."""

import pytest

from penstock.base.errors import Refused
from penstock.base.ids import Millis
from penstock.client.consumer import record_counts, record_reader
from penstock.client.offset_syntax import Anchor, OffsetPosition, OffsetRange
from penstock.gateway.rest.replay import ReplayBody, range_of
from tests.run_with import run_with
from tests.unit.client.on_cluster import WatchedWorkers
from tests.unit.coordinator.queueing import pack
from tests.unit.gateway.http.served_node import on_served
from tests.unit.gateway.http.web import Web


async def finish(web: Web, group: str, count: int) -> list[str]:
    seen = []
    for message in await web.poll("t", group, max=count):
        seen.append(message["payload"])
        assert (await web.post("/ack", {"receipt": message["receipt"]})).status < 300
    return seen


@run_with(on_served)
async def test_replay_affects_only_its_share_group(web: Web) -> None:
    await web.publish("a", "b", "c", "d")
    assert len(await finish(web, "g", 4)) == len(await finish(web, "other", 4)) == 4
    body = {"group": "g", "from_offset": 1, "until_offset": 3}
    dry = (await web.post("/topics/t/replay", {**body, "dry_run": True})).json
    assert (dry["kind"], dry["executed"], dry["records"]) == ("share", False, 2)
    done = (await web.post("/topics/t/replay", body)).json
    assert (done["executed"], done["records"]) == (True, 2)
    assert done["partitions"] == [{"partition": 0, "from_offset": 1, "until_offset": 3}]
    assert await finish(web, "g", 10) == ["b", "c"]
    assert await finish(web, "other", 10) == []


@run_with(on_served)
async def test_replay_resets_a_consumer_group(web: Web) -> None:
    await web.publish("a", "b", "c")
    body = {"group": "plain", "from_offset": "-2"}
    done = (await web.post("/topics/t/replay", body)).json
    assert (done["kind"], done["records"]) == ("consumer", 2)
    found = await web.poll("t", "plain", mode="log", max=10)
    assert [one["payload"] for one in found] == ["b", "c"]
    refused = await web.post("/topics/t/replay", {**body, "until_offset": 2})
    assert (refused.status, refused.code) == (422, "INVALID_REQUEST")


@run_with(on_served)
async def test_range_is_copied_into_another_topic(web: Web) -> None:
    await web.publish("a", "b", "c")
    await web.publish("before", topic="copy")
    body = {"to_topic": "copy", "from_offset": "start", "until_offset": 2}
    done = (await web.post("/topics/t/replay", body)).json
    assert (done["kind"], done["records"], done["resumed"]) == ("copy", 2, False)
    found = await web.poll("copy", max=10)
    assert [one["payload"] for one in found] == ["before", "a", "b"]


@run_with(on_served)
async def test_invalid_replays_are_refused(web: Web) -> None:
    await web.publish("a")
    for body in (
        {"from_offset": 0},
        {"group": "g", "to_topic": "x", "from_offset": 0},
        {"group": "g"},
        {"group": "g", "from_offset": 0, "from_time": 5},
        {"group": "g", "from_offset": "soon"},
        {"to_topic": "x", "from_offset": 0, "rate": -1},
    ):
        assert (await web.post("/topics/t/replay", body)).code == "INVALID_REQUEST", body
    missing = {"to_topic": "nowhere", "from_offset": 0}
    assert (await web.post("/topics/t/replay", missing)).status == 404
    assert (
        await web.post("/topics/nowhere/replay", {"group": "g", "from_offset": 0})
    ).status == 404


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (ReplayBody(from_offset=5), OffsetRange(OffsetPosition(Anchor.EXACT, 5))),
        (ReplayBody(from_offset="-5"), OffsetRange(OffsetPosition(Anchor.END, 5))),
        (ReplayBody(from_time="-1s"), OffsetRange(OffsetPosition(Anchor.TIME, 9_000))),
        (
            ReplayBody(from_time=1_700_000_000_000, until_time="2026-11-01"),
            OffsetRange(
                OffsetPosition(Anchor.TIME, 1_700_000_000_000),
                OffsetPosition(Anchor.TIME, 1_793_491_200_000),
            ),
        ),
    ],
)
def test_range_accepts_numbers_and_expressions(body: ReplayBody, wanted: OffsetRange) -> None:
    assert range_of(body, Millis(10_000)) == wanted


def test_range_needs_exactly_one_start() -> None:
    with pytest.raises(Refused):
        range_of(ReplayBody(from_offset=5, from_time=5), Millis(0))


@run_with(on_served)
async def test_compressed_records_are_decompressed_by_workers(web: Web) -> None:
    await web.publish("a", "b")
    await finish(web, "g", 2)
    await pack(web.node, 1 << 19)
    await finish(web, "g", 1)
    web.node.ctx.admin.workers = workers = WatchedWorkers()
    body = {"group": "g", "from_offset": 1}
    assert (await web.post("/topics/t/replay", body)).json["records"] == 2
    assert record_counts.__name__ in workers.modules
    assert record_reader.__name__ not in workers.modules
    await web.publish("before", topic="copy")
    body = {"to_topic": "copy", "from_offset": 1}
    assert (await web.post("/topics/t/replay", body)).json["records"] == 2
    assert record_reader.__name__ in workers.modules
    found = await web.poll("copy", max=10)
    assert [len(one["payload"]) for one in found] == [len("before"), len("b"), 1 << 19]
