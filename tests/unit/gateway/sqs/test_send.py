"""Sending: bodies, attributes, groups, deduplication, delays, batches."""

import asyncio
from hashlib import sha256
from typing import Any

import pytest

from penstock.cluster.configs import config_changes
from penstock.cluster.configs.config_changes import Alteration, Op
from penstock.cluster.configs.effective_configs import Scope
from penstock.gateway.sqs.queue_attributes import write_table
from tests.run_with import run_with
from tests.unit.gateway.sqs.sdk import Sdk, failure, with_sdk

TEXT = {"DataType": "String", "StringValue": "v"}


@run_with(with_sdk)
async def test_message_round_trips(sdk: Sdk) -> None:
    url = await sdk.create()
    attributes = {
        "text": {"DataType": "String", "StringValue": "ü"},
        "number": {"DataType": "Number.int", "StringValue": "-1.5e3"},
        "bytes": {"DataType": "Binary.png", "BinaryValue": "AAEC"},
    }
    (sent,) = await sdk.send(url, "körper\r\n", MessageAttributes=attributes)
    (message,) = await sdk.receive(url)
    assert message["Body"] == "körper\r\n"
    assert message["MessageAttributes"] == attributes
    assert message["MessageId"] == sent["MessageId"]
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"MessageBody": ""}, "MissingParameter"),
        ({}, "MissingParameter"),
        ({"MessageBody": "\x00"}, "InvalidMessageContents"),
        ({"MessageBody": "\ufffe"}, "InvalidMessageContents"),
        ({"MessageBody": "x" * 1025}, "InvalidParameterValue"),
        ({"MessageBody": "x", "DelaySeconds": 901}, "InvalidParameterValue"),
        ({"MessageBody": "x", "DelaySeconds": -1}, "InvalidParameterValue"),
        ({"MessageBody": "x", "DelaySeconds": "soon"}, "InvalidParameterValue"),
        ({"MessageBody": "x", "MessageDeduplicationId": "d"}, "InvalidParameterValue"),
        ({"MessageBody": "x", "MessageGroupId": "a b"}, "InvalidParameterValue"),
        ({"MessageBody": 7}, "InvalidParameterValue"),
    ],
)
@run_with(with_sdk)
async def test_invalid_messages_are_refused(sdk: Sdk, *, values: dict[str, Any], name: str) -> None:
    url = await sdk.create(MaximumMessageSize="1024")
    assert (await failure(sdk("SendMessage", QueueUrl=url, **values))).name == name
    assert await sdk.bodies(url) == []


@pytest.mark.parametrize(
    "attributes",
    [
        {"a": {"DataType": "Text", "StringValue": "v"}},
        {"a": {"DataType": "String"}},
        {"a": {"DataType": "String", "StringValue": ""}},
        {"a": {"DataType": "Binary", "StringValue": "v"}},
        {"a": {"DataType": "Binary", "BinaryValue": "no base64!"}},
        {"a": {"DataType": "Number", "StringValue": "seven"}},
        {"AWS.a": TEXT},
        {"amazon.a": TEXT},
        {"penstock-priority": TEXT},
        {"message_id": TEXT},
        {"a..b": TEXT},
        {"a b": TEXT},
        {f"a{n}": TEXT for n in range(11)},
    ],
    ids=range(13),
)
@run_with(with_sdk)
async def test_invalid_attributes_are_refused(sdk: Sdk, *, attributes: dict[str, Any]) -> None:
    url = await sdk.create()
    failed = await failure(sdk.send(url, "x", MessageAttributes=attributes))
    assert failed.name == "InvalidParameterValue"


@run_with(with_sdk)
async def test_attributes_count_toward_the_message_size(sdk: Sdk) -> None:
    url = await sdk.create(MaximumMessageSize="1024")
    await sdk.send(url, "x" * 1024)
    await sdk.send(url, "x" * 1016, MessageAttributes={"a": TEXT})
    failed = await failure(sdk.send(url, "x" * 1017, MessageAttributes={"a": TEXT}))
    assert failed.name == "InvalidParameterValue"


