"""Every SQS and SNS action with no, all, some and other hosts' permissions."""

import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from penstock.broker.api.route_row import Needs, Operation, ResourceType
from penstock.gateway.rest.permissions import ACTIONS, SNS_ACTIONS
from penstock.gateway.sns.actions import SNS_ACTIONS as SNS_TABLE
from penstock.gateway.sqs.actions import SQS_ACTIONS as SQS_TABLE
from tests.run_with import run_with
from tests.unit.gateway.http.granted_permissions import (
    ELSEWHERE,
    EVE,
    HOST,
    MISSING,
    TOPIC,
    GrantedPermissions,
    without_one,
)
from tests.unit.gateway.sqs.sdk import Sdk, Table, with_sdk

ACCOUNT = "000000000000"
GROUP = "sqs"
LETTERS = f"{TOPIC}.dlq"
DENIED = 403
Ask = Callable[[str], Awaitable[tuple[int, bytes]]]


class World:
    """Queue with a leased message, and an SNS topic with a subscription."""

    def __init__(self, sdk: Sdk) -> None:
        self.sdk = sdk
        self.receipt = ""
        self.handle = ""
        self.subscription = ""

    async def build(self) -> None:
        sdk = self.sdk
        url = await sdk.create(TOPIC)
        await sdk.send(url, "1", "2")
        (message,) = await sdk.receive(url, 1, VisibilityTimeout=3_600)
        self.receipt = message["ReceiptHandle"]
        await sdk.node.create(LETTERS, 1)
        await sdk.sns("CreateTopic", Name=TOPIC)
        arn = f"arn:aws:sns:us-east-1:{ACCOUNT}:{TOPIC}"
        queue = f"arn:aws:sqs:us-east-1:{ACCOUNT}:{TOPIC}"
        answer = await sdk.sns("Subscribe", TopicArn=arn, Protocol="sqs", Endpoint=queue)
        self.subscription = answer.findtext(".//SubscriptionArn") or ""

    def sqs(self, topic: str) -> dict[str, Any]:
        """Fields of all requests; each action ignores those it does not know."""
        entry = {"Id": "a", "ReceiptHandle": self.receipt, "VisibilityTimeout": 5}
        arn = f"arn:aws:sqs:us-east-1:{ACCOUNT}:"
        return {
            "QueueUrl": f"http://broker:8080/{ACCOUNT}/{topic}",
            "QueueName": topic,
            "ReceiptHandle": self.receipt,
            "VisibilityTimeout": 5,
            "MessageBody": "x",
            "Attributes": {"DelaySeconds": "1"},
            "AttributeNames": ["All"],
            "Tags": {"a": "b"},
            "TagKeys": ["a"],
            "Entries": [entry | {"MessageBody": "x"}],
            "SourceArn": arn + (LETTERS if topic == TOPIC else topic),
            "TaskHandle": self.handle or "no-such-task",
        }

    def sns(self, topic: str) -> dict[str, str]:
        arn = f"arn:aws:sns:us-east-1:{ACCOUNT}:{topic}"
        return {
            "Name": topic,
            "TopicArn": arn,
            "ResourceArn": arn,
            "SubscriptionArn": self.subscription.replace(TOPIC, topic),
            "AttributeName": "RawMessageDelivery",
            "AttributeValue": "true",
            "Protocol": "sqs",
            "Endpoint": f"arn:aws:sqs:us-east-1:{ACCOUNT}:{topic}",
            "Message": "x",
            "Tags.member.1.Key": "a",
            "Tags.member.1.Value": "b",
            "TagKeys.member.1": "a",
            "PublishBatchRequestEntries.member.1.Id": "a",
            "PublishBatchRequestEntries.member.1.Message": "x",
        }

    async def ask_sqs(self, action: str, topic: str) -> tuple[int, bytes]:
        values = self.sqs(topic)
        if action == "CreateQueue":
            values |= {"QueueName": "brand-new", "Attributes": {}}
        if action == "SendMessageBatch":
            values["Entries"] = [{"Id": "a", "MessageBody": "x"}]
        target = {"x-amz-target": f"AmazonSQS.{action}"}
        status, _, body = await self.sdk.post(json.dumps(values).encode(), target)
        failed = json.loads(body).get("Failed") if status == 200 else None
        # A batch reports denial per entry.
        return (DENIED, body) if failed and failed[0]["Code"] == "AccessDenied" else (status, body)

    async def ask_sns(self, action: str, topic: str) -> tuple[int, bytes]:
        fields = self.sns(topic)
        if action == "CreateTopic":
            fields["Name"] = "brand-new"
        if action == "SetTopicAttributes":
            fields |= {"AttributeName": "DisplayName", "AttributeValue": "x"}
        fields |= {"Action": action, "Version": "2010-03-31"}
        status, _, body = await self.sdk.post(urlencode(fields).encode(), {})
        return status, body.partition(b"<RequestId>")[0]


