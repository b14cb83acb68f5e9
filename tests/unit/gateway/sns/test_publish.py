"""Publishing to several queues: raw or wrapped, filtered, in order, in batches."""

import json

import pytest

from tests.run_with import run_with
from tests.unit.gateway.sns.test_subscriptions import TOPIC, subscribe
from tests.unit.gateway.sqs.sdk import Sdk, failure, with_sdk

ATTRIBUTE = {
    "MessageAttributes__entry__1__Name": "kind",
    "MessageAttributes__entry__1__Value__DataType": "String",
    "MessageAttributes__entry__1__Value__StringValue": "big",
}


async def publish(sdk: Sdk, message: str, topic: str = TOPIC, **more: str) -> str:
    answer = await sdk.sns("Publish", TopicArn=topic, Message=message, **more)
    return answer.findtext("PublishResult/MessageId") or ""


@run_with(with_sdk)
async def test_every_subscribed_queue_gets_the_message(sdk: Sdk) -> None:
    await sdk.sns("CreateTopic", Name="news")
    wrapped, raw = await sdk.create("wrapped"), await sdk.create("raw")
    arn = await subscribe(sdk, await sdk.arn(wrapped))
    await subscribe(sdk, await sdk.arn(raw), RawMessageDelivery="true")
    message_id = await publish(sdk, "hello", Subject="greeting", **ATTRIBUTE)
    (one,) = await sdk.receive(raw)
    assert one["Body"] == "hello"
    assert one["MessageAttributes"]["kind"]["StringValue"] == "big"
    (other,) = await sdk.receive(wrapped)
    shown = json.loads(other["Body"])
    assert shown.pop("Timestamp").endswith("Z")
    assert arn in shown.pop("UnsubscribeURL")
    assert shown == {
        "Type": "Notification",
        "MessageId": message_id,
        "TopicArn": TOPIC,
        "Subject": "greeting",
        "Message": "hello",
        "MessageAttributes": {"kind": {"Type": "String", "Value": "big"}},
    }
    assert "MessageAttributes" not in other


@run_with(with_sdk)
async def test_filter_policy_keeps_messages_from_a_queue(sdk: Sdk) -> None:
    await sdk.sns("CreateTopic", Name="news")
    raw = {"RawMessageDelivery": "true"}
    some, body = await sdk.create("some"), await sdk.create("body")
    await subscribe(sdk, await sdk.arn(some), FilterPolicy='{"kind": ["big"]}', **raw)
    await subscribe(
        sdk,
        await sdk.arn(body),
        FilterPolicy='{"n": [{"numeric": [">", 1]}]}',
        FilterPolicyScope="MessageBody",
        **raw,
    )
    await publish(sdk, "a", **ATTRIBUTE)
    await publish(sdk, '{"n": 2}')
    await publish(sdk, '{"n": 1}')
    assert await sdk.bodies(some) == ["a"]
    assert await sdk.bodies(body) == ['{"n": 2}']


@run_with(with_sdk)
async def test_publish_without_subscribers_succeeds_and_skips_deleted_queues(
    sdk: Sdk,
) -> None:
    await sdk.sns("CreateTopic", Name="news")
    assert await publish(sdk, "no subscribers")
    gone, there = await sdk.create("gone"), await sdk.create("there")
    for url in (gone, there):
        await subscribe(sdk, await sdk.arn(url), RawMessageDelivery="true")
    await sdk("DeleteQueue", QueueUrl=gone)
    assert await publish(sdk, "a")
    assert await sdk.bodies(there) == ["a"]
    assert "gone" not in sdk.node.ctx.image.topics


@run_with(with_sdk)
async def test_message_structure_selects_the_text_for_sqs(sdk: Sdk) -> None:
    await sdk.sns("CreateTopic", Name="news")
    url = await sdk.create("q")
    await subscribe(sdk, await sdk.arn(url), RawMessageDelivery="true")
    await publish(sdk, '{"default": "d", "sqs": "s"}', MessageStructure="json")
    await publish(sdk, '{"default": "d"}', MessageStructure="json")
    assert sorted(await sdk.bodies(url)) == ["d", "s"]


@run_with(with_sdk)
async def test_fifo_topic_keeps_order_and_drops_duplicates(sdk: Sdk) -> None:
    await sdk.sns("CreateTopic", Name="news.fifo")
    topic = TOPIC + ".fifo"
    ordered, plain = await sdk.create("q.fifo"), await sdk.create("q")
    for url in (ordered, plain):
        await subscribe(sdk, await sdk.arn(url), topic, RawMessageDelivery="true")
    for number in (1, 2, 2):
        await publish(
            sdk, str(number), topic, MessageGroupId="g", MessageDeduplicationId=f"d{number}"
        )
    seen: list[str] = []
    while got := await sdk.receive(ordered):
        seen += [message["Body"] for message in got]
        await sdk.delete(ordered, *got)
    assert seen == ["1", "2"]
    assert len(await sdk.receive(plain)) == 3
    no_group = await failure(publish(sdk, "x", topic, MessageDeduplicationId="d"))
    no_id = await failure(publish(sdk, "x", topic, MessageGroupId="g"))
    assert no_group.code == no_id.code == "InvalidParameter"


@run_with(with_sdk)
async def test_batch_reports_each_message(sdk: Sdk) -> None:
    await sdk.sns("CreateTopic", Name="news")
    url = await sdk.create("q")
    await subscribe(sdk, await sdk.arn(url), RawMessageDelivery="true")
    entry = "PublishBatchRequestEntries__member__"
    rows: dict[str, str] = {}
    for at, message in enumerate(("a", "", "c"), 1):
        rows |= {f"{entry}{at}__Id": str(at), f"{entry}{at}__Message": message}
    answer = await sdk.sns("PublishBatch", TopicArn=TOPIC, **rows)
    result = answer.find("PublishBatchResult")
    assert result is not None
    assert [row.text for row in result.findall("Successful/member/Id")] == ["1", "3"]
    assert [row.text for row in result.findall("Failed/member/Id")] == ["2"]
    assert sorted(await sdk.bodies(url)) == ["a", "c"]
    empty = await failure(sdk.sns("PublishBatch", TopicArn=TOPIC))
    assert empty.code == "EmptyBatchRequest"


@pytest.mark.parametrize(
    ("message", "more"),
    [
        ("", {}),
        ("x" * 262_145, {}),
        ("a", {"Subject": "two\nlines"}),
        ("a", {"Subject": "x" * 101}),
        ("a", {"MessageStructure": "json"}),
        ('{"sqs": 1}', {"MessageStructure": "json"}),
        ('{"email": "x"}', {"MessageStructure": "json"}),
        ("a", {"MessageDeduplicationId": "d"}),
        ("a", ATTRIBUTE | {"MessageAttributes__entry__1__Value__DataType": "Number"}),
    ],
    ids=range(9),
)
@run_with(with_sdk)
async def test_invalid_messages_are_refused(
    sdk: Sdk, *, message: str, more: dict[str, str]
) -> None:
    await sdk.sns("CreateTopic", Name="news")
    failed = await failure(publish(sdk, message, **more))
    assert (failed.code, failed.status) == ("InvalidParameter", 400)