@run_with(with_sdk)
async def test_largest_message_of_sqs_is_accepted(sdk: Sdk) -> None:
    url = await sdk.create()
    body = "x" * 1_048_576
    await sdk.send(url, body)
    assert await sdk.bodies(url) == [body]


@run_with(with_sdk)
async def test_message_delay_overrides_the_queue_delay(sdk: Sdk) -> None:
    url = await sdk.create(DelaySeconds="10")
    await sdk.send(url, "now", DelaySeconds=0)
    await sdk.send(url, "sooner", DelaySeconds=5)
    await sdk.send(url, "later")
    loop = asyncio.get_running_loop()
    start, seen = loop.time(), []
    for _ in range(3):
        (body,) = await sdk.bodies(url, WaitTimeSeconds=20)
        seen.append((body, round(loop.time() - start)))
    assert seen == [("now", 0), ("sooner", 5), ("later", 10)]


# -- FIFO -------------------------------------------------------------------------------------


@run_with(with_sdk)
async def test_fifo_queue_requires_group_and_deduplication_id(sdk: Sdk) -> None:
    url = await sdk.create("jobs.fifo", FifoQueue="true")
    assert (await failure(sdk.send(url, "a"))).name == "MissingParameter"
    failed = await failure(sdk.send(url, "a", MessageGroupId="g"))
    assert failed.name == "InvalidParameterValue"
    one = {"MessageGroupId": "g", "MessageDeduplicationId": "d", "DelaySeconds": 1}
    assert (await failure(sdk.send(url, "a", **one))).name == "InvalidParameterValue"


@run_with(with_sdk)
async def test_same_deduplication_id_within_five_minutes_is_delivered_once(sdk: Sdk) -> None:
    url = await sdk.create("jobs.fifo", ContentBasedDeduplication="true")
    await sdk.send(url, "a", "a", MessageGroupId="g")
    await sdk.send(url, "b", MessageGroupId="h", MessageDeduplicationId="1")
    await sdk.send(url, "c", MessageGroupId="i", MessageDeduplicationId="1")
    got = await sdk.receive(url)
    assert [message["Body"] for message in got] == ["a", "b"]
    assert got[0]["Attributes"]["MessageDeduplicationId"] == sha256(b"a").hexdigest()
    assert got[0]["Attributes"]["MessageGroupId"] == "g"
    await sdk.delete(url, *got)
    await asyncio.sleep(301)
    await sdk.send(url, "a", MessageGroupId="g")
    assert await sdk.bodies(url) == ["a"]


HIGH_THROUGHPUT = {
    "DeduplicationScope": "messageGroup",
    "FifoThroughputLimit": "perMessageGroupId",
}


async def send_to_groups(sdk: Sdk, url: str, *groups: str) -> list[str]:
    """Sends a message with the same deduplication id to each group; returns the bodies received."""
    for group in groups:
        await sdk.send(url, group, MessageGroupId=group, MessageDeduplicationId="same")
    got = await sdk.receive(url)
    await sdk.delete(url, *got)
    return [message["Body"] for message in got]


@run_with(with_sdk)
async def test_message_group_scope_deduplicates_within_the_group(sdk: Sdk) -> None:
    url = await sdk.create("jobs.fifo", FifoQueue="true", **HIGH_THROUGHPUT)
    assert HIGH_THROUGHPUT.items() <= (await sdk.attributes(url)).items()
    assert await send_to_groups(sdk, url, "g", "h", "g") == ["g", "h"]
    assert await send_to_groups(sdk, url, "h", "i") == ["i"]
    # Equal attributes are not a conflict, different ones are.
    await sdk.create("jobs.fifo", FifoQueue="true", **HIGH_THROUGHPUT)
    failed = await failure(sdk.create("jobs.fifo", DeduplicationScope="queue"))
    assert failed.name == "QueueNameExists"