async def check(
    world: World, needs: tuple[Needs, ...], ask: Ask, *, named: str, letters: bool, hides: bool
) -> None:
    """`named`: the resource of the permissions; `hides`: True if the resource may be missing."""
    sdk = world.sdk
    lists = sdk.node.ctx.authorizer = GrantedPermissions()
    sdk.who, sdk.host = EVE, HOST
    status, body = await ask(TOPIC)
    if not needs:
        assert status == 200
        assert b"secret" not in body, "a name is revealed"
        return
    assert status == DENIED, body
    if hides:
        missing_status, missing = await ask(MISSING)
        expected = body.replace((LETTERS if letters else TOPIC).encode(), MISSING.encode())
        assert (missing_status, missing) == (status, expected), "it reveals what exists"
    names = {"topic": named, "group": GROUP}
    for some in without_one(needs):
        lists.give(some, **names)
        assert (await ask(TOPIC))[0] == DENIED, f"{some} is enough"
    lists.give(needs, ELSEWHERE, **names)
    assert (await ask(TOPIC))[0] == DENIED, "whatever the address"
    lists.give(needs, **names)
    status, body = await ask(TOPIC)
    assert status != DENIED, body


ARN_OF_LETTERS = ("StartMessageMoveTask", "ListMessageMoveTasks", "CancelMessageMoveTask")


@pytest.mark.parametrize("action", sorted(SQS_TABLE))
@run_with(with_sdk)
async def test_sqs_action_requires_the_permissions_of_its_row(sdk: Sdk, *, action: str) -> None:
    world = World(sdk)
    await world.build()
    is_move = action in ARN_OF_LETTERS
    if action == "CancelMessageMoveTask":
        source = f"arn:aws:sqs:us-east-1:{ACCOUNT}:{LETTERS}"
        url = f"http://broker:8080/{ACCOUNT}/{LETTERS}"
        await sdk.send(url, *(str(number) for number in range(10)))
        started: Table = await sdk(
            "StartMessageMoveTask",
            SourceArn=source,
            DestinationArn=f"arn:aws:sqs:us-east-1:{ACCOUNT}:{TOPIC}",
            MaxNumberOfMessagesPerSecond=1,
        )
        world.handle = started["TaskHandle"]
    named = LETTERS if is_move else "brand-new" if action == "CreateQueue" else TOPIC
    hides = action not in ("CreateQueue", "CancelMessageMoveTask")

    async def ask(topic: str) -> tuple[int, bytes]:
        return await world.ask_sqs(action, topic)

    await check(world, ACTIONS[action], ask, named=named, letters=is_move, hides=hides)


@pytest.mark.parametrize("action", sorted(SNS_TABLE))
@run_with(with_sdk)
async def test_sns_action_requires_the_permissions_of_its_row(sdk: Sdk, *, action: str) -> None:
    world = World(sdk)
    await world.build()
    named = "brand-new" if action == "CreateTopic" else TOPIC

    async def ask(topic: str) -> tuple[int, bytes]:
        return await world.ask_sns(action, topic)

    needs = SNS_ACTIONS[action]
    if action == "Subscribe":
        needs += (Needs(ResourceType.TOPIC, Operation.WRITE),)
    hides = action != "CreateTopic"
    await check(world, needs, ask, named=named, letters=False, hides=hides)
