"""Receipts: delete, release, extend, and invalid receipts."""

import asyncio
import json

import pytest

from tests.run_with import run_with
from tests.unit.gateway.sqs.sdk import Sdk, Table, failure, with_sdk


async def change(sdk: Sdk, url: str, message: Table, timeout_s: int) -> None:
    await sdk(
        "ChangeMessageVisibility",
        QueueUrl=url,
        ReceiptHandle=message["ReceiptHandle"],
        VisibilityTimeout=timeout_s,
    )


@run_with(with_sdk)
async def test_deleted_messages_are_not_redelivered(sdk: Sdk) -> None:
    url = await sdk.create(VisibilityTimeout="5")
    await sdk.send(url, "a")
    got = await sdk.receive(url)
    await sdk.delete(url, *got)
    await asyncio.sleep(10)
    assert await sdk.bodies(url) == []
    await sdk.delete(url, *got)  # Repeated deletion is not an error in SQS.


@run_with(with_sdk)
async def test_released_message_is_available_at_once(sdk: Sdk) -> None:
    url = await sdk.create()
    await sdk.send(url, "a")
    (message,) = await sdk.receive(url)
    await change(sdk, url, message, 0)
    (again,) = await sdk.receive(url)
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    failed = await failure(sdk.delete(url, message))
    assert (failed.name, failed.status) == ("InvalidParameterValue", 400)
    await sdk.delete(url, again)


@run_with(with_sdk)
async def test_visibility_timeout_can_be_extended(sdk: Sdk) -> None:
    url = await sdk.create(VisibilityTimeout="10")
    await sdk.send(url, "a")
    (message,) = await sdk.receive(url)
    await asyncio.sleep(9)
    await change(sdk, url, message, 60)
    await asyncio.sleep(59)
    assert await sdk.bodies(url) == []
    await sdk.delete(url, message)


@pytest.mark.parametrize("is_taken", [False, True])
@run_with(with_sdk)
async def test_expired_receipt_deletes_a_message_unless_leased_again(
    sdk: Sdk, *, is_taken: bool
) -> None:
    url = await sdk.create(VisibilityTimeout="5")
    await sdk.send(url, "a")
    (message,) = await sdk.receive(url)
    await asyncio.sleep(6)
    assert (await failure(change(sdk, url, message, 5))).name == "InvalidParameterValue"
    if is_taken:
        assert await sdk.bodies(url) == ["a"]
        failed = await failure(sdk.delete(url, message))
        assert failed.name == "InvalidParameterValue"
        assert failed.message.endswith("Reason: The receipt handle has expired.")
        await asyncio.sleep(6)
    else:
        await sdk.delete(url, message)
    assert await sdk.bodies(url) == ["a"] * is_taken


@run_with(with_sdk)
async def test_expired_receipt_of_a_fifo_queue_is_refused(sdk: Sdk) -> None:
    url = await sdk.create("a.fifo", VisibilityTimeout="5", ContentBasedDeduplication="TRUE")
    await sdk.send(url, "a", MessageGroupId="g")
    (message,) = await sdk.receive(url)
    await asyncio.sleep(6)
    failed = await failure(sdk.delete(url, message))
    assert failed.name == "InvalidParameterValue"
    receipt = message["ReceiptHandle"]
    assert failed.message == (
        f"Value {receipt} for parameter ReceiptHandle is invalid. Reason: The receipt handle "
        "has expired."
    )
    assert await sdk.bodies(url) == ["a"]


@run_with(with_sdk)
async def test_deleted_message_is_not_in_flight(sdk: Sdk) -> None:
    url = await sdk.create()
    await sdk.send(url, "a")
    (message,) = await sdk.receive(url)
    await sdk.delete(url, message)
    failed = await failure(change(sdk, url, message, 5))
    assert failed.name == "InvalidParameterValue"
    assert failed.message.endswith(
        "Reason: Message does not exist or is not available for visibility timeout change."
    )


