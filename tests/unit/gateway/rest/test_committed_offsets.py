"""Committed offsets over HTTP."""

import pytest

from tests.run_with import run_with
from tests.unit.gateway.http.web import Web, on_web


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
