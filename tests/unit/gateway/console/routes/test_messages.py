"""Pages of messages, single messages, search within a budget, and decoding by schemas."""

import base64
import json

from tests.run_with import run_with
from tests.unit.gateway.console.console_client import API, ConsoleClient, events, on_console


@run_with(on_console)
async def test_message_pages_are_contiguous_in_both_directions(web: ConsoleClient) -> None:
    await web.post("/topics", {"name": "t", "partitions": 3})
    await web.publish(*range(25))
    path, seen, before = "/topics/t/messages", [], None
    while True:
        query = {"limit": 10} | ({"before": before} if before else {})
        page = await web.own(path, **query)
        seen += [one["value"]["text"] for one in page["messages"]]
        before = page["older"]
        if not before:
            break
    assert sorted(map(int, seen)) == list(range(25))
    seen, after = [], None
    while len(seen) < 25:
        query = {"limit": 10} | ({"after": after} if after else {"from": "earliest"})
        page = await web.own(path, **query)
        assert page["messages"]
        seen += [one["value"]["text"] for one in page["messages"]]
        after = page["newer"]
    assert sorted(map(int, seen)) == list(range(25))
    one = await web.own(path, **{"from": "offset", "offset": 3, "partition": 1, "limit": 1})
    assert one["messages"][0]["offset"] == 3


@run_with(on_console)
async def test_single_message_is_shown_in_full_with_its_bytes(web: ConsoleClient) -> None:
    data = base64.b64encode(b"\x00\xff" * 500).decode()
    await web.post("/topics/t/messages", {"payload_base64": data, "key": "k"})
    seen = await web.own("/topics/t/messages/0/0")
    assert seen["value"] == {"form": "binary", "text": ("00 ff " * 32).strip(), "size": 1000,
                             "is_cut": True, "base64": data}  # fmt: skip
    assert seen["key"]["text"] == "k"
    gone = await web.get(f"{API}/topics/t/messages/0/9")
    assert (gone.status, gone.code) == (422, "OFFSET_OUT_OF_RANGE")


@run_with(on_console)
async def test_search_covers_keys_values_and_headers_within_its_budget(web: ConsoleClient) -> None:
    messages: list[dict[str, object]] = [
        {"payload": f"value {at}", "key": f"key-{at}"} for at in range(100)
    ]
    messages.append({"payload": "plain", "headers": {"who": "Ann"}})
    for start in range(0, len(messages), 50):
        await web.post("/topics/t/messages", {"messages": messages[start : start + 50]})
    done = '"ended":"all"'
    (found,) = await events(web, "/topics/t/search?text=VALUE%2077", done)
    assert [one["value"]["text"] for one in found["messages"]] == ["value 77"]
    assert (found["scanned"], found["total"]) == (101, 101)
    (found,) = await events(web, "/topics/t/search?text=key-1.$&pattern=true&value=false", done)
    assert found["found"] == 10
    (found,) = await events(web, "/topics/t/search?text=ann&key=false&value=false", done)
    assert found["messages"][0]["offset"] == 100
    (found,) = await events(web, "/topics/t/search?text=zzz&budget=10", '"ended":"records"')
    assert found["found"] == 0
    assert (await web.get(f"{API}/topics/t/search?text=(&pattern=true")).status == 422


@run_with(on_console)
async def test_value_is_decoded_by_its_schema_or_shown_as_bytes(web: ConsoleClient) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
    body = {"schema": json.dumps(schema)}
    number = (await web.post("/subjects/t-value/versions", body)).json["id"]
    frame = b"\0" + number.to_bytes(4, "big")
    for value in (frame + b"\x0e", frame + b"\x0e\x0e", b"\0\0\0\0\x63\x01"):
        coded = base64.b64encode(value).decode()
        await web.post("/topics/t/messages", {"payload_base64": coded})
    rows = (await web.own("/topics/t/messages", **{"from": "earliest"}))["messages"]
    good, bad, unknown = (row["value"] for row in rows)
    assert (good["form"], json.loads(good["text"])) == ("avro", {"n": 7})
    assert (bad["form"], "left after the value" in bad["trouble"]) == ("binary", True)
    assert (unknown["form"], unknown.get("trouble", "")) == ("binary", "")
