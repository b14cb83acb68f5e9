"""Parsing of forms of the query protocol."""

from xml.etree import ElementTree

import pytest

from penstock.gateway.sqs.errors import Fault
from penstock.gateway.sqs.protocols import (
    DEPTH_MAX,
    FIELDS_MAX,
    SNS_NAMESPACE,
    SQS_NAMESPACE,
    read_form,
    write_error,
    write_result,
)


def test_form_becomes_tables_lists_and_values_of_the_json_protocol() -> None:
    form = read_form(
        b"Action=SendMessage&MessageBody=a%20b%2Bc+d&AttributeName.1=All&AttributeName.2=X"
        b"&Attribute.1.Name=DelaySeconds&Attribute.1.Value=5"
        b"&Attribute.2.Name=Policy&Attribute.2.Value="
        b"&MessageAttribute.1.Name=n&MessageAttribute.1.Value.DataType=Number"
        b"&MessageAttribute.1.Value.StringValue=7"
        b"&Tag.1.Key=k&Tag.1.Value=v&TagKey.1=k"
    )
    assert form == {
        "Action": "SendMessage",
        "MessageBody": "a b+c d",
        "AttributeNames": ["All", "X"],
        "Attributes": {"DelaySeconds": "5", "Policy": ""},
        "MessageAttributes": {"n": {"DataType": "Number", "StringValue": "7"}},
        "Tags": {"k": "v"},
        "TagKeys": ["k"],
    }


def test_batch_entries_are_ordered_by_their_numbers() -> None:
    form = read_form(
        b"SendMessageBatchRequestEntry.10.Id=j&SendMessageBatchRequestEntry.2.Id=b"
        b"&SendMessageBatchRequestEntry.2.MessageAttribute.1.Name=x"
        b"&SendMessageBatchRequestEntry.2.MessageAttribute.1.Value.DataType=String"
        b"&SendMessageBatchRequestEntry.1.Id=a"
    )
    assert form == {
        "Entries": [
            {"Id": "a"},
            {"Id": "b", "MessageAttributes": {"x": {"DataType": "String"}}},
            {"Id": "j"},
        ]
    }


def test_empty_form_is_an_empty_request() -> None:
    assert read_form(b"") == {}
    assert read_form(b"1=a") == {"1": "a"}


def test_single_item_may_omit_its_number() -> None:
    assert read_form(b"AttributeName=All") == {"AttributeNames": ["All"]}


def test_sns_forms_have_members_and_entries() -> None:
    form = read_form(
        b"Version=2010-03-31&AttributeName=RawMessageDelivery"
        b"&Attributes.entry.1.key=A&Attributes.entry.1.value=b"
        b"&MessageAttributes.entry.1.Name=n&MessageAttributes.entry.1.Value.DataType=String"
        b"&Tags.member.1.Key=k&Tags.member.1.Value=v&TagKeys.member.1=k"
        b"&PublishBatchRequestEntries.member.1.Id=1"
    )
    assert form == {
        "Version": "2010-03-31",
        "AttributeName": "RawMessageDelivery",
        "Attributes": {"A": "b"},
        "MessageAttributes": {"n": {"DataType": "String"}},
        "Tags": {"k": "v"},
        "TagKeys": ["k"],
        "PublishBatchRequestEntries": [{"Id": "1"}],
    }


@pytest.mark.parametrize(
    "body",
    [
        b"a=%ff",
        b"a=\xff",
        b"a=1&a=2",
        b"a=1&a.b=2",
        b"a.b=2&a=1",
        b".".join([b"a"] * (DEPTH_MAX + 2)) + b"=1",
        b"&".join(b"a%d=" % n for n in range(FIELDS_MAX + 1)),
        b"Attribute.1.Value=5",
        b"Attribute.1=5",
    ],
    ids=range(9),
)
def test_malformed_form_is_refused(body: bytes) -> None:
    with pytest.raises(Fault) as refused:
        read_form(body)
    assert refused.value.name == "MalformedQueryString"


@pytest.mark.parametrize("name", ["MessageAttributeName", "MessageAttributeNames"])
def test_empty_list_is_a_name_without_value(name: str) -> None:
    assert read_form(f"{name}=".encode()) == {"MessageAttributeNames": []}
    assert read_form(b"Entries=&Attributes=") == {"Entries": [], "Attributes": {}}


def parsed(body: bytes, namespace: str) -> ElementTree.Element:
    return ElementTree.fromstring(body.replace(f' xmlns="{namespace}"'.encode(), b""))


def test_sqs_repeats_list_elements_and_writes_tables_as_pairs() -> None:
    body = write_result(
        "ReceiveMessage",
        {
            "Messages": [
                {
                    "Body": "<a>&\r\n",
                    "Attributes": {"SentTimestamp": "1"},
                    "MessageAttributes": {"b": {"DataType": "Binary", "BinaryValue": b"\x00"}},
                },
                {"Body": "b"},
            ]
        },
        "id-1",
        namespace=SQS_NAMESPACE,
    )
    root = parsed(body, SQS_NAMESPACE)
    assert root.tag == "ReceiveMessageResponse"
    assert [one.text for one in root.findall("ReceiveMessageResult/Message/Body")] == [
        "<a>&\r\n",
        "b",
    ]
    first = root.find("ReceiveMessageResult/Message")
    assert first is not None
    assert first.findtext("Attribute/Name") == "SentTimestamp"
    assert first.findtext("Attribute/Value") == "1"
    assert first.findtext("MessageAttribute/Value/BinaryValue") == "AA=="
    assert root.findtext("ResponseMetadata/RequestId") == "id-1"


def test_empty_result_has_its_elements() -> None:
    body = write_result("ReceiveMessage", {}, "id", namespace=SQS_NAMESPACE)
    result = parsed(body, SQS_NAMESPACE).find("ReceiveMessageResult")
    assert result is not None
    assert len(result) == 0


def test_batch_rows_are_named_after_the_action() -> None:
    body = write_result(
        "DeleteMessageBatch",
        {"Successful": [{"Id": "1"}], "Failed": [{"Id": "2", "SenderFault": True}]},
        "id",
        namespace=SQS_NAMESPACE,
    )
    result = parsed(body, SQS_NAMESPACE).find("DeleteMessageBatchResult")
    assert result is not None
    assert result.findtext("DeleteMessageBatchResultEntry/Id") == "1"
    assert result.findtext("BatchResultErrorEntry/SenderFault") == "true"


def test_sns_writes_lists_as_members_and_tables_as_entries() -> None:
    body = write_result(
        "GetTopicAttributes",
        {"Attributes": {"Owner": "1"}, "Topics": [{"TopicArn": "a"}, {"TopicArn": "b"}]},
        "id",
        namespace=SNS_NAMESPACE,
    )
    result = parsed(body, SNS_NAMESPACE).find("GetTopicAttributesResult")
    assert result is not None
    assert result.findtext("Attributes/entry/key") == "Owner"
    assert result.findtext("Attributes/entry/value") == "1"
    assert [one.text for one in result.findall("Topics/member/TopicArn")] == ["a", "b"]


def test_error_has_code_message_and_fault() -> None:
    body = write_error("Code", "why & how", "id", is_sender=False, namespace=SQS_NAMESPACE)
    root = parsed(body, SQS_NAMESPACE)
    assert [root.findtext(f"Error/{tag}") for tag in ("Type", "Code", "Message")] == [
        "Receiver",
        "Code",
        "why & how",
    ]
