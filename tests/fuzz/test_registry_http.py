"""Strange requests to the registry: each has an answer below 500, and the machine lives on."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.run_with import run_with
from tests.unit.gateway.http.web import Web, on_web

SEGMENTS = st.sampled_from(
    [
        "subjects",
        "s",
        "t-value",
        "versions",
        "1",
        "latest",
        "-1",
        "0",
        "schemas",
        "ids",
        "guids",
        "config",
        "mode",
        "compatibility",
        "metadata",
        "referencedby",
        "schema",
        "x" * 600,
        ":.c:s",
    ]
) | st.text(min_size=1, max_size=5).filter(lambda text: text.isprintable() and "?" not in text)
PATHS = st.sampled_from(
    [
        "/subjects",
        "/schemas",
        "/config",
        "/mode",
        "/subjects/s",
        "/subjects/s/versions",
        "/subjects/s/versions/1",
        "/schemas/ids/1",
        "/config/s",
        "/mode/s",
        "/compatibility/subjects/s/versions",
        "/compatibility/subjects/s/versions/latest",
    ]
) | st.builds(
    lambda parts: "/" + "/".join(parts),
    st.lists(SEGMENTS, min_size=1, max_size=5).filter(
        lambda parts: parts[0] in ("subjects", "schemas", "config", "mode", "compatibility")
    ),
)
FLAGS = ["deleted", "permanent", "normalize", "verbose", "force", "defaultToGlobal", "recursive"]
QUERIES = st.dictionaries(
    st.sampled_from([*FLAGS, "format", "offset", "limit", "key", "value", "subject"]),
    st.sampled_from(["true", "false", "1", "-1", "serialized", "resolved", "x", ""]),
    max_size=3,
)
TEXTS = st.sampled_from(
    [
        '"int"',
        '{"type":"array","items":"R"}',
        '{"type":"record","name":"R","fields":[]}',
        "{",
        "",
        '{"type":"object"}',
        'syntax = "proto3"; message M { }',
        "[]",
        "null",
        '{"$ref":"#"}',
    ]
)
VALUES = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4) | TEXTS
REFERENCES = st.lists(
    st.fixed_dictionaries(
        {"name": st.just("R"), "subject": st.just("s"), "version": st.integers(-2, 3)}
    ),
    max_size=2,
)
BODIES = st.one_of(
    st.fixed_dictionaries(
        {"schema": TEXTS},
        optional={
            "schemaType": st.sampled_from(["AVRO", "JSON", "PROTOBUF", "X"]),
            "references": REFERENCES,
            "metadata": st.dictionaries(st.sampled_from(["properties", "tags"]), VALUES),
            "ruleSet": st.dictionaries(st.text(max_size=3), VALUES, max_size=2),
            "id": st.integers(-2, 5) | st.just(2**40),
            "version": st.integers(-2, 5) | st.just(2**70),
        },
    ),
    st.fixed_dictionaries(
        {"compatibility": st.sampled_from(["NONE", "FULL", "none", "?"])},
        optional={"alias": VALUES, "normalize": VALUES, "compatibilityGroup": VALUES},
    ),
    st.fixed_dictionaries({"mode": st.sampled_from(["IMPORT", "READONLY", "READWRITE", "?"])}),
    VALUES,
    st.lists(VALUES, max_size=2),
    st.binary(max_size=10),
)
REQUESTS = st.lists(
    st.tuples(st.sampled_from(["GET", "POST", "PUT", "DELETE"]), PATHS, QUERIES, BODIES),
    min_size=1,
    max_size=25,
)


@settings(max_examples=40)
@given(REQUESTS)
@run_with(on_web)
async def test_every_request_is_answered(
    web: Web, *, requests: list[tuple[str, str, dict[str, str], Any]]
) -> None:
    registry = web.node.ctx.produce.registry
    await web.post("/subjects/s/versions", {"schema": '"int"'})
    shard = registry.host.runtime(0).require()
    for method, path, query, body in requests:
        asked = path + "?" + "&".join(f"{name}={value}" for name, value in query.items())
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await web.ask(method, asked, data if method in ("POST", "PUT") else None)
        assert 200 <= answer.status < 500, (method, asked, body, answer)
        if answer.status >= 400:
            assert answer.json["error_code"] >= 400
    assert registry.host.runtime(0).require() is shard, "the machine was thrown away"
