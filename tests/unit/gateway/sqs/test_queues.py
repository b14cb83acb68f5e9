"""Queue administration: create, find, list, describe, change, tag, purge, delete."""

import asyncio
import json

import pytest

from penstock.broker.api.route_row import Operation, ResourceType
from tests.run_with import run_with
from tests.unit.gateway.sqs.sdk import Sdk, failure, with_sdk

MISSING = "http://broker:8080/000000000000/missing"


@run_with(with_sdk)
async def test_queue_is_a_topic_and_creation_is_idempotent(sdk: Sdk) -> None:
    url = await sdk.create(VisibilityTimeout="45")
    assert url == "http://broker:8080/000000000000/jobs"
    assert sdk.node.ctx.image.topics["jobs"].configs["sqs.visibility.timeout.seconds"] == "45"
    assert await sdk.create() == url
    assert await sdk.create(VisibilityTimeout="45") == url
    failed = await failure(sdk.create(VisibilityTimeout="46"))
    assert (failed.name, failed.code) == ("QueueNameExists", "QueueAlreadyExists")
    assert (await sdk("GetQueueUrl", QueueName="jobs"))["QueueUrl"] == url


@run_with(with_sdk)
async def test_attributes_have_defaults_and_can_be_changed(sdk: Sdk) -> None:
    url = await sdk.create()
    shown = await sdk.attributes(url)
    assert (
        shown.items()
        >= {
            "DelaySeconds": "0",
            "MaximumMessageSize": "1048576",
            "MessageRetentionPeriod": "345600",
            "QueueArn": "arn:aws:sqs:us-east-1:000000000000:jobs",
            "ReceiveMessageWaitTimeSeconds": "0",
            "VisibilityTimeout": "30",
            "ApproximateNumberOfMessages": "0",
        }.items()
    )
    assert "FifoQueue" not in shown
    changed = {"DelaySeconds": "5", "MessageRetentionPeriod": "60", "Policy": '{"a":1}'}
    await sdk("SetQueueAttributes", QueueUrl=url, Attributes=changed)
    assert (await sdk.attributes(url)).items() >= changed.items()
    assert sdk.node.ctx.image.topics["jobs"].configs["retention.ms"] == "60000"
    await sdk("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": ""})
    assert "Policy" not in await sdk.attributes(url)
    assert list(await sdk.attributes(url, "DelaySeconds")) == ["DelaySeconds"]


@pytest.mark.parametrize(
    ("attributes", "name"),
    [
        ({"VisibilityTimeout": "43201"}, "InvalidAttributeValue"),
        ({"VisibilityTimeout": "-1"}, "InvalidAttributeValue"),
        ({"VisibilityTimeout": "ten"}, "InvalidAttributeValue"),
        ({"DelaySeconds": "901"}, "InvalidAttributeValue"),
        ({"MaximumMessageSize": "1023"}, "InvalidAttributeValue"),
        ({"MessageRetentionPeriod": "59"}, "InvalidAttributeValue"),
        ({"ReceiveMessageWaitTimeSeconds": "21"}, "InvalidAttributeValue"),
        ({"RedrivePolicy": "no json"}, "InvalidAttributeValue"),
        ({"RedrivePolicy": '{"maxReceiveCount": 3}'}, "InvalidAttributeValue"),
        ({"RedriveAllowPolicy": '{"redrivePermission": "x"}'}, "InvalidAttributeValue"),
        ({"ContentBasedDeduplication": "true"}, "InvalidAttributeName"),
        ({"Colour": "red"}, "InvalidAttributeName"),
        ({"FifoQueue": "true"}, "InvalidParameterValue"),
    ],
)
@run_with(with_sdk)
async def test_invalid_attributes_are_refused(
    sdk: Sdk, *, attributes: dict[str, str], name: str
) -> None:
    assert (await failure(sdk.create(**attributes))).name == name
    assert "jobs" not in sdk.node.ctx.image.topics


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a" * 81, "ä", ".fifo", "a.fifo.fifo"])
@run_with(with_sdk)
async def test_names_invalid_in_sqs_are_refused(sdk: Sdk, *, name: str) -> None:
    assert (await failure(sdk.create(name))).name == "InvalidParameterValue"


