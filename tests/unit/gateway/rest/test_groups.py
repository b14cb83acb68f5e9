"""Groups over HTTP: both kinds are listed, described, configured and deleted."""

import pytest

from tests.run_with import run_with
from tests.unit.gateway.http.web import Web, on_web


@run_with(on_web)
async def test_share_and_consumer_groups_are_listed_and_deleted(web: Web) -> None:
    await web.publish(0)
    await web.poll(group="queue")
    commit = {"group": "log", "topic": "t", "partition": 0, "offset": 1}
    await web.post("/offsets/commit", commit)
    groups = (await web.get("/groups")).json["groups"]
    assert [(one["group"], one["kind"]) for one in groups] == [
        ("log", "classic"),
        ("queue", "share"),
    ]
    described = (await web.get("/groups/queue")).json
    assert (described["kind"], described["state"]) == ("share", "Empty")
    for name in ("queue", "log"):
        assert (await web.ask("DELETE", f"/groups/{name}")).status == 204
        assert (await web.get(f"/groups/{name}")).code == "GROUP_ID_NOT_FOUND"
    assert (await web.get("/groups")).json["groups"] == []
    # A new poll registers the group again, which then starts over.
    assert len(await web.poll(group="queue")) == 1
    assert len((await web.get("/groups")).json["groups"]) == 1


@run_with(on_web)
async def test_group_configs_apply_to_its_leases(web: Web) -> None:
    await web.publish("x")
    values = {"share.record.lock.duration.ms": 15_000, "share.retry.backoff.ms": 0}
    assert (await web.ask("PATCH", "/groups/g/configs", values)).status == 204
    rows = (await web.get("/groups/g/configs")).json["configs"]
    assert [row["name"] for row in rows if row["is_set"]] == sorted(values)
    (message,) = await web.poll()
    now_ms = web.node.ctx.clock.now_ms()
    assert 14_000 < message["lock_until_ms"] - now_ms <= 15_000
    answer = await web.ask("PATCH", "/groups/g/configs", {"share.colour": 1})
    assert (answer.status, answer.code) == (422, "INVALID_CONFIG")


@run_with(on_web)
async def test_committed_offsets_are_shown_with_their_lag(web: Web) -> None:
    await web.publish(*range(5))
    before = await web.get("/offsets", group="g", topic="t")
    assert before.json["partitions"] == [
        {"partition": 0, "offset": None, "end_offset": 5, "lag": None}
    ]
    body = {"group": "g", "offsets": [{"topic": "t", "partition": 0, "offset": 2}]}
    answer = await web.post("/offsets/commit", body)
    assert (answer.status, answer.json) == (200, {"committed": 1, "errors": []})
    after = await web.get("/offsets", group="g", topic="t")
    assert after.json["partitions"] == [{"partition": 0, "offset": 2, "end_offset": 5, "lag": 3}]


@run_with(on_web)
async def test_valid_commits_succeed_beside_refused_ones(web: Web) -> None:
    await web.publish(0)
    rows = [
        {"topic": "t", "partition": 0, "offset": 1},
        {"topic": "t", "partition": 9, "offset": 1},
        {"topic": "nowhere", "partition": 0, "offset": 1},
    ]
    answer = await web.post("/offsets/commit", {"group": "g", "offsets": rows})
    assert (answer.status, answer.json["committed"]) == (207, 1)
    assert [(one["index"], one["status"]) for one in answer.json["errors"]] == [
        (1, 404),
        (2, 404),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"group": "g"},
        {"group": "g", "offsets": []},
        {"group": "g", "topic": "t", "partition": 0},
        {"group": "g", "topic": "t", "partition": 0, "offset": -1},
        {"group": "g", "topic": "t", "partition": 0, "offset": "x"},
        {"group": "g", "topic": "t", "partition": 0, "offset": 1, "offsets": []},
        {"topic": "t", "partition": 0, "offset": 1},
    ],
    ids=str,
)
@run_with(on_web)
async def test_invalid_commits_are_refused(web: Web, *, body: dict[str, object]) -> None:
    await web.publish(0)
    answer = await web.post("/offsets/commit", body)
    assert (answer.status, answer.code) == (422, "INVALID_REQUEST")
