"""Subscriptions of queues: subscribe, change, list, unsubscribe."""

import json

from penstock.broker.api.route_row import Operation, ResourceType
from tests.run_with import run_with
from tests.unit.gateway.sqs.sdk import Sdk, failure, with_sdk

TOPIC = "arn:aws:sns:us-east-1:000000000000:news"


async def subscribe(sdk: Sdk, endpoint: str, topic: str = TOPIC, **attributes: str) -> str:
    fields: dict[str, str] = {}
    for at, (name, value) in enumerate(attributes.items(), 1):
        fields |= {f"Attributes__entry__{at}__key": name, f"Attributes__entry__{at}__value": value}
    made = await sdk.sns("Subscribe", TopicArn=topic, Protocol="sqs", Endpoint=endpoint, **fields)
    return made.findtext("SubscribeResult/SubscriptionArn") or ""


@run_with(with_sdk)
async def test_queue_subscribes_once_and_can_unsubscribe(sdk: Sdk) -> None:
    await sdk.sns("CreateTopic", Name="news")
    endpoint = await sdk.arn(await sdk.create("q"))
    arn = await subscribe(sdk, endpoint, RawMessageDelivery="true")
    assert arn.startswith(TOPIC + ":")
    assert await subscribe(sdk, endpoint, RawMessageDelivery="true") == arn
    assert await subscribe(sdk, endpoint) == arn
    different = await failure(subscribe(sdk, endpoint, RawMessageDelivery="false"))
    assert different.code == "InvalidParameter"
    for action, more in (
        ("ListSubscriptions", {}),
        ("ListSubscriptionsByTopic", {"TopicArn": TOPIC}),
    ):
        listed = await sdk.sns(action, **more)
        (row,) = listed.findall(f"{action}Result/Subscriptions/member")
        assert row.findtext("Endpoint") == endpoint
        assert row.findtext("SubscriptionArn") == arn
        sdk.node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "q")
        listed = await sdk.sns(action, **more)
        assert not listed.findall(f"{action}Result/Subscriptions/member"), (
            "the topic has no subscriptions"
        )
        sdk.node.rights.denied.clear()
    await sdk.sns("Unsubscribe", SubscriptionArn=arn)
    await sdk.sns("Unsubscribe", SubscriptionArn=arn)
    failed = await failure(sdk.sns("GetSubscriptionAttributes", SubscriptionArn=arn))
    assert failed.code == "NotFound"


@run_with(with_sdk)
async def test_subscription_attributes_can_be_changed(sdk: Sdk) -> None:
    await sdk.sns("CreateTopic", Name="news")
    arn = await subscribe(sdk, await sdk.arn(await sdk.create("q")))
    await sdk.sns(
        "SetSubscriptionAttributes",
        SubscriptionArn=arn,
        AttributeName="FilterPolicy",
        AttributeValue='{"a": ["b"]}',
    )
    shown = await sdk.sns("GetSubscriptionAttributes", SubscriptionArn=arn)
    entries = shown.findall("GetSubscriptionAttributesResult/Attributes/entry")
    table = {entry.findtext("key"): entry.findtext("value") for entry in entries}
    assert table["FilterPolicy"] == '{"a": ["b"]}'
    assert table["RawMessageDelivery"] == "false"


async def change(sdk: Sdk, arn: str, name: str, value: str) -> None:
    await sdk.sns(
        "SetSubscriptionAttributes", SubscriptionArn=arn, AttributeName=name, AttributeValue=value
    )


async def shown(sdk: Sdk, arn: str) -> dict[str | None, str | None]:
    answer = await sdk.sns("GetSubscriptionAttributes", SubscriptionArn=arn)
    entries = answer.findall("GetSubscriptionAttributesResult/Attributes/entry")
    return {entry.findtext("key"): entry.findtext("value") for entry in entries}