@run_with(with_sdk)
async def test_every_action_reports_an_unknown_queue(sdk: Sdk) -> None:
    calls = [
        sdk("GetQueueUrl", QueueName="missing"),
        sdk("SendMessage", QueueUrl=MISSING, MessageBody="a"),
        sdk("SendMessageBatch", QueueUrl=MISSING, Entries=[{"Id": "1", "MessageBody": "a"}]),
        sdk("ReceiveMessage", QueueUrl=MISSING),
        sdk("DeleteMessage", QueueUrl=MISSING, ReceiptHandle="r"),
        sdk("ChangeMessageVisibility", QueueUrl=MISSING, ReceiptHandle="r", VisibilityTimeout=1),
        sdk("GetQueueAttributes", QueueUrl=MISSING, AttributeNames=["All"]),
        sdk("SetQueueAttributes", QueueUrl=MISSING, Attributes={"DelaySeconds": "1"}),
        sdk("PurgeQueue", QueueUrl=MISSING),
        sdk("DeleteQueue", QueueUrl=MISSING),
        sdk("TagQueue", QueueUrl=MISSING, Tags={"a": "b"}),
        sdk("ListQueueTags", QueueUrl=MISSING),
        sdk("ListDeadLetterSourceQueues", QueueUrl=MISSING),
    ]
    for call in calls:
        failed = await failure(call)
        assert failed.name == "QueueDoesNotExist"
        assert failed.code == "AWS.SimpleQueueService.NonExistentQueue"
        assert failed.status == 400
    assert "missing" not in sdk.node.ctx.image.topics


@run_with(with_sdk)
async def test_queues_are_listed_by_prefix_and_paginated(sdk: Sdk) -> None:
    for name in ("a1", "a2", "a3", "b1"):
        await sdk.create(name)
    assert len((await sdk("ListQueues"))["QueueUrls"]) == 4
    seen: list[str] = []
    token: dict[str, str] = {}
    for _ in range(2):
        answer = await sdk("ListQueues", QueueNamePrefix="a", MaxResults=2, **token)
        seen += [url.rpartition("/")[2] for url in answer["QueueUrls"]]
        token = {"NextToken": answer["NextToken"]} if "NextToken" in answer else {}
    assert (seen, token) == (["a1", "a2", "a3"], {})
    assert await sdk("ListQueues", QueueNamePrefix="c") == {}
    assert (await failure(sdk("ListQueues", MaxResults=0))).name == "InvalidParameterValue"
    wrong = sdk("ListQueues", MaxResults=1, NextToken="ä")
    assert (await failure(wrong)).name == "InvalidParameterValue"


@run_with(with_sdk)
async def test_tags_are_set_shown_and_removed(sdk: Sdk) -> None:
    answer = await sdk("CreateQueue", QueueName="jobs", tags={"team": "a", "cost": "b"})
    url = answer["QueueUrl"]
    await sdk("TagQueue", QueueUrl=url, Tags={"team": "c", "more": ""})
    assert (await sdk("ListQueueTags", QueueUrl=url))["Tags"] == {
        "cost": "b",
        "more": "",
        "team": "c",
    }
    await sdk("UntagQueue", QueueUrl=url, TagKeys=["cost", "more", "none"])
    assert (await sdk("ListQueueTags", QueueUrl=url))["Tags"] == {"team": "c"}
    many = {f"tag{n}": "" for n in range(51)}
    failed = await failure(sdk("TagQueue", QueueUrl=url, Tags=many))
    assert failed.name == "InvalidParameterValue"


@run_with(with_sdk)
async def test_purge_finishes_existing_messages_only(sdk: Sdk) -> None:
    url = await sdk.create()
    await sdk.send(url, "a", "b", "c")
    await sdk.send(url, "late", DelaySeconds=1)
    (held,) = await sdk.receive(url, 1)
    await sdk("PurgeQueue", QueueUrl=url)
    assert await sdk.bodies(url) == []
    await asyncio.sleep(40)
    assert await sdk.bodies(url) == []
    await sdk.delete(url, held)
    await sdk.send(url, "new")
    assert await sdk.bodies(url) == ["new"]


