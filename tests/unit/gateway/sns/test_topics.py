"""SNS topics: create, describe, tag, list, delete."""

from tests.run_with import run_with
from tests.unit.gateway.sqs.sdk import Sdk, failure, with_sdk

ARN = "arn:aws:sns:us-east-1:000000000000:news"


@run_with(with_sdk)
async def test_topic_is_created_once_and_stored_in_the_metadata(sdk: Sdk) -> None:
    made = await sdk.sns("CreateTopic", Name="news")
    assert made.findtext("CreateTopicResult/TopicArn") == ARN
    await sdk.sns("CreateTopic", Name="news")
    assert list(sdk.node.ctx.image.fanouts) == ["news"]
    assert (await sdk.node.store.get("/sns/news")) is not None
    other = sdk.sns(
        "CreateTopic",
        Name="news",
        Attributes__entry__1__key="DisplayName",
        Attributes__entry__1__value="x",
    )
    assert (await failure(other)).code == "InvalidParameter"
    await sdk.sns("DeleteTopic", TopicArn=ARN)
    await sdk.sns("DeleteTopic", TopicArn=ARN)
    assert not sdk.node.ctx.image.fanouts
    failed = await failure(sdk.sns("GetTopicAttributes", TopicArn=ARN))
    assert (failed.code, failed.status) == ("NotFound", 404)


@run_with(with_sdk)
async def test_topic_list_is_paginated(sdk: Sdk) -> None:
    for number in range(120):
        await sdk.sns("CreateTopic", Name=f"t{number:03}")
    first = await sdk.sns("ListTopics")
    token = first.findtext("ListTopicsResult/NextToken") or ""
    second = await sdk.sns("ListTopics", NextToken=token)
    seen = [
        member.text or ""
        for page in (first, second)
        for member in page.findall("ListTopicsResult/Topics/member/TopicArn")
    ]
    assert [arn.rpartition(":")[2] for arn in seen] == [f"t{n:03}" for n in range(120)]


@run_with(with_sdk)
async def test_attributes_and_tags_can_be_changed(sdk: Sdk) -> None:
    await sdk.sns("CreateTopic", Name="news", Tags__member__1__Key="a", Tags__member__1__Value="b")
    await sdk.sns(
        "SetTopicAttributes", TopicArn=ARN, AttributeName="DisplayName", AttributeValue="N"
    )
    shown = await sdk.sns("GetTopicAttributes", TopicArn=ARN)
    entries = shown.findall("GetTopicAttributesResult/Attributes/entry")
    table = {entry.findtext("key"): entry.findtext("value") for entry in entries}
    assert (table["DisplayName"], table["SubscriptionsConfirmed"]) == ("N", "0")
    await sdk.sns(
        "TagResource", ResourceArn=ARN, Tags__member__1__Key="c", Tags__member__1__Value="d"
    )
    await sdk.sns("UntagResource", ResourceArn=ARN, TagKeys__member__1="a")
    tags = await sdk.sns("ListTagsForResource", ResourceArn=ARN)
    assert [
        (tag.findtext("Key"), tag.findtext("Value"))
        for tag in tags.findall("ListTagsForResourceResult/Tags/member")
    ] == [("c", "d")]
    wrong = sdk.sns(
        "SetTopicAttributes", TopicArn=ARN, AttributeName="FifoTopic", AttributeValue="true"
    )
    assert (await failure(wrong)).code == "InvalidParameter"


@run_with(with_sdk)
async def test_names_invalid_in_sns_are_refused(sdk: Sdk) -> None:
    for name in ("", "a b", "a.b", "x" * 257):
        assert (await failure(sdk.sns("CreateTopic", Name=name))).code == "InvalidParameter"
    for arn in ("news", "arn:aws:sqs:r:0:news", "arn:aws:sns:r:0:", ARN + ":x"):
        failed = await failure(sdk.sns("GetTopicAttributes", TopicArn=arn))
        assert failed.code == "InvalidParameter"
