"""Who may ask what of the registry, and what others are not shown."""

from typing import Any

import pytest
from starlette.datastructures import QueryParams

from penstock.api.route import Operation, ResourceType
from penstock.http.registry.asked import Asked
from penstock.http.registry.rights import FILTERED, FREE, OPERATIONS, topic_of
from penstock.http.registry.table import ROWS
from penstock.registry import calls
from tests.unit.http.asking import Web, on_web

SCHEMA = {"schema": '"int"'}
DENIED: list[tuple[Operation, str, str, Any]] = [
    (Operation.WRITE, "POST", "/subjects/t-value/versions", SCHEMA),
    (Operation.DESCRIBE, "POST", "/subjects/t-value", SCHEMA),
    (Operation.DESCRIBE, "GET", "/subjects/t-value/versions", None),
    (Operation.DESCRIBE, "GET", "/subjects/t-value/versions/1", None),
    (Operation.DESCRIBE, "GET", "/subjects/t-value/versions/1/referencedby", None),
    (Operation.DESCRIBE, "POST", "/compatibility/subjects/t-value/versions", SCHEMA),
    (Operation.DELETE, "DELETE", "/subjects/t-value", None),
    (Operation.DELETE, "DELETE", "/subjects/t-value/versions/1", None),
    (Operation.ALTER_CONFIGS, "PUT", "/config/t-value", {"compatibility": "NONE"}),
    (Operation.ALTER_CONFIGS, "PUT", "/mode/t-value", {"mode": "READONLY"}),
    (Operation.DESCRIBE_CONFIGS, "GET", "/config/t-value", None),
    (Operation.DESCRIBE_CONFIGS, "GET", "/mode/t-value", None),
]


@pytest.mark.parametrize(("operation", "method", "path", "body"), DENIED)
def test_without_the_right_to_the_topic_it_is_denied(
    operation: Operation, method: str, path: str, body: Any
) -> None:
    async def test(web: Web) -> None:
        await web.post("/subjects/t-value/versions", SCHEMA)
        web.node.rights.deny(operation, ResourceType.TOPIC, "t")
        answer = await web.ask(method, path, body)
        assert (answer.status, answer.json["error_code"]) == (403, 40301)
        other = await web.ask(method, path.replace("t-value", "u-value"), body)
        assert other.status != 403

    on_web(test)


def test_what_is_set_for_all_is_the_clusters() -> None:
    async def test(web: Web) -> None:
        web.node.rights.deny(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, "kafka-cluster")
        assert (await web.ask("PUT", "/config", {"compatibility": "NONE"})).status == 403
        assert (await web.ask("PUT", "/mode", {"mode": "READONLY"})).status == 403
        assert (await web.get("/config")).status == 200

    on_web(test)


def test_listings_leave_out_what_may_not_be_seen() -> None:
    async def test(web: Web) -> None:
        for subject in ("t-value", "t-key", "u-value"):
            await web.post(f"/subjects/{subject}/versions", SCHEMA)
        web.node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "t")
        assert (await web.get("/subjects")).json == ["u-value"]
        assert [row["subject"] for row in (await web.get("/schemas")).json] == ["u-value"]
        assert (await web.get("/schemas/ids/1/subjects")).json == ["u-value"]
        assert len((await web.get("/schemas/ids/1/versions")).json) == 1

    on_web(test)


def test_every_call_has_its_right() -> None:
    body = b'{"schema": "x", "mode": "x"}'
    asked = Asked({"subject": "s", "version": "1", "id": "1", "guid": "g"}, QueryParams(""), body)
    for row in ROWS:
        kind = type(row.call(asked))
        assert kind in OPERATIONS or kind in FREE or kind in FILTERED, kind
    # Nodes ask this of each other, and no client does.
    assert calls.Vouch not in {type(row.call(asked)) for row in ROWS}


@pytest.mark.parametrize(
    ("subject", "topic"),
    [("t-value", "t"), ("t-key", "t"), ("shop.User", "shop.User"), ("a-value-b", "a-value-b")],
)
def test_a_subject_is_its_topics_matter(subject: str, topic: str) -> None:
    assert topic_of(subject) == topic