@run_with(with_sdk)
async def test_long_poll_survives_a_purge_and_ends_with_the_queue(sdk: Sdk) -> None:
    url = await sdk.create()
    polling = asyncio.ensure_future(sdk.bodies(url, WaitTimeSeconds=20))
    await asyncio.sleep(1)
    await sdk("PurgeQueue", QueueUrl=url)
    await sdk.send(url, "a")
    assert await polling == ["a"]
    polling = asyncio.ensure_future(sdk.bodies(url, WaitTimeSeconds=20))
    await asyncio.sleep(1)
    await sdk("DeleteQueue", QueueUrl=url)
    assert (await failure(polling)).name == "QueueDoesNotExist"


@run_with(with_sdk)
async def test_deleted_queue_frees_its_name(sdk: Sdk) -> None:
    url = await sdk.create()
    await sdk.send(url, "a")
    await sdk("DeleteQueue", QueueUrl=url)
    assert (await failure(sdk("GetQueueUrl", QueueName="jobs"))).name == "QueueDoesNotExist"
    await sdk.create(DelaySeconds="0")
    assert await sdk.bodies(url) == []


@run_with(with_sdk)
async def test_depths_count_visible_in_flight_and_delayed_messages(sdk: Sdk) -> None:
    url = await sdk.create()
    await sdk.send(url, "a", "b", "c")
    names = ("", "NotVisible", "Delayed")

    async def depths() -> list[str]:
        shown = await sdk.attributes(url)
        return [shown[f"ApproximateNumberOfMessages{name}"] for name in names]

    assert await depths() == ["3", "0", "0"]
    (held,) = await sdk.receive(url, 1)
    await sdk.send(url, "d", DelaySeconds=60)
    await asyncio.sleep(0.1)
    assert await depths() == ["2", "1", "1"]
    await sdk.delete(url, held)
    assert await depths() == ["2", "0", "1"]


@run_with(with_sdk)
async def test_redrive_policy_needs_a_queue_that_allows_it(sdk: Sdk) -> None:
    url, dead = await sdk.create(), await sdk.create("dead")
    arn = await sdk.arn(dead)

    async def redrive(target: str, count: object = 3) -> None:
        policy = json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": count})
        await sdk("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": policy})

    assert (await failure(redrive(arn + "x"))).name == "InvalidParameterValue"
    assert (await failure(redrive(arn, 0))).name == "InvalidParameterValue"
    assert (await failure(redrive(arn, 1001))).name == "InvalidParameterValue"
    assert (await failure(redrive("dead"))).name == "InvalidParameterValue"
    deny = {"RedriveAllowPolicy": '{"redrivePermission":"denyAll"}'}
    await sdk("SetQueueAttributes", QueueUrl=dead, Attributes=deny)
    assert (await failure(redrive(arn))).name == "InvalidParameterValue"
    allow = {
        "RedriveAllowPolicy": json.dumps(
            {"redrivePermission": "byQueue", "sourceQueueArns": [await sdk.arn(url)]}
        )
    }
    await sdk("SetQueueAttributes", QueueUrl=dead, Attributes=allow)
    await redrive(arn, "3")
    shown = json.loads((await sdk.attributes(url))["RedrivePolicy"])
    assert shown == {"deadLetterTargetArn": arn, "maxReceiveCount": 3}
    sdk.node.rights.deny(Operation.WRITE, ResourceType.TOPIC, "dead")
    assert (await failure(redrive(arn))).name == "InvalidParameterValue", (
        "the caller may not write to it"
    )
    sources = await sdk("ListDeadLetterSourceQueues", QueueUrl=dead)
    assert sources["queueUrls"] == [url]
    await sdk("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert "RedrivePolicy" not in await sdk.attributes(url)


@run_with(with_sdk)
async def test_actions_without_permission_are_denied(sdk: Sdk) -> None:
    url = await sdk.create()
    rights = sdk.node.rights
    for operation, call in (
        (Operation.WRITE, sdk("SendMessage", QueueUrl=url, MessageBody="a")),
        (Operation.READ, sdk("ReceiveMessage", QueueUrl=url)),
        (Operation.DELETE, sdk("DeleteQueue", QueueUrl=url)),
        (Operation.ALTER_CONFIGS, sdk("TagQueue", QueueUrl=url, Tags={"a": "b"})),
    ):
        rights.deny(operation, ResourceType.TOPIC, "jobs")
        failed = await failure(call)
        assert (failed.name, failed.status) == ("AccessDenied", 403)
    rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "jobs")
    assert await sdk("ListQueues") == {}