@pytest.mark.parametrize("receipt", ["", "nonsense", "AAAA", "ä", "x" * 5000])
@run_with(with_sdk)
async def test_text_that_is_not_a_receipt_is_refused(sdk: Sdk, *, receipt: str) -> None:
    url = await sdk.create()
    message = {"ReceiptHandle": receipt}
    assert (await failure(sdk.delete(url, message))).name == "ReceiptHandleIsInvalid"
    assert (await failure(change(sdk, url, message, 1))).name == "ReceiptHandleIsInvalid"


@run_with(with_sdk)
async def test_receipt_of_another_queue_is_refused_and_the_message_stays(sdk: Sdk) -> None:
    url, other = await sdk.create(), await sdk.create("other")
    await sdk.send(url, "a")
    (message,) = await sdk.receive(url)
    assert (await failure(sdk.delete(other, message))).name == "ReceiptHandleIsInvalid"
    assert (await failure(change(sdk, other, message, 0))).name == "ReceiptHandleIsInvalid"
    assert await sdk.bodies(url) == []
    await sdk.delete(url, message)


@pytest.mark.parametrize("timeout_s", [-1, 43_201])
@run_with(with_sdk)
async def test_invalid_timeout_is_refused_and_the_lease_stays(sdk: Sdk, *, timeout_s: int) -> None:
    url = await sdk.create()
    await sdk.send(url, "a")
    (message,) = await sdk.receive(url)
    failed = await failure(change(sdk, url, message, timeout_s))
    assert failed.name == "InvalidParameterValue"
    await sdk.delete(url, message)


@run_with(with_sdk)
async def test_batch_settles_each_message_on_its_own(sdk: Sdk) -> None:
    url = await sdk.create()
    await sdk.send(url, "a", "b", "c")
    handles = [message["ReceiptHandle"] for message in await sdk.receive(url)]
    rows = [{"Id": str(n), "ReceiptHandle": h} for n, h in enumerate([*handles[:2], "bad"])]
    answer = await sdk("DeleteMessageBatch", QueueUrl=url, Entries=rows)
    assert [row["Id"] for row in answer["Successful"]] == ["0", "1"]
    assert [(row["Id"], row["Code"]) for row in answer["Failed"]] == [
        ("2", "ReceiptHandleIsInvalid")
    ]
    changes = [
        {"Id": "ok", "ReceiptHandle": handles[2], "VisibilityTimeout": 0},
        {"Id": "long", "ReceiptHandle": handles[2], "VisibilityTimeout": 50_000},
    ]
    answer = await sdk("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=changes)
    assert [row["Id"] for row in answer["Successful"]] == ["ok"]
    assert [row["Code"] for row in answer["Failed"]] == ["InvalidParameterValue"]
    assert await sdk.bodies(url) == ["c"]
    for action in ("DeleteMessageBatch", "ChangeMessageVisibilityBatch"):
        failed = await failure(sdk(action, QueueUrl=url, Entries=[]))
        assert failed.name == "EmptyBatchRequest"


@run_with(with_sdk)
async def test_message_is_dead_lettered_after_the_maximum_receives(sdk: Sdk) -> None:
    dead = await sdk.create("dead")
    arn = await sdk.arn(dead)
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    url = await sdk.create(RedrivePolicy=policy, VisibilityTimeout="5")
    one = {"DataType": "Number", "StringValue": "1"}
    await sdk.send(url, "poison", MessageAttributes={"n": one})
    assert await sdk.bodies(url) == ["poison"]
    (again,) = await sdk.receive(url, WaitTimeSeconds=20)
    await change(sdk, url, again, 0)
    assert await sdk.bodies(url, WaitTimeSeconds=10) == []
    (letter,) = await sdk.receive(dead, WaitTimeSeconds=20)
    assert letter["Body"] == "poison"
    assert letter["MessageId"] == again["MessageId"]
    assert letter["MessageAttributes"]["n"] == one
    assert letter["MessageAttributes"]["penstock-dlq-attempts"]["StringValue"] == "2"
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == await sdk.arn(url)


@run_with(with_sdk)
async def test_message_without_redrive_policy_is_redelivered_without_limit(sdk: Sdk) -> None:
    url = await sdk.create()
    await sdk.send(url, "a")
    for count in range(1, 31):
        (message,) = await sdk.receive(url, VisibilityTimeout=0)
        assert message["Attributes"]["ApproximateReceiveCount"] == str(count)