@run_with(with_sdk)
async def test_scope_is_shown_with_a_policy_and_limits_it(sdk: Sdk) -> None:
    await sdk.sns("CreateTopic", Name="news")
    endpoint = await sdk.arn(await sdk.create("q"))
    arn = await subscribe(sdk, endpoint)
    nested = '{"object": {"key": [{"prefix": "auto-"}]}}'
    unnested = "Filter policy scope MessageAttributes does not support nested filter policy"
    failed = await failure(change(sdk, arn, "FilterPolicy", nested))
    assert failed.message == f"Invalid parameter: {unnested}"
    other = await sdk.arn(await sdk.create("r"))
    failed = await failure(subscribe(sdk, other, FilterPolicy=nested))
    assert failed.message == f"Invalid parameter: Attributes Reason: {unnested}"
    await change(sdk, arn, "FilterPolicyScope", "MessageBody")
    assert "FilterPolicyScope" not in await shown(sdk, arn)
    await change(sdk, arn, "FilterPolicy", nested)
    table = await shown(sdk, arn)
    assert (table["FilterPolicy"], table["FilterPolicyScope"]) == (nested, "MessageBody")
    failed = await failure(change(sdk, arn, "FilterPolicyScope", "MessageAttributes"))
    assert failed.message == f"Invalid parameter: {unnested}"
    failed = await failure(change(sdk, arn, "FilterPolicyScope", "RandomValue"))
    assert failed.message == (
        "Invalid parameter: FilterPolicyScope: Invalid value [RandomValue]. Please use either "
        "MessageBody or MessageAttributes"
    )
    await change(sdk, arn, "FilterPolicy", "")
    assert not {"FilterPolicy", "FilterPolicyScope"} & set(await shown(sdk, arn))


@run_with(with_sdk)
async def test_policy_without_scope_applies_to_attributes(sdk: Sdk) -> None:
    await sdk.sns("CreateTopic", Name="news")
    endpoint = await sdk.arn(await sdk.create("q"))
    arn = await subscribe(sdk, endpoint, FilterPolicy='{"a": ["b"]}')
    assert (await shown(sdk, arn))["FilterPolicyScope"] == "MessageAttributes"


@run_with(with_sdk)
async def test_invalid_subscriptions_are_refused(sdk: Sdk) -> None:
    await sdk.sns("CreateTopic", Name="news")
    endpoint = await sdk.arn(await sdk.create("q"))
    fifo = await sdk.arn(await sdk.create("q.fifo"))
    http = sdk.sns("Subscribe", TopicArn=TOPIC, Protocol="http", Endpoint="http://a")
    assert (await failure(http)).code == "InvalidParameter"
    for call in (
        subscribe(sdk, "q"),
        subscribe(sdk, fifo),
        subscribe(sdk, endpoint, FilterPolicy="{"),
        subscribe(sdk, endpoint, RawMessageDelivery="perhaps"),
        subscribe(sdk, endpoint, Colour="red"),
    ):
        assert (await failure(call)).code == "InvalidParameter"
    assert (await failure(subscribe(sdk, endpoint + "x"))).code == "NotFound"
    assert (await failure(subscribe(sdk, endpoint, TOPIC + "x"))).code == "NotFound"
    assert not sdk.node.ctx.image.fanouts["news"].subscriptions


@run_with(with_sdk)
async def test_topics_without_describe_permission_are_not_listed(sdk: Sdk) -> None:
    await sdk.sns("CreateTopic", Name="news")
    await subscribe(sdk, await sdk.arn(await sdk.create("q")))
    sdk.node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "news")
    assert (await sdk.sns("ListTopics")).find("ListTopicsResult/Topics/member") is None
    listed = await sdk.sns("ListSubscriptions")
    assert listed.find("ListSubscriptionsResult/Subscriptions/member") is None


@run_with(with_sdk)
async def test_topic_record_above_the_store_limit_is_refused(sdk: Sdk) -> None:
    await sdk.sns("CreateTopic", Name="news")
    policy = json.dumps({"a": ["x" * 200_000]})
    for number in range(5):
        endpoint = await sdk.arn(await sdk.create(f"q{number}"))
        await subscribe(sdk, endpoint, FilterPolicy=policy)
    endpoint = await sdk.arn(await sdk.create("last"))
    failed = await failure(subscribe(sdk, endpoint, FilterPolicy=policy))
    assert failed.code == "InvalidParameter"
    assert len(sdk.node.ctx.image.fanouts["news"].subscriptions) == 5
