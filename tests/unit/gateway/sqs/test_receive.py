"""Receiving: leases, long polls, order, and messages of Kafka clients."""

import asyncio
from typing import Any

import pytest

from penstock.gateway.core.messages import OutgoingMessage
from penstock.gateway.core.permissions import Principal
from penstock.gateway.sqs.receive import BACKOFF, DEFAULT_GROUP
from tests.run_with import run_with
from tests.unit.coordinator.queueing import counted_looks
from tests.unit.gateway.sqs.sdk import Sdk, failure, with_sdk

WHO = Principal("User:kafka")


@run_with(with_sdk)
async def test_message_is_leased_for_its_visibility_timeout(sdk: Sdk) -> None:
    url = await sdk.create(VisibilityTimeout="30")
    await sdk.send(url, "a")
    assert await sdk.bodies(url) == ["a"]
    await asyncio.sleep(29)
    assert await sdk.bodies(url) == []
    await asyncio.sleep(2)
    (again,) = await sdk.receive(url, VisibilityTimeout=5)
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    await asyncio.sleep(6)
    assert await sdk.bodies(url) == ["a"]


@run_with(with_sdk)
async def test_zero_visibility_timeout_does_not_hide_messages(sdk: Sdk) -> None:
    url = await sdk.create()
    await sdk.send(url, "a")
    for count in ("1", "2", "3"):
        (message,) = await sdk.receive(url, VisibilityTimeout=0)
        assert message["Attributes"]["ApproximateReceiveCount"] == count


@run_with(with_sdk)
async def test_long_poll_ends_with_the_first_message_or_its_timeout(sdk: Sdk) -> None:
    url = await sdk.create(ReceiveMessageWaitTimeSeconds="20")
    loop = asyncio.get_running_loop()
    start = loop.time()
    assert await sdk.bodies(url, WaitTimeSeconds=3) == []
    assert round(loop.time() - start) == 3
    polling = loop.create_task(sdk.bodies(url))
    await asyncio.sleep(7)
    await sdk.send(url, "a")
    assert await polling == ["a"]
    assert round(loop.time() - start) == 10