@run_with(with_sdk)
async def test_deduplication_scope_can_be_changed_while_in_use(sdk: Sdk) -> None:
    url = await sdk.create("jobs.fifo", FifoQueue="true")
    assert await send_to_groups(sdk, url, "g", "h") == ["g"]
    await sdk("SetQueueAttributes", QueueUrl=url, Attributes=HIGH_THROUGHPUT)
    # An earlier duplicate stays one; messages sent from now on are not.
    assert await send_to_groups(sdk, url, "g", "i") == ["i"]
    back = {"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}
    await sdk("SetQueueAttributes", QueueUrl=url, Attributes=back)
    assert back.items() <= (await sdk.attributes(url)).items()
    assert await send_to_groups(sdk, url, "j") == []


@run_with(with_sdk)
async def test_scope_stored_by_an_older_version_applies(sdk: Sdk) -> None:
    url = await sdk.create("jobs.fifo", FifoQueue="true")

    async def store(**stored: str) -> None:
        edit = config_changes.altering(
            Scope.TOPIC, [Alteration("sqs.attributes", Op.SET, write_table(stored))]
        )
        ctx = sdk.node.ctx
        await ctx.reached(await config_changes.alter_topic(ctx.admin.store, "jobs.fifo", edit))

    await store(DeduplicationScope="messageGroup", Policy='"DeduplicationScope":"queue"')
    assert (await sdk.attributes(url))["DeduplicationScope"] == "messageGroup"
    await sdk("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "0"})
    assert (await sdk.attributes(url))["DeduplicationScope"] == "messageGroup"
    assert await send_to_groups(sdk, url, "g", "h") == ["g", "h"]
    await store(Policy='"DeduplicationScope":"messageGroup"')
    assert (await sdk.attributes(url))["DeduplicationScope"] == "queue"
    assert await send_to_groups(sdk, url, "i") == []


@run_with(with_sdk)
async def test_sequence_numbers_grow(sdk: Sdk) -> None:
    url = await sdk.create("jobs.fifo", ContentBasedDeduplication="true")
    sent = await sdk.send(url, *"abc", MessageGroupId="g")
    numbers = [one["SequenceNumber"] for one in sent]
    assert numbers == sorted(set(numbers))
    assert all(len(number) == 20 for number in numbers)


# -- batches ----------------------------------------------------------------------------------


def entries(*ids: str) -> list[dict[str, Any]]:
    return [{"Id": id_, "MessageBody": f"m{id_}"} for id_ in ids]


@run_with(with_sdk)
async def test_batch_reports_each_message(sdk: Sdk) -> None:
    url = await sdk.create()
    rows = entries("1", "2", "3")
    rows[1]["DelaySeconds"] = 1000
    answer = await sdk("SendMessageBatch", QueueUrl=url, Entries=rows)
    assert [row["Id"] for row in answer["Successful"]] == ["1", "3"]
    (failed,) = answer["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == (
        "2",
        "InvalidParameterValue",
        True,
    )
    got = await sdk.receive(url)
    assert {message["MessageId"] for message in got} == {
        row["MessageId"] for row in answer["Successful"]
    }


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([], "EmptyBatchRequest"),
        (entries(*map(str, range(11))), "TooManyEntriesInBatchRequest"),
        (entries("1", "1"), "BatchEntryIdsNotDistinct"),
        (entries("a b"), "InvalidBatchEntryId"),
        (entries("x" * 81), "InvalidBatchEntryId"),
        ([{"Id": "a", "MessageBody": "x" * 600_000}, {"Id": "b", "MessageBody": "x" * 600_000}],
         "BatchRequestTooLong"),
    ],
    ids=["empty", "too many", "twice", "space", "long", "too large"],
)  # fmt: skip
@run_with(with_sdk)
async def test_invalid_batches_are_refused_as_a_whole(
    sdk: Sdk, *, rows: list[dict[str, Any]], name: str
) -> None:
    url = await sdk.create()
    failed = await failure(sdk("SendMessageBatch", QueueUrl=url, Entries=rows))
    assert failed.name == name
    assert failed.code == f"AWS.SimpleQueueService.{name}"
    assert await sdk.bodies(url) == []