@run_with(with_sdk)
async def test_empty_long_poll_reads_the_queue_once(
    sdk: Sdk, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = counted_looks(monkeypatch)

    url = await sdk.create()
    assert await sdk.bodies(url) == []
    looks.clear()
    assert await sdk.bodies(url, WaitTimeSeconds=3) == []
    partitions = len(sdk.node.ctx.image.topics["jobs"].partitions)
    assert looks == [DEFAULT_GROUP] * partitions


@run_with(with_sdk)
async def test_receiver_gets_all_requested_messages_while_others_wait(sdk: Sdk) -> None:
    url = await sdk.create()
    loop = asyncio.get_running_loop()
    polls = [loop.create_task(sdk.bodies(url, WaitTimeSeconds=5)) for _ in range(4)]
    await asyncio.sleep(1)
    entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(10)]
    await sdk("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert sorted(len(found) for found in await asyncio.gather(*polls)) == [0, 0, 0, 10]


@run_with(with_sdk)
async def test_one_message_goes_to_one_of_many_waiting_receivers(sdk: Sdk) -> None:
    url = await sdk.create()
    polls = [asyncio.ensure_future(sdk.bodies(url, WaitTimeSeconds=5)) for _ in range(10)]
    await asyncio.sleep(1)
    await sdk.send(url, "a", "b")
    found = sorted(await asyncio.gather(*polls))
    assert [body for bodies in found for body in bodies] in (["a", "b"], ["b", "a"])


@pytest.mark.parametrize(
    "values",
    [
        {"MaxNumberOfMessages": 0},
        {"MaxNumberOfMessages": 11},
        {"VisibilityTimeout": -1},
        {"VisibilityTimeout": 43_201},
        {"WaitTimeSeconds": 21},
        {"WaitTimeSeconds": -1},
        {"MaxNumberOfMessages": "many"},
    ],
    ids=str,
)
@run_with(with_sdk)
async def test_receive_limits_are_those_of_sqs(sdk: Sdk, *, values: dict[str, Any]) -> None:
    url = await sdk.create()
    failed = await failure(sdk("ReceiveMessage", QueueUrl=url, **values))
    assert failed.name == "InvalidParameterValue"


@run_with(with_sdk)
async def test_attributes_are_returned_only_on_request(sdk: Sdk) -> None:
    url = await sdk.create()
    one = {"DataType": "String", "StringValue": "v"}
    await sdk.send(url, "a", MessageAttributes={"a.x": one, "a.y": one, "b": one})

    async def names(*wanted: str, **more: Any) -> tuple[list[str], list[str]]:
        answer = await sdk(
            "ReceiveMessage",
            QueueUrl=url,
            VisibilityTimeout=0,
            MessageAttributeNames=wanted,
            **more,
        )
        (message,) = answer["Messages"]
        return sorted(message.get("MessageAttributes", {})), sorted(message.get("Attributes", {}))

    assert await names() == ([], [])
    assert await names("b") == (["b"], [])
    assert await names("a.*") == (["a.x", "a.y"], [])
    assert (await names("All"))[0] == (await names(".*"))[0] == ["a.x", "a.y", "b"]
    sent = ["SentTimestamp"]
    assert await names("z", AttributeNames=sent) == ([], sent)
    assert await names(MessageSystemAttributeNames=sent) == ([], sent)


# -- FIFO -------------------------------------------------------------------------------------


async def fifo(sdk: Sdk, *sent: str, **attributes: str) -> str:
    """Creates a queue with these messages, each in the group named by its first character."""
    url = await sdk.create("jobs.fifo", ContentBasedDeduplication="true", **attributes)
    for body in sent:
        await sdk.send(url, body, MessageGroupId=body[0])
    return url


@run_with(with_sdk)
async def test_messages_of_a_group_come_together_and_block_only_their_group(sdk: Sdk) -> None:
    url = await fifo(sdk, "a1", "b1", "a2", "a3", "b2", VisibilityTimeout="30")
    first, second = await sdk.receive(url, 2)
    assert [first["Body"], second["Body"]] == ["a1", "a2"]
    got = await sdk.receive(url)
    assert [message["Body"] for message in got] == ["b1", "b2"]
    await sdk.delete(url, first, *got)
    assert await sdk.bodies(url) == [], "the second is still leased"
    await asyncio.sleep(31)
    assert await sdk.bodies(url) == ["a2", "a3"]


@pytest.mark.parametrize(("extended", "wanted"), [(0, []), (1, ["foo"]), (2, ["foo", "goo"])])
@run_with(with_sdk)
async def test_extended_lease_blocks_later_messages_of_its_group(
    sdk: Sdk, *, extended: int, wanted: list[str]
) -> None:
    url = await sdk.create("jobs.fifo", ContentBasedDeduplication="true", VisibilityTimeout="1")
    await sdk.send(url, "foo", "goo", "zoo", MessageGroupId="g")
    got = await sdk.receive(url)
    assert [message["Body"] for message in got] == ["foo", "goo", "zoo"]
    await sdk(
        "ChangeMessageVisibility",
        QueueUrl=url,
        ReceiptHandle=got[extended]["ReceiptHandle"],
        VisibilityTimeout=4,
    )
    await asyncio.sleep(2.5)
    assert await sdk.bodies(url) == wanted


@run_with(with_sdk)
async def test_zero_visibility_timeout_keeps_the_order_of_a_group(sdk: Sdk) -> None:
    url = await fifo(sdk, "a1", "a2", "a3")
    await sdk.send(url, "b1", MessageGroupId="b")
    await sdk.send(url, "a4", MessageGroupId="a")
    for _ in range(3):
        shown = await sdk.bodies(url, VisibilityTimeout=0)
        assert shown == ["a1", "a2", "a3", "a4", "b1"]


@run_with(with_sdk)
async def test_duplicates_are_not_counted(sdk: Sdk) -> None:
    url = await fifo(sdk, "a1", "a1", "a2", "b1", "b1")
    name = "ApproximateNumberOfMessages"
    assert (await sdk.attributes(url, name))[name] == "3", "no message was received yet"
    await sdk.send(url, "a2", MessageGroupId="a")
    assert (await sdk.attributes(url, name))[name] == "3"
    got = await sdk.receive(url, 2)
    shown = await sdk.attributes(url, name, f"{name}NotVisible")
    assert shown == {name: "1", f"{name}NotVisible": "2"}
    await sdk.delete(url, *got)
    await sdk.send(url, "b1", MessageGroupId="b")
    assert (await sdk.attributes(url, name))[name] == "1"


# -- all protocols ----------------------------------------------------------------------------


@run_with(with_sdk)
async def test_messages_are_exchanged_with_kafka_clients(sdk: Sdk) -> None:
    await sdk.node.create("plain", 1)
    gateway = sdk.moves.gateway
    headers = (("text", b"v"), ("raw", b"\xff"), ("penstock-priority", b"3"))
    await gateway.publish(WHO, "plain", [OutgoingMessage(b"hello", b"key", headers)])
    url = (await sdk("GetQueueUrl", QueueName="plain"))["QueueUrl"]
    (message,) = await sdk.receive(url)
    assert message["Body"] == "hello"
    assert message["MessageAttributes"] == {
        "text": {"DataType": "String", "StringValue": "v"},
        "raw": {"DataType": "Binary", "BinaryValue": "/w=="},
    }
    assert message["Attributes"]["MessageGroupId"] == "key"
    await sdk.delete(url, message)
    number = {"DataType": "Number", "StringValue": "7"}
    await sdk.send(url, "back", MessageAttributes={"n": number}, MessageGroupId="k")
    (got,) = await gateway.receive(WHO, "plain", DEFAULT_GROUP, records_max=5, wait_ms=0)
    assert (got.payload, got.key) == (b"back", b"k")
    assert ("n", b"7") in got.headers


@run_with(with_sdk)
async def test_binary_value_comes_as_base64_with_an_attribute(sdk: Sdk) -> None:
    await sdk.node.create("plain", 1)
    await sdk.moves.gateway.publish(
        WHO, "plain", [OutgoingMessage(b"\xff\x00"), OutgoingMessage(None)]
    )
    binary, empty = await sdk.receive("http://b/0/plain")
    assert binary["Body"] == "/wA="
    assert binary["MessageAttributes"]["penstock-encoding"]["StringValue"] == "base64"
    assert empty["Body"] == ""
    assert binary["MessageId"] != empty["MessageId"]


@run_with(with_sdk)
async def test_queue_may_receive_with_another_group(sdk: Sdk) -> None:
    url = await sdk.create(PenstockGroup="workers")
    await sdk.send(url, "a")
    (got,) = await sdk.moves.gateway.receive(WHO, "jobs", "workers", records_max=1, wait_ms=0)
    assert got.payload == b"a"
    assert await sdk.bodies(url) == []
    configs = sdk.node.ctx.image.group_configs
    assert "workers" not in configs


@run_with(with_sdk)
async def test_default_group_has_no_backoff_unless_configured(sdk: Sdk) -> None:
    url = await sdk.create()
    await sdk.bodies(url)
    assert sdk.node.ctx.image.group_configs[DEFAULT_GROUP] == {BACKOFF: "0"}
